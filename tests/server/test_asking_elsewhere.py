"""Only tools, prompts and resources can ask the user (MRTR-S1)."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

import mounts
from linkspan import Ask, Context, InputRequired, RegistrationError, Server, ask_form

way = mounts.way

PREFIX = "io.modelcontextprotocol/"
MODERN = {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": {"elicitation": {}}}
COMPLETE = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}


def asked(server: Server, method: str, **params: Any) -> Any:
    """Send a modern request and return the answer."""
    return server.handle({"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": MODERN}})


def with_prompt() -> tuple[Server, list[str]]:
    """A server with a prompt, and what its reporter hears."""
    heard: list[str] = []
    server = Server(exception_reporter=lambda error, _: heard.append(str(error.__cause__)))
    server.define_prompt(name="p", handler=lambda a: a)
    return server, heard


def test_a_completer_that_asks_is_the_authors_mistake() -> None:
    server, heard = with_prompt()

    @server.completion("p", "a")
    def complete(value: str, ctx: Context) -> list[str]:
        return [ctx.ask("k", str, "Which?")]

    assert asked(server, "completion/complete", **COMPLETE)["error"]["code"] == -32603
    assert heard == ["completion/complete cannot ask the user; only tools, prompts and resources can"]


@mounts.DIRECT  # custom methods are those of the server that is served
@pytest.mark.parametrize(
    "ask", [lambda ctx: ctx.ask("k", str, "Which?"), lambda ctx: InputRequired({"k": ask_form("Which?", str)}, "state")]
)
def test_a_custom_method_that_asks_is_the_authors_mistake(ask: Any) -> None:
    server, heard = with_prompt()
    server.define_custom_method("mine", lambda ctx: ask(ctx))
    assert asked(server, "mine")["error"]["code"] == -32603
    assert heard == ["mine cannot ask the user; only tools, prompts and resources can"]


def test_a_parameter_that_asks_is_refused_where_nobody_can_be_asked() -> None:
    server, _ = with_prompt()

    def asking(value: str, name: Annotated[str, Ask("Which?")]) -> list[str]:
        return [value, name]

    with pytest.raises(RegistrationError, match="mine cannot ask the user"):
        server.define_custom_method("mine", asking)
    with pytest.raises(RegistrationError, match="completion/complete cannot ask the user"):
        server.completion_handler(asking)
    with pytest.raises(RegistrationError):
        server.completion("p", "a")(asking)
