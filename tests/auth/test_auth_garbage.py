"""Whatever a server answers, at any place of a login, is an error of the client that names it, or a login."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oauth_world import AS, MCP, AuthorizationServer, World, challenge

from linkspan.auth import ClientCredentials, Enterprise, OAuth, WorkloadIdentity
from linkspan.auth.code import PendingLogin, read_redirect
from linkspan.auth.identities import Identity
from linkspan.auth.metadata import AuthorizationFailure
from linkspan.core.auth_flow import Http, HttpResult, HttpUnavailable
from linkspan.flows.client_errors import AuthorizationError

GARBAGE: list[bytes] = [
    b"",
    b"{}",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"\xff\xfe",
    b'{"a": "\xff"}',
    b"<!doctype html>",
    b'{"a":' * 20_000,
    b'{"error": {}, "client_id": 1, "access_token": [], "issuer": null, "resource": false}',
    b'{"error": "x", "error_description": "\\u001b[2J\\ud800"}',
]
STATUSES = [200, 201, 204, 302, 400, 401, 404, 429, 500]
IDENTITIES: list[Identity] = [
    OAuth(),
    OAuth(device=True),
    OAuth(client_id="c", client_secret="s3cret"),
    ClientCredentials("c", secret="s3cret"),
    WorkloadIdentity(lambda issuer, endpoint: "jwt"),
    Enterprise(idp="https://idp.example", subject=lambda: "id", client_id="c", client_secret="s3cret"),
]


class Disturbed(World):
    """A world in which one response is not what it should be; None is no response."""

    def __init__(self, at: int = -1, instead: HttpResult | None = None) -> None:
        super().__init__()
        self.at, self.instead, self.count = at, instead, 0
        methods = ["none", "client_secret_basic"]
        self.protect()
        server = self.server = AuthorizationServer(
            self,
            token_endpoint_auth_methods_supported=methods,
            device_authorization_endpoint=f"{AS}/device",
        )
        server.token_response = {"refresh_token": "refresh-1"}
        code = {"device_code": "d", "user_code": "u", "verification_uri": f"{AS}/d", "expires_in": 30}
        self.routes[f"POST {AS}/device"] = lambda effect: _json(code)
        idp = {"issuer": "https://idp.example", "token_endpoint": "https://idp.example/token"}
        self.document("https://idp.example/.well-known/oauth-authorization-server", idp)
        given = {"access_token": "jag", "token_type": "N_A"}
        self.routes["POST https://idp.example/token"] = lambda effect: _json(given)

    def perform(self, effect: object) -> object:
        if isinstance(effect, Http):
            self.count += 1
            if self.count - 1 == self.at:
                if self.instead is None:
                    raise HttpUnavailable("gone")
                return self.instead
        return super().perform(effect)


def _json(document: object) -> HttpResult:
    return HttpResult(200, {}, json.dumps(document).encode())


@pytest.mark.parametrize("auth", IDENTITIES, ids=lambda auth: type(auth).__name__)
def test_a_disturbed_login_is_an_authorization_error_or_a_login(auth: Identity) -> None:
    plain = Disturbed()
    assert plain.call(plain.authorizer(auth), plain.server.takes) == 200
    for at in range(plain.count):
        answers = [HttpResult(status, {}, body) for body in GARBAGE for status in (200, 400)]
        answers += [HttpResult(status, {"location": f"{MCP}/x"}, b"{}") for status in STATUSES]
        for instead in [None, *answers]:
            world = Disturbed(at=at, instead=instead)
            authorizer = world.authorizer(auth)
            with suppress(AuthorizationError):
                assert world.call(authorizer, world.server.takes) == 200
            world.now += 3600
            with suppress(AuthorizationError):
                assert world.call(authorizer, world.server.takes) == 200


@example("state=the-state&code=%ff")
@example("state=the-state" + "&a=1" * 100)
@given(st.text() | st.text("code=&stateiss%?+#https:/.0", max_size=60))
def test_a_redirect_of_any_text_is_refused(text: str) -> None:
    pending = PendingLogin(AS, True, "the-state", "the-verifier", "http://127.0.0.1:1/callback")
    with pytest.raises(AuthorizationFailure):
        read_redirect(text, pending)


@given(st.text(st.characters(max_codepoint=255), max_size=100))
def test_a_challenge_of_any_text_leads_to_a_login_or_an_error(header: str) -> None:
    world = Disturbed()
    with suppress(AuthorizationError):
        authorizer = world.authorizer()
        assert (
            world.call(
                authorizer,
                lambda attempt: world.server.takes(attempt) if attempt.token else challenge(401, f"Bearer {header}"),
            )
            == 200
        )
