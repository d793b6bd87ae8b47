"""`--header NAME:VALUE`: sent with every request to a URL, and never shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from shell import DICE, Done, Shell

from raw_http import RawServer, http

SECRET = "Bearer sesame-opens-99"
GIVEN = ("--header", f"Authorization: {SECRET}", "--header", "X-Tenant:ferries")


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return Shell(capsys)


def test_headers_go_with_every_request(shell: Callable[..., Done]) -> None:
    with RawServer() as server:
        done = shell("call", server.url, "hi", *GIVEN, "--unchecked", "--verbose")
        sent = [(each.headers.get("authorization"), each.headers.get("x-tenant")) for each in server.requests]
    assert (done.status, done.out) == (0, "hi\n")
    assert set(sent) == {(SECRET, "ferries")}
    assert "sesame" not in done.out + done.err


@pytest.mark.parametrize("show", [[], ["--json"], ["--verbose"]])
@pytest.mark.parametrize("where", ["server/discover", "tools/call"])
def test_a_server_that_repeats_a_header_does_not_get_it_shown(
    shell: Callable[..., Done], where: str, show: list[str]
) -> None:
    def echo(request: Any) -> list[Any]:
        return [http(401, json.dumps({"detail": f"bad key {request.headers['x-key']}"}))]

    with RawServer({where: echo}) as server:
        done = shell("call", server.url, "hi", "--header", "X-Key: sesame-opens-99", "--unchecked", *show)
    assert done.status != 0
    assert "sesame" not in done.out + done.err
    assert "bad key [redacted]" in done.out + done.err
    assert "--header 'Authorization: Bearer ...'" in done.out + done.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--header", "sesame"], "--header must be followed by NAME:VALUE"),
        (["--header", ":sesame"], "--header must be followed by NAME:VALUE"),
        (["--header", "bad name: sesame"], "--header must be followed by NAME:VALUE"),
        (["--header", "X-Key: sesame\r\nX: y"], "--header X-Key has a value with line breaks"),
        (["--header", "X-Key: \u4e16sesame"], "--header X-Key has a value with line breaks or characters"),
    ],
)
def test_what_is_no_header_is_said_without_showing_it(shell: Callable[..., Done], given: list[str], said: str) -> None:
    done = shell("ping", "http://127.0.0.1:9/mcp", *given)
    assert done.status == 2
    assert said in done.err
    assert "sesame" not in done.out + done.err


@pytest.mark.parametrize("target", [[DICE], ["--", "some-server"]])
def test_a_header_for_a_process_is_wrong_use(shell: Callable[..., Done], target: list[str]) -> None:
    done = shell("ping", *GIVEN, *target)
    assert done.status == 2
    assert "--header is for a server at a URL" in done.err
    assert "sesame" not in done.out + done.err
