"""Headers and tokens of one call: one client serves many principals over one pool of connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from linkspan import Client, ClientError, ConnectError, Context, Server, SyncClient, Timeouts
from over_http import serving

server = Server("mirror", secret_headers=[])


@server.tool
def who(ctx: Context) -> str:
    """Tell who asks, and for which tenant."""
    return f"{ctx.headers.get('authorization')} {ctx.headers.get('x-tenant')}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(server.asgi(path="/mcp")) as found:
        yield found


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize(
    ("client_has", "call_has", "seen"),
    [
        ({}, {}, "None None"),
        ({"auth": "ours"}, {}, "Bearer ours None"),
        ({"auth": lambda: "made"}, {"headers": {"X-Tenant": "a"}}, "Bearer made a"),
        ({"auth": "ours"}, {"auth": "theirs"}, "Bearer theirs None"),
        ({"auth": "ours"}, {"auth": lambda: "theirs"}, "Bearer theirs None"),
        ({"auth": "ours"}, {"headers": {"Authorization": "Basic x"}}, "Basic x None"),
        ({"headers": {"Authorization": "Basic x"}}, {"auth": "theirs"}, "Bearer theirs None"),
    ],
)
def test_what_a_call_says_counts_more_than_what_the_client_says(
    url: str, era: Any, client_has: dict[str, Any], call_has: dict[str, Any], seen: str
) -> None:
    with SyncClient(url, era=era, **client_has) as client:
        assert client.call_tool("who", **call_has).text == seen


def test_many_principals_share_one_client(url: str) -> None:
    async def run() -> list[str]:
        async with Client(url) as client:
            answers = await asyncio.gather(*(client.call_tool("who", auth=f"t{each}") for each in range(50)))
            return [each.text for each in answers]

    assert asyncio.run(run()) == [f"Bearer t{each} None" for each in range(50)]


def test_every_operation_can_say_who_asks(url: str) -> None:
    with SyncClient(url) as client:
        who_asks = {"auth": "someone", "headers": {"x-tenant": "a"}}
        assert [each.name for each in client.list_tools(**who_asks)] == ["who"]
        assert [each.name for each in client.list_tools_page(**who_asks).tools] == ["who"]
        assert [each.name for each in client.iter_tools(**who_asks)] == ["who"]
        client.ping(**who_asks)
        assert client.request("server/discover", **who_asks)


@pytest.mark.parametrize("auth", ["", "two words", "a\r\nx: y", "ä", lambda: "a b"])
def test_what_is_no_token_is_refused_and_not_shown(url: str, auth: Any) -> None:
    with SyncClient(url) as client, pytest.raises(ValueError, match="must be a bearer token") as caught:
        client.call_tool("who", auth=auth)
    assert "two words" not in str(caught.value)


def test_a_function_that_fails_is_an_error_of_the_call_and_the_next_one_may_work(url: str) -> None:
    tokens = iter(["first"])
    with SyncClient(url, auth=lambda: next(tokens), era="modern", retry="never") as client:
        with pytest.raises(ClientError, match="auth= returned no token"):
            client.call_tool("who")
        tokens = iter(["a", "b", "c"])
        assert client.call_tool("who").text.startswith("Bearer ")


def test_a_url_that_never_answers_is_not_taken_for_a_stdio_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        target = f"http://127.0.0.1:{mute.getsockname()[1]}/mcp"
        client = SyncClient(target, timeouts=Timeouts(connect=0.6, probe=0.2))
        with pytest.raises(ConnectError) as caught:
            client.connect()
    assert caught.value.hint == (
        "the address accepts connections but does not respond: check the URL, or raise timeouts.connect [LS-201]"
    )


def test_a_token_that_changes_is_somebody_else_for_what_is_kept() -> None:  # CACHE-C2, SEC-19
    desk = Server("desk", ttl_ms=60_000, secret_headers=[])
    reads: list[str] = []

    @desk.resource("desk://mine")
    def mine(ctx: Context) -> str:
        reads.append(ctx.headers["authorization"])
        return reads[-1]

    token = "alice"
    with serving(desk.asgi(path="/mcp")) as found, SyncClient(found, auth=lambda: token, era="modern") as client:

        def read() -> Any:
            return client.read_resource("desk://mine").contents[0].text

        told = [read(), read()]
        token = "bob"
        told += [read(), read()]
        token = "alice"
        told.append(read())
    assert told == ["Bearer alice", "Bearer alice", "Bearer bob", "Bearer bob", "Bearer alice"]
    assert reads == ["Bearer alice", "Bearer bob"]
