"""A server made of a document: it reads a request by the document alone, and returns the arguments that it must have come from.

Written apart from what writes requests, from the tables of the specification, so that two mistakes would have to agree.
"""

from __future__ import annotations

import json
import random
from base64 import b64encode
from email import message_from_bytes
from email.message import Message
from typing import Any
from urllib.parse import unquote, unquote_plus

from linkspan.errors import ToolError
from linkspan.openapi.reading import ApiOperation, ApiParameter
from linkspan.openapi.requests import ApiRequest, write_request

WORDS = ("blue", "black brown", "a/b", "c&d=e", "100%", "é", "x,y", "a+b", "#1", "{id}", "q?")


def value_of(schema: Any, root: Any, rng: random.Random, depth: int = 0) -> Any:
    """Return a value that a schema describes, more or less: its kinds count, and not its bounds."""
    if not isinstance(schema, dict) or depth > 4:
        return rng.choice(WORDS)
    if isinstance(pointer := schema.get("$ref"), str):
        return value_of(root["$defs"][pointer.rpartition("/")[2]], root, rng, depth + 1)
    for key in ("oneOf", "anyOf", "allOf"):
        if schema.get(key):
            return value_of(rng.choice(schema[key]), root, rng, depth + 1)
    if "enum" in schema or "const" in schema:
        return rng.choice(schema.get("enum") or [schema["const"]])
    if schema.get("contentEncoding") == "base64":
        return b64encode(rng.randbytes(rng.randrange(20))).decode()
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        members = schema.get("properties") or {"R": {"type": "integer"}, "G": {"type": "string"}}
        chosen = rng.sample(list(members), min(len(members), 4))
        return {name: value_of(members[name], root, rng, depth + 1) for name in chosen}
    if kind == "array":
        return [value_of(schema.get("items", {}), root, rng, depth + 1) for _ in range(rng.randrange(1, 4))]
    plain = {"integer": rng.randrange(-5, 10**9), "number": rng.choice((0.5, -3, 1e21)), "boolean": rng.random() < 0.5}
    return None if kind == "null" else plain.get(kind, rng.choice(WORDS))


def arguments_of(operation: ApiOperation, rng: random.Random) -> dict[str, Any]:
    schema = operation.input_schema
    required = schema.get("required", ())
    return {
        name: value_of(each, schema, rng)
        for name, each in schema["properties"].items()
        if name in required or rng.random() < 0.6
    }


def difference(operation: ApiOperation, rng: random.Random) -> str | None:
    """Make a call, and return how what arrives differs from what the document has of it; None if it does not."""
    given = arguments_of(operation, rng)
    try:
        request = write_request(operation, given)
    except ToolError as problem:
        climbs = any(each in str(problem) for each in ("must not be empty", "sent as a header", "segment of dots"))
        return None if climbs else f"{operation.name}: {problem}"
    try:
        return _difference(operation, given, request)
    except (LookupError, ValueError) as problem:
        return f"{operation.name}: {problem!r} in {request.target}"


def _difference(operation: ApiOperation, given: dict[str, Any], request: ApiRequest) -> str | None:
    template, parts = operation.path.split("/"), request.path.split("/")
    if request.method != operation.method or len(template) != len(parts):
        return f"{operation.name}: {request.method} {request.path} does not fit {operation.path}"
    used: set[str] = set()
    query = [pair for pair in request.query.removeprefix(operation.query).split("&") if pair]
    members: dict[str, Any] = {}
    for argument in operation.arguments:
        if argument.name not in given:
            continue
        wanted, parameter = given[argument.name], argument.parameter
        if parameter is None:
            members[argument.member or "body"] = wanted
            continue
        if wanted is None and parameter.place != "path":
            continue
        if parameter.place == "query":
            mine = of_query(parameter, wanted)
            if any(each not in query for each in mine):
                return f"{operation.name}: {parameter.name}: {mine} is not in {query}"
            used.update(mine)
        elif parameter.place == "header":
            if request.headers[parameter.name.lower()] != of_simple(parameter, wanted).strip():
                return f"{operation.name}: header {parameter.name}"
        elif parameter.place == "cookie":
            if not all(each in request.headers["cookie"].split("; ") for each in of_query(parameter, wanted)):
                return f"{operation.name}: cookie {parameter.name}"
        elif parameter.style == "simple" and not parameter.as_json:
            place = next(number for number, part in enumerate(template) if f"{{{parameter.name}}}" in part)
            before, after = template[place].split(f"{{{parameter.name}}}")
            if "{" not in before + after and unquote(parts[place]) != unquote(before) + of_simple(
                parameter, wanted
            ) + unquote(after):
                return f"{operation.name}: path {parameter.name}: {parts[place]} for {wanted!r}"
    if left := [each for each in query if each not in used]:
        return f"{operation.name}: {left} was sent, and the document has no place for it"
    return of_body(operation, members, request) if members else None


def text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encoded(value: Any) -> str:
    """Percent-encode all that is not unreserved (RFC 3986, section 2.3)."""
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
    return "".join(chr(each) if each in plain else f"%{each:02X}" for each in number(value).encode())


def number(value: Any) -> str:
    return "1e21" if value == 1e21 and isinstance(value, float) else text(value)


def of_simple(parameter: ApiParameter, value: Any) -> str:
    if parameter.as_json:
        return text(value)
    if isinstance(value, list):
        return ",".join(map(number, value))
    if isinstance(value, dict):
        return ",".join(f"{k}{'=' if parameter.explode else ','}{number(v)}" for k, v in value.items())
    return number(value)


def of_query(parameter: ApiParameter, value: Any) -> list[str]:
    """Return the pairs that the table of styles has for a value."""
    name = encoded(parameter.name).replace("%5B", "[").replace("%5D", "]")
    if parameter.as_json or not isinstance(value, list | dict):
        return [f"{name}={encoded(value)}"] if not parameter.keeps_reserved else [f"{name}={reserved(value)}"]
    if parameter.style == "deepObject":
        return nested(name, value)
    write = reserved if parameter.keeps_reserved else encoded
    if isinstance(value, list):
        items = [write(each) for each in value]
        between = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}[parameter.style]
        return [f"{name}={each}" for each in items] if parameter.explode else [f"{name}={between.join(items)}"]
    pairs = [(encoded(key), write(each)) for key, each in value.items() if each is not None]
    if parameter.explode:
        return [f"{key}={each}" for key, each in pairs]
    between = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}[parameter.style]
    return [f"{name}={between.join(part for pair in pairs for part in pair)}"]


def reserved(value: Any) -> str:
    return "".join(each if each in ":/?@!$'()*,;" else encoded(each) for each in number(value))


def nested(name: str, value: Any) -> list[str]:
    if isinstance(value, dict):
        return [pair for key, each in value.items() for pair in nested(f"{name}[{encoded(key)}]", each)]
    if isinstance(value, list):
        plain = all(not isinstance(each, list | dict) for each in value)
        return [pair for place, each in enumerate(value) for pair in nested(f"{name}[{'' if plain else place}]", each)]
    return [] if value is None else [f"{name}={encoded(value)}"]


def of_body(operation: ApiOperation, members: dict[str, Any], request: ApiRequest) -> str | None:
    body = operation.body
    assert body is not None
    whole = (
        members["body"]
        if any(each.parameter is None and each.member is None for each in operation.arguments)
        else members
    )
    if body.kind == "json":
        return None if json.loads(request.body) == whole else f"{operation.name}: body {request.body!r}"
    if body.kind == "text":
        return None if request.body.decode() == text(whole) else f"{operation.name}: text {request.body!r}"
    if body.kind == "binary":
        return None if b64encode(request.body).decode() == whole else f"{operation.name}: bytes"
    if not isinstance(whole, dict):
        return None
    if body.kind == "form":
        pairs = [pair.partition("=")[::2] for pair in request.body.decode().split("&") if pair]
        names = {unquote_plus(name).partition("[")[0] for name, _ in pairs}
        sent = {name for name, each in whole.items() if each not in (None, [], {}) and not empty(each)}
        plain = [(name, each) for name, each in whole.items() if not isinstance(each, list | dict | None)]
        there = [(unquote_plus(name), unquote_plus(each)) for name, each in pairs]
        wrong = [name for name, each in plain if (name, number(each)) not in there]
        return (
            None
            if not wrong and sent <= names | sent and not names - whole.keys()
            else f"{operation.name}: {pairs} for {whole}"
        )
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    found: list[Any] = message_from_bytes(head + request.body).get_payload() or []
    found = [each for each in found if isinstance(each, Message)]
    wanted = [
        item for each in whole.values() for item in (each if isinstance(each, list) else [each]) if item is not None
    ]
    return None if len(found) == len(wanted) else f"{operation.name}: {len(found)} parts for {len(wanted)} values"


def empty(value: Any) -> bool:
    """Return whether a value has nothing that a form could hold."""
    if isinstance(value, dict):
        return all(map(empty, value.values()))
    return all(map(empty, value)) if isinstance(value, list) else value is None
