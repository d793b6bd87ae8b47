"""Reading what providers give: JSON or an SDK's objects, with members missing, null, or of another type than documented."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from linkspan.errors import clipped
from linkspan.host.messages import ModelError
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.plain import one_line
from linkspan.wire.redaction import redact

__all__ = [
    "count",
    "items",
    "member",
    "plain",
    "problem_of",
    "provider_said",
    "read_arguments",
    "stream_error",
    "text_of",
]

_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""The status that an error would have had, if the stream had not begun with 200."""


_KINDS: Final[Sequence[tuple[type, str]]] = (
    (bool, "a boolean"),
    (str, "a text"),
    (list, "a list"),
    (int, "a number"),
    (float, "a number"),
)


def member(value: object, *names: str) -> Any:
    """Return the first of these members that is there and not null, of a JSON object or of an object."""
    for name in names:
        found = value.get(name) if is_object(value) else getattr(value, name, None)
        if found is not None:
            return found
    return None


def items(value: object) -> list[Any]:
    """Return a list's items; none of anything else."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else []


def text_of(value: object) -> str:
    """Return a text, or nothing where there is none."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """Return a number of tokens; 0 where there is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def plain(value: object) -> JSON:
    """Return an SDK's object as the JSON that it was made of; JSON stays as it is."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True, exclude_none=True)
    if value is None:
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if is_object(value):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in cast("Sequence[object]", value)]
    return value if isinstance(value, str | int | float) else plain(getattr(value, "__dict__", {}))


def read_arguments(value: JSON, *, whole: bool = True) -> tuple[JSONObject, str]:
    """Return the arguments of a call, and what is wrong where they are no JSON object.

    A text is decoded, twice if it was encoded twice. No arguments at all are an empty object. `whole`: the message was not cut.
    """
    for _ in range(2):
        if isinstance(value, str | bytes):
            if not value.strip():
                return {}, ""
            try:
                value = msgspec.json.decode(value)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                why = str(error) if whole else "they were cut off, because the message became too long"
                return {}, f"The arguments are not valid JSON: {why}. Call the tool again with one JSON object."
    if value is None:
        return {}, ""
    if is_object(value):
        return value, ""
    kind = next((shown for each, shown in _KINDS if isinstance(value, each)), "no JSON")
    return {}, f"The arguments are {kind}. Call the tool again with one JSON object."


def provider_said(message: object) -> str:
    """Return a provider's own words as an error repeats them: clipped, on one line, without what looks like a key."""
    return clipped(one_line(redact(text_of(message)[:2000])))


def problem_of(body: JSON) -> tuple[str, str, int | None]:
    """Return the provider's message, its word for the kind of problem, and the status it names, from the body of an error."""
    if is_array(body):
        body = body[0] if body else None
    error: JSON = member(body, "error") if is_object(body) else body
    if not is_object(error):
        shown = error if isinstance(error, str) else member(body, "message", "detail", "msg")
        return text_of(shown), text_of(member(body, "type")), _status(member(body, "code"))
    kind = next((each for name in ("code", "type", "status") if isinstance(each := error.get(name), str)), "")
    named = [_status(error.get(name)) for name in ("code", "type", "status")]
    return text_of(member(error, "message")), kind, next((each for each in named if each), None)


def stream_error(body: JSON) -> ModelError:
    """Return the error that a provider reports in the middle of a stream."""
    message, kind, status = problem_of(body)
    shown = provider_said(message) or provider_said(kind) or "it does not say why"
    return ModelError(f"the provider broke off with an error: {shown}", status=status)


def _status(code: object) -> int | None:
    if isinstance(code, str):
        return _STATUS_OF.get(code) or (int(code) if code.isdigit() and len(code) == 3 else None)
    return code if isinstance(code, int) and 400 <= code < 600 else None
