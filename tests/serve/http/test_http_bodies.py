"""Bodies that say no length, as WSGI servers hand them over when a client sends chunks."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from http_talk import body, mirror
from http_world import World


def answer(
    content: bytes, *, terminated: bool = False, limit: int = 1000, length: int | None = None
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
    parts.close()  # type: ignore[attr-defined]
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


@pytest.mark.parametrize(("missing", "status"), [(0, 200), (1, 400)])
def test_a_body_that_is_shorter_than_its_length_runs_nothing(missing: int, status: int) -> None:
    """RFC 9110 8.6: what arrived may be whole JSON all the same, but its sender meant something longer."""
    content = json.dumps(body("tools/list")).encode()
    found, whole = answer(content, length=len(content) + missing)
    assert found == status
    assert (b"shorter than Content-Length" in whole) == bool(missing)
