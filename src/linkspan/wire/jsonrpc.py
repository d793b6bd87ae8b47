"""JSON-RPC 2.0 as MCP uses it, both directions. Never raises on what a peer sent.

`decode` reads a message once; params, results and errors stay raw until their type is known.
Members that appear twice in a message are refused; inside results and arguments the last one counts. Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic
"""

from __future__ import annotations

import re
from codecs import utf_8_decode
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from linkspan.errors import INVALID_REQUEST, PARSE_ERROR, clipped
from linkspan.types.base import ABSENT, JSON, is_array, is_object
from linkspan.wire.framing import TooLong
from linkspan.wire.values import DEFAULT_LIMITS, Limits, to_builtins

RequestId: TypeAlias = int | str


class RpcRequest(msgspec.Struct, frozen=True):
    """A request: it is answered exactly once, or cancelled."""

    id: RequestId
    method: str
    params: Raw = ABSENT


class Notification(msgspec.Struct, frozen=True):
    """A notification: it is never answered (MSG-4)."""

    method: str
    params: Raw = ABSENT


class Response(msgspec.Struct, frozen=True):
    """The peer's result for one of our requests."""

    id: RequestId
    result: Raw


class ErrorResponse(msgspec.Struct, frozen=True):
    """The peer's error. `id` is None when the peer could not read ours; the code is the peer's own number."""

    id: RequestId | None
    code: int
    message: str
    data: Any = None


class Malformed(msgspec.Struct, frozen=True):
    """Not a message. `code` and `message` are the answer it deserves; `id` is None where none could be read.

    `kind` is what it was meant to be, where only parts of it were read: what may be a response must not be answered under
    its id.
    """

    code: int
    message: str
    id: RequestId | None = None
    kind: Kind | Literal["unknown"] | None = None

    @property
    def reply_id(self) -> RequestId | None:
        """The id of the error response that it gets."""
        return self.id if self.kind in (None, "request") else None


Message: TypeAlias = RpcRequest | Notification | Response | ErrorResponse | Malformed


class Batch(msgspec.Struct, frozen=True):
    """An array of messages. Only one revision allows it."""

    messages: list[Message]


class _AnyMessage(msgspec.Struct):
    jsonrpc: str
    id: RequestId | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw = ABSENT
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _ErrorBody(msgspec.Struct):
    code: int
    message: str = ""
    data: Any = None


_envelope = msgspec.json.Decoder(_AnyMessage)
_elements = msgspec.json.Decoder(list[Raw])
_anything = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()
_BOM = b"\xef\xbb\xbf"
_BRACKETS = bytes.maketrans(b"[{]}", b"\1\1\2\2")
_NO_MARKS = bytes(byte for byte in range(256) if byte not in b'[{]}"')
_OBJECT, _ARRAY, _TEXT = b'{["'
_LEVELS = 3
"""Values in which texts are looked for: the message, its params and their arguments, or its result, its content and a block."""
_SHALLOW = 16
"""Levels that are taken off one by one; deeper messages are rare, and walked bracket by bracket."""
_STEPS = (0, 1, -1)
NOTIFICATION: Final = b'{"jsonrpc":"2.0","method":'
"""How the notifications that this package encodes begin, and no other message."""
_BARE_REQUEST = len(b'{"jsonrpc":"2.0","id":1,"method":""}')
_BARE_NOTIFICATION = len(b'{"jsonrpc":"2.0","method":""}')
_BARE_RESPONSE = len(b'{"jsonrpc":"2.0","id":1}')
_PARAMS = len(b',"params":')
_RESULT = len(b',"result":')
_PIECE = 65536
"""Bytes up to which a message is not large."""
_QUOTES = 1  # two, in place of the digit


def decode(line: bytes | TooLong, limits: Limits = DEFAULT_LIMITS) -> Message | Batch:
    """Read one message, or one batch, from UTF-8 JSON. What is wrong comes back as `Malformed`, never as an exception."""
    if isinstance(line, TooLong):
        return unreadable(line, f"Parse error: message longer than {limits.max_line_bytes} bytes (max_line_bytes)")
    if len(line) > 2 * limits.max_depth and too_deep(line, limits.max_depth):
        problem = f"Parse error: nested deeper than {limits.max_depth} levels (max_depth)"
        return unreadable(TooLong.of(line), problem)
    try:
        if not line.isascii():
            line = line.removeprefix(_BOM)
            check_utf8(line)
        envelope = _envelope.decode(line)
    except msgspec.ValidationError:
        return _not_an_envelope(line, limits)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Malformed(PARSE_ERROR, f"Parse error: {_plain(error)}")
    request_id, method, params = envelope.id, envelope.method, envelope.params
    is_valid = envelope.jsonrpc == "2.0"
    if method is UNSET and is_valid:
        return _response(envelope, line)
    if request_id is None or request_id is UNSET or method is UNSET or not is_valid:
        return _notification(envelope, line)
    if envelope.result is not UNSET or envelope.error is not UNSET:
        return _notification(envelope, line)
    spare = len(line) - len(method) - _BARE_REQUEST - (len(params) + _PARAMS if params is not ABSENT else 0)
    if type(request_id) is str:
        spare -= len(request_id) + _QUOTES
    if spare > SLACK and (name := repeated(line, params)) is not None:
        return _ambiguous(name, request_id)
    return RpcRequest(request_id, method, params)


def check_utf8(line: bytes) -> None:
    """Raise UnicodeDecodeError unless a text is UTF-8. A large one is read in pieces, so that no copy of all of it is made."""
    view, start = memoryview(line), 0
    try:
        while start < len(line):
            start += utf_8_decode(view[start : start + _PIECE], None, start + _PIECE >= len(line))[1]
    except UnicodeDecodeError as error:
        error.start += start
        raise


def unreadable(line: TooLong, problem: str) -> Malformed:
    """Report that a message was too large to be read, under its id if the ends of its line show it beyond doubt (MSG-5)."""
    remains = identify(line.head, line.tail)
    return Malformed(PARSE_ERROR, problem, remains.id, remains.kind or "unknown")


def _notification(envelope: _AnyMessage, line: bytes) -> Message:
    """Return the notification, or what is wrong with a message that is neither it nor a valid request."""
    request_id, method, params = envelope.id, envelope.method, envelope.params
    known_id = None if request_id is UNSET else request_id
    if envelope.jsonrpc != "2.0" or method is UNSET:
        return Malformed(INVALID_REQUEST, 'Invalid Request: "jsonrpc" must be "2.0"', known_id)
    if envelope.result is not UNSET or envelope.error is not UNSET:
        return Malformed(
            INVALID_REQUEST, "Invalid Request: a message cannot have both a method and a result or error", known_id
        )
    if request_id is None:
        return Malformed(INVALID_REQUEST, "Invalid Request: id must be a string or an integer, got null")
    spare = len(line) - len(method) - (len(params) + _PARAMS if params is not ABSENT else 0)
    if spare - _BARE_NOTIFICATION > SLACK and (name := repeated(line)) is not None:
        return _ambiguous(name, None)
    return Notification(method, params)


def _ambiguous(name: str, known_id: RequestId | None) -> Malformed:
    """Refuse a message of which others may have read another part; under its id, if that is not what is in doubt."""
    problem = f"{clipped(name)!r} appears more than once" if name else "too many members"
    return Malformed(INVALID_REQUEST, f"Invalid Request: {problem}", None if name == "id" else known_id)


def _response(envelope: _AnyMessage, line: bytes) -> Message:
    result = envelope.result
    known_id = None if envelope.id is UNSET else envelope.id
    has_result, has_error = result is not UNSET, envelope.error is not UNSET
    spare = len(line) - _BARE_RESPONSE - (len(result) + _RESULT if isinstance(result, Raw) else 0)
    if isinstance(known_id, str):
        spare -= len(known_id) + _QUOTES
    if spare > SLACK and (name := repeated(line)) is not None:
        return _ambiguous(name, known_id)
    if has_result == has_error:
        problem = "both a result and an error" if has_result else "no method"
        return Malformed(INVALID_REQUEST, f"Invalid Request: {problem}", known_id)
    if isinstance(envelope.error, Raw):
        try:
            body = msgspec.json.decode(envelope.error, type=_ErrorBody)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Malformed(
                INVALID_REQUEST, "Invalid Request: error must have an integer code and a message", known_id
            )
        return ErrorResponse(known_id, body.code, body.message, body.data)
    if known_id is None or not isinstance(result, Raw):
        return Malformed(INVALID_REQUEST, "Invalid Request: a response needs the id of its request")
    return Response(known_id, result)


def _not_an_envelope(line: bytes, limits: Limits) -> Message | Batch:
    """Report what is wrong with valid JSON that is not a message, and keep its id (MSG-5). The slow path: it may parse again."""
    try:
        value: Any = _anything.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Malformed(PARSE_ERROR, f"Parse error: {_plain(error)}")
    if is_array(value):
        return _batch(line, len(value), limits)
    if not is_object(value):
        return Malformed(INVALID_REQUEST, "Invalid Request: a message must be a JSON object")
    return Malformed(INVALID_REQUEST, f"Invalid Request: {_complaint(value)}", _readable_id(value))


def _batch(line: bytes, length: int, limits: Limits) -> Malformed | Batch:
    if not length:
        return Malformed(INVALID_REQUEST, "Invalid Request: empty batch")
    if length > limits.max_batch:
        return Malformed(
            INVALID_REQUEST, f"Invalid Request: more than {limits.max_batch} messages in a batch (max_batch)"
        )
    messages: list[Message] = []
    for element in _elements.decode(line):
        message = decode(bytes(element), limits)
        if isinstance(message, Batch):
            message = Malformed(INVALID_REQUEST, "Invalid Request: a batch inside a batch")
        messages.append(message)
    return Batch(messages)


def _complaint(value: dict[str, Any]) -> str:
    if value.get("jsonrpc") != "2.0":
        return '"jsonrpc" must be "2.0"'
    if "id" in value and _readable_id(value) is None:
        return "id must be a string or an integer"
    if not isinstance(value.get("method", ""), str):
        return "method must be a string"
    return "not a request, notification or response"


def _readable_id(value: dict[str, Any]) -> RequestId | None:
    found = value.get("id")
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


def too_deep(line: bytes, max_depth: int) -> bool:
    """Return whether a message is nested deeper than that. Most have fewer brackets, which is found out at memory speed."""
    if has_few_brackets(line, max_depth) or (len(line) > _PIECE and most_depth(line, _LEVELS) <= max_depth):
        return False
    unescaped = line.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in line else line
    marks = unescaped.translate(None, _NO_MARKS).replace(b'""', b"")  # strings without brackets are gone
    brackets = rest = b"".join(marks.split(b'"')[::2]).translate(_BRACKETS)
    for _ in range(min(_SHALLOW, max_depth)):
        rest = rest.replace(b"\1\2", b"")
        if not rest:
            return False
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > max_depth


def most_depth(value: bytes | Raw, levels: int = 0) -> int:
    """Return a bound on the depth of a value: its brackets, but not those in its texts, nor in those of `levels` below it.

    What is large is nearly always a text, and a text may have any number of brackets.
    """
    is_object = memoryview(value)[0] == _OBJECT
    try:
        members = [*_members.decode(value).items()] if is_object else [("", each) for each in _elements.decode(value)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return len(value)
    if len(members) > _MOST:
        return len(value)
    found, covered = 1, 0
    for name, each in members:
        covered += len(name) + len(each)
        first = memoryview(each)[0]
        if first in (_OBJECT, _ARRAY) and levels:
            found += most_depth(each, levels - 1)
        elif first != _TEXT:
            found += bytes(each).count(b"[") + bytes(each).count(b"{")
    return found + len(value) - covered  # a member that is there twice is not covered


def has_few_brackets(line: bytes, most: int) -> bool:
    """Return whether at most so many brackets open in a message, those in strings counted, too."""
    if len(line) <= _PIECE:
        return line.count(b"[") + line.count(b"{") <= most
    for bracket in (b"[", b"{"):
        at = line.find(bracket)
        while at >= 0:
            most -= 1
            if most < 0:
                return False
            at = line.find(bracket, at + 1)
    return True


def _plain(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 (byte {error.start})"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error).removeprefix("JSON is malformed: ")


def encode(value: Any) -> bytes:
    """Encode JSON builtins, wire shapes and raw JSON. Lone surrogates, as in odd file names, become U+FFFD.

    Raises: TypeError for other types.
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_readable(to_builtins(value)))


def _readable(value: JSON) -> JSON:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if is_object(value):
        return {_readable(name): _readable(each) for name, each in value.items()}
    return [_readable(each) for each in value] if is_array(value) else value


def encode_response(request_id: RequestId, result: bytes) -> bytes:
    """Put an encoded result into a response: one splice, no second pass over the bytes."""
    if type(request_id) is int:
        return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request_id, result)
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(request_id), result)


def encode_error(
    request_id: RequestId | None, code: int, message: str, data: Any = None, *, id_required: bool = False
) -> bytes:
    """Encode an error response. Without a known id the member is left out, or null where the revision requires it (MSG-5)."""
    body: dict[str, Any] = {"code": code, "message": message, **({"data": data} if data is not None else {})}
    if request_id is None:
        head = b'{"jsonrpc":"2.0","id":null,' if id_required else b'{"jsonrpc":"2.0",'
    else:
        head = b'{"jsonrpc":"2.0","id":%b,' % encode(request_id)
    return b'%b"error":%b}' % (head, encode(body))


def encode_notification(method: str, params: bytes | None = None) -> bytes:
    """Encode a notification with params that are encoded already."""
    head = NOTIFICATION + _quoted(method)
    return head + b"}" if params is None else b'%b,"params":%b}' % (head, params)


_quoted = lru_cache(maxsize=64)(encode)


def encode_request(request_id: RequestId, method: str, params: bytes | None = None) -> bytes:
    """Encode a request with params that are encoded already."""
    number = b"%d" % request_id if type(request_id) is int else encode(request_id)
    tail = b"}" if params is None else b',"params":%b}' % params
    return b'{"jsonrpc":"2.0","id":%b,"method":%b%b' % (number, _quoted(method), tail)


def encode_batch(messages: list[bytes]) -> bytes:
    """Put encoded messages into one array."""
    return b"[" + b",".join(messages) + b"]"


Kind: TypeAlias = Literal["request", "response"]


class Remains(msgspec.Struct, frozen=True):
    """What was found. A notification counts as a request: it has a method, and no id."""

    id: int | str | None
    kind: Kind | None


_KINDS: Final[dict[str, Kind]] = {"method": "request", "params": "request", "result": "response", "error": "response"}
_TOKEN: Final = rb'\s*("[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+(?=[\s,}\]]))'
_LAST_MEMBER: Final = rb',\s*("[^"\\]*")\s*:\s*("[^"\\]*"|[^\s"{}\[\]:,\\]+)\s*\Z'
_decoder = msgspec.json.Decoder(int | float | str)


@cache
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    """Compile a pattern on its first use: most processes need none, and each takes up to a millisecond of their start."""
    return re.compile(pattern)


def identify(head: bytes, tail: bytes) -> Remains:
    """Find the top-level members in the first bytes of a line, and in its last; both are the whole line if it is short.

    `tail` must end where the line ends; leave it empty for a line that was cut.
    """
    ids: set[int | str | None] = set()
    kinds: set[Kind] = set()
    if head.lstrip(b"\xef\xbb\xbf \t\r").startswith(b"{"):
        for raw, value in (*_first_members(head), *_last_members(tail)):
            name = _scalar(raw)
            if name == "id":
                ids.add(_request_id(value))
            elif isinstance(name, str) and name in _KINDS:
                kinds.add(_KINDS[name])
    return Remains(ids.pop() if len(ids) == 1 else None, kinds.pop() if len(kinds) == 1 else None)


def _first_members(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and value of each member at depth 1, as far as they can be read; of a nested value the bracket."""
    depth, before, name = 0, b"", b""
    found = _compiled(_TOKEN).match(head, head.find(b"{"))
    while found is not None:
        token = found[1]
        if depth == 1 and before == b":" and name:
            yield name, token
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
        elif token == b":" and depth == 1:
            name = before if before.startswith(b'"') else b""
        before = token
        found = _compiled(_TOKEN).match(head, found.end())


def _last_members(tail: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and value of the members that end a message. Only the brace of the message itself can come after them."""
    body = tail.rstrip()
    if not body.endswith(b"}"):
        return
    body = body[:-1]
    while (found := re.search(_LAST_MEMBER, body)) is not None:
        yield found[1], found[2]
        body = body[: found.start()]


def _request_id(raw: bytes) -> int | str | None:
    found = _scalar(raw)
    if isinstance(found, float):
        return int(found) if found.is_integer() else None  # 1.0 is 1 to a peer that has one type of numbers
    return found


def _scalar(raw: bytes) -> int | float | str | None:
    try:
        value: int | float | str = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value


SLACK: Final = 6
"""Bytes that can be left over in a message without room for another member that matters: `"id":1,` has 7."""

_CLOSING: Final = 3
"""Bytes after the last value: a brace, and blanks. A member takes more."""

_MOST: Final = 100
"""Members that are looked at; no message needs as many."""

_KEY: Final = rb'[\s,{]*("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*'
_SCALAR: Final = rb'(?:-?\d+|"[^"\\]*")'
_ORDERLY: Final = (
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"id"\s*:\s*%b\s*,\s*)?"(?:method|name)"\s*:\s*%b\s*,'
    rb'\s*"(?:params|arguments)"\s*:\s*' % (_SCALAR, _SCALAR)
)
_members = msgspec.json.Decoder(dict[str, Raw])
_name = msgspec.json.Decoder(str)


def repeated(text: bytes, value: bytes | Raw = b"") -> str | None:
    """Return the name of a member that an object has twice, however it is spelled; None if there is none.

    `text` is a valid JSON object. Its values are skipped, not searched. Empty if there are more than 100 members. `value` is
    that of its `params` or `arguments`, which most objects end with: then there is no need to take it apart.
    """
    if (
        value
        and (head := _compiled(_ORDERLY).match(text)) is not None
        and len(text) - head.end() - len(value) <= _CLOSING
    ):
        return None
    members = _members.decode(text)
    if len(members) > _MOST:
        return ""
    seen: set[str] = set()
    at, name = 0, ""
    while (found := _compiled(_KEY).match(text, at)) is not None:
        name = _name.decode(found[1])
        value = bytes(members[name])
        at = found.end()
        if name in seen or not text.startswith(value, at):  # of repeated members the dict has the last value
            return name
        seen.add(name)
        at += len(value)
    return None if text[at:].strip() in (b"}", b"{}") else name
