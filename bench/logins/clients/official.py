"""Log in with the client of the official SDK, or with FastMCP's: `python official.py '{"client": "mcp", "url": ...}'`.

Prints a line of JSON for each page to open (`open`), and for each step (`step`, with `text` or `failed`).
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import parse_qs

import httpx2
from mcp import ClientSession
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

given = json.loads(sys.argv[1])
REFUSALS: list[str] = []
"""What redirects said instead of a code: the SDK cancels the call then."""
CALLBACK = f"http://127.0.0.1:{given['port']}/callback"


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


class Memory:
    """Keeps tokens and the client."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        if given.get("client_id"):
            secret = given.get("client_secret")
            self.client = OAuthClientInformationFull(
                client_id=given["client_id"],
                client_secret=secret,
                token_endpoint_auth_method=given.get("method", "none"),
                redirect_uris=[CALLBACK],  # type: ignore[list-item]
            )

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def redirect() -> AuthorizationCodeResult:
    """Wait for the redirect of one login."""
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1]
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\ndone")
        writer.close()
        if not found.done():
            found.set_result(line.partition("?")[2])

    async with await asyncio.start_server(answer, "127.0.0.1", given["port"]):
        query = {name: each[0] for name, each in parse_qs(await found).items()}
    if "error" in query:
        REFUSALS.append(f"{query['error']}: {query.get('error_description', '')}")
        raise RuntimeError(REFUSALS[-1])
    return AuthorizationCodeResult(code=query["code"], state=query.get("state"), iss=query.get("iss"))


async def show(url: str) -> None:
    """Print a page a moment later, when the redirect is waited for."""
    asyncio.get_running_loop().call_later(0.5, lambda: say(open=url))


async def official(stack: AsyncExitStack) -> tuple[Any, Any]:
    metadata = OAuthClientMetadata(
        client_name="table of logins",
        redirect_uris=[CALLBACK],  # type: ignore[list-item]
        grant_types=["authorization_code", "refresh_token"],
    )
    provider = OAuthClientProvider(
        given["url"], metadata, Memory(), show, redirect, client_metadata_url=given.get("metadata_url")
    )
    http = await stack.enter_async_context(httpx2.AsyncClient(auth=provider, timeout=60, follow_redirects=True))
    streams = await stack.enter_async_context(streamable_http_client(given["url"], http_client=http))
    session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
    await session.initialize()
    return session, provider


async def by_fastmcp(stack: AsyncExitStack) -> tuple[Any, Any]:
    import fastmcp  # takes seconds
    from fastmcp.client.auth import OAuth

    class Shown(OAuth):
        async def redirect_handler(self, authorization_url: str) -> None:
            await show(authorization_url)

    auth = Shown(
        callback_host="127.0.0.1",
        callback_port=given["port"],
        client_id=given.get("client_id"),
        client_secret=given.get("client_secret"),
        client_metadata_url=given.get("metadata_url"),
    )
    client = await stack.enter_async_context(fastmcp.Client(given["url"], auth=auth))
    return client, auth


async def main() -> None:
    async with AsyncExitStack() as stack:
        step, provider, rotated = "login", None, []
        try:
            session, provider = await (official if given["client"] == "mcp" else by_fastmcp)(stack)
            for step, tool in given["steps"]:
                before = provider.context.current_tokens
                if step in ("refresh", "again"):
                    provider.context.token_expiry_time = 1.0
                result = await session.call_tool(tool, {"text": "hello"})
                now = provider.context.current_tokens
                rotated = [before.refresh_token, now.refresh_token] if before and now else []
                say(
                    step=step,
                    text=result.content[0].text,
                    rotated=len({*rotated}) > 1,
                    had=bool(now and now.refresh_token),
                )
        except BaseException as problem:  # what the user reads
            while isinstance(problem, BaseExceptionGroup):
                problem = problem.exceptions[0]
            say(step=step, failed=REFUSALS[-1] if REFUSALS else f"{type(problem).__name__}: {problem}")


asyncio.run(main())
