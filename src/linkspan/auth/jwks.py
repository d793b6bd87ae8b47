"""What an issuer publishes: its metadata and its keys, when they are read, and for how long they are good.

No I/O: a request is an effect, and time is an argument (seconds since 1970). An object is shared by all threads that verify;
each change is one assignment, and two that fetch at the same moment ask for the same URL, which a driver asks for once.
Spec: RFC 8414, RFC 7517; the order of the metadata URLs is that of AU-C3.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from linkspan.auth.metadata import server_metadata_urls
from linkspan.auth.presets import with_other_slash
from linkspan.core.auth_flow import Http, HttpResult, HttpUnavailable
from linkspan.types.base import JSON, JSONObject, is_array, is_object

T = TypeVar("T")
VerifyFlow: TypeAlias = Generator[Any, Any, T]
"""Yields `Http` and `Check`."""

_REFETCH: Final = 30.0
"""Seconds between two requests for keys on account of an unknown `kid`, which a client can invent."""
RETRY: Final = 5.0
"""Seconds after which an issuer that could not be reached is asked again while there are no keys, or no metadata."""
_KEPT: Final = 3600.0
"""Seconds for which keys are good where the issuer does not say."""
_SHORTEST: Final = 30.0
_LONGEST: Final = 86400.0
"""Keys are never used for longer than a day without a look, nor for longer than another day while the issuer is down."""
_MOST_KEYS: Final = 100
_MAX_AGE: Final = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)
_NOT_KEPT: Final = re.compile(r"(?:^|[,\s])no-(?:store|cache)(?:$|[,\s;])", re.IGNORECASE)
_FAMILIES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_SMALLEST_MODULUS: Final = 342
"""Characters of base64 in which 2048 bits are written."""


class TokenRefused(Exception):
    """A token or a proof is not good. The text is for the log only; `error` is what the client receives (RFC 6750, RFC 9449)."""

    def __init__(self, reason: str, error: str = "invalid_token") -> None:
        super().__init__(reason)
        self.error = error


class UnknownKey(TokenRefused):
    """No key has the `kid` of a token, and the keys cannot be read again yet."""

    def __init__(self, reason: str, checked_at: float, seconds: float) -> None:
        """Take when the keys were read last, and the seconds until they can be read again."""
        super().__init__(reason)
        self.checked_at = checked_at
        self.seconds = seconds


class IssuerUnavailable(Exception):
    """Whether a token is good cannot be found out now: the authorization server does not answer, or not as it should."""

    def __init__(self, reason: str, seconds: float = RETRY) -> None:
        """Take the seconds after which it may be found out."""
        super().__init__(reason)
        self.seconds = seconds


class Issuer:
    """One issuer, as far as it was read."""

    def __init__(self, url: str, *, jwks_uri: str | None = None, keys: Sequence[Any] | None = None) -> None:
        """Read from `url`; `jwks_uri` is where its keys are, if its metadata do not say; `keys` are some that never change."""
        self.url = url
        is_asked = jwks_uri is None and keys is None
        self.names: tuple[str, ...] = (url, with_other_slash(url)) if is_asked else (url,)
        """What tokens may call it. RFC 8414 compares issuers by character; until its metadata are known, the slash may differ."""
        self._jwks_uri = jwks_uri
        self._keys: Sequence[Any] | None = keys
        self._fixed = keys is not None
        self._fresh_until = self._usable_until = self._retry_at = self._checked_at = 0.0
        self._metadata: tuple[float, JSONObject] = 0.0, {}
        self._metadata_failure: tuple[float, str] = 0.0, ""
        """Until when they are not read again, and why."""
        self._fetching: list[None] = []

    def metadata(self, now: float) -> VerifyFlow[JSONObject]:
        """Return the metadata. Raises: IssuerUnavailable."""
        until, known = self._metadata
        if now < until:
            return known
        retry_at, problem = self._metadata_failure
        if now >= retry_at:
            problem = yield from self._read_metadata(now)
            if not problem:
                return self._metadata[1]
            self._metadata_failure = now + RETRY, problem
        if known:
            return known
        raise IssuerUnavailable(f"the issuer {self.url} cannot be read: {problem}")

    def _read_metadata(self, now: float) -> VerifyFlow[str]:
        """Read the metadata; return what was wrong, or nothing."""
        for url in server_metadata_urls(self.url):
            try:
                reply: HttpResult = yield Http("GET", url, {"accept": "application/json"}, redirects=True)
            except HttpUnavailable as failure:
                return str(failure)  # the others are on the same host
            if reply.status == 200 and (found := json_object(reply.body)) is not None:
                named = found.get("issuer")
                if not isinstance(named, str) or named not in (self.url, with_other_slash(self.url)):
                    return f"its metadata name the issuer {named!r}: write issuer= exactly like that"
                if named != self.url and len(self.names) > 1:  # for the first time
                    _warn(self.url, named)
                self.names = (named,)
                self._metadata = now + _KEPT, found
                return ""
        return "it has no metadata at any of the well-known places"

    def key(self, kid: str | None, algorithm: str, now: float) -> VerifyFlow[Any]:
        """Return the key that has signed a token. Raises: UnknownKey, TokenRefused, IssuerUnavailable."""
        if self._fixed:
            return self._chosen(kid, algorithm)
        try:
            return (yield from self._found(kid, algorithm, now))
        except TokenRefused as problem:
            if kid is None or any(each.kid == kid for each in self._keys or ()):
                raise
            raise UnknownKey(str(problem), self._checked_at, max(self._retry_at - now, 0.0)) from None

    def _found(self, kid: str | None, algorithm: str, now: float) -> VerifyFlow[Any]:
        """Return a key of those that were read, which are read again where none fits, unless that was done a moment ago."""
        if now >= self._fresh_until:
            yield from self._refresh(now)
        try:
            return self._chosen(kid, algorithm)
        except TokenRefused:
            if now < self._retry_at and not self._fetching:
                raise
        yield from self._refresh(now)
        return self._chosen(kid, algorithm)

    def _refresh(self, now: float) -> VerifyFlow[None]:
        """Read the keys again, unless that was tried a moment ago. Raises: IssuerUnavailable if there are none to go on with."""
        if now < self._retry_at and not self._fetching:
            if now < self._usable_until:
                return
            raise IssuerUnavailable(f"the issuer {self.url} could not be read a moment ago")
        self._retry_at = now + (_REFETCH if self._keys else RETRY)
        self._fetching.append(None)
        try:
            yield from self._fetch(now)
        except IssuerUnavailable:
            if self._keys is None or now >= self._usable_until:
                raise
        finally:
            self._fetching.pop()

    def _fetch(self, now: float) -> VerifyFlow[None]:
        url = self._jwks_uri
        if url is None:
            metadata: JSONObject = yield from self.metadata(now)
            url = metadata.get("jwks_uri")
            if not isinstance(url, str):
                raise IssuerUnavailable(f"the metadata of {self.url} has no jwks_uri: pass Jwt(..., jwks_uri=...)")
        try:
            reply: HttpResult = yield Http("GET", url, {"accept": "application/json"}, redirects=True)
        except HttpUnavailable as failure:
            raise IssuerUnavailable(f"the keys of {self.url} cannot be read: {failure}") from None
        document = json_object(reply.body) if reply.status == 200 else None
        if document is None or not is_array(document.get("keys")):
            raise IssuerUnavailable(
                f"the keys of {self.url} cannot be read: {url} answered {reply.status} without a JWKS"
            )
        self._checked_at = now
        age = max_age(reply.headers)
        kept = min(max(_KEPT if age is None else age, _SHORTEST), _LONGEST)
        self._keys = import_keys(document)
        self._fresh_until, self._usable_until, self._retry_at = now + kept, now + kept + _LONGEST, now + _REFETCH

    def _chosen(self, kid: str | None, algorithm: str) -> Any:
        family = _FAMILIES[algorithm[:2]]
        usable = [each for each in self._keys or () if each.key_type == family and each.get("alg") in (None, algorithm)]
        fitting = [each for each in usable if kid is None or each.kid == kid]
        if self._fixed and not fitting:
            fitting = [each for each in usable if each.kid is None]  # the author gave it for tokens of any name
        if kid is None and len(fitting) != 1:
            raise TokenRefused("the token names no key (kid), and the issuer has several or none for its algorithm")
        if not fitting:
            raise TokenRefused(f"the issuer {self.url} has no key {kid!r} for {algorithm}")
        return fitting[0]


def import_keys(document: JSON) -> Sequence[Any]:
    """Return the public keys of a JWKS that can have signed a token. A key that cannot be read does not spoil the others."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    keys: list[Any] = []
    members: JSON = document.get("keys") if is_object(document) else None
    for each in members[:_MOST_KEYS] if is_array(members) else ():
        if is_object(each) and may_verify(each) and each.get("use") in (None, "sig"):
            with suppress(JoseError, ValueError, TypeError, KeyError):
                keys.append(import_key({name: value for name, value in each.items() if name not in ("key_ops", "x5c")}))
    return keys


def may_verify(jwk: Mapping[str, JSON]) -> bool:
    """Return whether a key is of a kind that signs with a private half, and is long enough.

    A shared key is not: every party that can read it could sign.
    """
    kind, modulus = jwk.get("kty"), jwk.get("n")
    return kind in ("EC", "OKP") or (kind == "RSA" and isinstance(modulus, str) and len(modulus) >= _SMALLEST_MODULUS)


def json_object(body: bytes) -> JSONObject | None:
    """Return a JSON object, or None for anything else."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _warn(written: str, named: str) -> None:
    """Log that the slash at the end of an issuer differs: clients that compare by character find another issuer published."""
    from logging import getLogger

    getLogger("linkspan.http").warning("the issuer %s calls itself %s: write issuer= like that", written, named)


def max_age(headers: Mapping[str, str]) -> float | None:
    """Return for how many seconds a response may be kept, if it has a Cache-Control."""
    said = headers.get("cache-control", "")
    if _NOT_KEPT.search(said):
        return 0.0
    found = _MAX_AGE.search(said)
    return float(found[1]) if found is not None else None
