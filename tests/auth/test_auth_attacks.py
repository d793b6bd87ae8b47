"""Attacks on a client that logs in, each refused."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from urllib.parse import parse_qs, urlencode

import pytest
from oauth_world import AS, MCP, PRM, AuthorizationServer, World, answer, challenge, form

from linkspan.auth import ClientCredentials, OAuth
from linkspan.auth.authorizer import Attempt
from linkspan.core.auth_flow import Http, HttpResult, HttpUnavailable, OpenUrl
from linkspan.flows.client_errors import AuthorizationError, LoginRequired

EVIL = "https://evil.example"


@pytest.fixture
def world() -> World:
    world = World()
    world.short[EVIL] = "evil"
    world.protect()
    return world


def _refused(world: World, takes: Callable[[Attempt], HttpResult], auth: OAuth | None = None) -> AuthorizationError:
    with pytest.raises(AuthorizationError) as caught:
        world.call(world.authorizer(auth), takes)
    assert caught.value.phase == "authorize"
    assert caught.value.delivery == "not_sent"
    return caught.value


def _sent(world: World) -> str:
    return "\n".join(world.trace)


def test_mix_up(world: World) -> None:
    """The code of an honest authorization server is not sent to the one of an attacker (RFC 9207)."""
    world.protect(issuer=EVIL)
    honest = AuthorizationServer(world)
    AuthorizationServer(
        world, EVIL, authorization_endpoint=f"{AS}/authorize", authorization_response_iss_parameter_supported=None
    )
    world.browser = honest.authorize
    assert "does not come from https://evil.example" in _refused(world, honest.takes).problem
    assert "evil/token" not in _sent(world)


def test_an_error_of_another_issuer_is_not_shown(world: World) -> None:
    server = AuthorizationServer(world)
    world.browser = lambda effect: urlencode(
        {"error": "access_denied", "error_description": "call 555-1234", "state": effect.state, "iss": EVIL}
    )
    assert "555-1234" not in str(_refused(world, server.takes))


def test_an_error_of_the_issuer_is_shown_on_one_line_without_commands(world: World) -> None:
    server = AuthorizationServer(world)
    world.browser = lambda effect: urlencode(
        {"error": "access_denied", "error_description": "no\x1b[2J\n\u202e", "state": effect.state, "iss": AS}
    )
    error = _refused(world, server.takes)
    assert error.error == "access_denied"
    assert error.problem == r"the login failed: access_denied: no\x1b[2J \u202e"


def test_issuer_mismatch(world: World) -> None:
    for issuer in (EVIL, f"{AS}//", f"{AS}/?", f"{AS}/tenant", AS.upper(), f"{AS}:443"):
        AuthorizationServer(world, issuer=issuer, place=f"{AS}/.well-known/oauth-authorization-server")
        assert "metadata of another issuer" in _refused(world, lambda attempt: challenge(401)).problem
    assert "OPEN" not in _sent(world)


@pytest.mark.parametrize(
    "resource",
    [f"{EVIL}/mcp", f"{MCP}/mcp/admin", f"{MCP}/m", "https://mcp.example.evil.example/mcp", f"{MCP}@evil.example/mcp"],
)
def test_a_token_for_another_server_is_not_asked_for(world: World, resource: str) -> None:
    """Confused deputy: a server that names another one as its resource would be handed its tokens."""
    world.protect(resource)
    server = AuthorizationServer(world)
    assert "describes another resource" in _refused(world, server.takes).problem
    assert "OPEN" not in _sent(world)


def test_a_token_goes_to_no_other_origin(world: World) -> None:
    """Confused deputy between two servers in one host: a redirect gets no token."""
    server = AuthorizationServer(world)
    authorizer = world.authorizer()
    assert world.call(authorizer, server.takes) == 200
    for url in (f"{EVIL}/mcp", "http://mcp.example/mcp", "https://mcp.example:8443/mcp"):
        attempt = authorizer.headers("POST", url)
        assert attempt is not None
        assert not attempt.headers


def test_the_credentials_of_one_authorization_server_are_not_sent_to_another(world: World) -> None:
    """A second server cannot get the secret that the user has for the first one; AU-C13."""
    auth = OAuth(client_id="ours", client_secret="s3cret-of-ours")
    first = AuthorizationServer(world, token_endpoint_auth_methods_supported=["client_secret_post"])
    assert world.call(world.authorizer(auth), first.takes) == 200
    second = AuthorizationServer(world, EVIL, token_endpoint_auth_methods_supported=["client_secret_post"])
    world.protect(f"{EVIL}/mcp", PRM, EVIL)
    for identity in (auth, ClientCredentials("ours", secret="s3cret-of-ours")):
        other = world.authorizer(identity, url=f"{EVIL}/mcp")
        with pytest.raises(AuthorizationError) as caught:
            world.run(other.refused(Attempt(f"{EVIL}/mcp", 0, None), 401, challenge(401).headers, "tools/list"))
        assert "belong to https://as.example" in caught.value.problem
        assert f"issuer='{EVIL}'" in (caught.value.hint or "")
    assert not second.forms


def test_a_server_cannot_choose_another_issuer_than_the_user(world: World) -> None:
    world.protect(issuer=EVIL)
    server = AuthorizationServer(world, EVIL)
    assert f"but issuer='{AS}' was given" in _refused(world, server.takes, OAuth(client_id="ours", issuer=AS)).problem
    assert "evil" not in _sent(world)


@pytest.mark.parametrize("state", ["", "another", "x" * 43])
def test_code_injection(world: World, state: str) -> None:
    """A code from a redirect that does not belong to this login is not used."""
    server = AuthorizationServer(world)
    world.browser = lambda effect: urlencode({"code": "stolen", "state": state, "iss": AS})
    assert "belongs to another login" in _refused(world, server.takes).problem
    assert "as/token" not in _sent(world)


def test_state_replay(world: World) -> None:
    """The redirect of an earlier login is not taken for a later one."""
    server = AuthorizationServer(world)
    redirects: list[str] = []

    def once(effect: OpenUrl) -> str:
        redirects.append(server.authorize(effect))
        return redirects[0]

    world.browser = once
    assert world.call(world.authorizer(), server.takes) == 200
    world.store.clear()
    assert "belongs to another login" in _refused(world, server.takes).problem


@pytest.mark.parametrize("more", ["&code=other", "&iss=https%3A%2F%2Fas.example", "&state=other"])
def test_a_parameter_of_a_redirect_comes_once(world: World, more: str) -> None:
    server = AuthorizationServer(world)
    world.browser = lambda effect: server.authorize(effect) + more
    assert "has a parameter twice" in _refused(world, server.takes).problem


@pytest.mark.parametrize(
    "endpoint",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "https://u:p@as.example/",
        "http://as.example/authorize",
        "https://as.example/#x",
    ],
)
@pytest.mark.parametrize(
    "name", ["authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"]
)
def test_javascript_url(world: World, name: str, endpoint: str) -> None:
    """AU-C26: no endpoint with such a URL is opened or contacted."""
    server = AuthorizationServer(world, **{name: endpoint})
    assert f"the {name} of {AS} is not safe to use" in _refused(world, server.takes).problem
    assert "OPEN" not in _sent(world)
    assert "POST" not in _sent(world)


@pytest.mark.parametrize(
    "own", ["redirect_uri=https%3A%2F%2Fevil.example%2F", "client_id=evil", "state=", "code_challenge=x", "resource=x"]
)
def test_open_redirect(world: World, own: str) -> None:
    """The code goes to our own redirect URI, whatever an endpoint has in its query."""
    server = AuthorizationServer(world, authorization_endpoint=f"{AS}/authorize?audience=x&{own}")
    assert f"already has the parameter {own.partition('=')[0]}" in _refused(world, server.takes).problem
    assert server.registered[0]["redirect_uris"] == ["http://127.0.0.1:3000/callback"]
    assert "OPEN" not in _sent(world)


def test_an_endpoint_may_have_a_query(world: World) -> None:
    server = AuthorizationServer(world, authorization_endpoint=f"{AS}/authorize?audience=x&prompt=")
    assert world.call(world.authorizer(), server.takes) == 200


@pytest.mark.parametrize("methods", [None, [], ["plain"], ["plain", "s256"]])
def test_pkce_downgrade(world: World, methods: list[str] | None) -> None:
    """AU-C20."""
    server = AuthorizationServer(world, code_challenge_methods_supported=methods)
    assert "does not support PKCE with S256" in _refused(world, server.takes).problem
    assert "OPEN" not in _sent(world)


@pytest.mark.parametrize(
    "announced",
    [
        "http://169.254.169.254/latest/meta-data",
        "http://localhost:6379/",
        "file:///etc/passwd",
        "https://user@mcp.example/x",
        "gopher://mcp.example/",
    ],
)
def test_metadata_ssrf(world: World, announced: str) -> None:
    """A challenge cannot make the client send requests where an https URL does not lead."""
    error = _refused(world, lambda attempt: challenge(401, f'Bearer resource_metadata="{announced}"'))
    assert "announces its metadata at" in error.problem
    assert world.trace == ["401 tools/list"]


def test_metadata_ssrf_by_issuer(world: World) -> None:
    world.protect(issuer="http://169.254.169.254/")
    assert "invalid issuer" in _refused(world, lambda attempt: challenge(401)).problem
    assert world.trace == ["401 tools/list", "GET mcp/.well-known/oauth-protected-resource/mcp"]


@pytest.mark.parametrize("endpoint", ["token", "register"])
def test_redirects_at_token_and_registration_endpoints_are_not_followed(world: World, endpoint: str) -> None:
    server = AuthorizationServer(world)
    effects: list[Http] = []

    def redirect(effect: Http) -> HttpResult:
        effects.append(effect)
        return HttpResult(307, {"location": f"{EVIL}/{endpoint}"}, b"")

    world.routes[f"POST {AS}/{endpoint}"] = redirect
    assert "status 307" in _refused(world, server.takes).problem
    assert [effect.redirects for effect in effects] == [False]


def test_endless_401(world: World) -> None:
    """A server that refuses each new token gets two of them."""
    server = AuthorizationServer(world)
    server.token_response = {"refresh_token": "refresh"}
    assert "refuses the token" in _refused(world, lambda attempt: challenge(401)).problem
    assert len(server.forms) == 2


def test_endless_nonces(world: World) -> None:
    pytest.importorskip("joserfc", reason="the extra `auth` is not installed")
    server = AuthorizationServer(world, dpop_signing_alg_values_supported=["ES256"])
    count = iter(range(1000))

    def takes(attempt: Attempt) -> HttpResult:
        return challenge(401, 'DPoP error="use_dpop_nonce"', dpop_nonce=f"n{next(count)}")

    _refused(world, takes)
    assert next(count) < 10
    assert len(server.forms) <= 2


@pytest.mark.parametrize("reason", ["a body larger than 1048576 bytes", "no response within 30 s"])
def test_slow_and_huge_metadata(world: World, reason: str) -> None:
    """The driver ends the request; there is no login, and no fallback to another document."""

    def unavailable(effect: Http) -> HttpResult:
        assert effect.limit == 1 << 20
        raise HttpUnavailable(reason)

    world.routes[f"GET {PRM}"] = unavailable
    assert reason in _refused(world, lambda attempt: challenge(401)).problem
    assert len(world.trace) == 2


@pytest.mark.parametrize("body", [b'{"a":' * 50_000, b'{"resource": "\xff"}', b"{}", b'{"resource": 1}', b" {"])
def test_metadata_that_cannot_be_read(world: World, body: bytes) -> None:
    world.routes[f"GET {PRM}"] = lambda effect: HttpResult(200, {}, body)
    assert "invalid document" in _refused(world, lambda attempt: challenge(401)).problem


def test_an_outage_does_not_lead_to_the_older_discovery(world: World) -> None:
    """A server that fails is not one without metadata, whose origin would be believed."""
    world.routes[f"GET {PRM}"] = lambda effect: HttpResult(503, {}, b"")
    assert "status 503" in _refused(world, lambda attempt: challenge(401, "Bearer")).problem
    assert len(world.trace) == 2


def test_a_server_without_metadata_cannot_name_an_issuer_elsewhere(world: World) -> None:
    del world.routes[f"GET {PRM}"]
    world.document(f"{MCP}/.well-known/oauth-authorization-server", {"issuer": AS, "token_endpoint": f"{AS}/token"})
    assert "an issuer elsewhere" in _refused(world, lambda attempt: challenge(401, "Bearer")).problem


def test_a_server_without_metadata_cannot_choose_another_issuer_than_the_user(world: World) -> None:
    del world.routes[f"GET {PRM}"]
    error = _refused(world, lambda attempt: challenge(401, "Bearer"), OAuth(client_id="ours", issuer=AS))
    assert error.problem == f"the server uses the issuer {MCP}, but issuer='{AS}' was given"
    assert not [each for each in world.trace if each.startswith(("POST", "OPEN"))]


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
@pytest.mark.parametrize("endpoint", ["javascript:alert(1)", "file:///etc/passwd", "http://mcp.example/x"])
def test_a_server_without_metadata_cannot_name_an_endpoint_that_is_not_safe(
    name: str, endpoint: str, world: World
) -> None:
    """The discovery of 2025-03-26, too, checks what will be opened and sent to."""
    del world.routes[f"GET {PRM}"]
    usual = {each: f"{MCP}/{each}" for each in ("authorization_endpoint", "token_endpoint", "registration_endpoint")}
    world.document(f"{MCP}/.well-known/oauth-authorization-server", {"issuer": MCP, **usual, name: endpoint})
    error = _refused(world, lambda attempt: challenge(401, "Bearer"))
    assert "is not safe to use" in error.problem
    assert not [each for each in world.trace if each.startswith(("POST", "OPEN"))]


def test_no_token_is_sent_to_a_server_over_plain_http(world: World) -> None:
    authorizer = world.authorizer(url="http://mcp.example/mcp")
    with pytest.raises(AuthorizationError, match="it is not https"):
        world.run(authorizer.refused(Attempt("http://mcp.example/mcp", 0, None), 401, {}, "x"))
    assert not world.trace


def test_scopes_of_a_challenge_cannot_leave_the_command_that_a_hint_shows(world: World) -> None:
    """People paste what a hint shows into a shell."""
    server = AuthorizationServer(world)
    assert world.call(world.authorizer(), server.takes) == 200
    header = 'Bearer error="insufficient_scope", scope="a;$(reboot) `id` b\'c \\\\x \x1b[2J"'
    with pytest.raises(LoginRequired) as caught:
        world.call(world.authorizer(interactive=False), lambda attempt: challenge(403, header))
    command = (caught.value.hint or "").removeprefix("run `").rpartition("` [LS-417]")[0]
    assert shlex.split(command) == [
        "linkspan",
        "login",
        f"{MCP}/mcp",
        "--scope",
        "a;$(reboot)",
        "--scope",
        "`id`",
        "--scope",
        "b'c",
    ]


def test_secrets_are_in_no_text(world: World) -> None:
    """Neither reprs nor errors show tokens, codes, verifiers or secrets, even if a server quotes them."""
    server = AuthorizationServer(world, token_endpoint_auth_methods_supported=["client_secret_post"])
    seen: list[str] = []

    def quotes(effect: Http) -> HttpResult:
        fields = form(effect.body.decode())
        seen.extend(fields[name] for name in ("code", "code_verifier", "client_secret"))
        return answer(
            {"error": "invalid_request", "error_description": f"cannot use {effect.body.decode()} or {fields}"}, 400
        )

    give = world.routes[f"POST {AS}/token"]
    world.routes[f"POST {AS}/token"] = quotes
    auth = OAuth(client_id="c", client_secret="s3cret/of+ours")
    error = _refused(world, server.takes, auth)
    assert seen[2] == "s3cret/of+ours"
    assert not [each for each in seen if each in f"{error}{error!r}{error.__dict__}"]
    world.routes[f"POST {AS}/token"] = give
    world.now += 10
    server.token_response = {"refresh_token": "refresh-of-ours"}
    authorizer = world.authorizer(auth)
    assert world.call(authorizer, server.takes) == 200
    tokens = world.run(authorizer.stored())
    assert not [
        each for each in ("token-1", "refresh-of-ours", "s3cret") if each in f"{tokens!r}{authorizer!r}{auth!r}"
    ]
    assert {"token-1", "refresh-of-ours", "s3cret/of+ours"} <= set(authorizer.secrets())


@pytest.mark.parametrize("name", ["code", "code_verifier", "client_secret"])
def test_a_secret_that_a_server_quotes_first_is_in_no_text(name: str, world: World) -> None:
    """Far into a long text it would be cut off in any case."""
    server = AuthorizationServer(world, token_endpoint_auth_methods_supported=["client_secret_post"])
    seen: list[str] = []

    def quotes(effect: Http) -> HttpResult:
        seen.append(form(effect.body.decode())[name])
        return answer({"error": "invalid_request", "error_description": f"{seen[0]} is wrong"}, 400)

    world.routes[f"POST {AS}/token"] = quotes
    error = _refused(world, server.takes, OAuth(client_id="c", client_secret="s3cret/of+ours"))
    assert seen[0] not in f"{error}{error!r}{error.__dict__}"
    assert "[redacted] is wrong" in str(error)


def test_what_servers_write_is_shown_on_one_line_of_bounded_length(world: World) -> None:
    world.protect(issuer="https://as.example/\x1b[2J\r\n\u202e" + "x" * 10_000)
    for auth in (OAuth(), OAuth(issuer=AS)):
        problem = _refused(world, lambda attempt: challenge(401), auth).problem
        assert problem.isprintable()
        assert len(problem) <= 600


def test_a_key_in_the_url_of_a_server_is_in_no_error(world: World) -> None:
    url = f"{MCP}/mcp?key=s3cret"
    for body in (b"{}", b'{"resource": "https://evil.example"}', b""):
        world.routes[f"GET {PRM}"] = lambda effect, body=body: HttpResult(500 if not body else 200, {}, body)
        authorizer = world.authorizer(url=url)
        with pytest.raises(AuthorizationError) as caught:
            world.run(authorizer.refused(Attempt(url, 0, None), 401, {"www-authenticate": "Bearer"}, "x"))
        assert "s3cret" not in caught.value.problem


@pytest.mark.parametrize("token", ["a\r\nHost: evil", "a b", "\u00e9", "a\x00"])
def test_a_token_that_would_begin_another_header_is_refused(world: World, token: str) -> None:
    server = AuthorizationServer(world)
    server.token_response = {"access_token": token}
    assert "no header can carry" in _refused(world, server.takes).problem


def test_a_bound_token_is_not_replaced_by_a_bearer_token(world: World) -> None:
    pytest.importorskip("joserfc", reason="the extra `auth` is not installed")
    server = AuthorizationServer(world)
    server.token_response = {"token_type": "Bearer"}
    assert "instead of 'dpop'" in _refused(world, lambda attempt: challenge(401, "DPoP")).problem


def test_the_code_of_another_key_is_of_no_use(world: World) -> None:
    """The authorization request names the key, so that an injected code does not fit it (RFC 9449, section 10)."""
    pytest.importorskip("joserfc", reason="the extra `auth` is not installed")
    AuthorizationServer(world)
    urls: list[str] = []

    def browser(effect: OpenUrl) -> None:
        urls.append(effect.url)

    world.browser = browser
    _refused(world, lambda attempt: challenge(401, "DPoP"))
    assert len(parse_qs(urls[0])["dpop_jkt"][0]) == 43
