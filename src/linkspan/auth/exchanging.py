"""Tokens for other services: the server exchanges its caller's token for one of its own. A token is never passed on.

No I/O. Spec: RFC 8693; on-behalf-of, https://learn.microsoft.com/entra/identity-platform/v2-oauth2-on-behalf-of-flow.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Literal
from urllib.parse import urlencode

from linkspan.auth.client_authentication import client_authentication
from linkspan.auth.client_registration import said_by
from linkspan.auth.jwks import Issuer, IssuerUnavailable, VerifyFlow, json_object
from linkspan.auth.network import check_issuer_url
from linkspan.core.auth_flow import Http, HttpResult, HttpUnavailable
from linkspan.errors import ExchangeError
from linkspan.types.base import JSON

_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ON_BEHALF_OF: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class TokenExchange:
    """How `ctx.token_for` gets tokens: at which authorization server, and as which client."""

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str,
        *,
        token_endpoint: str | None = None,
        style: Literal["rfc8693", "entra"] = "rfc8693",
        method: str = "client_secret_basic",
        insecure_issuer: bool = False,
    ) -> None:
        """Exchange at `token_endpoint`, or where the metadata of `issuer` say, as the client `client_id`.

        `style` is "entra" for Microsoft's on-behalf-of. `insecure_issuer`: as that of `Jwt`. Raises: ValueError.
        """
        if style not in ("rfc8693", "entra"):
            raise ValueError(f'style must be "rfc8693" or "entra", got {style!r}')
        client_authentication(client_id, client_secret, method)
        for name, url in (("issuer", issuer), ("token_endpoint", token_endpoint)):
            if url is not None:
                check_issuer_url("TokenExchange", name, url, insecure=insecure_issuer)
        self.issuer = issuer
        self._source = Issuer(issuer)
        self._endpoint = token_endpoint
        self.named_urls = tuple(each for each in (issuer, token_endpoint) if each is not None)
        self._style = style
        self._credentials = client_id, client_secret, method

    def __repr__(self) -> str:
        return f"TokenExchange({self.issuer!r})"

    def token(self, token: str, audience: str, scopes: Collection[str], now: float) -> VerifyFlow[tuple[str, float]]:
        """Return a token for `audience`, and for how many seconds it is good. Raises: ExchangeError."""
        try:
            endpoint: JSON = self._endpoint or (yield from self._source.metadata(now)).get("token_endpoint")
        except IssuerUnavailable as problem:
            raise ExchangeError(str(problem)) from None
        if not isinstance(endpoint, str):
            raise ExchangeError(f"the metadata of {self.issuer} has no token_endpoint: pass token_endpoint=")
        headers, fields = client_authentication(*self._credentials)
        form = self._form(token, audience, scopes) | fields
        try:
            reply: HttpResult = yield Http("POST", endpoint, headers, urlencode(form).encode())
        except HttpUnavailable as failure:
            raise ExchangeError(f"{self.issuer} cannot be reached: {failure}") from None
        answer: dict[str, Any] = json_object(reply.body) or {}
        found = answer.get("access_token")
        if reply.status != 200 or not isinstance(found, str) or not found:
            error, reason = said_by(reply.body, reply.status, [token, self._credentials[1]])
            raise ExchangeError(f"{self.issuer} issued no token for {audience}: {reason}", error=error)
        seconds = answer.get("expires_in")
        return found, float(seconds) if isinstance(seconds, int | float) else 0.0

    def _form(self, token: str, audience: str, scopes: Collection[str]) -> dict[str, str]:
        if self._style == "entra":
            asked = [f"{audience.rstrip('/')}/{each}" for each in scopes or (".default",)]
            return {
                "grant_type": _ON_BEHALF_OF,
                "assertion": token,
                "scope": " ".join(asked),
                "requested_token_use": "on_behalf_of",
            }
        form = {
            "grant_type": _EXCHANGE,
            "subject_token": token,
            "subject_token_type": _ACCESS_TOKEN,
            "requested_token_type": _ACCESS_TOKEN,
            "audience": audience,
        }
        return form | ({"scope": " ".join(scopes)} if scopes else {})
