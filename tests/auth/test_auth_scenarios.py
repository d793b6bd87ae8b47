"""Each scenario of the conformance suite about authorization, as a list of effects and answers."""

from __future__ import annotations

import json
import re
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import urlencode

import pytest
from oauth_world import AS, MCP, AuthorizationServer, World, answer, challenge

from linkspan.auth import ClientCredentials, Enterprise, OAuth, WorkloadIdentity
from linkspan.auth.authorizer import Attempt
from linkspan.cli.session import for_the_shell
from linkspan.core.auth_flow import Http, HttpResult
from linkspan.flows.client_errors import AuthorizationError, InsufficientScope, LoginTimeout

WELL_KNOWN = "/.well-known/oauth-protected-resource"
AS_WELL_KNOWN = "/.well-known/oauth-authorization-server"
CIMD = "https://conformance-test.local/client-metadata.json"

FOUND = ["401 tools/list", f"GET mcp{WELL_KNOWN}/mcp", f"GET as{AS_WELL_KNOWN}"]


def _logged_in(
    scope: str = "", *, client: str = "client-1", resource: str = "mcp/mcp", issuer: str = "as"
) -> list[str]:
    asked = f"scope={scope} " if scope else ""
    token = f"POST {issuer}/token grant_type=authorization_code client_id={client} resource={resource}"
    return [f"OPEN {issuer}/authorize client_id={client} {asked}resource={resource}", token, "200 tools/list"]


@pytest.fixture
def world() -> World:
    return World()


def test_auth_metadata_default(world: World) -> None:
    world.protect()
    server = AuthorizationServer(world)
    assert world.call(world.authorizer(), server.takes) == 200
    assert world.trace == [*FOUND, "POST as/register", *_logged_in()]
    assert server.registered[0]["application_type"] == "native"
    assert server.registered[0]["grant_types"] == ["authorization_code", "refresh_token"]


def test_auth_metadata_var1(world: World) -> None:
    """No place in the challenge; the authorization server speaks OpenID Connect only."""
    world.protect()
    server = AuthorizationServer(world, place=f"{AS}/.well-known/openid-configuration")
    assert world.call(world.authorizer(), _bare(server)) == 200
    assert world.trace == [*FOUND, "GET as/.well-known/openid-configuration", "POST as/register", *_logged_in()]


def test_auth_metadata_var2(world: World) -> None:
    """Metadata at the root only; the issuer has a path; the resource is sent as it is written."""
    world.protect(MCP, place=f"{MCP}{WELL_KNOWN}", issuer=f"{AS}/tenant1")
    server = AuthorizationServer(world, f"{AS}/tenant1", f"{AS}{AS_WELL_KNOWN}/tenant1")
    assert world.call(world.authorizer(), _bare(server)) == 200
    assert world.trace == [
        *FOUND[:2],
        f"GET mcp{WELL_KNOWN}",
        f"GET as{AS_WELL_KNOWN}/tenant1",
        "POST as/tenant1/register",
        *_logged_in(resource="mcp", issuer="as/tenant1"),
    ]


def test_auth_metadata_var3(world: World) -> None:
    """A place of its own, named by the challenge; the third of the places for an issuer with a path."""
    place = f"{MCP}/custom/metadata/location.json"
    world.protect(place=place, issuer=f"{AS}/tenant1")
    server = AuthorizationServer(world, f"{AS}/tenant1", f"{AS}/tenant1/.well-known/openid-configuration")
    assert world.call(world.authorizer(), _bare(server, f'Bearer resource_metadata="{place}"')) == 200
    assert world.trace == [
        "401 tools/list",
        "GET mcp/custom/metadata/location.json",
        f"GET as{AS_WELL_KNOWN}/tenant1",
        "GET as/.well-known/openid-configuration/tenant1",
        "GET as/tenant1/.well-known/openid-configuration",
        "POST as/tenant1/register",
        *_logged_in(issuer="as/tenant1"),
    ]


def _bare(server: AuthorizationServer, header: str = "Bearer") -> Callable[[Attempt], HttpResult]:
    def takes(attempt: Attempt) -> HttpResult:
        found = server.takes(attempt)
        return found if found.status == 200 else challenge(401, header)

    return takes


def test_auth_basic_cimd(world: World) -> None:
    world.protect()
    server = AuthorizationServer(world, client_id_metadata_document_supported=True)
    assert world.call(world.authorizer(OAuth(client_metadata_url=CIMD)), server.takes) == 200
    assert world.trace == [*FOUND, "GET as/authorize", *_logged_in(client=CIMD)]


def test_a_metadata_document_is_used_only_where_it_is_supported(world: World) -> None:
    world.protect()
    server = AuthorizationServer(world)
    assert world.call(world.authorizer(OAuth(client_metadata_url=CIMD)), server.takes) == 200
    assert world.trace == [*FOUND, "POST as/register", *_logged_in()]


@pytest.mark.parametrize(
    ("header", "supported", "expected"),
    [
        pytest.param('Bearer scope="mcp:basic"', ["mcp:other"], "mcp:basic", id="auth/scope-from-www-authenticate"),
        pytest.param(
            "Bearer",
            ["mcp:basic", "mcp:read", "mcp:write"],
            "mcp:basic mcp:read mcp:write",
            id="auth/scope-from-scopes-supported",
        ),
        pytest.param("Bearer", None, "", id="auth/scope-omitted-when-undefined"),
    ],
)
def test_scopes_are_those_of_the_challenge_or_of_the_resource(
    world: World, header: str, supported: list[str] | None, expected: str
) -> None:
    """AU-C22."""
    world.protect(scopes_supported=supported)
    server = AuthorizationServer(world)
    assert world.call(world.authorizer(), _bare(server, header)) == 200
    assert world.trace == [*FOUND, "POST as/register", *_logged_in(expected)]


def test_auth_scope_step_up(world: World) -> None:
    """The second login asks for what the first one asked for, too; AU-C43."""
    world.protect(scopes_supported=["mcp:profile"])
    server = AuthorizationServer(world)
    authorizer = world.authorizer()
    assert world.call(authorizer, _bare(server, 'Bearer scope="mcp:basic"')) == 200
    refusals = [challenge(403, 'Bearer error="insufficient_scope", scope="mcp:write"')]
    world.trace.clear()
    assert (
        world.call(authorizer, lambda attempt: refusals.pop() if refusals else server.takes(attempt), "tools/call x")
        == 200
    )
    assert world.trace == [
        "403 tools/call x",
        *FOUND[1:],
        "POST as/register",
        "OPEN as/authorize client_id=client-2 scope=mcp:basic mcp:write resource=mcp/mcp",
        "POST as/token grant_type=authorization_code client_id=client-2 resource=mcp/mcp",
        "200 tools/call x",
    ]


def test_auth_scope_retry_limit(world: World) -> None:
    """An endless 403: three logins in all, then the error names the scopes."""
    world.protect(scopes_supported=["mcp:admin"])
    server = AuthorizationServer(world)

    def takes(attempt: Attempt) -> HttpResult:
        return (
            challenge(403, 'Bearer error="insufficient_scope", scope="mcp:admin"')
            if attempt.token
            else server.takes(attempt)
        )

    authorizer = world.authorizer()
    with pytest.raises(InsufficientScope) as caught:
        world.call(authorizer, takes)
    assert caught.value.scopes == ("mcp:admin",)
    assert len([each for each in world.trace if each.startswith("OPEN")]) == 3
    with pytest.raises(InsufficientScope):
        world.call(authorizer, takes)
    world.now += 3600 - 61
    with pytest.raises(InsufficientScope):
        world.call(authorizer, takes)
    assert len([each for each in world.trace if each.startswith("OPEN")]) == 3


def test_a_server_that_always_names_another_scope_leads_to_two_logins(world: World) -> None:
    """Of one operation, that is, and again only after it has succeeded once."""
    world.protect()
    server = AuthorizationServer(world)
    authorizer = world.authorizer()
    assert world.call(authorizer, server.takes) == 200
    names = (f"more:{number}" for number in count(1))

    def logins(refusals: int) -> int:
        """Return how many logins an operation leads to that is refused so often."""
        answers = [challenge(403, f'Bearer error="insufficient_scope", scope="{next(names)}"') for _ in range(refusals)]
        world.trace.clear()
        with suppress(InsufficientScope):
            world.call(authorizer, lambda attempt: answers.pop() if answers else server.takes(attempt), "tools/call x")
        return len([each for each in world.trace if each.startswith("OPEN")])

    assert [logins(refusals) for refusals in (9, 9, 0, 1, 1)] == [2, 0, 0, 1, 1]


def test_scopes_that_were_not_granted_are_not_asked_for_again(world: World) -> None:
    world.protect()
    server = AuthorizationServer(world)
    server.token_response = {"scope": "read"}
    authorizer = world.authorizer()
    assert world.call(authorizer, _bare(server, 'Bearer scope="read"')) == 200
    asked: list[str] = []
    for scope in ("all:users", "write"):
        server.token_response = {"scope": "read write"} if scope == "write" else {"scope": "read"}
        refusals = [challenge(403, f'Bearer error="insufficient_scope", scope="{scope}"')]
        answers = partial(_once_refused, server, refusals)
        world.trace.clear()
        assert world.call(authorizer, answers, f"tools/call {scope}") == 200
        asked += [each for each in world.trace if each.startswith("OPEN")]
    assert [re.findall(r"scope=(.*) resource", each) for each in asked] == [["read all:users"], ["read write"]]
    tokens = world.run(world.authorizer().stored())
    assert tokens.requested == ("read", "write")


def test_a_client_with_credentials_asks_for_all_scopes_again_when_its_token_expires(world: World) -> None:
    """What it asks for is what its user has chosen, whatever was granted before."""
    world.protect()
    server = AuthorizationServer(world, token_endpoint_auth_methods_supported=None)
    server.token_response = {"scope": "read"}
    auth = ClientCredentials("ci", secret="s3cret", scopes=["read", "write"])
    authorizer = world.authorizer(auth)
    assert world.call(authorizer, server.takes) == 200
    world.now += 3600
    assert world.call(authorizer, server.takes) == 200
    assert [each["scope"] for each in server.forms] == ["read write"] * 2


def _once_refused(server: AuthorizationServer, refusals: list[HttpResult], attempt: Attempt) -> HttpResult:
    return refusals.pop() if refusals else server.takes(attempt)


def test_operations_that_were_given_more_scopes_are_not_remembered_for_ever(world: World) -> None:
    """After 256 others the first may ask again; up to there it may not."""
    world.protect()
    server = AuthorizationServer(world)
    authorizer = world.authorizer()
    refusal = challenge(403, 'Bearer error="insufficient_scope", scope="mcp:admin"')
    assert world.call(authorizer, server.takes) == 200

    def logins(operation: str, refusals: int) -> int:
        """Return how many logins an operation leads to that is refused so often."""
        answers = [refusal] * refusals
        world.trace.clear()
        with suppress(InsufficientScope):
            world.call(authorizer, lambda attempt: answers.pop() if answers else server.takes(attempt), operation)
        return len([each for each in world.trace if each.startswith("OPEN")])

    assert logins("tools/call first", 9) == 2
    assert [logins(f"tools/call {number}", 9) for number in range(255)] == [2] * 255
    assert logins("tools/call first", 9) == 0
    assert logins("tools/call last", 1) == 1
    assert logins("tools/call first", 9) == 2


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "none"])
def test_auth_token_endpoint_auth(world: World, method: str) -> None:
    world.protect()
    server = AuthorizationServer(world, token_endpoint_auth_methods_supported=[method])
    server.registration = {"token_endpoint_auth_method": method}
    assert world.call(world.authorizer(), server.takes) == 200
    assert server.registered[0]["token_endpoint_auth_method"] == method
    basic = server.headers[0].get("authorization", " ").split(" ")[1]
    shown = (b64decode(basic).decode(), server.forms[0].get("client_id"), server.forms[0].get("client_secret"))
    assert (
        shown
        == {
            "client_secret_basic": ("client-1:s3cret-of-client", "client-1", None),
            "client_secret_post": ("", "client-1", "s3cret-of-client"),
            "none": ("", "client-1", None),
        }[method]
    )


def test_auth_pre_registration(world: World) -> None:
    world.protect()
    server = AuthorizationServer(
        world, registration_endpoint=None, token_endpoint_auth_methods_supported=["client_secret_basic"]
    )
    auth = OAuth(client_id="pre registered", client_secret="s3:cret", issuer=AS)
    assert world.call(world.authorizer(auth), server.takes) == 200
    assert b64decode(server.headers[0]["authorization"].split(" ")[1]) == b"pre+registered:s3%3Acret"
    assert not server.registered


def test_auth_resource_mismatch(world: World) -> None:
    world.protect("https://evil.example.com/mcp")
    server = AuthorizationServer(world)
    with pytest.raises(AuthorizationError, match="describes another resource"):
        world.call(world.authorizer(), server.takes)
    assert world.trace == FOUND[:2]


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        pytest.param(["mcp:basic", "offline_access"], "mcp:basic offline_access", id="auth/offline-access-scope"),
        pytest.param(["mcp:basic", "mcp:read"], "mcp:basic", id="auth/offline-access-not-supported"),
    ],
)
def test_offline_access_is_asked_for_where_it_is_offered(world: World, offered: list[str], expected: str) -> None:
    """AU-C23."""
    world.protect()
    server = AuthorizationServer(world, scopes_supported=offered)
    assert world.call(world.authorizer(), _bare(server, 'Bearer scope="mcp:basic"')) == 200
    assert world.trace == [*FOUND, "POST as/register", *_logged_in(expected)]


def test_auth_authorization_server_migration(world: World) -> None:
    """What the first authorization server gave is not shown to the second one; AU-C13."""
    world.protect()
    first = AuthorizationServer(world)
    first.token_response = {"refresh_token": "refresh-1"}
    authorizer = world.authorizer()
    assert world.call(authorizer, first.takes) == 200
    second = AuthorizationServer(world, "https://as2.example")
    world.protect(issuer=second.issuer)
    second.count = 100
    world.short[second.issuer] = "as2"
    world.trace.clear()
    assert world.call(authorizer, second.takes) == 200
    assert world.trace == [
        "401 tools/list",
        f"GET mcp{WELL_KNOWN}/mcp",
        f"GET as2{AS_WELL_KNOWN}",
        "POST as2/register",
        *_logged_in(issuer="as2"),
    ]


@pytest.mark.parametrize(
    ("advertised", "iss", "problem"),
    [
        pytest.param(True, AS, "", id="auth/iss-supported"),
        pytest.param(None, None, "", id="auth/iss-not-advertised"),
        pytest.param(True, None, "does not name its issuer", id="auth/iss-supported-missing"),
        pytest.param(True, "https://evil.example.com", "does not come from", id="auth/iss-wrong-issuer"),
        pytest.param(None, "https://evil.example.com", "does not come from", id="auth/iss-unexpected"),
        pytest.param(True, f"{AS}/", "does not come from", id="auth/iss-normalized"),
    ],
)
def test_the_issuer_of_a_redirect_is_compared(
    world: World, advertised: bool | None, iss: str | None, problem: str
) -> None:
    """RFC 9207; AU-C30."""
    world.protect()
    server = AuthorizationServer(world, authorization_response_iss_parameter_supported=advertised)
    server.iss = iss
    if not problem:
        assert world.call(world.authorizer(), server.takes) == 200
        return
    with pytest.raises(AuthorizationError, match=problem):
        world.call(world.authorizer(), server.takes)
    assert world.trace == [*FOUND, "POST as/register", _logged_in()[0]]


def test_auth_metadata_issuer_mismatch(world: World) -> None:
    world.protect()
    server = AuthorizationServer(world, issuer="https://attacker.example.com", place=f"{AS}{AS_WELL_KNOWN}")
    with pytest.raises(AuthorizationError, match="metadata of another issuer"):
        world.call(world.authorizer(), server.takes)
    assert world.trace == FOUND


@pytest.mark.parametrize(("listed", "own"), [(f"{AS}/", AS), (AS, f"{AS}/")])
def test_a_slash_that_is_the_whole_path_of_an_issuer_makes_no_difference(world: World, listed: str, own: str) -> None:
    """Such as pydantic adds to what a server lists; the authorization server is called as it calls itself."""
    world.protect(issuer=listed)
    server = AuthorizationServer(world, own, place=f"{AS}{AS_WELL_KNOWN}")
    for endpoint in ("authorization", "token", "registration"):
        server.metadata[f"{endpoint}_endpoint"] = f"{AS}/{endpoint}"
    world.routes |= {f"POST {AS}/token": server.token, f"POST {AS}/registration": server.register}
    for issuer in (None, listed, own):
        assert world.call(world.authorizer(OAuth(issuer=issuer)), server.takes) == 200
    assert [key[2] for key in world.store if key[0] == "grant"] == [own]
    assert len(server.registered) == 1


@pytest.mark.parametrize("own", [f"{AS}/tenant/", f"{AS}/tenant"])
def test_a_slash_after_the_path_of_an_issuer_is_a_difference(world: World, own: str) -> None:
    listed = f"{AS}/tenant" if own.endswith("/") else f"{AS}/tenant/"
    world.protect(issuer=listed)
    AuthorizationServer(world, own, place=f"{AS}{AS_WELL_KNOWN}/tenant")
    with pytest.raises(AuthorizationError, match="metadata of another issuer"):
        world.call(world.authorizer(), lambda attempt: challenge(401))


def test_auth_2025_03_26_oauth_metadata_backcompat(world: World) -> None:
    """The authorization server is on the origin of the MCP server; tokens are not for a resource."""
    server = AuthorizationServer(world, f"{MCP}/oauth", f"{MCP}{AS_WELL_KNOWN}")
    assert world.call(world.authorizer(), _bare(server)) == 200
    assert world.trace == [
        "401 tools/list",
        f"GET mcp{WELL_KNOWN}/mcp",
        f"GET mcp{WELL_KNOWN}",
        f"GET mcp{AS_WELL_KNOWN}",
        "POST mcp/oauth/register",
        "OPEN mcp/oauth/authorize client_id=client-1",
        "POST mcp/oauth/token grant_type=authorization_code client_id=client-1",
        "200 tools/list",
    ]


def test_auth_2025_03_26_oauth_endpoint_fallback(world: World) -> None:
    server = AuthorizationServer(world, MCP, "https://nowhere.example/")
    server.iss = None
    assert world.call(world.authorizer(), _bare(server)) == 200
    assert world.trace[3:] == [
        f"GET mcp{AS_WELL_KNOWN}",
        "POST mcp/register",
        "OPEN mcp/authorize client_id=client-1",
        "POST mcp/token grant_type=authorization_code client_id=client-1",
        "200 tools/list",
    ]


@pytest.mark.parametrize(
    ("wanted", "asked"), [("api://files", " resource=api://files"), (False, "")], ids=["own", "none"]
)
def test_the_resource_is_what_the_user_names_or_none(world: World, wanted: str | bool, asked: str) -> None:
    world.protect()
    server = AuthorizationServer(world)
    assert world.call(world.authorizer(OAuth(resource=wanted)), server.takes) == 200
    assert world.trace[-3:] == [
        f"OPEN as/authorize client_id=client-1{asked}",
        f"POST as/token grant_type=authorization_code client_id=client-1{asked}",
        "200 tools/list",
    ]


def test_servers_with_one_resource_of_the_users_have_a_login_each(world: World) -> None:
    auth = OAuth(resource="api://files")
    for name in ("mcp", "other"):
        world.protect(f"{MCP}/{name}", f"{MCP}{WELL_KNOWN}/{name}")
    server = AuthorizationServer(world)
    for name in ("mcp", "other"):
        takes = _bare(server, f'Bearer resource_metadata="{MCP}{WELL_KNOWN}/{name}"')
        assert world.call(world.authorizer(auth, f"{MCP}/{name}"), takes) == 200
    assert world.run(world.authorizer(auth, f"{MCP}/other").log_out())
    assert world.run(world.authorizer(auth).stored()) is not None


# The extensions.


def _claims(token: str) -> dict[str, Any]:
    head, body, _ = token.split(".")
    parts = [json.loads(urlsafe_b64decode(each + "=" * (-len(each) % 4))) for each in (head, body)]
    return {**parts[0], **parts[1]}


def test_auth_client_credentials_jwt(world: World) -> None:
    pem = _pem()
    world.protect()
    server = AuthorizationServer(
        world,
        token_endpoint_auth_methods_supported=["private_key_jwt"],
        token_endpoint_auth_signing_alg_values_supported=["ES256"],
    )
    assert world.call(world.authorizer(ClientCredentials("cc-client", key=pem)), server.takes) == 200
    assert world.trace == [*FOUND, "POST as/token grant_type=client_credentials resource=mcp/mcp", "200 tools/list"]
    claims = _claims(server.forms[0]["client_assertion"])
    assert {name: claims[name] for name in ("alg", "iss", "sub", "aud", "exp")} == {
        "alg": "ES256",
        "iss": "cc-client",
        "sub": "cc-client",
        "aud": AS,
        "exp": 1_000_060,
    }
    assert "client_id" not in server.forms[0]


def _pem() -> str:
    key = pytest.importorskip("joserfc.jwk", reason="the extra `auth` is not installed").ECKey.generate_key("P-256")
    pem: bytes = key.as_pem(private=True)
    return pem.decode()


def test_auth_client_credentials_basic(world: World) -> None:
    world.protect()
    server = AuthorizationServer(
        world, token_endpoint_auth_methods_supported=["client_secret_basic"], code_challenge_methods_supported=None
    )
    auth = ClientCredentials("cc-client", secret="s3cret", scopes=["mcp:x"])
    assert world.call(world.authorizer(auth), server.takes) == 200
    assert world.trace[3:] == [
        "POST as/token grant_type=client_credentials client_id=cc-client scope=mcp:x resource=mcp/mcp",
        "200 tools/list",
    ]
    assert b64decode(server.headers[0]["authorization"].split(" ")[1]) == b"cc-client:s3cret"
    assert not [key for key in world.store if key[0] == "grant"], "a program needs no store: it has its credentials"


def _identity_provider(world: World) -> list[dict[str, str]]:
    forms: list[dict[str, str]] = []

    def token(effect: Http) -> HttpResult:
        from oauth_world import form

        forms.append(form(effect.body.decode()))
        kind = forms[-1]["requested_token_type"]
        return answer(
            {
                "access_token": f"the {kind.rpartition(':')[2]}".replace(" ", "-"),
                "issued_token_type": kind,
                "token_type": "N_A",
            }
        )

    idp = "https://idp.example"
    world.short[idp] = "idp"
    world.document(f"{idp}/.well-known/openid-configuration", {"issuer": idp, "token_endpoint": f"{idp}/token"})
    world.routes[f"POST {idp}/token"] = token
    return forms


def test_auth_enterprise_managed_authorization(world: World) -> None:
    exchanged = _identity_provider(world)
    world.protect()
    server = AuthorizationServer(
        world,
        token_endpoint_auth_methods_supported=["client_secret_basic"],
        grant_types_supported=["urn:ietf:params:oauth:grant-type:jwt-bearer"],
    )
    auth = Enterprise(
        idp="https://idp.example",
        subject=lambda: "id-token",
        idp_client_id="idp-client",
        client_id="c",
        client_secret="s3cret",
    )
    assert world.call(world.authorizer(auth), server.takes) == 200
    assert world.trace == [
        *FOUND,
        f"GET idp{AS_WELL_KNOWN}",
        "GET idp/.well-known/openid-configuration",
        "POST idp/token grant_type=token-exchange client_id=idp-client resource=mcp/mcp",
        "POST as/token grant_type=jwt-bearer client_id=c resource=mcp/mcp",
        "200 tools/list",
    ]
    assert exchanged == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "subject_token": "id-token",
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "audience": AS,
            "resource": f"{MCP}/mcp",
            "client_id": "idp-client",
        }
    ]
    assert server.forms[0]["assertion"] == "the-id-jag"
    assert "authorization" in server.headers[0]


def test_a_saml_assertion_is_first_exchanged_for_a_refresh_token(world: World) -> None:
    exchanged = _identity_provider(world)
    world.protect()
    server = AuthorizationServer(world)
    auth = Enterprise(
        idp="https://idp.example", subject=lambda: "<saml>", subject_type="saml2", client_metadata_url=CIMD
    )
    assert world.call(world.authorizer(auth), server.takes) == 200
    assert [(each["requested_token_type"][28:], each["subject_token_type"][28:]) for each in exchanged] == [
        ("type:refresh_token", "type:saml2"),
        ("type:id-jag", "type:refresh_token"),
    ]
    assert exchanged[1]["subject_token"] == "the-refresh_token"
    assert server.forms[0]["client_id"] == CIMD


@pytest.mark.parametrize("with_nonce", [pytest.param(False, id="auth/dpop"), pytest.param(True, id="auth/dpop-nonce")])
def test_auth_dpop(world: World, with_nonce: bool) -> None:
    pytest.importorskip("joserfc", reason="the extra `auth` is not installed")
    world.protect()
    server = AuthorizationServer(world, dpop_signing_alg_values_supported=["ES256"])
    give = server.token
    proofs: list[dict[str, Any]] = []

    def token(effect: Http) -> HttpResult:
        proofs.append(_claims(effect.headers["dpop"]))
        if with_nonce and proofs[-1].get("nonce") != "as-nonce":
            return answer({"error": "use_dpop_nonce"}, 400, dpop_nonce="as-nonce")
        return give(effect)

    world.routes[f"POST {AS}/token"] = token
    header = f'DPoP resource_metadata="{MCP}{WELL_KNOWN}/mcp"'

    def takes(attempt: Attempt) -> HttpResult:
        if not attempt.headers:
            return challenge(401, header)
        assert attempt.headers["authorization"] == "DPoP token-1"
        proofs.append(_claims(attempt.headers["dpop"]))
        if with_nonce and proofs[-1].get("nonce") != "rs-nonce":
            return challenge(401, f'{header}, error="use_dpop_nonce"', dpop_nonce="rs-nonce")
        return answer({})

    authorizer = world.authorizer()
    assert [world.call(authorizer, takes), world.call(authorizer, takes)] == [200, 200]
    statuses = ["401 tools/list", "200 tools/list", "200 tools/list"] if with_nonce else ["200 tools/list"] * 2
    logged_in = _logged_in()[:2]
    assert world.trace == [*FOUND, "POST as/register", *logged_in, *(logged_in[1:] if with_nonce else []), *statuses]
    assert len({each["jti"] for each in proofs}) == len(proofs) == (5 if with_nonce else 3)
    assert {(each["typ"], each["alg"], each["htm"], each["iat"], "d" in each["jwk"]) for each in proofs} == {
        ("dpop+jwt", "ES256", "POST", 1_000_000, False)
    }
    assert {(each["htu"], "ath" in each) for each in proofs} == {(f"{AS}/token", False), (f"{MCP}/mcp", True)}


def test_a_nonce_that_comes_with_a_good_response_is_in_the_next_proof(world: World) -> None:
    """RFC 9449, section 8.2: the server replaces its nonce before the old one is refused."""
    pytest.importorskip("joserfc", reason="the extra `auth` is not installed")
    world.protect()
    AuthorizationServer(world, dpop_signing_alg_values_supported=["ES256"])
    seen: list[str | None] = []

    def takes(attempt: Attempt) -> HttpResult:
        if not attempt.headers:
            return challenge(401, f'DPoP resource_metadata="{MCP}{WELL_KNOWN}/mcp"')
        seen.append(_claims(attempt.headers["dpop"]).get("nonce"))
        return answer({}, dpop_nonce=f"nonce-{len(seen)}")

    authorizer = world.authorizer()
    for _ in range(3):
        assert world.call(authorizer, takes) == 200
    assert seen == [None, "nonce-1", "nonce-2"]


def test_auth_wif_jwt_bearer(world: World) -> None:
    world.protect()
    server = AuthorizationServer(world)
    auth = WorkloadIdentity(lambda issuer, endpoint: f"jwt-for-{issuer}-or-{endpoint}")
    assert world.call(world.authorizer(auth), server.takes) == 200
    assert world.trace == [*FOUND, "POST as/token grant_type=jwt-bearer resource=mcp/mcp", "200 tools/list"]
    assert server.forms == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": f"jwt-for-{AS}-or-{AS}/token",
            "resource": f"{MCP}/mcp",
        }
    ]


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_scope", "unauthorized_client"])
def test_a_refused_assertion_is_neither_sent_again_nor_replaced_by_another_grant(world: World, error: str) -> None:
    """WIF-3."""
    world.protect()
    server = AuthorizationServer(world)
    world.routes[f"POST {AS}/token"] = lambda effect: answer(
        {"error": error, "error_description": "not this jwt-of-ours"}, 400
    )
    authorizer = world.authorizer(WorkloadIdentity(lambda issuer, endpoint: "jwt-of-ours"))
    with pytest.raises(AuthorizationError) as caught:
        world.call(authorizer, server.takes)
    assert caught.value.error == error
    assert "jwt-of-ours" not in str(caught.value)
    with pytest.raises(AuthorizationError):  # what a client tries next, such as the handshake after the probe
        world.call(authorizer, server.takes, "initialize")
    assert [each for each in world.trace if "token" in each] == ["POST as/token grant_type=jwt-bearer resource=mcp/mcp"]


def test_a_redirect_is_taken_as_a_whole_url_too(world: World) -> None:
    world.protect()
    server = AuthorizationServer(world)
    world.browser = lambda effect: f" http://127.0.0.1:3000/callback?{server.authorize(effect)}\n"
    assert world.call(world.authorizer(), server.takes) == 200


def test_a_login_on_another_device(world: World) -> None:
    world.protect()
    server = AuthorizationServer(world, device_authorization_endpoint=f"{AS}/device")
    world.routes[f"POST {AS}/device"] = lambda effect: answer(
        {
            "device_code": "device-code",
            "user_code": "AB-CD",
            "verification_uri": f"{AS}/activate",
            "expires_in": 600,
            "interval": 2,
        }
    )
    give, errors = server.token, ["slow_down", "authorization_pending"]
    world.routes[f"POST {AS}/token"] = lambda effect: answer({"error": errors.pop()}, 400) if errors else give(effect)
    assert world.call(world.authorizer(OAuth(device=True)), server.takes) == 200
    poll = "POST as/token grant_type=device_code client_id=client-1 resource=mcp/mcp"
    assert world.trace[4:] == [
        "POST as/device client_id=client-1 resource=mcp/mcp",
        "SHOW AB-CD at as/activate",
        poll,
        poll,
        poll,
        "200 tools/list",
    ]
    assert world.now == 1_000_000 + 2 + 2 + 7
    assert "urn:ietf:params:oauth:grant-type:device_code" in server.registered[0]["grant_types"]


@pytest.mark.parametrize(("patience", "lives", "ends"), [(300, 600, 300), (3600, 600, 600)])
def test_a_login_on_another_device_ends_in_time(world: World, patience: float, lives: int, ends: float) -> None:
    """With the code or the patience of the program, whatever the server says about how often to ask."""
    world.protect()
    server = AuthorizationServer(world, device_authorization_endpoint=f"{AS}/device")
    code = {"device_code": "d", "user_code": "AB-CD", "verification_uri": f"{AS}/activate"}
    world.routes[f"POST {AS}/device"] = lambda effect: answer({**code, "expires_in": lives, "interval": 100_000})
    world.routes[f"POST {AS}/token"] = lambda effect: answer({"error": "authorization_pending"}, 400)
    with pytest.raises(LoginTimeout) as caught:
        world.call(world.authorizer(OAuth(device=True), login_seconds=patience), server.takes)
    assert (world.now, caught.value.seconds) == (1_000_000 + ends, ends)


def test_a_server_without_a_login_asks_for_the_token_that_was_given(world: World) -> None:
    """Such as one with API keys: it has no metadata, so the older revisions' place of registration is tried in the end."""
    with pytest.raises(AuthorizationError) as caught:
        world.call(world.authorizer(), lambda attempt: answer({}, 401, **{"www-authenticate": "Bearer"}))
    assert world.trace[-1] == "POST mcp/register"
    assert "if you were given a token or key, pass it as auth=; else register one there by hand" in str(caught.value)
    assert "pass it as --header 'Authorization: Bearer ...'; else register" in str(for_the_shell(caught.value))


@pytest.mark.parametrize(
    ("error", "cure", "in_a_shell"),
    [
        ("invalid_scope", "compare the scopes that the server names", "compare the scopes"),
        ("invalid_target", "or pass OAuth(resource=False)", f"or run `linkspan login {MCP}/mcp --no-resource`"),
    ],
)
def test_an_error_of_the_login_page_names_what_to_correct(world: World, error: str, cure: str, in_a_shell: str) -> None:
    world.protect()
    server = AuthorizationServer(world)
    world.browser = lambda effect: urlencode({"error": error, "state": effect.state, "iss": AS})
    with pytest.raises(AuthorizationError) as caught:
        world.call(world.authorizer(), server.takes)
    assert cure in str(caught.value)
    assert in_a_shell in str(for_the_shell(caught.value))


@pytest.mark.parametrize(
    ("secret", "cure", "in_a_shell"),
    [
        (
            None,
            "pass OAuth(client_id='desk', client_secret=...)",
            f"linkspan login {MCP}/mcp --client-id desk --client-secret",
        ),
        ("s3cret", "compare the client ID and what proves it", "compare the client ID"),
    ],
)
def test_a_client_that_is_refused_its_token_names_what_to_correct(
    world: World, secret: str | None, cure: str, in_a_shell: str
) -> None:
    world.protect()
    server = AuthorizationServer(world, token_endpoint_auth_methods_supported=["client_secret_post"])
    world.routes[f"POST {AS}/token"] = lambda effect: answer({"error": "unauthorized_client"}, 401)
    with pytest.raises(AuthorizationError) as caught:
        world.call(world.authorizer(OAuth(client_id="desk", client_secret=secret)), server.takes)
    assert cure in str(caught.value)
    assert in_a_shell in str(for_the_shell(caught.value))


def test_an_issuer_that_is_misspelt_is_named(world: World) -> None:
    world.protect(issuer=f"{AS}/realms/stuff")
    server = AuthorizationServer(world)
    with pytest.raises(
        AuthorizationError, match=r"stuff publishes no metadata[^$]*check the issuer that the MCP server names"
    ):
        world.call(world.authorizer(), server.takes)
