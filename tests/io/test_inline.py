"""One message in, one answer out: `handle` and `handle_json`."""

from __future__ import annotations

from typing import Any

from linkspan import Context, Server
from linkspan.revisions import LATEST

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": LATEST.date,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(method: str, number: int = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def test_the_answer_is_the_response_whatever_was_told_before_it() -> None:
    server = Server()

    @server.tool
    def count(ctx: Context) -> str:
        ctx.progress(1)
        return "done"

    answer = server.handle(request("tools/call", name="count", _meta=ENVELOPE | {"progressToken": "t"}))
    assert answer["id"] == 1
    assert answer["result"]["content"] == [{"type": "text", "text": "done"}]


def test_a_listen_is_refused_where_nothing_can_be_told_later() -> None:
    server = Server()
    server.tool(name="t")(lambda: "ok")
    answer = server.handle(request("subscriptions/listen", notifications={"toolsListChanged": True}, _meta=ENVELOPE))
    assert answer["id"] == 1
    assert answer["error"]["code"] == -32600
    assert "needs a connection that stays open" in answer["error"]["message"]


def test_modern_requests_in_a_batch_are_refused_one_by_one() -> None:
    batch = [request("ping", 1), request("server/discover", 2, _meta=ENVELOPE)]
    first, second = Server().handle(batch)
    assert (first["id"], first["result"]) == (1, {})
    assert (second["id"], second["error"]["code"]) == (2, -32600)
