"""The client of the official SDK against a protected server: `run("http")` in a process of its own, and ASGI with uvicorn."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from linkspan import Protected, Server
from over_http import serving
from tokens import ISSUER, JWKS, RESOURCE, jwt, token

PROGRAM = """
import json, sys
from linkspan import Context, Protected, Server
from linkspan.auth import Jwt

server = Server("files", auth=Protected(verify=Jwt(sys.argv[1], keys=json.loads(sys.argv[2])), scopes=["files:read"]))

@server.tool(scopes=["files:read"])
def who(ctx: Context) -> str: return str(ctx.principal)

server.run("http", port=0, workers=int(sys.argv[3]))
"""


@pytest.fixture(params=[1, 2], ids=["one process", "two workers"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Serve on loopback, where the server knows its URL by itself."""
    program = tmp_path / "server.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), ISSUER, json.dumps(JWKS), str(request.param)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("Serving MCP at "), line
    yield line.removeprefix("Serving MCP at ").split(",")[0].strip()
    process.terminate()
    process.wait(30)
    process.stderr.close()


def talk(url: str, given: str, mode: str) -> Any:
    async def run() -> Any:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {given}"}) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            assert [each.name for each in (await client.list_tools()).tools] == ["who"]
            return await client.call_tool("who", {})

    return asyncio.run(asyncio.wait_for(run(), 60))


def answering(url: str) -> None:
    """Wait until a server answers: workers start after their parent has said where."""
    give_up = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(url.replace("/mcp", "/health"), timeout=30).close()
            return
        except urllib.error.URLError:
            assert time.monotonic() < give_up


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_an_official_client_with_a_token_is_served_by_run_http(url: str, mode: str) -> None:
    answering(url)
    with urllib.request.urlopen(url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")) as response:
        assert json.load(response)["resource"] == url
    result = talk(url, token(aud=url), mode)
    assert result.content[0].text == f"{ISSUER} sub ann"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_an_official_client_is_served_through_asgi(mode: str) -> None:
    server = Server("files", auth=Protected(RESOURCE, verify=jwt()))
    server.define_tool(name="who", handler=lambda ctx: ctx.principal)
    with serving(server.asgi()) as url:
        assert talk(url, token(), mode).content[0].text == f"{ISSUER} sub ann"
        with pytest.raises(BaseException):  # noqa: B017  # a group of errors, whatever is in it
            talk(url, token(aud="https://other.example.com"), mode)
