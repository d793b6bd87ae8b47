"""What a client tells its application of each request over HTTP: redirects and refusals too, and no secret."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from linkspan import ClientError, HttpHop, Server, SyncClient
from over_http import serving


def shop() -> Server:
    server = Server("shop", version="1.0.0")
    server.define_tool(name="ping", handler=lambda: "pong")
    return server


async def moved(scope: Any, receive: Any, send: Any) -> None:
    """Redirect everything to /mcp, where the shop is."""
    if scope["type"] == "http" and scope["path"] != "/mcp":
        await send(
            {"type": "http.response.start", "status": 307, "headers": [(b"location", b"/mcp"), (b"set-cookie", b"a=b")]}
        )
        await send({"type": "http.response.body", "body": b""})
    else:
        await SHOP(scope, receive, send)


SHOP = shop().asgi(path="/mcp")


def test_each_hop_of_a_request_is_reported_without_secrets() -> None:
    hops: list[HttpHop] = []
    with serving(moved) as url:
        old = url.removesuffix("/mcp") + "/old"
        with SyncClient(old, headers={"X-Team": "blue-team"}, auth="geheim-1234", on_http=hops.append) as client:
            assert client.call_tool("ping").text == "pong"
    calls = [hop for hop in hops if hop.sent.get("mcp-method") == "tools/call"]
    assert [(hop.method, hop.url, hop.status) for hop in calls] == [("POST", old, 307), ("POST", url, 200)]
    assert calls[0].received["location"] == "/mcp"
    assert calls[0].received["set-cookie"] == "[redacted]"
    assert calls[1].sent["authorization"] == "Bearer [redacted]"
    assert calls[1].sent["x-team"] == "[redacted]"
    assert calls[1].received["content-type"] == "application/json"
    assert 0 <= calls[1].seconds < 60
    assert "geheim" not in repr(hops)
    assert "blue-team" not in repr(hops)


def test_what_does_not_get_through_is_reported_too() -> None:
    hops: list[HttpHop] = []
    with (
        suppress(ClientError),
        SyncClient("http://127.0.0.1:9/mcp", on_http=hops.append, retry="never") as client,
    ):
        client.ping()
    assert {(hop.status, bool(hop.received), bool(hop.problem)) for hop in hops} == {(0, False, True)}
