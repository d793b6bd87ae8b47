"""Arguments of a tool as an HTTP request: each value in the place and the style that the document gives it.

Law: a value never leaves its place. Path values are encoded and cannot climb, header values have no line breaks, names of forms
are quoted. Spec: https://spec.openapis.org/oas/v3.1.1.html#style-values and RFC 6570.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from linkspan.errors import ToolError
from linkspan.openapi.reading import ApiBody, ApiOperation, ApiParameter
from linkspan.types.base import JSON, JSONObject, is_array, is_object

__all__ = ["ApiRequest", "write_request"]

_RESERVED: Final = ":/?@!$'()*,;"
"""What `allowReserved` leaves as it is; not what would end a value."""
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")
_HEADER: Final = re.compile(r"[\t\x20-\x7e\xa0-\U0010ffff]*")
_MEDIA: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")
_DECODINGS: Final = 4


class ApiRequest(msgspec.Struct, frozen=True):
    """One request, below the base URL of an API."""

    method: str
    path: str
    """Encoded; it begins with `/`."""
    query: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{self.query}" if self.query else self.path


def write_request(operation: ApiOperation, given: Mapping[str, JSON]) -> ApiRequest:
    """Return the request for a call. Raises: ToolError for a value that its place cannot take."""
    path, query, cookies = operation.path, [operation.query] if operation.query else [], list[str]()
    headers: dict[str, str] = {"accept": "application/json, */*;q=0.5"}
    members: JSONObject = {}
    whole: list[JSON] = []
    for argument in operation.arguments:
        parameter = argument.parameter
        if argument.name not in given:
            continue
        value = given[argument.name]
        if parameter is None:
            if argument.member is not None:
                members[argument.member] = value
            else:
                whole.append(value)
        elif parameter.place == "path":
            path = path.replace(f"{{{parameter.name}}}", _in_path(parameter, value, argument.name))
        elif value is None:
            continue  # there is no way to write it
        elif parameter.place == "query":
            query += _in_query(parameter, value)
        elif parameter.place == "header":
            headers[parameter.name.lower()] = _in_header(parameter, value, argument.name)
        else:
            cookies += _in_query(parameter, value)
    if cookies:
        headers["cookie"] = "; ".join(cookies)
    body = b""
    if operation.body is not None and (whole or members or operation.body.required):
        media, body = _body(operation.body, whole[0] if whole else members)
        headers["content-type"] = media
    written = "/".join(quote(each, safe="%-._~!$&'()*+,;=:@") for each in path.split("/"))
    if "{" in path or not written.startswith("/"):
        raise ToolError(f"{operation.name}: an argument of the path is missing")
    return ApiRequest(operation.method, written, "&".join(query), headers, body)


def _text(value: JSON) -> str:
    """Return a plain value as a text."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _quoted(value: JSON, safe: str = "") -> str:
    return quote(_text(value), safe=safe, errors="strict")


# Paths.


def check_segment(text: str, name: str) -> None:
    """Refuse a value that a server, or a proxy before it, could read as a way to another path. Raises: ToolError."""
    found = text
    for _ in range(_DECODINGS):
        if _CONTROLS.search(found):
            raise ToolError(f"{name} must not have control characters")
        if any(
            each.partition(";")[0].strip() in (".", "..") for each in re.split(r"[/\\\u2215\u2044\uff0f\uff3c]", found)
        ):
            raise ToolError(f"{name} must not have a segment of dots, which would lead to another path")
        decoded = unquote(found)
        if decoded == found:
            return
        found = decoded
    raise ToolError(f"{name} is percent-encoded more than {_DECODINGS - 1} times: write it as it is")


def _in_path(parameter: ApiParameter, value: JSON, name: str) -> str:
    parts = list(_flat(value))
    for each in parts:
        check_segment(each, name)
    own = quote(parameter.name, safe="")
    if parameter.as_json:
        written = _quoted(msgspec.json.encode(value).decode())
    elif is_object(value):
        pairs = [(_quoted(key), _quoted(each)) for key, each in value.items()]
        written = _joined_pairs(pairs, parameter, own)
    elif is_array(value):
        items = [_quoted(each) for each in value]
        written = _joined_items(items, parameter, own)
    else:
        one = _quoted(value)
        written = {"label": f".{one}", "matrix": f";{own}={one}"}.get(parameter.style, one)
    if written.strip(".") == "":
        raise ToolError(f"{name} must not be empty")
    return written


def _joined_items(items: list[str], parameter: ApiParameter, own: str) -> str:
    if parameter.style == "label":
        return "." + ("." if parameter.explode else ",").join(items)
    if parameter.style == "matrix":
        return "".join(f";{own}={each}" for each in items) if parameter.explode else f";{own}={','.join(items)}"
    return ",".join(items)


def _joined_pairs(pairs: list[tuple[str, str]], parameter: ApiParameter, own: str) -> str:
    joined = [f"{key}={value}" for key, value in pairs]
    flat = ",".join(part for pair in pairs for part in pair)
    if parameter.style == "label":
        return "." + (".".join(joined) if parameter.explode else flat)
    if parameter.style == "matrix":
        return "".join(f";{each}" for each in joined) if parameter.explode else f";{own}={flat}"
    return ",".join(joined) if parameter.explode else flat


def _flat(value: JSON) -> Iterator[str]:
    """Yield all plain values inside a value, and the names of members."""
    waiting: list[JSON] = [value]
    while waiting:
        each = waiting.pop()
        if is_object(each):
            yield from each
            waiting += each.values()
        elif is_array(each):
            waiting += each
        else:
            yield _text(each)


# Queries and cookies.


def _in_query(parameter: ApiParameter, value: JSON) -> list[str]:
    safe = _RESERVED if parameter.keeps_reserved and parameter.place == "query" else ""
    own = quote(parameter.name, safe="[]" if parameter.place == "query" else "")
    if parameter.as_json:
        return [f"{own}={_quoted(msgspec.json.encode(value).decode(), safe)}"]
    if parameter.style == "deepObject":
        return _brackets(own, value, safe) if is_object(value) or is_array(value) else [f"{own}={_quoted(value, safe)}"]
    if is_array(value):
        items = [_quoted(each, safe) for each in value]
        if parameter.explode:
            return [f"{own}={each}" for each in items]
        between = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(parameter.style, ",")
        return [f"{own}={between.join(items)}"]
    if is_object(value):
        pairs = [(_quoted(key), _quoted(each, safe)) for key, each in value.items() if each is not None]
        if parameter.explode:
            return [f"{key}={each}" for key, each in pairs]
        between = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}.get(parameter.style, ",")
        return [f"{own}={between.join(part for pair in pairs for part in pair)}"]
    return [f"{own}={_quoted(value, safe)}"]


def _brackets(name: str, value: JSON, safe: str = "") -> list[str]:
    """Return `name[key]=value` pairs, for members inside members, too."""
    if is_object(value):
        return [pair for key, each in value.items() for pair in _brackets(f"{name}[{_quoted(key)}]", each, safe)]
    if is_array(value):
        plain = not any(is_object(each) or is_array(each) for each in value)
        return [
            pair
            for place, each in enumerate(value)
            for pair in _brackets(f"{name}[]" if plain else f"{name}[{place}]", each, safe)
        ]
    return [] if value is None else [f"{name}={_quoted(value, safe)}"]


def _in_header(parameter: ApiParameter, value: JSON, name: str) -> str:
    if parameter.as_json:
        written = msgspec.json.encode(value).decode()
    elif is_array(value):
        written = ",".join(map(_text, value))
    elif is_object(value):
        between = "=" if parameter.explode else ","
        written = ",".join(f"{key}{between}{_text(each)}" for key, each in value.items())
    else:
        written = _text(value)
    if not _HEADER.fullmatch(written):
        raise ToolError(f"{name} must not have line breaks or control characters: it is sent as a header")
    return written.strip()


# Bodies.


def _body(body: ApiBody, value: JSON) -> tuple[str, bytes]:
    if body.kind == "json":
        return body.media_type, msgspec.json.encode(value)
    if body.kind == "form":
        return body.media_type, "&".join(_form(body, value)).encode()
    if body.kind == "multipart":
        return _multipart(body, value if is_object(value) else {"body": value})
    if body.kind == "text":
        return body.media_type, _text(value).encode()
    return body.media_type, _bytes(value, "body")


def _form(body: ApiBody, value: JSON) -> Iterator[str]:
    for name, each in value.items() if is_object(value) else ():
        own, style = _plus(name), body.encoding.get(name)
        style = style if is_object(style) else {}
        if each is None:
            continue
        if is_object(each) or (is_array(each) and (style.get("style") == "deepObject" or any(map(is_object, each)))):
            if str(style.get("contentType", "")).endswith("json"):
                yield f"{own}={_plus(_text(each))}"
            else:
                yield from (pair.replace("%20", "+") for pair in _brackets(own, each))
        elif is_array(each):
            items = [_plus(_text(item)) for item in each]
            yield from (
                [f"{own}={','.join(items)}"] if style.get("explode") is False else [f"{own}={item}" for item in items]
            )
        else:
            yield f"{own}={_plus(_text(each))}"


def _plus(text: str) -> str:
    return quote(text, safe=" ", errors="strict").replace(" ", "+")


def _multipart(body: ApiBody, value: JSONObject) -> tuple[str, bytes]:
    mark = secrets.token_hex(16)
    written = bytearray()
    for name, each in value.items():
        style = body.encoding.get(name)
        wanted: JSON = style.get("contentType") if is_object(style) else None
        for item in each if is_array(each) else [each]:
            if item is None:
                continue
            filename, media, data = _part(item, body.parts.get(name), wanted, name)
            place = f'form-data; name="{_parameter_text(name)}"'
            if filename is not None:
                place += f'; filename="{_parameter_text(filename)}"'
            head = f"--{mark}\r\nContent-Disposition: {place}\r\n"
            head += f"Content-Type: {media}\r\n\r\n" if media else "\r\n"
            written += head.encode() + data + b"\r\n"
    written += f"--{mark}--\r\n".encode()
    return f"{body.media_type.partition(';')[0].strip()}; boundary={mark}", bytes(written)


def _part(item: JSON, schema: JSON, wanted: JSON, name: str) -> tuple[str | None, str | None, bytes]:
    """Return the name of a file, the media type and the data of one part."""
    media = wanted.partition(",")[0].strip() if isinstance(wanted, str) else ""
    media = media if _MEDIA.fullmatch(media) else ""
    if is_binary(schema) and isinstance(item, str):
        return name, media or "application/octet-stream", _bytes(item, name)
    if is_object(item) or is_array(item):
        return None, "application/json", msgspec.json.encode(item)
    return None, media or None, _text(item).encode()


def is_binary(schema: JSON) -> bool:
    """Return whether a value is a file, in base64; in an array, too."""
    if not is_object(schema):
        return False
    choices: JSON = schema.get("anyOf") or schema.get("oneOf")
    if is_array(choices):
        return any(map(is_binary, choices))
    return schema.get("contentEncoding") == "base64" or is_binary(schema.get("items"))


def _parameter_text(text: str) -> str:
    """Return a name for `Content-Disposition`, as browsers write it: nothing in it ends it."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22").replace("\0", "%00")


def _bytes(value: JSON, name: str) -> bytes:
    try:
        return b64decode(value if isinstance(value, str) else "", validate=True)
    except (Base64Error, ValueError):
        raise ToolError(f"{name} must be base64") from None
