"""Bodies without a length, as WSGI servers pass them when a client sends chunks, and bodies whose request is cancelled."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from http_talk import body, mirror
from http_world import World


def answer(
    content: bytes, *, terminated: bool = False, limit: int = 1000, length: int | str | None = None
) -> tuple[int, bytes]:
    """POST to the WSGI callable, without a Content-Length by default; return the status and the body of the response."""
    statuses: list[str] = []
    headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in mirror(body("tools/list")).items()}
    environ: dict[str, Any] = headers | {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/mcp",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8000",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": "127.0.0.1:8000",
        "CONTENT_TYPE": "application/json",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(content),
        "wsgi.input_terminated": terminated,
    }
    if length is not None:
        environ["CONTENT_LENGTH"] = str(length)
    app = World().server.wsgi(max_body_bytes=limit)
    parts = app(environ, lambda status, _: statuses.append(status))
    whole = b"".join(parts)
    getattr(parts, "close", bool)()
    return int(statuses[0].split()[0]), whole


@pytest.mark.parametrize(("spare", "status"), [(0, 200), (1, 200), (-1, 413)])
def test_chunks_count_against_max_body_bytes(spare: int, status: int) -> None:
    content = json.dumps(body("tools/list")).encode()
    found, whole = answer(content, terminated=True, limit=len(content) + spare)
    assert found == status
    assert (b"max_body_bytes" in whole) == (status == 413)


def test_a_body_without_an_end_is_not_read() -> None:
    """PEP 3333: without a length, reading to the end may wait for ever, unless the server promises an end."""
    found, whole = answer(json.dumps(body("tools/list")).encode(), terminated=False, limit=1000)
    assert (found, json.loads(whole)["error"]["code"]) == (400, -32700)


@pytest.mark.parametrize("length", ["abc", "-1", "\u0663", "\u0661\u0660\u0660", "1.5", ""])
def test_a_length_that_is_no_number_is_none(length: str) -> None:
    found, whole = answer(json.dumps(body("tools/list")).encode(), length=length)
    assert (found, json.loads(whole)["error"]["code"]) == (400, -32700)


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize(("spare", "status"), [(0, 200), (1, 200), (-1, 413)])
def test_pieces_on_a_loop_count_against_max_body_bytes(spare: int, status: int, pieces: int) -> None:
    content = json.dumps(body("tools/list")).encode()
    step = -(-len(content) // pieces)
    parts = [content[at : at + step] for at in range(0, len(content), step)]
    headers = {**mirror(body("tools/list")), "host": "localhost", "content-type": "application/json"}
    sent: list[Any] = []

    async def serve() -> None:
        app = World().server.asgi(max_body_bytes=len(content) + spare)

        async def receive() -> Any:
            if not parts:
                return await asyncio.Future()
            return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

        async def send(message: Any) -> None:
            sent.append(message)

        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await asyncio.wait_for(
            app({"type": "http", "method": "POST", "path": "/", "headers": encoded}, receive, send), 60
        )

    asyncio.run(serve())
    assert sent[0]["status"] == status
    assert ((b"connection", b"close") in sent[0]["headers"]) == (status == 413)
    assert (b"max_body_bytes" in b"".join(each.get("body", b"") for each in sent)) == (status == 413)


@pytest.mark.parametrize(("missing", "status"), [(0, 200), (1, 400)])
def test_a_body_that_is_shorter_than_its_length_runs_nothing(missing: int, status: int) -> None:
    """RFC 9110 8.6: what arrived may be whole JSON all the same, but its sender meant something longer."""
    content = json.dumps(body("tools/list")).encode()
    found, whole = answer(content, length=len(content) + missing)
    assert found == status
    assert (b"shorter than Content-Length" in whole) == bool(missing)


@pytest.mark.parametrize("late", [False, True])
def test_a_request_that_is_cancelled_while_its_body_arrives_is_cancelled(late: bool) -> None:
    """By its server, even where the time of the body ends at the same moment."""
    sent: list[Any] = []

    async def serve() -> None:
        app = World().server.asgi(body_timeout=0.05 if late else 30.0)
        task: asyncio.Task[None]

        async def receive() -> Any:
            try:
                await asyncio.sleep(0 if not late else 10)
            finally:
                task.cancel()
            await asyncio.sleep(10)

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(name.encode(), value.encode()) for name, value in mirror(body("tools/list")).items()]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": [*headers, (b"host", b"localhost"), (b"content-type", b"application/json")],
        }
        task = asyncio.ensure_future(app(scope, receive, send))
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(serve())
    assert sent == []
