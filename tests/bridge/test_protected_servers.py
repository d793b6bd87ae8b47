"""Protected servers behind a bridge: each principal is there with the token of their own, and with nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from linkspan import Context, Server, ServerError, SyncClient
from linkspan.bridge.gateway import BridgedServer, BridgeOptions, Gateway
from linkspan.bridge.rules import Rules, read_rules
from over_http import serving

pytest.importorskip("cryptography")

from linkspan.auth import ApiKeys, Protected
from linkspan.revisions.neutral import Grant

PEOPLE = ("alice", "bob")
POLICY = """
[principals.alice]
tokens = { there = "TOKEN_OF_ALICE" }

[principals.bob]
tokens = { there = "TOKEN_OF_BOB" }
"""


def keys(what: str) -> ApiKeys:
    """Return the keys `WHAT-of-NAME` of both."""
    return ApiKeys({sha256(f"{what}-of-{name}".encode()).hexdigest(): Grant(what, name) for name in PEOPLE})


@pytest.fixture
def seen() -> list[tuple[str | None, str | None]]:
    return []


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[Any]) -> Iterator[str]:
    """The URL of a bridge with keys of its own, before a server with others."""
    monkeypatch.setenv("TOKEN_OF_ALICE", "there-of-alice")
    monkeypatch.setenv("TOKEN_OF_BOB", "there-of-bob")
    there = Server("there", auth=Protected("http://127.0.0.1:1/mcp", verify=[keys("there")]))

    @there.tool
    def who(ctx: Context) -> str:
        assert ctx.grant is not None
        seen.append((ctx.grant.subject or ctx.grant.client_id, ctx.headers.get("x-private")))
        return f"{ctx.grant.subject or ctx.grant.client_id} at {ctx.grant.issuer}"

    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    with serving(there.asgi(path="/mcp")) as behind:
        gateway = Gateway(
            [BridgedServer("there", behind)],
            BridgeOptions(rules=read_rules(policy), list_timeout=60),
            Protected("http://127.0.0.1:2/mcp", verify=[keys("here")]),
        )
        with serving(gateway.server.asgi(path="/mcp")) as found:
            yield found
        gateway.close()


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_each_principal_has_their_own_rights_there(url: str, seen: list[Any], era: Any) -> None:
    clients = {
        name: SyncClient(url, auth=f"here-of-{name}", headers={"X-Private": f"of {name}"}, era=era) for name in PEOPLE
    }
    try:
        for _ in range(3):
            for name, client in clients.items():
                assert client.call_tool("who").text == f"{name} at there"
    finally:
        for each in clients.values():
            each.close()
    assert seen == [(name, None) for name in PEOPLE] * 3


def test_a_token_that_the_server_refuses_is_the_problem_of_its_principal_alone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_BOB", "there-of-nobody")
    with SyncClient(url, auth="here-of-alice") as alice, SyncClient(url, auth="here-of-bob") as bob:
        assert alice.call_tool("who").text == "alice at there"
        try:
            refused = bob.call_tool("who")
            assert refused.is_error
            problem = refused.text
        except ServerError as error:
            problem = str(error)
        assert "there: " in problem
        assert "there-of-" not in problem
        assert alice.call_tool("who").text == "alice at there"


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_nothing_is_asked_before_the_token_of_the_caller_is_known(
    url: str, seen: list[Any], era: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the server offers is remembered from the first caller; it was asked for again in nobody's name."""
    find = Rules.token

    def slowly(rules: Rules, principal: str | None, server: str) -> str | None:
        time.sleep(0.3)
        return find(rules, principal, server)

    monkeypatch.setattr(Rules, "token", slowly)
    for name in PEOPLE:
        with SyncClient(url, auth=f"here-of-{name}", era=era) as client:
            assert client.call_tool("who").text == f"{name} at there"
            assert [each.name for each in client.list_tools()] == ["who"]
    assert not [each.message for each in caplog.records if each.levelname == "WARNING"]
