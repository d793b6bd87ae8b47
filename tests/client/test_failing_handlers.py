"""A handler for questions that fails has one outcome in both eras: an error of the call that names it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from faces import ERAS, FACES, outcome

from linkspan import Client, ClientError, Context, InputUnavailable, Server, SyncClient
from linkspan.client.targets import UnusableTarget
from linkspan.flows.answers import InvalidAnswer
from over_http import serving

server = Server("asking")
went_on: list[object] = []


@server.tool
async def book(ctx: Context) -> str:
    """Ask how many seats."""
    seats = await ctx.ask("seats", int, "How many?")
    went_on.append(seats)
    return f"booked {seats}"


@server.tool
async def wait(ctx: Context) -> str:
    """Go on while another call asks."""
    await asyncio.sleep(0.5)
    return "waited"


def raises(params: Any) -> Any:
    raise ZeroDivisionError("the dialog is broken")


def returns_nonsense(params: Any) -> Any:
    return object()


@pytest.mark.parametrize("transport", ["memory", "http"])
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("handler", "kind", "cause", "said"),
    [
        (raises, InputUnavailable, ZeroDivisionError, "handler failed: ZeroDivisionError: the dialog is broken"),
        (returns_nonsense, InvalidAnswer, InvalidAnswer, "the elicitation handler returned object"),
    ],
)
def test_a_handler_that_fails_ends_the_call(
    transport: str, era: Any, face: str, handler: Any, kind: type[ClientError], cause: type[Exception], said: str
) -> None:
    """It is never told to the model as what the user wants, and the author's function does not go on."""
    went_on.clear()

    def step(target: Any) -> None:
        with pytest.raises(kind) as caught:
            outcome(face, target, lambda client: client.call_tool("book"), era=era, elicitation=handler)
        assert type(caught.value) is kind
        assert isinstance(caught.value, ClientError)
        assert said in caught.value.problem
        assert caught.value.server
        assert isinstance(caught.value.__cause__, cause)

    if transport == "memory":
        step(server)
    else:
        with serving(server.asgi()) as url:
            step(url)
    assert went_on == []


def test_over_http_only_the_call_that_asks_ends() -> None:
    """Its question comes on its own stream, so that others in flight go on."""
    with serving(server.asgi()) as url, SyncClient(url, era="legacy", elicitation=raises) as client:
        found: list[Any] = []
        other = threading.Thread(target=lambda: found.append(client.call_tool("wait").text))
        other.start()
        with pytest.raises(InputUnavailable, match="ZeroDivisionError"):
            client.call_tool("book")
        other.join()
        assert found == ["waited"]


@pytest.mark.parametrize("target", [{}, [], "", "no/such/mcp.json"])
def test_an_unusable_target_is_a_client_error(target: Any) -> None:
    with pytest.raises(UnusableTarget) as caught:
        Client(target)
    assert isinstance(caught.value, ClientError)
    assert isinstance(caught.value, ValueError)
    assert not str(caught.value).startswith(":")
    assert type(caught.value.again()) is UnusableTarget


def test_handlers_that_raise_a_refusal_are_no_failures() -> None:
    answers: Mapping[str, Any] = {"elicitation": lambda params: False}
    assert outcome("sync", server, lambda client: client.call_tool("book"), **answers).is_error
