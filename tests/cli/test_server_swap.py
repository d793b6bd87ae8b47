"""What a client notices of a server that is replaced: next to nothing. No processes here."""

from __future__ import annotations

import json
from typing import Any

from linkspan.cli.handover import Handover

TAG = "io.modelcontextprotocol/subscriptionId"
HELLO: dict[str, Any] = {
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}},
}
READY = {"method": "notifications/initialized"}
OFFERS: dict[str, Any] = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}, "resources": {}}
WELCOME: dict[str, Any] = {"capabilities": OFFERS}
WHY = "the server was restarted because its source changed; call again"


class Sides:
    def __init__(self) -> None:
        self.handover = Handover()
        self.handover.begin()

    def client(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.handover.receive_from_client(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def server(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.handover.receive_from_server(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def to_client(self) -> list[Any]:
        return _read(self.handover.to_client)

    def to_server(self) -> list[Any]:
        return _read(self.handover.to_server)

    def shake_hands(self) -> None:
        self.client(HELLO)
        self.server({"id": 0, "result": WELCOME})
        self.client(READY)
        self.forget()

    def forget(self) -> None:
        self.to_client()
        self.to_server()

    def replace(self) -> None:
        self.handover.replace()
        self.handover.begin()


def _read(lines: list[bytes]) -> list[Any]:
    messages = [json.loads(line) for line in lines]
    lines.clear()
    for message in messages:
        del message["jsonrpc"]
    return messages


def error(request_id: object, message: str) -> dict[str, Any]:
    return {"id": request_id, "error": {"code": -32603, "message": message}}


def test_without_a_change_every_line_goes_through_as_it_is() -> None:
    sides = Sides()
    sides.handover.receive_from_client(b'{"jsonrpc": "2.0",  "id":1,"method":"x"}\njunk\n\n[{}]')
    sides.handover.receive_client_eof()
    sides.handover.receive_from_server(b'{"id": 1.5}\n[1]\n{"jsonrpc":"2.0","method":"n"}\n')
    assert sides.handover.to_server == [b'{"jsonrpc": "2.0",  "id":1,"method":"x"}', b"junk", b"[{}]"]
    assert sides.handover.to_client == [b'{"id": 1.5}', b"[1]", b'{"jsonrpc":"2.0","method":"n"}']


def test_the_handshake_is_held_again_behind_the_clients_back() -> None:
    sides = Sides()
    sides.shake_hands()
    sides.replace()
    assert sides.to_server() == [{**HELLO, "id": "linkspan-reload-1"}]
    sides.client({"id": 5, "method": "tools/list"})
    assert sides.to_server() == []
    sides.server({"id": "linkspan-reload-1", "result": WELCOME})
    assert sides.to_server() == [READY, {"id": 5, "method": "tools/list"}]
    assert sides.to_client() == [
        {"method": "notifications/tools/list_changed"},
        {"method": "notifications/prompts/list_changed"},
    ]


def test_log_level_and_subscriptions_are_agreed_on_again() -> None:
    sides = Sides()
    sides.shake_hands()
    level = {"id": 1, "method": "logging/setLevel", "params": {"level": "debug"}}
    one = {"id": 2, "method": "resources/subscribe", "params": {"uri": "a:1"}}
    two = {"id": 3, "method": "resources/subscribe", "params": {"uri": "a:2"}}
    off = {"id": 4, "method": "resources/unsubscribe", "params": {"uri": "a:1"}}
    refused = {"id": 5, "method": "resources/subscribe", "params": {"uri": "a:3"}}
    sides.client(level, one, two, off, refused)
    sides.server(*({"id": n, "result": {}} for n in (1, 2, 3, 4)), error(5, "no"))
    sides.forget()
    for _ in range(2):
        sides.replace()
        [hello] = sides.to_server()
        sides.server({"id": hello["id"], "result": WELCOME})
        _, first, second = sides.to_server()
        assert (first, second) == ({**level, "id": first["id"]}, {**two, "id": second["id"]})
        sides.to_client()
        sides.server({"id": first["id"], "result": {}}, {"id": second["id"], "result": {}})
        assert sides.to_client() == []


def test_what_was_running_is_answered_with_an_error_once() -> None:
    sides = Sides()
    sides.client({"id": 1, "method": "tools/call"}, {"id": "1", "method": "tools/call"}, {"id": 2, "method": "ping"})
    sides.client({"method": "notifications/cancelled", "params": {"requestId": 1}})
    sides.server({"id": 2, "result": {}})
    sides.forget()
    sides.replace()
    sides.replace()
    assert sides.to_client() == [error("1", WHY)]


def test_a_handshake_that_was_under_way_is_held_with_the_new_server() -> None:
    sides = Sides()
    sides.client(HELLO)
    sides.forget()
    sides.replace()
    assert (sides.to_client(), sides.to_server()) == ([], [HELLO])
    sides.server({"id": 0, "result": WELCOME})
    assert sides.to_client() == [{"id": 0, "result": WELCOME}]


def test_a_question_of_the_old_server_is_withdrawn_and_its_answer_thrown_away() -> None:
    sides = Sides()
    sides.server({"id": "s1", "method": "elicitation/create"}, {"id": "s2", "method": "roots/list"})
    sides.client({"id": "s2", "result": {}})
    sides.forget()
    sides.replace()
    assert sides.to_client() == [
        {"method": "notifications/cancelled", "params": {"requestId": "s1", "reason": WHY}},
    ]
    sides.client({"id": "s1", "result": {}})
    assert sides.to_server() == []


def test_open_subscriptions_are_sent_again_and_acknowledged_once() -> None:
    sides = Sides()
    listen = {"id": 7, "method": "subscriptions/listen", "params": {"notifications": {"toolsListChanged": True}}}
    acknowledged = {
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": {TAG: 7}},
    }
    closed = {**listen, "id": 8}
    sides.client(listen, closed, {"method": "notifications/cancelled", "params": {"requestId": 8}})
    sides.server(acknowledged)
    assert sides.to_client() == [acknowledged]
    sides.to_server()
    for _ in range(2):
        sides.replace()
        assert (sides.to_client(), sides.to_server()) == ([], [listen])
        sides.server(acknowledged)
        assert sides.to_client() == [{"method": "notifications/tools/list_changed", "params": {"_meta": {TAG: 7}}}]
    sides.server({"id": 7, "result": {}})
    assert sides.to_client() == [{"id": 7, "result": {}}]
    sides.replace()
    assert sides.to_server() == []


def test_without_a_server_requests_are_told_why_until_there_is_one() -> None:
    sides = Sides()
    sides.shake_hands()
    sides.client({"id": 1, "method": "tools/list"})
    sides.forget()
    sides.handover.replace()
    sides.client({"id": 2, "method": "tools/list"})
    sides.handover.give_up("it does not start")
    sides.client({"id": 3, "method": "tools/list"}, {"method": "notifications/x"})
    assert sides.to_client() == [error(1, WHY), error(2, "it does not start"), error(3, "it does not start")]
    assert sides.to_server() == []
    sides.handover.begin()
    assert sides.to_server() == [{**HELLO, "id": "linkspan-reload-1"}]


def test_batches_are_passed_on_and_accounted_for() -> None:
    sides = Sides()
    batch = b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/call"}]'
    sides.handover.receive_from_client(batch + b"\n")
    assert sides.handover.to_server == [batch]
    sides.handover.receive_from_server(b'[{"jsonrpc":"2.0","id":1,"result":{}}]\n')
    sides.handover.to_client.clear()
    sides.replace()
    assert sides.to_client() == [error(2, WHY)]
