"""Responses of an API as results of tools: JSON as structured content, texts as texts, others as blocks, failures as `isError`.

Law: a response is data. Its type decides how it is read, its size is bounded before, and an error shows its text, cut, and
nothing of the request but method and path.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from linkspan.openapi.schemas import plain_text
from linkspan.server.tools import ToolResponse
from linkspan.text import clip
from linkspan.types.base import (
    JSON,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    is_object,
)
from linkspan.wire.redaction import redact

__all__ = ["ApiReply", "read_reply"]

MAX_ERROR: Final = 2_000
"""Characters of the text of a failure."""
_TELLING: Final = ("detail", "title", "message", "error_description", "error", "errors", "msg", "code")
"""Members of JSON that describe a failure (RFC 9457, and habits)."""
_HEAD: Final = ("content-type", "content-length", "etag", "last-modified", "location")
_CHARSET: Final = re.compile(r"charset=[\"']?([A-Za-z0-9._-]{1,40})", re.IGNORECASE)


class ApiReply(msgspec.Struct, frozen=True):
    """A whole response."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


def read_reply(reply: ApiReply, method: str, path: str, uri: str, secrets: Sequence[str] = ()) -> ToolResponse:
    """Return the result of a tool. `uri` names a body that is neither JSON nor text; `secrets` are shown in no error."""
    media = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not 200 <= reply.status < 300:
        return ToolResponse([redact(_failure(reply, method, path, media), secrets)], is_error=True)
    if method == "HEAD":
        return ToolResponse(structured_content={each: reply.headers[each] for each in _HEAD if each in reply.headers})
    if not reply.body:
        place = reply.headers.get("location", "")
        return ToolResponse([f"Done. It is at {plain_text(place, 500)}" if place else "Done."])
    if media == "application/json" or media.endswith("+json") or not media:
        return _json(reply, method, path, media)
    if media.startswith("text/") or media.endswith(("/xml", "+xml", "/yaml", "/x-ndjson", "/javascript")):
        return ToolResponse([_text(reply)])
    data = b64encode(reply.body).decode()
    kind = media.partition("/")[0]
    if kind == "image" and media != "image/svg+xml":
        return ToolResponse([ImageContent(data, media)])
    if kind == "audio":
        return ToolResponse([AudioContent(data, media)])
    return ToolResponse([EmbeddedResource(BlobResourceContents(uri, data, media))])


def _json(reply: ApiReply, method: str, path: str, media: str) -> ToolResponse:
    try:
        value: JSON = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if not media:
            return ToolResponse([_text(reply)])
        return ToolResponse([f"{method} {path}: the response is not the JSON that its type announces"], is_error=True)
    return ToolResponse(structured_content=value if is_object(value) else {"result": value})


def _text(reply: ApiReply) -> str:
    found = _CHARSET.search(reply.headers.get("content-type", ""))
    try:
        return reply.body.decode(found[1] if found is not None else "utf-8", "replace")
    except (LookupError, ValueError):
        return reply.body.decode("utf-8", "replace")


def _failure(reply: ApiReply, method: str, path: str, media: str) -> str:
    status = reply.status
    try:
        phrase = f" {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = ""
    said = "" if 300 <= status < 400 else _said(reply, media)
    text = f"{method} {path}: {status}{phrase}"
    if 300 <= status < 400:
        text += f": it redirects to {plain_text(reply.headers.get('location', ''), 300)!r}, which was not followed"
    elif said:
        text += f": {said}"
    after = reply.headers.get("retry-after", "")
    if re.fullmatch(r"\d{1,6}", after):
        text += f" (try again in {after} s)"
    return clip(text, MAX_ERROR)


def _said(reply: ApiReply, media: str) -> str:
    if media == "application/json" or media.endswith("+json"):
        try:
            value: JSON = msgspec.json.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return ""
        if is_object(value):
            value = {each: value[each] for each in _TELLING if each in value} or value
            texts = [each for each in value.values() if isinstance(each, str)]
            if len(texts) == len(value):
                return plain_text(". ".join(dict.fromkeys(texts)), MAX_ERROR)
        return plain_text(value if isinstance(value, str) else msgspec.json.encode(value).decode(), MAX_ERROR)
    return plain_text(_text(reply), MAX_ERROR) if media.startswith("text/") else ""
