"""What happens to a login over time: expiry, refresh, rotation, other processes, and logging out."""

from __future__ import annotations

import json
import threading
from base64 import urlsafe_b64decode
from collections.abc import Callable
from urllib.parse import parse_qs

import pytest
from oauth_world import AS, MCP, START, AuthorizationServer, World, answer, challenge

from linkspan.auth import ClientCredentials, OAuth
from linkspan.auth.authorizer import Attempt, Authorizer
from linkspan.auth.dpop import ProofKey
from linkspan.auth.identities import Dpop
from linkspan.auth.jwks import TokenRefused
from linkspan.auth.proofs import Proof, Replays, check_proof
from linkspan.auth.tokens import Nonces
from linkspan.core.auth_flow import Http, HttpResult, HttpUnavailable, SaveLogin
from linkspan.flows.client_errors import AuthorizationError, LoginRequired, LoginTimeout

REFRESHED = "POST as/token grant_type=refresh_token client_id=client-1 resource=mcp/mcp"


@pytest.fixture
def world() -> World:
    world = World()
    world.protect()
    return world


@pytest.fixture
def server(world: World) -> AuthorizationServer:
    server = AuthorizationServer(world)
    server.token_response = {"refresh_token": "refresh-1"}
    return server


@pytest.fixture
def authorizer(world: World, server: AuthorizationServer) -> Authorizer:
    """One that has logged in."""
    authorizer = world.authorizer()
    assert world.call(authorizer, server.takes) == 200
    world.trace.clear()
    return authorizer


def test_a_token_that_lives_a_few_seconds_is_used_while_it_does(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    server.token_response = {"refresh_token": "refresh-1", "expires_in": 10}
    world.now += 3600
    for seconds in (0, 0, 4.9, 0.1):
        world.now += seconds
        assert world.call(authorizer, server.takes) == 200
    assert world.trace.count(REFRESHED) == 2


def _fails(status: int, document: object = None) -> Callable[[Http], HttpResult]:
    return lambda effect: answer(document, status)


def test_a_restart_needs_no_login_and_no_discovery(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    assert world.call(world.authorizer(interactive=False), server.takes) == 200
    assert world.trace == ["200 tools/list"]


def test_a_token_is_refreshed_60_seconds_before_it_expires(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    server.token_response = {"refresh_token": "refresh-2", "scope": "less"}
    world.now += 3600 - 61
    assert world.call(authorizer, server.takes) == 200
    assert world.trace == ["200 tools/list"]
    world.now += 1
    assert world.call(authorizer, server.takes) == 200
    assert world.trace[1:] == [REFRESHED, "200 tools/list"]
    assert server.forms[-1]["refresh_token"] == "refresh-1"
    world.now += 3600
    assert world.call(authorizer, server.takes) == 200
    assert server.forms[-1]["refresh_token"] == "refresh-2"


def test_a_rotated_refresh_token_is_on_disk_before_it_is_used(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    """AU-C41."""
    world.now += 3600
    server.token_response = {"refresh_token": "refresh-2"}
    flow = authorizer.prepare()
    effect = next(flow)
    while not isinstance(effect, SaveLogin):
        effect = flow.send(world.perform(effect))
    assert effect.value is not None
    assert json.loads(effect.value)["refresh_token"] == "refresh-2"
    assert authorizer.headers("POST", f"{MCP}/mcp") is None, "the new token is not used yet"
    flow.close()


def test_a_refresh_token_that_is_not_rotated_is_kept(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    server.token_response = {}
    for _ in range(2):
        world.now += 3600
        assert world.call(authorizer, server.takes) == 200
    assert [each["refresh_token"] for each in server.forms[1:]] == ["refresh-1"] * 2


def test_a_refused_token_is_refreshed_after_the_metadata_were_read_again(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    """AU-C42: revoked before its time."""
    refusals = [challenge(401)]
    assert world.call(authorizer, lambda attempt: refusals.pop() if refusals else server.takes(attempt)) == 200
    assert world.trace == [
        "401 tools/list",
        "GET mcp/.well-known/oauth-protected-resource/mcp",
        "GET as/.well-known/oauth-authorization-server",
        REFRESHED,
        "200 tools/list",
    ]


def test_of_several_authorization_servers_that_of_the_login_comes_first(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    other = "https://as2.example"
    AuthorizationServer(world, other)
    world.short[other] = "as2"
    world.protect(authorization_servers=[other, AS])
    refusals = [challenge(401)]
    assert world.call(authorizer, lambda attempt: refusals.pop() if refusals else server.takes(attempt)) == 200
    assert REFRESHED in world.trace
    assert not [each for each in world.trace if "as2" in each]


@pytest.mark.parametrize("when", ["expired", "refused"])
def test_invalid_grant_leads_to_a_login(
    world: World, server: AuthorizationServer, authorizer: Authorizer, when: str
) -> None:
    give = server.token

    def token(effect: Http) -> HttpResult:
        return answer({"error": "invalid_grant"}, 400) if b"refresh_token&" in effect.body else give(effect)

    world.routes[f"POST {AS}/token"] = token
    world.now += 3600 if when == "expired" else 0
    server.count += when == "refused"
    assert world.call(authorizer, server.takes) == 200
    assert REFRESHED in world.trace
    assert "OPEN as/authorize client_id=client-1 resource=mcp/mcp" in world.trace


def test_invalid_grant_without_a_person_is_an_error_with_the_command(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    world.routes[f"POST {AS}/token"] = _fails(400, {"error": "invalid_grant"})
    world.now += 3600
    with pytest.raises(LoginRequired) as caught:
        world.call(world.authorizer(interactive=False), server.takes)
    assert caught.value.problem == "the stored login has ended (invalid_grant)"
    assert caught.value.hint == f"run `linkspan login {MCP}/mcp`, or pass auth= or headers= [LS-401]"


@pytest.mark.parametrize("reason", ["invalid_token", None])
def test_a_stored_login_that_the_server_refuses_is_named(
    world: World, server: AuthorizationServer, authorizer: Authorizer, reason: str | None
) -> None:
    """The refresh succeeds, and the server refuses the new token, too: its audience is wrong, for example."""
    error = f' error="{reason}"' if reason is not None else ""
    refusal = challenge(401, f"Bearer{error}")
    with pytest.raises(LoginRequired) as caught:
        world.call(world.authorizer(interactive=False), lambda attempt: refusal)
    assert caught.value.problem == f"the server refuses the stored login ({reason or 'status 401'})"
    assert caught.value.hint == (
        f"run `linkspan login {MCP}/mcp`; if it refuses the new login, too, its log has the reason [LS-416]"
    )
    assert world.trace.count(REFRESHED) == 1


def test_scopes_that_a_stored_login_lacks_are_named(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    refusal = challenge(403, 'Bearer error="insufficient_scope", scope="files:write"')
    with pytest.raises(LoginRequired) as caught:
        world.call(world.authorizer(interactive=False), lambda attempt: refusal, "tools/call write")
    assert caught.value.problem == "tools/call write needs files:write, which the stored login does not have"
    assert caught.value.hint == f"run `linkspan login {MCP}/mcp --scope files:write` [LS-417]"


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_outage_does_not_lead_to_a_login(
    world: World, server: AuthorizationServer, authorizer: Authorizer, status: int
) -> None:
    world.routes[f"POST {AS}/token"] = _fails(status, {"error": "temporarily_unavailable"} if status == 503 else None)
    server.count += 1
    with pytest.raises(AuthorizationError) as caught:
        world.call(authorizer, server.takes)
    assert not isinstance(caught.value, LoginRequired)
    assert not [each for each in world.trace if each.startswith("OPEN")]
    world.routes[f"POST {AS}/token"] = server.token
    world.now += 3
    assert world.call(authorizer, server.takes) == 200


def test_a_valid_token_is_used_while_the_authorization_server_is_away(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    def away(effect: Http) -> HttpResult:
        raise HttpUnavailable("connection refused")

    world.routes[f"POST {AS}/token"] = away
    world.now += 3600 - 50
    assert [world.call(authorizer, server.takes) for _ in range(3)] == [200] * 3
    assert world.trace == [REFRESHED, *["200 tools/list"] * 3]
    world.now += 31
    assert world.call(authorizer, server.takes) == 200
    assert world.trace[4:] == [REFRESHED, "200 tools/list"]
    world.now += 31
    for _ in range(20):  # those that wait fail with the first one
        with pytest.raises(AuthorizationError, match="connection refused"):
            world.run(authorizer.prepare())
    assert world.trace[6:] == [REFRESHED]


def test_eight_processes_whose_token_has_expired_refresh_once(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    others = [world.authorizer(interactive=False) for _ in range(8)]
    for each in others:
        world.run(each.prepare())
    world.now += 3600
    server.token_response = {"refresh_token": "refresh-2"}
    assert [world.call(each, server.takes) for each in others] == [200] * 8
    assert world.trace.count(REFRESHED) == 1


def test_a_login_of_another_process_is_used(world: World, server: AuthorizationServer) -> None:
    here, there = world.authorizer(), world.authorizer()
    world.run(here.prepare())
    assert world.call(there, server.takes) == 200
    world.trace.clear()
    assert world.call(here, server.takes) == 200
    assert world.trace == ["401 tools/list", "200 tools/list"]


def test_twenty_calls_that_meet_one_401_cause_one_login(world: World, server: AuthorizationServer) -> None:
    authorizer = world.authorizer()
    world.run(authorizer.prepare())
    attempts = [authorizer.headers("POST", f"{MCP}/mcp") for _ in range(20)]
    refused = challenge(401).headers
    assert all(world.run(authorizer.refused(each, 401, refused, "x")) for each in attempts if each is not None)
    assert len([each for each in world.trace if each.startswith("OPEN")]) == 1
    assert len(world.trace) == 5


def test_twenty_calls_share_the_error_of_one_login(world: World, server: AuthorizationServer) -> None:
    authorizer = world.authorizer()
    world.run(authorizer.prepare())
    attempts = [authorizer.headers("POST", f"{MCP}/mcp") for _ in range(20)]
    world.browser = lambda effect: None
    errors: list[AuthorizationError] = []
    for attempt in attempts:
        assert attempt is not None
        with pytest.raises(LoginTimeout) as caught:
            world.run(authorizer.refused(attempt, 401, challenge(401).headers, "x"))
        errors.append(caught.value)
    assert len({id(each) for each in errors}) == 20
    assert len([each for each in world.trace if each.startswith("OPEN")]) == 1
    assert isinstance(errors[0], LoginTimeout)
    assert errors[0].seconds == 300
    assert errors[0].login_url.startswith(f"{AS}/authorize?response_type=code&client_id=client-1&")


def test_a_flow_that_was_cancelled_is_no_outcome(world: World, server: AuthorizationServer) -> None:
    authorizer = world.authorizer()
    world.run(authorizer.prepare())
    first, second = (authorizer.headers("POST", f"{MCP}/mcp") for _ in range(2))
    assert first is not None
    assert second is not None
    flow = authorizer.refused(first, 401, challenge(401).headers, "x")
    next(flow)
    flow.close()
    assert world.run(authorizer.refused(second, 401, challenge(401).headers, "x"))
    assert len([each for each in world.trace if each.startswith("OPEN")]) == 1


def test_without_a_person_there_is_no_request_before_the_error(world: World, server: AuthorizationServer) -> None:
    with pytest.raises(LoginRequired):
        world.call(world.authorizer(interactive=False), server.takes)
    assert world.trace == ["401 tools/list"]


@pytest.mark.parametrize(
    ("status", "header"), [(401, ""), (401, "Basic realm=x"), (403, ""), (403, 'Bearer error="invalid_token"')]
)
def test_a_refusal_that_is_not_about_oauth_is_left_to_the_caller(world: World, status: int, header: str) -> None:
    assert world.call(world.authorizer(interactive=False), lambda attempt: challenge(status, header)) == status


def test_two_accounts_and_two_servers_do_not_share_a_login(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    for other in (
        world.authorizer(OAuth(account="b"), interactive=False),
        world.authorizer(url=f"{MCP}/other", interactive=False),
    ):
        world.run(other.prepare())
        assert world.run(other.stored()) is None
    found = world.run(authorizer.stored())
    assert (found.issuer, found.client_id, found.resource, found.expires) == (AS, "client-1", f"{MCP}/mcp", 1_003_600)


def test_a_login_with_other_credentials_is_not_ours(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    for auth in (OAuth(client_id="other"), OAuth(issuer="https://other.example")):
        assert world.run(world.authorizer(auth).stored()) is None


def test_a_registration_is_used_again_with_its_port(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    assert world.call(world.authorizer(OAuth(account="b")), server.takes) == 200
    assert len(server.registered) == 1
    world.taken_ports.add(3000)
    assert world.call(world.authorizer(OAuth(account="c")), server.takes) == 200
    assert [each["redirect_uris"] for each in server.registered] == [
        [f"http://127.0.0.1:{port}/callback"] for port in (3000, 3001)
    ]


def test_a_registration_that_expired_is_made_again(world: World, server: AuthorizationServer) -> None:
    server.registration = {"client_secret_expires_at": 1_000_100}
    world.call(world.authorizer(), server.takes)
    world.now += 200
    world.call(world.authorizer(OAuth(account="b")), server.takes)
    assert len(server.registered) == 2


def test_a_registration_that_the_server_forgot_is_made_again(
    world: World, server: AuthorizationServer, authorizer: Authorizer
) -> None:
    give = server.token

    def token(effect: Http) -> HttpResult:
        return answer({"error": "invalid_client"}, 401) if b"client_id=client-1" in effect.body else give(effect)

    world.routes[f"POST {AS}/token"] = token
    world.now += 3600
    assert world.call(authorizer, server.takes) == 200
    assert len(server.registered) == 2


@pytest.mark.parametrize("endpoint", [f"{AS}/register", None])
def test_what_to_register_is_in_the_error(world: World, endpoint: str | None) -> None:
    AuthorizationServer(world, registration_endpoint=endpoint)
    world.routes[f"POST {AS}/register"] = _fails(
        400, {"error": "invalid_redirect_uri", "error_description": "https only"}
    )
    with pytest.raises(AuthorizationError) as caught:
        world.call(world.authorizer(OAuth(redirect_port=4711)), lambda attempt: challenge(401))
    assert "http://127.0.0.1:4711/callback" in (caught.value.hint or "")
    assert ("https only" in caught.value.problem) is (endpoint is not None)


def test_logging_out_revokes_and_forgets(world: World) -> None:
    server = AuthorizationServer(world, revocation_endpoint=f"{AS}/revoke")
    server.token_response = {"refresh_token": "refresh-1"}
    revoked: list[bytes] = []

    def revoke(effect: Http) -> HttpResult:
        revoked.append(effect.body)
        return HttpResult(503, {}, b"")

    world.routes[f"POST {AS}/revoke"] = revoke
    authorizer = world.authorizer()
    world.call(authorizer, server.takes)
    assert world.run(authorizer.log_out()) == (AS, "status 503")
    assert world.run(authorizer.log_out()) is None
    assert revoked == [b"token=refresh-1&token_type_hint=refresh_token&client_id=client-1"]
    assert not world.store, "not the registration either: the next login makes a new one"


def test_a_revocation_endpoint_that_insists_on_a_secret_gets_an_empty_one_from_a_public_client(world: World) -> None:
    """As that of servers made with the official SDK."""
    revoked: list[str] = []

    def revoke(effect: Http) -> HttpResult:
        fields = parse_qs(effect.body.decode(), keep_blank_values=True)
        if fields.get("client_secret") != [""]:
            return answer({"error": "invalid_request", "error_description": "client_secret: Field required"}, 400)
        revoked.extend(fields["token"])
        return answer({})

    server = AuthorizationServer(world, revocation_endpoint=f"{AS}/revoke")
    server.token_response = {"refresh_token": "again"}
    world.routes[f"POST {AS}/revoke"] = revoke
    authorizer = world.authorizer()
    assert world.call(authorizer, server.takes) == 200
    assert world.run(authorizer.log_out()) == (AS, None)
    assert revoked == ["again"]


def test_logging_in_asks_the_server_first(world: World, server: AuthorizationServer) -> None:
    def takes(effect: Http) -> HttpResult:
        known = effect.headers.get("authorization") == "Bearer token-1"
        return answer({}) if known else challenge(401, 'Bearer scope="a"')

    world.routes[f"POST {MCP}/mcp"] = takes
    found = world.run(world.authorizer(OAuth(scopes=["b"])).log_in())
    assert found.scopes == ("b", "a")
    assert (world.trace[0], world.trace[-1]) == ("POST mcp/mcp", "POST mcp/mcp"), "and tries the token there"


def test_a_login_stands_if_the_server_cannot_be_asked_afterwards(world: World, server: AuthorizationServer) -> None:
    asked: list[Http] = []

    def takes(effect: Http) -> HttpResult:
        asked.append(effect)
        if len(asked) > 1:
            raise HttpUnavailable("connection refused")
        return challenge(401)

    world.routes[f"POST {MCP}/mcp"] = takes
    assert world.run(world.authorizer().log_in()).access_token == "token-1"
    assert len(asked) == 2
    assert world.run(world.authorizer().stored()) is not None


def test_a_login_whose_token_the_server_refuses_is_not_kept(world: World, server: AuthorizationServer) -> None:
    world.routes[f"POST {MCP}/mcp"] = lambda effect: challenge(401)
    with pytest.raises(AuthorizationError, match="refuses"):
        world.run(world.authorizer().log_in())
    assert world.run(world.authorizer().stored()) is None
    assert world.trace.count("POST mcp/mcp") == 2


def test_a_login_whose_token_must_be_renewed_at_once_stands(world: World, server: AuthorizationServer) -> None:
    server.token_response = {"expires_in": 0, "refresh_token": "again"}
    world.routes[f"POST {MCP}/mcp"] = lambda effect: challenge(401)
    assert world.run(world.authorizer().log_in()).access_token == "token-1"
    assert world.trace.count("POST mcp/mcp") == 1, "the token is not tried"


def test_a_login_stands_at_a_server_that_wants_a_new_nonce_each_time(world: World, server: AuthorizationServer) -> None:
    """It does not refuse the token: it has not looked at it yet."""
    pytest.importorskip("joserfc", reason="the extra `auth` is not installed")
    server.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
    asked: list[Http] = []

    def takes(effect: Http) -> HttpResult:
        asked.append(effect)
        if len(asked) == 1:
            return challenge(401, "DPoP")
        return challenge(401, 'DPoP error="use_dpop_nonce"', dpop_nonce=f"nonce-{len(asked)}")

    world.routes[f"POST {MCP}/mcp"] = takes
    assert world.run(world.authorizer().log_in()).access_token == "token-1"
    assert len(asked) == 4
    assert world.run(world.authorizer().stored()) is not None


def test_logging_in_at_a_server_that_is_open(world: World) -> None:
    world.routes.clear()
    world.routes[f"POST {MCP}/mcp"] = lambda effect: answer({})
    with pytest.raises(AuthorizationError, match="does not ask for a login"):
        world.run(world.authorizer().log_in())


def test_a_program_gets_its_next_token_by_itself(world: World, server: AuthorizationServer) -> None:
    server.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_basic"]
    authorizer = world.authorizer(ClientCredentials("c", secret="s3cret"))
    assert world.call(authorizer, server.takes) == 200
    world.now += 3600
    world.trace.clear()
    assert world.call(authorizer, server.takes) == 200
    assert world.trace == ["POST as/token grant_type=client_credentials client_id=c resource=mcp/mcp", "200 tools/list"]


def test_the_first_of_several_authorization_servers_that_works_is_used(world: World) -> None:
    world.document(
        f"{MCP}/.well-known/oauth-protected-resource/mcp",
        {"resource": f"{MCP}/mcp", "authorization_servers": ["https://gone.example", AS]},
    )
    server = AuthorizationServer(world)
    assert world.call(world.authorizer(), server.takes) == 200
    assert world.call(world.authorizer(OAuth(account="b", issuer=AS)), server.takes) == 200


def test_a_lone_authorization_server_that_fails_is_the_whole_story(world: World) -> None:
    """Not one of several: its own words, without a list."""
    with pytest.raises(AuthorizationError) as caught:
        world.call(world.authorizer(), lambda attempt: challenge(401))
    assert "no usable authorization server" not in str(caught.value)
    world.protect(authorization_servers=[AS, "https://other.example"])
    with pytest.raises(AuthorizationError, match=r"no usable authorization server: .*; "):
        world.call(world.authorizer(), lambda attempt: challenge(401))


@pytest.mark.parametrize(("lifetime", "due"), [(3600, 3540), (120, 60), (100, 50), (1, 0.5)])
def test_a_token_is_due_a_minute_before_its_end_or_after_half_its_life(
    world: World, server: AuthorizationServer, lifetime: float, due: float
) -> None:
    server.token_response = {"expires_in": lifetime}
    assert world.run(world.authorizer().log_in()).due == world.now + due


@pytest.mark.parametrize("value", ["", "Bearer", 'Bearer error="invalid_token"'])
def test_a_403_for_another_reason_is_not_about_authorization(
    world: World, server: AuthorizationServer, value: str
) -> None:
    authorizer = world.authorizer()
    assert world.call(authorizer, server.takes) == 200
    logins = len(world.trace)
    assert world.call(authorizer, lambda attempt: challenge(403, value)) == 403
    assert world.trace[logins:] == ["403 tools/list"]


def test_a_401_that_names_scopes_is_a_login_and_no_step_up(world: World, server: AuthorizationServer) -> None:
    authorizer = world.authorizer(interactive=False)
    refusal = challenge(401, f'Bearer resource_metadata="{MCP}/x", error="insufficient_scope", scope="admin"')
    with pytest.raises(LoginRequired):
        world.call(authorizer, lambda attempt: refusal)


@pytest.mark.parametrize("method", ["private_key_jwt", "client_secret_post"])
def test_a_registration_that_cannot_be_used_is_refused(world: World, method: str) -> None:
    server = AuthorizationServer(world)
    server.registration = {"token_endpoint_auth_method": method, "client_secret": None}
    with pytest.raises(AuthorizationError, match="which the client does not support"):
        world.call(world.authorizer(), server.takes)


@pytest.mark.parametrize("expires", [None, "3600", 0, -5, 1e300, "soon"])
def test_any_expiry_is_understood(world: World, server: AuthorizationServer, expires: object) -> None:
    server.token_response = {"expires_in": expires, "refresh_token": "r"}
    assert world.call(world.authorizer(), server.takes) == 200


@pytest.mark.parametrize("data", [b"", b"{}", b"null", b"\xff", b'{"access_token": 1}'])
def test_a_store_of_another_version_is_like_an_empty_one(
    world: World, server: AuthorizationServer, authorizer: Authorizer, data: bytes
) -> None:
    for key in world.store:
        if key[0] != "client":
            world.store[key] = data
    assert world.call(world.authorizer(), server.takes) == 200


def test_a_token_that_is_bound_to_a_key_survives_a_restart(world: World) -> None:
    pytest.importorskip("joserfc", reason="the extra `auth` is not installed")
    server = AuthorizationServer(world, dpop_signing_alg_values_supported=["ES256"])
    server.token_response = {"refresh_token": "refresh-1"}
    proofs: list[str] = []

    def takes(attempt: Attempt) -> HttpResult:
        proofs.append(attempt.headers.get("dpop", ""))
        return answer({}) if attempt.headers.get("authorization") == f"DPoP token-{server.count}" else challenge(401)

    assert world.call(world.authorizer(OAuth(dpop=True)), takes) == 200
    world.now += 3600
    assert world.call(world.authorizer(interactive=False), takes) == 200
    assert proofs[1].split(".")[0] == proofs[2].split(".")[0], "the same key"


@pytest.mark.parametrize(
    ("dpop", "offered", "problem"), [(True, None, "does not support DPoP"), ("auto", ["RS256"], "proofs with ES256")]
)
def test_a_key_that_nobody_takes_is_an_error(world: World, dpop: Dpop, offered: list[str] | None, problem: str) -> None:
    AuthorizationServer(world, dpop_signing_alg_values_supported=offered)
    header = "DPoP" if dpop == "auto" else "Bearer"
    with pytest.raises(AuthorizationError, match=problem):
        world.call(world.authorizer(OAuth(dpop=dpop)), lambda attempt: challenge(401, header))


@pytest.mark.parametrize("curve", ["P-256", "P-384", "P-521"])
def test_keys_of_every_kind_sign(world: World, curve: str) -> None:
    jwk = pytest.importorskip("joserfc.jwk", reason="the extra `auth` is not installed")
    keys = [
        jwk.ECKey.generate_key(curve),
        *([jwk.RSAKey.generate_key(2048), jwk.OKPKey.generate_key("Ed25519")] if curve == "P-256" else []),
    ]
    for key in keys:
        for written in (
            key.as_pem(private=True),
            key.as_pem(private=True).decode(),
            json.dumps(key.as_dict(private=True)),
        ):
            server = AuthorizationServer(world, token_endpoint_auth_methods_supported=["private_key_jwt"])
            assert world.call(world.authorizer(ClientCredentials("c", key=written)), server.takes) == 200


@pytest.mark.parametrize(
    ("key", "alg"),
    [
        ("not a key", None),
        ('{"kty": "EC"}', None),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", None),
        ('{"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"}', "HS256"),
        ("public PEM", None),
        ("public JWK", None),
    ],
)
def test_a_key_that_cannot_sign_is_not_shown(
    world: World, server: AuthorizationServer, key: str, alg: str | None
) -> None:
    jwk = pytest.importorskip("joserfc.jwk", reason="the extra `auth` is not installed")
    if key.startswith("public"):
        made = jwk.ECKey.generate_key("P-256")
        key = made.as_pem(private=False).decode() if key == "public PEM" else json.dumps(made.as_dict(private=False))
    with pytest.raises(AuthorizationError, match="key= is not a private key") as caught:
        world.call(world.authorizer(ClientCredentials("c", key=key, alg=alg)), server.takes)
    assert key not in str(caught.value)


def test_a_proof_does_not_contain_the_password_of_a_url(world: World) -> None:
    pytest.importorskip("joserfc", reason="the extra `auth` is not installed")
    server = AuthorizationServer(world, dpop_signing_alg_values_supported=["ES256"])
    authorizer = world.authorizer(OAuth(dpop=True))
    assert world.call(authorizer, lambda attempt: answer({}) if attempt.token else challenge(401)) == 200
    attempt = authorizer.headers("POST", "https://me:s3cret@MCP.example/mcp?x=y")
    assert attempt is not None
    body = attempt.headers["dpop"].split(".")[1]
    assert json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))["htu"] == f"{MCP}/mcp"
    assert server.count == 1


def test_our_servers_take_the_proofs_of_our_clients_once() -> None:
    pytest.importorskip("joserfc", reason="the extra `auth` is not installed")
    key, url, replays = ProofKey.generate(), f"{MCP}/mcp?x=y", Replays(threading.Lock())
    text = ProofKey.load(key.save()).proof("POST", url, now=START, jti="1", token="token", nonce=None)
    proof = Proof(text, "POST", f"{MCP}/mcp", "token", key.thumbprint)
    check_proof(proof, now=START, replays=replays)
    with pytest.raises(TokenRefused, match="used before"):
        check_proof(proof, now=START, replays=replays)


def test_the_nonces_of_several_servers_are_remembered_within_a_bound() -> None:
    nonces = Nonces()
    for number in range(16):
        assert nonces.learn(f"https://{number}.example/token", {"dpop-nonce": f"n{number}"}) == f"n{number}"
    assert nonces.learn("https://0.example/other", {}) is None
    assert [nonces.get(f"https://{number}.example/mcp") for number in range(16)] == [f"n{each}" for each in range(16)]
    nonces.learn("https://16.example/", {"dpop-nonce": "n16"})
    assert [nonces.get(f"https://{number}.example/") for number in (0, 15, 16)] == [None, None, "n16"]
