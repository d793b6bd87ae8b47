"""One message in, one answer out, right here: the driver behind `handle_json`. Needs no event loop for plain functions."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from linkspan.core.call import Call, CallReady, Postponed, run_call
from linkspan.core.connection import ServerConnection
from linkspan.errors import INVALID_REQUEST
from linkspan.runtime.deferred import Deferred
from linkspan.wire.jsonrpc import NOTIFICATION, encode, encode_error
from linkspan.wire.values import to_builtins

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


def answer(connection: ServerConnection, data: object, *, raise_exceptions: bool = False) -> bytes | None:
    """Feed one message, or one batch, to a connection made for it; return the answer, or None where none is due.

    Raises: TypeError for data that is neither text nor bytes; KeyboardInterrupt and SystemExit, which are left to the
    caller; whatever else a handler or its value raised, after it was reported, if `raise_exceptions` is set.
    """
    events = connection.receive_message(data if type(data) is bytes else _as_bytes(data))
    for event in events:  # it grows meanwhile
        if type(event) is CallReady:
            call: Call = event.call
            events += run_call(connection, call, _wait, _FOR_THE_CALLER)
            failure = call.request.failure
            if isinstance(failure, _FOR_THE_CALLER) or (raise_exceptions and isinstance(failure, Exception)):
                raise failure
    for message in connection.messages_to_send():
        if not message.startswith(NOTIFICATION):  # progress and logs have nowhere to go
            return message
    return None


def _as_bytes(data: object) -> bytes:
    if isinstance(data, str):
        return data.encode(errors="surrogatepass")
    if isinstance(data, bytes | bytearray):
        return bytes(data)
    if isinstance(data, memoryview):
        return data.tobytes()
    raise TypeError(f"a JSON-RPC message is a str, bytes, bytearray or memoryview, not {type(data).__name__}")


def _wait(_: object, call: Call, awaitable: Awaitable[object]) -> object:
    if type(awaitable) is Postponed:
        lifespan = awaitable.lifespan
        lifespan.begin(lifespan, _background)  # for as long as the process lives: there may always be another message
        lifespan.wait()
        awaitable.resume()
        value = call.run()
        return _wait(_, call, cast("Awaitable[object]", value)) if hasattr(type(value), "__await__") else value
    if type(awaitable) is Deferred:
        return awaitable.wait()
    from linkspan.runtime.background import run_awaitable

    return run_awaitable(awaitable)


def _background() -> AbstractEventLoop:
    from linkspan.runtime.background import background_loop

    return background_loop().loop


_FOR_THE_CALLER = (KeyboardInterrupt, SystemExit)


def answer_value(connection: ServerConnection, request: object, *, raise_exceptions: bool = False) -> Any:
    """The same for a message that is parsed already; what is not JSON gets an error, not an exception."""
    try:
        data = _encoded(request)
    except (TypeError, ValueError, RecursionError):
        data = None
    if data is None:
        reply: bytes | None = encode_error(None, INVALID_REQUEST, "Invalid Request: not a JSON value")
    else:
        reply = answer(connection, data, raise_exceptions=raise_exceptions)
    return msgspec.json.decode(reply) if reply is not None else None


def _encoded(request: object) -> bytes:
    try:
        return encode(request)
    except TypeError:
        return encode(to_builtins(request))  # there are mappings that are no dict
