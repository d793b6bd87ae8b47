"""The registrations of a client: for which scopes, when there is a new one, and which client renews a login."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from oauth_world import AS, MCP, AuthorizationServer, World, answer, challenge

from linkspan import AuthorizationError
from linkspan.auth import OAuth
from linkspan.core.auth_flow import Http, HttpResult, OpenUrl


@pytest.fixture
def world() -> World:
    world = World()
    world.protect(scopes_supported=["mcp:read"])
    return world


class Forgetful(AuthorizationServer):
    """An authorization server that knows its clients, and for which scopes each may ask, as that of the official SDK."""

    allowed = frozenset({"mcp:read", "mcp:write", "offline_access"})

    def __init__(self, world: World, **metadata: object) -> None:
        super().__init__(world, **metadata)
        self.clients: dict[str, set[str]] = {}
        world.routes[f"GET {AS}/authorize"] = self.look

    def register(self, effect: Http) -> HttpResult:
        scopes = set(msgspec.json.decode(effect.body).get("scope", "").split())
        response = super().register(effect)
        if not scopes <= self.allowed:
            return answer(
                {"error": "invalid_client_metadata", "error_description": "Requested scopes are not valid"}, 400
            )
        self.clients[msgspec.json.decode(response.body)["client_id"]] = scopes
        return response

    def look(self, effect: Http) -> HttpResult:
        query = parse_qs(urlsplit(effect.url).query)
        known = query["client_id"][0] in self.clients
        return HttpResult(302, {"location": "/login"}, b"") if known else answer({"error": "invalid_request"}, 400)

    def authorize(self, effect: OpenUrl) -> str:
        query = parse_qs(urlsplit(effect.url).query)
        assert query["client_id"][0] in self.clients, "the person would see an error page, and never come back"
        assert set(query.get("scope", [""])[0].split()) <= self.clients[query["client_id"][0]]
        return super().authorize(effect)


def registrations(server: AuthorizationServer) -> list[Any]:
    return [each.get("scope") for each in server.registered]


def test_a_registration_names_the_scopes_of_the_login(world: World) -> None:
    server = Forgetful(world)
    assert world.call(world.authorizer(OAuth(scopes=["mcp:write"])), server.takes) == 200
    assert registrations(server) == ["mcp:write"]


@pytest.mark.parametrize(
    ("auth", "how"),
    [
        (OAuth(), "registered dynamically"),
        (OAuth(client_id="desk"), "registered by hand"),
        (OAuth(client_id="https://desk.example/client.json"), "described by its document"),
    ],
)
def test_a_login_says_where_its_client_comes_from(world: World, auth: OAuth, how: str) -> None:
    server = Forgetful(world)
    server.clients |= {each: set(server.allowed) for each in ("desk", "https://desk.example/client.json")}
    assert world.call(world.authorizer(auth), server.takes) == 200
    (note,) = [each for each in world.notes if each.startswith("login at ")]
    assert f"({how})" in note


def test_more_scopes_need_another_registration_and_fewer_do_not(world: World) -> None:
    server = Forgetful(world)
    for number, scopes in enumerate([["mcp:read", "mcp:write"], ["mcp:read"], ["mcp:write"]]):
        assert world.call(world.authorizer(OAuth(scopes=scopes, account=str(number))), server.takes) == 200
    assert registrations(server) == ["mcp:read mcp:write"]
    refusals = [challenge(403, 'Bearer error="insufficient_scope", scope="offline_access"')]
    authorizer = world.authorizer(OAuth(scopes=["mcp:read"], account="1"))
    assert world.call(authorizer, lambda attempt: refusals.pop() if refusals else server.takes(attempt)) == 200
    assert registrations(server) == ["mcp:read mcp:write", "mcp:read offline_access"]


def test_a_registration_that_is_refused_for_its_scopes_is_made_for_fewer(world: World) -> None:
    server = Forgetful(world)
    server.authorize = lambda effect: AuthorizationServer.authorize(server, effect)  # type: ignore[method-assign]
    world.browser = server.authorize
    login = challenge(
        401, f'Bearer resource_metadata="{MCP}/.well-known/oauth-protected-resource/mcp", scope="mcp:read"'
    )
    auth = OAuth(scopes=["admin"])
    takes: Callable[[Any], HttpResult] = lambda attempt: server.takes(attempt) if attempt.token else login  # noqa: E731
    assert world.call(world.authorizer(auth), takes) == 200
    assert registrations(server) == ["admin mcp:read", "mcp:read"]
    world.run(world.authorizer(auth).log_in())
    assert len(server.registered) == 2, "what it was to allow is remembered, so that each login does not try again"


def test_a_registration_that_is_refused_for_any_scope_is_made_without(world: World) -> None:
    server = Forgetful(world)
    server.allowed = frozenset()
    world.browser = lambda effect: AuthorizationServer.authorize(server, effect)
    assert world.call(world.authorizer(OAuth(scopes=["mcp:read"])), server.takes) == 200
    assert registrations(server) == ["mcp:read", None]


def test_another_refusal_is_final(world: World) -> None:
    server = AuthorizationServer(world)
    world.routes[f"POST {AS}/register"] = lambda effect: answer({"error": "invalid_redirect_uri"}, 400)
    with pytest.raises(AuthorizationError, match="refused to register this client: invalid_redirect_uri"):
        world.call(world.authorizer(), server.takes)
    assert [each for each in world.trace if "register" in each] == ["POST as/register"]


def test_a_client_that_the_server_has_lost_registers_again_before_a_person_sees_it(world: World) -> None:
    server = Forgetful(world)
    server.token_response = {"refresh_token": "again"}
    assert world.call(world.authorizer(), server.takes) == 200
    server.clients.clear()
    world.run(world.authorizer().log_in())
    assert len(server.registered) == 2
    again = world.trace[world.trace.index("POST as/register", world.trace.index("200 tools/list")) :]
    assert [each.partition(" scope")[0] for each in again[1:2]] == ["OPEN as/authorize client_id=client-2"]


def test_a_client_that_has_just_logged_in_is_not_asked_about(world: World) -> None:
    """Servers count how often they are asked to authorize."""
    server = Forgetful(world)
    authorizer = world.authorizer()
    for _ in range(3):
        world.run(authorizer.log_in())
    assert len([each for each in world.trace if each.startswith("OPEN")]) == 3
    assert not [each for each in world.trace if each.startswith("GET as/authorize")]
    world.run(world.authorizer().log_in())
    assert len([each for each in world.trace if each.startswith("GET as/authorize")]) == 1
    assert len(server.registered) == 1


def test_the_question_whether_a_client_is_known_has_a_state_and_a_challenge_of_its_own(world: World) -> None:
    server = Forgetful(world)
    asked: list[dict[str, list[str]]] = []
    look = server.look
    world.routes[f"GET {AS}/authorize"] = lambda effect: (
        asked.append(parse_qs(urlsplit(effect.url).query)) or look(effect)
    )
    authorize = world.browser

    def open_url(effect: OpenUrl) -> str | None:
        asked.append(parse_qs(urlsplit(effect.url).query))
        return authorize(effect)

    world.browser = open_url
    world.run(world.authorizer().log_in())
    asked.clear()
    world.run(world.authorizer().log_in())
    probe, login = asked
    assert probe.keys() == login.keys()
    assert not [name for name in ("state", "code_challenge") if probe[name] == login[name]]


@pytest.mark.parametrize("status", [200, 302, 403, 500])
def test_any_other_answer_leaves_the_registration_as_it_is(world: World, status: int) -> None:
    server = AuthorizationServer(world)
    world.routes[f"GET {AS}/authorize"] = lambda effect: HttpResult(status, {}, b"")
    for account in "ab":
        assert world.call(world.authorizer(OAuth(account=account)), server.takes) == 200
    assert len(server.registered) == 1


def test_the_old_client_is_kept_until_the_new_login_stands(world: World) -> None:
    server = Forgetful(world)
    assert world.call(world.authorizer(), server.takes) == 200
    stored = world.store["registration", AS]
    browser, world.browser = world.browser, lambda effect: None  # the person gives up
    with pytest.raises(Exception, match="was not finished"):
        world.run(world.authorizer(OAuth(scopes=["mcp:write"], account="b")).log_in())
    assert world.store["registration", AS] == stored
    world.browser = browser
    world.run(world.authorizer(OAuth(scopes=["mcp:write"], account="b")).log_in())
    assert world.store["registration", AS] != stored


def test_a_login_is_renewed_by_its_own_client_whatever_registers_later(world: World) -> None:
    server = Forgetful(world)
    server.token_response = {"refresh_token": "again"}
    assert world.call(world.authorizer(), server.takes) == 200
    world.run(world.authorizer(OAuth(scopes=["mcp:write"], account="b")).log_in())
    world.now += 3600
    assert world.call(world.authorizer(), server.takes) == 200
    assert server.forms[-1]["client_id"] == "client-1"


def test_the_login_of_a_given_client_is_renewed_by_a_client_without_auth_and_never_deleted(world: World) -> None:
    server = AuthorizationServer(
        world, registration_endpoint=None, token_endpoint_auth_methods_supported=["client_secret_post"]
    )
    server.token_response = {"refresh_token": "again"}
    assert world.call(world.authorizer(OAuth(client_id="desk")), server.takes) == 200
    world.now += 3600
    assert world.call(world.authorizer(), server.takes) == 200
    assert server.forms[-1]["client_id"] == "desk"

    secret = OAuth(client_id="vault", client_secret="s3cret")
    world.run(world.authorizer(secret).log_in())
    assert b"s3cret" not in b"".join(world.store.values())
    kept = dict(world.store)
    world.now += 3600
    with pytest.raises(AuthorizationError, match="whose secret is needed to renew it"):
        world.call(world.authorizer(interactive=False), server.takes)
    assert world.store == kept
    assert world.call(world.authorizer(secret), server.takes) == 200


def test_a_login_as_a_new_client_forgets_the_registration(world: World) -> None:
    server = Forgetful(world)
    world.run(world.authorizer().log_in())
    world.run(world.authorizer().log_in(register=True))
    assert len(server.registered) == 2


def test_a_login_as_a_new_client_leaves_nothing_behind_of_the_one_before(world: World) -> None:
    """Such as a refresh token that no logout would find."""
    server = Forgetful(world)
    server.token_response = {"refresh_token": "again"}
    world.run(world.authorizer().log_in())
    world.run(world.authorizer(OAuth(scopes=["mcp:write"])).log_in())
    assert len(server.registered) == 2
    assert [key for key in world.store if key[0] == "grant"] == [("grant", "", AS, "client-2", f"{MCP}/mcp")]
    assert world.run(world.authorizer().log_out())
    assert not world.store


def test_a_login_as_a_registered_client_leaves_that_of_a_given_client_alone(world: World) -> None:
    Forgetful(world).clients["desk"] = {"mcp:read"}
    world.run(world.authorizer(OAuth(client_id="desk")).log_in())
    world.run(world.authorizer().log_in())
    assert {key[3] for key in world.store if key[0] == "grant"} == {"desk", "client-1"}


# Authorization servers that leave something out.

ENTRA, COGNITO = (
    "https://login.microsoftonline.com/0-1/v2.0",
    "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_Pool",
)


def login_at(world: World, issuer: str, auth: OAuth, **metadata: object) -> AuthorizationServer:
    """Log in at an authorization server with this issuer, whose other metadata are as these change them."""
    world.protect(issuer=issuer)
    path = urlsplit(issuer).path
    place = f"{issuer.removesuffix(path)}/.well-known/oauth-authorization-server{path}"
    server = AuthorizationServer(world, issuer, place, **metadata)
    assert world.call(world.authorizer(auth), server.takes) == 200
    return server


@pytest.mark.parametrize("issuer", [ENTRA, COGNITO])
def test_an_issuer_that_is_known_to_support_s256_need_not_list_it(world: World, issuer: str) -> None:
    login_at(world, issuer, OAuth(), code_challenge_methods_supported=None)
    with pytest.raises(AuthorizationError, match="does not support PKCE with S256"):
        login_at(world, issuer, OAuth(account="b"), code_challenge_methods_supported=["plain"])


@pytest.mark.parametrize(
    "issuer",
    [
        "https://login.microsoftonline.com.evil.example/0-1/v2.0",
        "https://evil.example/login.microsoftonline.com/0-1/v2.0",
        "https://login.microsoftonline.com/0-1/v2.0/evil",
        "https://cognito-idp.eu-west-1.amazonaws.com.evil.example/pool",
        AS,
    ],
)
def test_an_unknown_issuer_must_list_s256_or_be_vouched_for(world: World, issuer: str) -> None:
    with pytest.raises(AuthorizationError, match="does not support PKCE with S256") as caught:
        login_at(world, issuer, OAuth(), code_challenge_methods_supported=None)
    assert "pass OAuth(assume_pkce=True)" in (caught.value.hint or "")
    login_at(world, issuer, OAuth(assume_pkce=True), code_challenge_methods_supported=None)
    with pytest.raises(AuthorizationError, match="does not support PKCE with S256") as caught:
        login_at(world, issuer, OAuth(assume_pkce=True, account="b"), code_challenge_methods_supported=[])
    assert "assume_pkce" not in (caught.value.hint or "")


def test_a_login_may_leave_out_the_resource(world: World) -> None:
    server = AuthorizationServer(world)
    server.token_response = {"refresh_token": "again"}
    auth = OAuth(resource=False)
    assert world.call(world.authorizer(auth), server.takes) == 200
    world.now += 3600
    assert world.call(world.authorizer(auth), server.takes) == 200
    assert [each["grant_type"] for each in server.forms] == ["authorization_code", "refresh_token"]
    assert not [each for each in world.trace if "resource=" in each]
    world.routes[f"POST {MCP}/mcp"] = lambda effect: answer({})
    world.run(world.authorizer(auth).log_in())
