"""Presets of `Protected` against stand-ins of their providers on loopback: documents and tokens have the published shapes.

No provider is asked here. A stand-in answers what the pages of the provider show, and a server in this process is called with
tokens that it has signed.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from joserfc.jwk import RSAKey
from oauth_world import MCP, PRM, AuthorizationServer, World, form

from linkspan import AuthorizationError, Context, Server
from linkspan.auth.authorizer import Attempt
from linkspan.auth.identities import OAuth
from linkspan.auth.protection import Protected
from linkspan.auth.verifying import ApiKeys, Jwt
from linkspan.core.auth_flow import HttpResult, OpenUrl
from linkspan.revisions import LATEST
from linkspan.revisions.neutral import Grant
from tokens import RESOURCE, token

RSA = RSAKey.generate_key(2048, {"kid": "r1", "use": "sig", "alg": "RS256"})
META = "io.modelcontextprotocol/"


Responder = Callable[[Mapping[str, str], bytes], tuple[int, Any]]
"""Returns a status and a document for the headers, by names in lower case, and the body of a request."""


def missing(headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
    return 404, {"message": "Not Found"}


class StandIn:
    """A provider on loopback, which answers at its paths and keeps what it was asked."""

    def __init__(self) -> None:
        self.routes: dict[str, Responder] = {}
        """What is at a path."""
        self.asked: list[tuple[str, str]] = []
        standin = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                standin.asked.append((self.command, self.path))
                found = standin.routes.get(self.path, missing)
                status, document = found({name.lower(): value for name, value in self.headers.items()}, body)
                data = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET

            def log_message(self, format: str, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def publish(self, path: str, document: Any) -> None:
        """Answer with a document at a path."""
        self.routes[path] = lambda headers, body: (200, document)

    def issuer(self, path: str = "", **more: Any) -> str:
        """Publish the metadata of an issuer and its keys; return the issuer."""
        issuer = self.url + path
        place = "/.well-known/openid-configuration"
        document = {"issuer": issuer, "jwks_uri": f"{self.url}/keys", **more}
        self.publish(path.rstrip("/") + place, document)
        self.publish("/keys", {"keys": [RSA.as_dict(private=False)]})
        return issuer

    def stop(self) -> None:
        """Answer no more."""
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def standin() -> Iterator[StandIn]:
    found = StandIn()
    yield found
    found.stop()


class Called:
    """The response of a protected server to a call with a token."""

    def __init__(self, protected: Protected, given: str | None, tool: str = "who") -> None:
        server = Server("files", auth=protected)

        @server.tool
        def who(ctx: Context) -> dict[str, Any]:
            """Return what is known of the caller."""
            grant = ctx.grant
            assert grant is not None
            return {
                "principal": ctx.principal,
                "client": grant.client_id,
                "scopes": sorted(grant.scopes),
                "roles": sorted(grant.roles),
                "claims": dict(grant.claims),
            }

        @server.tool(scopes=["files.write"])
        def write() -> str:
            """Do what needs a scope."""
            return "written"

        meta = {
            "protocolVersion": LATEST.date,
            "clientCapabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        request = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": {}, "_meta": {META + name: each for name, each in meta.items()}},
        }
        data = json.dumps(request).encode()
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": "/mcp",
            "QUERY_STRING": "",
            "SERVER_NAME": "api.example.com",
            "SERVER_PORT": "443",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_HOST": "api.example.com",
            "HTTP_ACCEPT": "application/json, text/event-stream",
            "HTTP_MCP_PROTOCOL_VERSION": LATEST.date,
            "HTTP_MCP_METHOD": "tools/call",
            "HTTP_MCP_NAME": tool,
            "CONTENT_TYPE": "application/json",
            "CONTENT_LENGTH": str(len(data)),
            "wsgi.url_scheme": "https",
            "wsgi.input": io.BytesIO(data),
        }
        if given is not None:
            environ["HTTP_AUTHORIZATION"] = f"Bearer {given}"
        app: Callable[..., Any] = server.wsgi(allowed_hosts=["api.example.com"])
        body = b"".join(app(environ, self._start))
        text = body.decode()
        self.body = json.loads(text.partition("data: ")[2] if text.startswith(("event", "data")) else text)

    def _start(self, status: str, headers: list[tuple[str, str]], *_: Any) -> None:
        self.status = int(status.split()[0])
        self.headers = {name.lower(): value for name, value in headers}

    @property
    def caller(self) -> dict[str, Any]:
        """What the server knew of the caller."""
        assert self.status == 200, self.body
        found: dict[str, Any] = self.body["result"]["structuredContent"]
        return found


def issued(*defaults: Mapping[str, Any], **claims: Any) -> str:
    """Return a JWT as these providers sign it; of members of the same name the last one counts, and None leaves it out."""
    given: dict[str, Any] = {"client_id": None, "scope": None}
    for each in (*defaults, claims):
        given |= each
    return token({"typ": "JWT", "alg": "RS256", "kid": "r1"}, RSA, **given)


def published(protected: Protected) -> dict[str, Any]:
    """Return the metadata of a protected server."""
    response = protected.metadata(protected.resource or "http://127.0.0.1:8000/mcp")
    assert response is not None
    found: dict[str, Any] = json.loads(response.body)
    return found


# Keycloak.

REALM_ACCESS = {"realm_access": {"roles": ["offline_access", "editor"]}}


def keycloak_token(issuer: str, **claims: Any) -> str:
    """Return an access token as a realm signs it (Keycloak, Server Administration Guide)."""
    shape = {"typ": "Bearer", "azp": "mcp-client", "scope": "openid files.read", "sid": "s", "acr": "1", "jti": "o:1"}
    return issued(shape, REALM_ACCESS, {"iss": issuer}, claims)


def test_a_realm_of_keycloak_is_one_call(standin: StandIn) -> None:
    issuer = standin.issuer("/realms/staff")
    protected = Protected.keycloak(issuer + "/", resource=RESOURCE, scopes=["files.read"])
    caller = Called(protected, keycloak_token(issuer)).caller
    assert caller["principal"] == f"{issuer} sub ann"
    assert (caller["client"], caller["scopes"]) == ("mcp-client", ["files.read", "openid"])
    assert caller["roles"] == ["editor", "offline_access"]
    found = published(protected)
    assert (found["resource"], found["authorization_servers"]) == (RESOURCE, [issuer])
    assert found["scopes_supported"] == ["files.read"]


@pytest.mark.parametrize(
    "claims",
    [{"typ": "ID"}, {"typ": "Refresh"}, {"aud": "account"}, {"aud": None}, {"exp": 1}, {"iss": "https://evil.example"}],
)
def test_a_token_of_a_realm_that_is_for_another_use_is_refused(claims: dict[str, Any], standin: StandIn) -> None:
    issuer = standin.issuer("/realms/staff")
    response = Called(Protected.keycloak(issuer, resource=RESOURCE), keycloak_token(issuer, **claims))
    assert response.status == 401
    assert "invalid_token" in response.headers["www-authenticate"]


@pytest.mark.parametrize(
    "url", ["https://id.example.com", "https://id.example.com/realms/", "https://id.example.com/realms/x/account", "x"]
)
def test_a_url_of_keycloak_that_is_not_a_realm_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"realm_url must be the URL of a realm.*LS-616"):
        Protected.keycloak(url)


def test_a_realm_inside_a_private_network_is_taken_over_http_when_the_author_says_it() -> None:
    realm = "http://keycloak:8080/realms/staff"
    with pytest.raises(ValueError, match=r"write Protected.keycloak\(..., insecure_issuer=True\)"):
        Protected.keycloak(realm, resource=RESOURCE)
    assert Protected.keycloak(realm, resource=RESOURCE, insecure_issuer=True).issuers == (realm,)


def test_a_preset_takes_further_verifiers_and_all_options(standin: StandIn) -> None:
    issuer = standin.issuer("/realms/staff")
    keys = ApiKeys({sha256(b"robot-key").hexdigest(): Grant("keys", subject="robot")})
    protected = Protected.keycloak(issuer, resource=RESOURCE, verify=keys, name="Files")
    assert Called(protected, "robot-key").caller["principal"] == "keys sub robot"
    assert Called(protected, keycloak_token(issuer)).status == 200
    assert published(protected)["resource_name"] == "Files"


def test_the_provider_of_a_preset_comes_first_in_the_metadata() -> None:
    second = Jwt("https://second.example.com")
    protected = Protected.keycloak("https://id.example.com/realms/x", resource=RESOURCE, verify=[second])
    assert protected.issuers == ("https://id.example.com/realms/x", "https://second.example.com")


def test_a_provider_that_does_not_answer_is_no_fault_of_the_token(standin: StandIn) -> None:
    issuer = standin.issuer("/realms/staff")
    standin.stop()
    response = Called(Protected.keycloak(issuer, resource=RESOURCE), keycloak_token(issuer))
    assert (response.status, response.headers["retry-after"]) == (503, "5")


def test_a_server_without_a_preset_does_not_load_them() -> None:
    code = "import sys, linkspan; linkspan.Protected('https://x.example', verify=print); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "linkspan.auth.protection" in loaded
    assert not {"linkspan.auth.providers", "linkspan.auth.opaque_tokens"} & set(loaded)


# Microsoft Entra ID.

TENANT, APP = "11111111-aaaa-4bbb-8ccc-222222222222", "33333333-dddd-4eee-8fff-444444444444"


def entra_token(issuer: str, **claims: Any) -> str:
    """Return an access token of version 2.0 (Microsoft identity platform, Access token claims reference)."""
    shape = {
        "aud": APP,
        "azp": "55555555-dddd-4eee-8fff-666666666666",
        "azpacr": "0",
        "name": "Ann",
        "oid": "o",
        "preferred_username": "ann@example.com",
        "rh": "0.x",
        "scp": "files.read",
        "tid": TENANT,
        "uti": "u",
        "ver": "2.0",
    }
    return issued(shape, {"iss": issuer}, claims)


def entra(standin: StandIn, **options: Any) -> tuple[Protected, str]:
    """Return a server with an app of the tenant of a stand-in, and the issuer."""
    issuer = standin.issuer(f"/{TENANT}/v2.0", token_endpoint_auth_methods_supported=["client_secret_post"])
    given: dict[str, Any] = {"resource": RESOURCE, "authority": standin.url, **options}
    return Protected.entra(TENANT, APP, **given), issuer


def test_an_app_of_entra_is_one_call(standin: StandIn) -> None:
    protected, issuer = entra(standin, scopes=["files.read", "openid"])
    caller = Called(Protected.entra(TENANT, APP, resource=RESOURCE, authority=standin.url), entra_token(issuer)).caller
    assert caller["principal"] == f"{issuer} sub ann"
    assert caller["scopes"] == ["files.read", f"{RESOURCE}/files.read"]
    found = published(protected)
    assert found["resource"] == RESOURCE
    assert found["scopes_supported"] == [f"{RESOURCE}/files.read", "openid"], "the prefix is the resource"


def test_a_refusal_of_an_app_of_entra_asks_for_scopes_with_the_prefix(standin: StandIn) -> None:
    protected, issuer = entra(standin, scopes=["files.read"])
    refused = Called(protected, None)
    assert (refused.status, f'scope="{RESOURCE}/files.read"' in refused.headers["www-authenticate"]) == (401, True)
    forbidden = Called(protected, entra_token(issuer), "write")
    assert forbidden.status == 403
    assert f'scope="{RESOURCE}/files.read {RESOURCE}/files.write"' in forbidden.headers["www-authenticate"]
    assert Called(protected, entra_token(issuer, scp="files.read files.write"), "write").status == 200


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"nonce": "n"}, "it is an ID token"),
        ({"scp": None}, "lacks scp or roles"),
        ({"scp": None, "azp": None, "roles": ["editor"]}, "lacks azp or appid"),
        ({"aud": RESOURCE}, "the token is for"),
        ({"iss": f"https://sts.windows.net/{TENANT}/", "ver": "1.0"}, "set requestedAccessTokenVersion to 2"),
        ({"iss": "https://login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad/v2.0"}, "not trusted here"),
    ],
)
def test_a_token_of_entra_that_is_for_another_use_is_refused(
    claims: dict[str, Any], reason: str, standin: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    protected, issuer = entra(standin)
    assert Called(protected, entra_token(issuer, **claims)).status == 401
    assert reason in caplog.text


def test_an_app_without_a_user_has_roles_at_entra(standin: StandIn) -> None:
    protected, issuer = entra(standin)
    caller = Called(protected, entra_token(issuer, scp=None, roles=["Files.Read.All"], idtyp="app")).caller
    assert (caller["roles"], caller["scopes"]) == (["Files.Read.All"], [])


def test_an_app_of_entra_may_have_another_uri_than_its_url() -> None:
    protected = Protected.entra(TENANT.upper(), APP, app_id_uri=f"api://{APP}", scopes=["files.read"])
    assert published(protected)["scopes_supported"] == [f"api://{APP}/files.read"]
    assert published(protected)["authorization_servers"] == [f"https://login.microsoftonline.com/{TENANT}/v2.0"]
    mended = published(Protected.entra(TENANT, APP, resource=RESOURCE + "/", scopes=["files.read"]))
    assert (mended["resource"], mended["scopes_supported"]) == (RESOURCE, [f"{RESOURCE}/files.read"])


class EntraLogin:
    """A client of this package and Entra's login page, which refuses a `resource` that its scopes are not below.

    As published: its metadata list no S256, register no clients, and promise no `iss`. No network.
    """

    def __init__(self, protected: Protected, identity: OAuth) -> None:
        self.world = World()
        issuer = f"https://login.microsoftonline.com/{TENANT}/v2.0"
        without = dict.fromkeys(
            (
                "code_challenge_methods_supported",
                "registration_endpoint",
                "authorization_response_iss_parameter_supported",
            )
        )
        self.entra = AuthorizationServer(
            self.world, issuer, f"{issuer}/.well-known/openid-configuration", scopes_supported=["openid"], **without
        )
        self.entra.iss = None
        self.world.browser = self.authorize
        self.world.document(PRM, published(protected))
        self.asked: list[dict[str, str]] = []
        self.refusal = protected.challenge(PRM)
        self.authorizer = self.world.authorizer(identity)

    def authorize(self, effect: OpenUrl) -> str | None:
        """Log the user in, or answer AADSTS9010010."""
        asked = form(urlsplit(effect.url).query)
        self.asked.append(asked)
        resource = asked.get("resource")
        below = [each for each in asked["scope"].split() if "://" in each]
        if resource is not None and not all(each.startswith(resource + "/") for each in below):
            problem = "AADSTS9010010: The resource parameter doesn't match with the requested scopes"
            return urlencode({"error": "invalid_target", "error_description": problem, "state": asked["state"]})
        return self.entra.authorize(effect)

    def call(self) -> int:
        """Call the server; return the status."""

        def answers(attempt: Attempt) -> HttpResult:
            found = self.entra.takes(attempt)
            return found if found.status == 200 else HttpResult(401, {"www-authenticate": self.refusal}, b"")

        return self.world.call(self.authorizer, answers)


MCP_APP = "55555555-dddd-4eee-8fff-666666666666"


def test_a_client_logs_in_by_what_an_app_of_entra_publishes() -> None:
    protected = Protected.entra(TENANT, APP, resource=f"{MCP}/mcp", scopes=["files.read"])
    login = EntraLogin(protected, OAuth(client_id=MCP_APP))
    assert login.call() == 200
    (asked,) = login.asked
    assert (asked["resource"], asked["scope"]) == (f"{MCP}/mcp", f"{MCP}/mcp/files.read")


def test_a_client_leaves_the_resource_out_where_the_uri_of_the_app_is_another() -> None:
    protected = Protected.entra(TENANT, APP, resource=f"{MCP}/mcp", app_id_uri=f"api://{APP}", scopes=["files.read"])
    login = EntraLogin(protected, OAuth(client_id=MCP_APP, resource=False))
    assert login.call() == 200
    assert ("resource" in login.asked[0], login.asked[0]["scope"]) == (False, f"api://{APP}/files.read")
    with pytest.raises(AuthorizationError, match="AADSTS9010010"):
        EntraLogin(protected, OAuth(client_id=MCP_APP)).call()


@pytest.mark.parametrize(
    ("tenant", "app", "options", "reason"),
    [
        ("common", APP, {"resource": RESOURCE}, r"tenant must be the Directory"),
        ("contoso.onmicrosoft.com", APP, {"resource": RESOURCE}, r"tenant must be the Directory"),
        (TENANT, f"api://{APP}", {"resource": RESOURCE}, r"app_id must be the Application"),
        (TENANT, APP, {}, r"needs an https resource="),
        (TENANT, APP, {"resource": "http://127.0.0.1:8000/mcp"}, r"needs an https resource="),
    ],
)
def test_what_cannot_work_at_entra_is_refused(tenant: str, app: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=rf"{reason}.*LS-616"):
        Protected.entra(tenant, app, **options)


# Okta.


def okta_token(issuer: str, **claims: Any) -> str:
    """Return an access token of a custom authorization server (Okta, Validate access tokens)."""
    shape = {"ver": 1, "jti": "AT.0mP4", "cid": "0oa1", "uid": "00u1", "scp": ["files.read", "openid"], "auth_time": 1}
    return issued(shape, {"iss": issuer, "sub": "ann@example.com"}, claims)


def test_an_authorization_server_of_okta_is_one_call(standin: StandIn) -> None:
    issuer = standin.issuer("/oauth2/aus1")
    protected = Protected.okta(issuer + "/", resource=RESOURCE, scopes=["files.read"])
    caller = Called(protected, okta_token(issuer, groups=["Everyone"])).caller
    assert caller["principal"] == f"{issuer} sub ann@example.com"
    assert (caller["client"], caller["scopes"], caller["roles"]) == ("0oa1", ["files.read", "openid"], ["Everyone"])
    assert published(protected)["authorization_servers"] == [issuer]


def test_the_default_server_of_okta_has_an_audience_of_its_own(standin: StandIn) -> None:
    issuer = standin.issuer("/oauth2/default")
    given = okta_token(issuer, aud="api://default")
    assert Called(Protected.okta(issuer, resource=RESOURCE, audience="api://default"), given).status == 200
    assert Called(Protected.okta(issuer, resource=RESOURCE), given).status == 401


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"nonce": "n"}, "it is an ID token"),
        ({"cid": None}, "lacks cid or client_id"),
        ({"aud": "0oa1"}, "is for '0oa1'"),
    ],
)
def test_a_token_of_okta_that_is_for_another_use_is_refused(
    claims: dict[str, Any], reason: str, standin: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = standin.issuer("/oauth2/aus1")
    assert Called(Protected.okta(issuer, resource=RESOURCE), okta_token(issuer, **claims)).status == 401
    assert reason in caplog.text


@pytest.mark.parametrize(
    "issuer", ["https://org.okta.com", "https://org.okta.com/", "https://org-admin.okta.com/oauth2/default", "org"]
)
def test_the_org_server_of_okta_is_refused(issuer: str) -> None:
    with pytest.raises(ValueError, match=r"of a custom authorization server.*LS-616"):
        Protected.okta(issuer)


def test_the_org_server_of_okta_is_refused_as_an_issuer_too() -> None:
    with pytest.raises(ValueError, match=r"can be verified by Okta alone.*LS-616"):
        Protected(RESOURCE, issuer="https://org.okta.com")


# Auth0.


def auth0_token(issuer: str, **claims: Any) -> str:
    """Return an access token of the Auth0 profile (Auth0, Access token profiles)."""
    shape = {"azp": "client1", "scope": "openid files.read", "gty": "refresh_token"}
    return issued(shape, {"iss": issuer, "sub": "auth0|ann", "aud": [RESOURCE, f"{issuer}userinfo"]}, claims)


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_tenant_of_auth0_is_one_call(slash: str, standin: StandIn) -> None:
    issuer = standin.issuer("/")
    protected = Protected.auth0(standin.url + slash, resource=RESOURCE, scopes=["files.read"])
    caller = Called(protected, auth0_token(issuer, permissions=["files.write"])).caller
    assert caller["principal"] == f"{issuer} sub auth0|ann"
    assert (caller["client"], caller["scopes"]) == ("client1", ["files.read", "files.write", "openid"])
    assert published(protected)["authorization_servers"] == [issuer]


@pytest.mark.parametrize("domain", ["t.eu.auth0.com", "https://t.eu.auth0.com", "https://t.eu.auth0.com/"])
def test_the_domain_of_a_tenant_is_enough(domain: str) -> None:
    assert Protected.auth0(domain).issuers == ("https://t.eu.auth0.com/",)


@pytest.mark.parametrize(
    "domain", ["", "t.eu.auth0.com/api/v2", "https://ann@t.eu.auth0.com", "https://t.auth0.com/?x"]
)
def test_a_domain_of_auth0_that_is_something_else_is_refused(domain: str) -> None:
    with pytest.raises(ValueError, match=r"domain must be that of a tenant.*LS-616"):
        Protected.auth0(domain)


@pytest.mark.parametrize("claims", [{"aud": "client1"}, {"aud": "https://t.eu.auth0.com/api/v2/"}, {"exp": 1}])
def test_a_token_of_auth0_that_is_for_another_api_is_refused(claims: dict[str, Any], standin: StandIn) -> None:
    issuer = standin.issuer("/")
    response = Called(Protected.auth0(issuer, resource=RESOURCE), auth0_token(issuer, **claims))
    assert (response.status, "invalid_token" in response.headers["www-authenticate"]) == (401, True)


# Amazon Cognito.

POOL = "eu-west-1_AbCdEfGhI"


def cognito_token(issuer: str, **claims: Any) -> str:
    """Return an access token of a user pool (Amazon Cognito, Understanding the access token)."""
    shape = {
        "aud": None,
        "client_id": "1example23456789",
        "token_use": "access",
        "scope": f"openid {RESOURCE}/files.read",
        "cognito:groups": ["editors"],
        "username": "ann",
        "version": 2,
        "origin_jti": "o",
        "jti": "j",
    }
    return issued(shape, {"iss": issuer, "sub": "aaaaaaaa-bbbb-cccc-dddd-example"}, claims)


def test_a_user_pool_of_cognito_is_one_call(standin: StandIn) -> None:
    issuer = standin.issuer(f"/{POOL}")
    protected = Protected.cognito(issuer, ["1example23456789"], resource=RESOURCE, scopes=["files.read", "openid"])
    caller = Called(protected, cognito_token(issuer)).caller
    assert caller["principal"] == f"{issuer} sub aaaaaaaa-bbbb-cccc-dddd-example"
    assert (caller["client"], caller["roles"]) == ("1example23456789", ["editors"])
    assert {"files.read", f"{RESOURCE}/files.read", "openid"} <= {*caller["scopes"]}
    assert published(protected)["scopes_supported"] == [f"{RESOURCE}/files.read", "openid"]
    assert Called(protected, cognito_token(issuer), "write").status == 403
    both = cognito_token(issuer, scope=f"openid {RESOURCE}/files.read {RESOURCE}/files.write")
    assert Called(protected, both, "write").status == 200


@pytest.mark.parametrize(
    "claims", [{"token_use": "id", "aud": "1example23456789"}, {"client_id": "another"}, {"client_id": None}]
)
def test_a_token_of_cognito_that_is_for_another_use_is_refused(claims: dict[str, Any], standin: StandIn) -> None:
    issuer = standin.issuer(f"/{POOL}")
    protected = Protected.cognito(issuer, ["1example23456789"], resource=RESOURCE)
    assert Called(protected, cognito_token(issuer, **claims)).status == 401


@pytest.mark.parametrize(
    ("pool", "issuer"),
    [
        (POOL, f"https://cognito-idp.eu-west-1.amazonaws.com/{POOL}"),
        ("us-gov-west-1_x1", "https://cognito-idp.us-gov-west-1.amazonaws.com/us-gov-west-1_x1"),
        ("cn-north-1_x1", "https://cognito-idp.cn-north-1.amazonaws.com.cn/cn-north-1_x1"),
    ],
)
def test_the_id_of_a_user_pool_has_its_issuer(pool: str, issuer: str) -> None:
    assert Protected.cognito(pool, ["c"]).issuers == (issuer,)


@pytest.mark.parametrize(
    ("pool", "clients", "reason"),
    [
        ("my-pool", ["c"], "pool must be the User pool ID"),
        ("https://my.auth.eu-west-1.amazoncognito.com", ["c"], "pool must be the User pool ID"),
        (POOL, [], "client_ids must list the app clients"),
        (POOL, "c", "client_ids must list the app clients"),
    ],
)
def test_what_cannot_work_at_cognito_is_refused(pool: str, clients: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"{reason}.*LS-616"):
        Protected.cognito(pool, clients)


# Google.

CLIENT = "123-abc.apps.googleusercontent.com"
EMAIL = "https://www.googleapis.com/auth/userinfo.email"


class Google:
    """Google, as far as tokens are asked about: tokeninfo, whose numbers are texts, and userinfo."""

    def __init__(self, standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
        self.info: dict[str, Any] = {
            "azp": CLIENT,
            "aud": CLIENT,
            "sub": "1071",
            "scope": f"openid {EMAIL}",
            "exp": str(int(time.time()) + 3000),
            "expires_in": "3000",
            "email": "ann@example.com",
            "email_verified": "true",
            "access_type": "offline",
        }
        self.person: dict[str, Any] = {"sub": "1071", "email": "ann@example.com", "hd": "example.com"}
        self.status = 200
        standin.routes["/tokeninfo"] = lambda headers, body: self.answer(headers, self.info)
        standin.routes["/userinfo"] = lambda headers, body: self.answer(headers, self.person)
        for name in ("tokeninfo", "userinfo"):
            monkeypatch.setattr(f"linkspan.auth.opaque_tokens.{name.upper()}", f"{standin.url}/{name}")

    def answer(self, headers: Mapping[str, str], document: Any) -> tuple[int, Any]:
        """Answer about a token, which is in the Authorization header."""
        if self.status != 200:
            return self.status, {"error": "backend"}
        if headers.get("authorization") != "Bearer ya29.good":
            return 400, {"error": "invalid_token", "error_description": "Invalid Value"}
        return 200, document


@pytest.fixture
def google(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> Google:
    return Google(standin, monkeypatch)


def test_a_client_of_google_is_one_call(google: Google, standin: StandIn) -> None:
    protected = Protected.google(CLIENT, resource=RESOURCE)
    caller = Called(protected, "ya29.good").caller
    assert caller["principal"] == "https://accounts.google.com sub 1071"
    assert (caller["client"], caller["scopes"]) == (CLIENT, ["email", EMAIL, "openid"])
    assert caller["claims"]["email"] == "ann@example.com"
    assert "ya29" not in json.dumps(caller), "no handler sees the token"
    assert standin.asked == [("POST", "/tokeninfo")], "the token is in no URL"
    found = published(protected)
    assert found["authorization_servers"] == ["https://accounts.google.com"]
    assert found["scopes_supported"] == ["openid", "email"]


def test_a_key_of_ones_own_is_not_shown_to_google(google: Google, standin: StandIn) -> None:
    keys = ApiKeys({sha256(b"robot-key").hexdigest(): Grant("keys", subject="robot")})
    protected = Protected.google(CLIENT, resource=RESOURCE, verify=keys)
    assert Called(protected, "robot-key").caller["principal"] == "keys sub robot", "it needs no scope of Google"
    assert standin.asked == []
    assert Called(protected, "ya29.good").status == 200


def test_a_token_that_google_does_not_know_is_refused(google: Google) -> None:
    response = Called(Protected.google(CLIENT, resource=RESOURCE), "ya29.bad")
    assert (response.status, "invalid_token" in response.headers["www-authenticate"]) == (401, True)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aud": "another.apps.googleusercontent.com"}, "is not a client of this server"),
        ({"aud": None}, "is not a client of this server"),
        ({"sub": None}, "must ask for the scope openid"),
        ({"exp": "1000"}, "has expired"),
    ],
)
def test_a_token_of_google_that_is_for_another_use_is_refused(
    changes: dict[str, Any], reason: str, google: Google, caplog: pytest.LogCaptureFixture
) -> None:
    google.info |= changes
    assert Called(Protected.google(CLIENT, resource=RESOURCE), "ya29.good").status == 401
    assert reason in caplog.text
    assert "ya29.good" not in caplog.text


@pytest.mark.parametrize(
    ("info", "person", "status"),
    [
        ({}, {}, 200),
        ({}, {"hd": "EXAMPLE.com"}, 200),
        ({"hd": "example.com"}, {"hd": "other.example"}, 200),
        ({}, {"hd": "other.example"}, 401),
        ({}, {"hd": None}, 401),
        ({}, {"sub": "9999"}, 401),
        ({"hd": "other.example"}, {}, 401),
    ],
)
def test_only_accounts_of_the_domain_are_let_in(
    info: dict[str, Any], person: dict[str, Any], status: int, google: Google
) -> None:
    """Not by the address: a consumer account may have one of any domain."""
    google.info |= info
    google.person |= person
    protected = Protected.google([CLIENT], domain="example.com", resource=RESOURCE)
    assert Called(protected, "ya29.good").status == status


@pytest.mark.parametrize("status", [429, 500, 503])
def test_while_google_does_not_answer_no_token_is_to_blame(status: int, google: Google) -> None:
    google.status = status
    response = Called(Protected.google(CLIENT, resource=RESOURCE), "ya29.good")
    assert (response.status, response.headers["retry-after"]) == (503, "5")


def test_while_google_cannot_be_reached_no_token_is_to_blame(google: Google, standin: StandIn) -> None:
    standin.stop()
    assert Called(Protected.google(CLIENT, resource=RESOURCE), "ya29.good").status == 503


def test_a_request_that_google_does_not_understand_is_no_fault_of_the_token(google: Google, standin: StandIn) -> None:
    standin.routes["/tokeninfo"] = lambda headers, body: (400, {"error": "invalid_request"})
    assert Called(Protected.google(CLIENT, resource=RESOURCE), "ya29.good").status == 503


@pytest.mark.parametrize(
    ("client", "options", "reason"),
    [
        ("123", {}, "client_id must be that of a client at Google"),
        ([], {}, "client_id must be that of a client at Google"),
        (CLIENT, {"domain": "@example.com"}, "domain must be a domain of Google Workspace"),
        (CLIENT, {"domain": ""}, "domain must be a domain of Google Workspace"),
    ],
)
def test_what_cannot_work_at_google_is_refused(client: Any, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=rf"{reason}.*LS-616"):
        Protected.google(client, **options)


# GitHub.

APP_ID, SECRET = "Iv1.8a61f9b3a7aba766", "hunter2hunter2"


class GitHub:
    """A GitHub of one's own, as far as tokens are checked (GitHub REST API, Check a token)."""

    def __init__(self, standin: StandIn) -> None:
        self.url = standin.url
        self.checked: dict[str, Any] = {
            "id": 1,
            "url": f"{standin.url}/api/v3/authorizations/1",
            "token": "gho_good",
            "token_last_eight": "gho_good",
            "hashed_token": "25f94a2a5c7fbaf499c665bc73d67c1c87e496da8985131633ee0a95819db2e8",
            "app": {"client_id": APP_ID, "name": "files", "url": "https://api.example.com"},
            "scopes": ["read:user"],
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z",
            "expires_at": None,
            "user": {"login": "ann", "id": 583231, "node_id": "n", "type": "User", "site_admin": False, "url": "u"},
        }
        self.status = 200
        standin.routes[f"/api/v3/applications/{APP_ID}/token"] = self.check

    def check(self, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        """Check a token for the app that asks."""
        if self.status != 200:
            return self.status, {"message": "Server Error"}
        if headers.get("authorization") != "Basic " + b64encode(f"{APP_ID}:{SECRET}".encode()).decode():
            return 401, {"message": "Bad credentials"}
        if json.loads(body) != {"access_token": "gho_good"}:
            return 404, {"message": "Not Found"}
        return 200, self.checked

    def protected(self, secret: str = SECRET, **options: Any) -> Protected:
        """Return a server with the app."""
        return Protected.github(APP_ID, secret, server=self.url, resource=RESOURCE, **options)


@pytest.fixture
def github(standin: StandIn) -> GitHub:
    return GitHub(standin)


def test_an_app_of_github_is_one_call(github: GitHub) -> None:
    protected = github.protected(scopes=["read:user"])
    called = Called(protected, "gho_good")
    assert called.caller["principal"] == f"{github.url}/login/oauth sub 583231"
    assert (called.caller["client"], called.caller["scopes"]) == (APP_ID, ["read:user"])
    assert called.caller["claims"]["login"] == "ann"
    assert "gho_good" not in json.dumps(called.caller), "no handler sees the token"
    assert SECRET not in repr(protected)
    assert published(protected)["authorization_servers"] == [f"{github.url}/login/oauth"]


def test_github_itself_has_its_api_elsewhere() -> None:
    protected = Protected.github(APP_ID, SECRET)
    assert protected.issuers == ("https://github.com/login/oauth",)
    assert f"https://api.github.com/applications/{APP_ID}/token" in protected.named_urls


def test_a_token_that_github_does_not_know_is_refused(github: GitHub, standin: StandIn) -> None:
    response = Called(github.protected(), "gho_bad")
    assert (response.status, "invalid_token" in response.headers["www-authenticate"]) == (401, True)
    assert len(standin.asked) == 1
    assert Called(github.protected(), "a-key-of-another-service").status == 401
    assert len(standin.asked) == 1, "what is not a token of GitHub is not shown to it"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"app": {"client_id": "another"}}, "is of another app"),
        ({"app": None}, "is of another app"),
        ({"user": None}, "names no user"),
        ({"user": {"login": "ann"}}, "names no user"),
    ],
)
def test_a_token_of_github_without_an_app_or_a_user_is_refused(
    changes: dict[str, Any], reason: str, github: GitHub, caplog: pytest.LogCaptureFixture
) -> None:
    github.checked |= changes
    assert Called(github.protected(), "gho_good").status == 401
    assert reason in caplog.text
    assert "gho_good" not in caplog.text


@pytest.mark.parametrize("status", [403, 429, 500, 502])
def test_while_github_does_not_answer_no_token_is_to_blame(status: int, github: GitHub) -> None:
    github.status = status
    assert Called(github.protected(), "gho_good").status == 503


def test_a_wrong_secret_of_the_app_is_no_fault_of_the_token(github: GitHub, caplog: pytest.LogCaptureFixture) -> None:
    assert Called(github.protected(secret="wrong"), "gho_good").status == 503
    assert "check both [LS-617]" in caplog.text
    assert "wrong" not in caplog.text


@pytest.mark.parametrize(
    ("client", "secret", "options", "reason"),
    [
        ("", SECRET, {}, "needs the client ID"),
        (APP_ID, "", {}, "needs the client ID"),
        (APP_ID, SECRET, {"server": "http://github.example.com"}, "server must be the URL of GitHub"),
    ],
)
def test_what_cannot_work_at_github_is_refused(client: str, secret: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=rf"{reason}.*LS-616"):
        Protected.github(client, secret, **options)
