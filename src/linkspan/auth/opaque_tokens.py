"""Opaque tokens of providers without introspection: the provider is asked about each in its own way.

No I/O: requests are effects. A token that the provider does not know is refused (401); a provider that does not answer, or
refuses our own credentials, is unavailable (503). Sources are named at each class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from linkspan.auth.client_authentication import FORM
from linkspan.auth.jwks import IssuerUnavailable, TokenRefused, VerifyFlow, json_object
from linkspan.auth.verifying import Verified, owner_of
from linkspan.core.auth_flow import Http, HttpResult, HttpUnavailable
from linkspan.revisions.neutral import Grant, read_only
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.challenges import basic_credentials, read_scopes
from linkspan.wire.jsonrpc import encode

GOOGLE: Final = "https://accounts.google.com"
TOKENINFO: Final = "https://oauth2.googleapis.com/tokeninfo"
USERINFO: Final = "https://openidconnect.googleapis.com/v1/userinfo"
GITHUB: Final = "https://github.com"
GITHUB_API: Final = "https://api.github.com"
_OF_GITHUB: Final = re.compile(r"gh[ou]_\w+|[0-9a-f]{40}")
"""Tokens of OAuth apps, and those of GitHub Apps for users; servers of one's own may have older ones."""
_GITHUB_VERSION: Final = "2022-11-28"
_OF_USERS: Final = ("login", "node_id", "type", "site_admin")
"""What handlers see of a user. The login may change hands, the id never does."""
_SHORT: Final = {
    "https://www.googleapis.com/auth/userinfo.email": "email",
    "https://www.googleapis.com/auth/userinfo.profile": "profile",
}
"""Scopes that Google grants under another name than the one that was asked for."""


class GoogleTokens:
    """Access tokens of Google, for clients that are yours.

    Source: Google Identity, OAuth 2.0 for client-side web applications (tokeninfo); OpenID Connect (userinfo, `hd`).
    """

    def __init__(self, client_ids: Sequence[str], domains: Sequence[str]) -> None:
        """Take tokens that were issued to these clients, and of accounts of these Workspace domains, if any are named."""
        self.issuer = GOOGLE
        self.login_scopes = ("openid", "email")
        self._client_ids = frozenset(client_ids)
        self._domains = frozenset(each.lower() for each in domains)
        self._tokeninfo, self._userinfo = self.named_urls = TOKENINFO, USERINFO

    def __repr__(self) -> str:
        return f"GoogleTokens({sorted(self._client_ids)!r})"

    def takes(self, issuer: str | None) -> bool:
        """Return whether a token is opaque."""
        return issuer is None

    def verify(self, token: str, resource: str, now: float) -> VerifyFlow[Verified | None]:
        """Return what a token allows. Raises: TokenRefused, IssuerUnavailable."""
        bearer = {"authorization": f"Bearer {token}"}
        reply = yield from _asked("Google", Http("POST", self._tokeninfo, {**FORM, **bearer}))
        info = json_object(reply.body)
        if reply.status in (400, 401) and (info is None or info.get("error") != "invalid_request"):
            raise TokenRefused("Google does not know the token, or it has expired")
        claims = _claims("Google", reply, info)
        if claims.get("aud") not in self._client_ids:
            raise TokenRefused(f"the token was issued to {claims.get('aud')!r}, which is not a client of this server")
        subject, expires = claims.get("sub"), _expiry(claims, now)
        if not isinstance(subject, str) or not subject:
            raise TokenRefused("the token names no account: the client must ask for the scope openid")
        if expires is not None and expires <= now:
            raise TokenRefused("the token has expired")
        if self._domains and "hd" not in claims:
            claims = claims | {"hd": (yield from self._domain(bearer, subject))}
        if self._domains and str(claims["hd"]).lower() not in self._domains:
            raise TokenRefused(f"the account is of {claims['hd'] or 'no domain'}, not of {' or '.join(self._domains)}")
        scope, client = claims.get("scope"), claims.get("azp")
        scopes = read_scopes(scope) if isinstance(scope, str) else []
        grant = Grant(
            self.issuer,
            subject,
            client if isinstance(client, str) else None,
            frozenset(scopes) | {_SHORT.get(each, each) for each in scopes},
            claims=_frozen(claims),
            expires=expires,
        )
        return Verified(grant, owner_of(grant, token, is_alone=False))

    def _domain(self, bearer: Mapping[str, str], subject: str) -> VerifyFlow[JSON]:
        """Return the Workspace domain of the account, which tokeninfo need not have. Raises: TokenRefused, IssuerUnavailable."""
        reply = yield from _asked("Google", Http("GET", self._userinfo, bearer))
        if reply.status in (401, 403):
            raise TokenRefused("Google does not show the account: the client must ask for the scopes openid and email")
        found = _claims("Google", reply, json_object(reply.body))
        return found.get("hd") if found.get("sub") == subject else None


class GitHubTokens:
    """Access tokens that GitHub has issued to an app of yours.

    Source: GitHub REST API, REST API endpoints for OAuth authorizations (check a token).
    """

    def __init__(self, client_id: str, secret: str, server: str) -> None:
        """Ask as the app; `server` is `https://github.com`, or a server of your own."""
        api = GITHUB_API if server == GITHUB else f"{server}/api/v3"
        self.issuer = f"{server}/login/oauth"
        self._client_id = client_id
        self._secret = secret
        self._url = f"{api}/applications/{quote(client_id, safe='')}/token"
        self.named_urls = (self._url,)

    def __repr__(self) -> str:
        return f"GitHubTokens({self._client_id!r})"

    def takes(self, issuer: str | None) -> bool:
        """Return whether a token is opaque."""
        return issuer is None

    def verify(self, token: str, resource: str, now: float) -> VerifyFlow[Verified | None]:
        """Return what a token allows; None for one of another kind. Raises: TokenRefused, IssuerUnavailable."""
        if _OF_GITHUB.fullmatch(token) is None:
            return None
        headers = {
            "accept": "application/vnd.github+json",
            "authorization": basic_credentials(self._client_id, self._secret),
            "content-type": "application/json",
            "x-github-api-version": _GITHUB_VERSION,
        }
        reply = yield from _asked("GitHub", Http("POST", self._url, headers, encode({"access_token": token})))
        if reply.status in (404, 422):
            raise TokenRefused("GitHub does not know the token as one of this app")
        if reply.status == 401:
            raise IssuerUnavailable("GitHub refuses the client id and the secret of the app: check both [LS-617]")
        found = _claims("GitHub", reply, json_object(reply.body))
        app, user, scopes = found.get("app"), found.get("user"), found.get("scopes")
        if not is_object(app) or app.get("client_id") != self._client_id:
            raise TokenRefused("the token is of another app of GitHub")
        number: JSON = user.get("id") if is_object(user) else None
        if not is_object(user) or not isinstance(number, int):
            raise TokenRefused("the token names no user of GitHub")
        claims: JSONObject = {"sub": str(number)}
        claims |= {name: user[name] for name in _OF_USERS if name in user}
        names = [each for each in scopes if isinstance(each, str)] if is_array(scopes) else []
        grant = Grant(self.issuer, str(number), self._client_id, frozenset(names), claims=_frozen(claims))
        return Verified(grant, owner_of(grant, token, is_alone=False))


def _asked(provider: str, effect: Http) -> VerifyFlow[HttpResult]:
    """Return the response of a provider. Raises: IssuerUnavailable."""
    try:
        reply: HttpResult = yield effect
    except HttpUnavailable as failure:
        raise IssuerUnavailable(f"{provider} cannot be reached: {failure}") from None
    return reply


def _claims(provider: str, reply: HttpResult, found: JSONObject | None) -> JSONObject:
    """Return the object in a good response. Raises: IssuerUnavailable."""
    if reply.status != 200 or found is None:
        raise IssuerUnavailable(f"{provider} answered {reply.status} when asked about a token")
    return found


def _expiry(claims: JSONObject, now: float) -> float | None:
    """Return when a token ends: `exp` is a text of digits here, and `expires_in` may stand for it."""
    for name, start in (("exp", 0.0), ("expires_in", now)):
        value = claims.get(name)
        if isinstance(value, str | int) and str(value).isdecimal():
            return start + float(value)
    return None


def _frozen(claims: JSONObject) -> Mapping[str, JSON]:
    return {name: read_only(value) for name, value in claims.items()}
