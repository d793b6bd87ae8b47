"""One bad message, answer or result never ends a connection, and its request is answered."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from linkspan import Context, InputRequired, Server
from linkspan.core.connection import ServerConnection
from test_transcripts import feed

HELLO = (
    b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":'
    b'{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}}}}\n'
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def connected(server: Server) -> ServerConnection:
    connection = server.connect()
    feed(connection, HELLO, None)
    connection.messages_to_send()
    return connection


def say(connection: ServerConnection, line: str) -> list[Any]:
    feed(connection, line.encode() + b"\n", None)
    return [json.loads(message) for message in connection.messages_to_send()]


def call(connection: ServerConnection, name: str, number: int = 1) -> list[Any]:
    return say(connection, f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{name}"}}}}')


@pytest.mark.parametrize("number", ["1e999", "9" * 5000])
def test_a_number_out_of_range_in_meta_is_a_wrong_request(number: str) -> None:
    line = f'{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"_meta":{{"x":{number}}}}}}}'
    (answer,) = say(Server().connect(), line)
    assert (answer["id"], answer["error"]["code"]) == (1, -32602)


@pytest.mark.parametrize("answer", ['{"action":"accept","content":{"n":1e999}}', "5", "null"])
def test_an_answer_that_is_none_is_asked_for_again(answer: str) -> None:
    server = Server()

    @server.tool
    def ask(ctx: Context) -> int:
        return ctx.ask("n", int, "How many?")

    connection = connected(server)
    (first,) = call(connection, "ask")
    (again,) = say(connection, f'{{"jsonrpc":"2.0","id":"{first["id"]}","result":{answer}}}')
    assert again["method"] == "elicitation/create"


@pytest.mark.parametrize("requests", [["x"], {"a": "text"}, None])
def test_questions_that_cannot_be_asked_are_the_authors_failure(requests: Any) -> None:
    server = Server()
    server.define_tool(name="bad", handler=lambda **args: InputRequired(requests, "state"))
    (answer,) = call(connected(server), "bad")
    assert answer["id"] == 1
    assert "method" not in answer


def test_a_prompt_that_asks_while_it_yields_is_asked() -> None:
    server = Server()

    @server.prompt
    def greet(ctx: Context) -> Iterator[str]:
        yield f"hello {ctx.ask('who', str, 'Who?')}"

    (question,) = say(connected(server), '{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"greet"}}')
    assert question["method"] == "elicitation/create"
