"""How a client shows a token endpoint who it is: servers differ, and what one refuses is not tried there again."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping

import pytest
from oauth_world import AS, AuthorizationServer, World, answer

from linkspan import AuthorizationError
from linkspan.auth import ClientCredentials, OAuth
from linkspan.core.auth_flow import Http, HttpResult

BASIC, POST = "client_secret_basic", "client_secret_post"
AUTH = OAuth(client_id="desk", client_secret="s3cret", issuer=AS)
Judge = Callable[[Mapping[str, str], Mapping[str, str]], str | None]
"""Returns the error code for the form and the headers of a request, or None for one that is good."""


@pytest.fixture
def world() -> World:
    world = World()
    world.protect()
    return world


def judged(world: World, judge: Judge, *methods: str) -> tuple[AuthorizationServer, list[str]]:
    """Return an authorization server that lists these methods and judges by itself, and how it was asked."""
    server = AuthorizationServer(
        world, token_endpoint_auth_methods_supported=list(methods), revocation_endpoint=f"{AS}/revoke"
    )
    ways: list[str] = []

    def token(effect: Http) -> HttpResult:
        fields = dict(each.split("=", 1) for each in effect.body.decode().split("&"))
        basic = b64decode(effect.headers.get("authorization", "").removeprefix("Basic ")).decode()
        assert basic in ("", "desk:s3cret")
        kinds = ("basic" * bool(basic), "id" * ("client_id" in fields), "secret" * ("client_secret" in fields))
        ways.append("+".join(filter(None, kinds)))
        error = judge(fields, effect.headers)
        if error is not None:
            return answer(
                {"error": error, "error_description": "not like this"}, 401 if error == "invalid_client" else 400
            )
        return server.token(effect) if effect.url.endswith("/token") else answer({})

    world.routes[f"POST {AS}/token"] = world.routes[f"POST {AS}/revoke"] = token
    server.token_response = {"refresh_token": "again"}
    return server, ways


def reads_the_form(fields: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
    """As servers made with the official SDK do."""
    return None if "client_id" in fields else "invalid_client"


def refuses_two(fields: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
    """As Notion does: a client_id in the form is a second way to authenticate."""
    return "invalid_request" if "client_id" in fields and "authorization" in headers else None


def wants_post(fields: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
    return None if "client_secret" in fields else "invalid_client"


@pytest.mark.parametrize(
    ("judge", "listed", "first", "later"),
    [
        (reads_the_form, [BASIC], ["basic+id"], "basic+id"),
        (reads_the_form, [POST, BASIC], ["id+secret"], "id+secret"),
        (refuses_two, [BASIC], ["basic+id", "basic"], "basic"),
        (refuses_two, [BASIC, POST], ["basic+id", "id+secret"], "id+secret"),
        (wants_post, [BASIC, POST], ["basic+id", "id+secret"], "id+secret"),
        (lambda *_: None, ["private_key_jwt", POST, BASIC], ["id+secret"], "id+secret"),
    ],
)
def test_the_ways_that_a_server_lists_are_tried_in_its_order_and_the_good_one_is_kept(
    world: World, judge: Judge, listed: list[str], first: list[str], later: str
) -> None:
    server, ways = judged(world, judge, *listed)
    authorizer = world.authorizer(AUTH)
    assert world.call(authorizer, server.takes) == 200
    assert ways == first
    world.now += 3600
    again = world.authorizer(AUTH)  # another process: what worked is in the store
    assert world.call(again, server.takes) == 200
    world.run(again.log_out())
    assert ways == [*first, later, later], "the refresh and the revocation"


def test_a_wrong_secret_is_told_after_each_way_was_tried_once(world: World) -> None:
    server, ways = judged(world, lambda *_: "invalid_client", BASIC, POST)
    with pytest.raises(AuthorizationError, match="invalid_client: not like this"):
        world.call(world.authorizer(AUTH), server.takes)
    assert ways == ["basic+id", "id+secret", "basic"]
    assert ("authentication", AS) not in world.store


def test_another_refusal_is_not_tried_in_another_way(world: World) -> None:
    server, ways = judged(world, lambda *_: "invalid_grant", BASIC, POST)
    with pytest.raises(AuthorizationError, match="invalid_grant"):
        world.call(world.authorizer(AUTH), server.takes)
    assert ways == ["basic+id"]


def test_a_server_that_changes_its_mind_is_asked_in_the_other_ways(world: World) -> None:
    auth = ClientCredentials("desk", secret="s3cret")
    server, ways = judged(world, refuses_two, BASIC)
    assert world.call(world.authorizer(auth), server.takes) == 200
    assert ways == ["basic+id", "basic"]
    server, ways = judged(world, reads_the_form, BASIC)
    for _ in range(2):
        assert world.call(world.authorizer(auth), server.takes) == 200
    assert ways == ["basic", "basic+id", "basic+id"]


def test_a_public_client_is_preferred_where_it_is_offered(world: World) -> None:
    server = AuthorizationServer(world, token_endpoint_auth_methods_supported=[BASIC, "none"])
    server.registration = {"token_endpoint_auth_method": "none"}
    assert world.call(world.authorizer(), server.takes) == 200
    assert server.registered[0]["token_endpoint_auth_method"] == "none"


def test_a_registration_asks_for_the_first_method_that_the_server_lists(world: World) -> None:
    server = AuthorizationServer(world, token_endpoint_auth_methods_supported=["private_key_jwt", POST, BASIC])
    server.registration = {"token_endpoint_auth_method": POST}
    assert world.call(world.authorizer(), server.takes) == 200
    assert server.registered[0]["token_endpoint_auth_method"] == POST
