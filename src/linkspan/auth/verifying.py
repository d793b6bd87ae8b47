"""Verifiers: from a token to the grant in it, or to a reason for the log. No I/O: what must be asked elsewhere is an effect.

Each verifier knows one kind of token: JWTs of one issuer, opaque tokens that their issuer explains, keys of one's own, or
whatever a function recognizes. Spec: RFC 9068, RFC 7519, RFC 7662, RFC 8725.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlencode

import msgspec

from linkspan.auth.client_authentication import client_authentication
from linkspan.auth.jwks import Issuer, IssuerUnavailable, TokenRefused, UnknownKey, VerifyFlow, json_object, max_age
from linkspan.auth.network import check_issuer_url
from linkspan.auth.own_keys import read_keys
from linkspan.auth.presets import PRESETS, Preset, recognized
from linkspan.core.auth_flow import Http, HttpResult, HttpUnavailable
from linkspan.revisions.neutral import Grant, read_only
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.challenges import read_scopes

if TYPE_CHECKING:
    from joserfc._rfc7515.model import JWSAlgModel
    from joserfc.jws import JWSRegistry

ALGORITHMS: Final = (
    "ES256",
    "ES384",
    "ES512",
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "Ed25519",
    "EdDSA",
)
"""Signatures with a private key. None with a shared one, which a public key could be taken for."""
LONGEST: Final = 60.0
"""Seconds for which a verified token is remembered, unless the author says: so long may a revoked one go on."""
_LEEWAY: Final = 30.0
"""Seconds by which two clocks may differ."""
_TYPES: Final = ("at+jwt", "application/at+jwt", "jwt", "")
_LARGEST_HEADER: Final = 8192
_DIGEST: Final = 32
"""Hexadecimal digits that stand for a token without a name."""


class CheckToken(msgspec.Struct, frozen=True):
    """Ask a function of the author about a token; the outcome is a `Grant` or None. It may be awaitable."""

    function: Checker
    token: str


Checker: TypeAlias = Callable[[str], Grant | Awaitable[Grant | None] | None]


class Verified(NamedTuple):
    """What a token allows, and to whom."""

    grant: Grant
    owner: str
    """The principal: whose sessions, tasks and request states those of this token are."""
    seconds: float = LONGEST
    """For how long that may be remembered."""


def owner_of(grant: Grant, token: str, *, is_alone: bool) -> str:
    """Return the principal of a token: its issuer, the kind of its name, and the name, so that no kind is taken for another.

    `is_alone`: it is known that the client acts for itself. A client that may act for someone is no name of theirs, so a token
    without a better one is a principal of its own.
    """
    username = grant.claims.get("username")
    if grant.subject:
        return f"{grant.issuer} sub {grant.subject}"
    if isinstance(username, str) and username:
        return f"{grant.issuer} username {username}"
    if is_alone and grant.client_id:
        return f"{grant.issuer} client {grant.client_id}"
    return f"{grant.issuer} token {sha256(token.encode()).hexdigest()[:_DIGEST]}"


@runtime_checkable
class Verifier(Protocol):
    """One kind of token."""

    @property
    def issuer(self) -> str | None:
        """The authorization server, if clients can be sent there."""
        ...

    def takes(self, issuer: str | None) -> bool:
        """Return whether to ask this one about a token that claims an issuer; None for an opaque token."""
        ...

    def verify(self, token: str, resource: str, now: float) -> VerifyFlow[Verified | None]:
        """Return what a token allows here; None for one of another kind. Raises: TokenRefused, IssuerUnavailable."""
        ...


class _OfIssuer:
    """What verifiers of one issuer's tokens have in common: how to read claims."""

    def __init__(
        self,
        issuer: str,
        audience: str | Sequence[str] | None,
        audience_claim: str | None,
        scope_prefix: str,
        preset: str | None,
        jwks_uri: str | None = None,
        keys: Sequence[Any] | None = None,
        endpoint: str | None = None,
        *,
        insecure_issuer: bool,
    ) -> None:
        named = {"issuer": issuer, "jwks_uri": jwks_uri, "endpoint": endpoint}
        self.named_urls = tuple(each for each in named.values() if each is not None)
        for name, url in named.items():
            if url is not None:
                check_issuer_url(type(self).__name__, name, url, insecure=insecure_issuer)
        self.preset: Preset
        self.issuer, self.preset = recognized(issuer, preset)
        self.source = Issuer(self.issuer, jwks_uri=jwks_uri, keys=keys)
        chosen = audience if audience is not None else self.preset.fixed_audience
        self.audience = None if chosen is None else frozenset([chosen] if isinstance(chosen, str) else chosen)
        self._audience_path = (audience_claim,) if audience_claim is not None else self.preset.audience
        self.scope_prefix = scope_prefix
        if self._audience_path != ("aud",) and self.audience is None:
            raise ValueError(
                f"tokens of {self.preset.name} name their client instead of this server: pass audience=[...] with the ids "
                "of the clients that may call it"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.issuer!r})"

    def verified(
        self,
        token: str,
        claims: JSONObject,
        resource: str,
        now: float,
        *,
        expires: bool = True,
        seconds: float = LONGEST,
    ) -> Verified:
        """Return what the claims of a token allow. Raises: TokenRefused for one that is late, early, or for another server."""
        if "iss" in claims and claims["iss"] not in self.source.names:
            raise TokenRefused(f"the token was issued by {_shown(claims['iss'])}, not by {self.issuer}")
        until = _check_times(claims, now, expires=expires)
        self._check_audience(claims, resource)
        self._check_kind(claims)
        names = frozenset(name for path in self.preset.scopes for name in _names(_at(claims, path)))
        bare = {each.removeprefix(self.scope_prefix) for each in names}
        subject = claims.get("sub")
        client = next((claims[each] for each in self.preset.client if isinstance(claims.get(each), str)), None)
        grant = Grant(
            issuer=self.issuer,
            subject=subject if isinstance(subject, str) and subject else None,
            client_id=client,
            scopes=frozenset(bare | {self.scope_prefix + each for each in bare}),
            roles=frozenset(_names(_at(claims, self.preset.roles))),
            claims=read_only(claims),
            expires=until,
            thumbprint=_thumbprint(claims.get("cnf")),
        )
        return Verified(grant, owner_of(grant, token, is_alone=_is_alone(claims)), seconds)

    def _check_kind(self, claims: JSONObject) -> None:
        """Raise TokenRefused for a token of another kind than access tokens, such as an ID token."""
        for name, values in self.preset.required.items():
            if claims.get(name) not in values:
                raise TokenRefused(f"{name} is {_shown(claims.get(name))}, which access tokens do not have")
        for name in self.preset.of_id_tokens:
            if name in claims:
                raise TokenRefused(
                    f"the token has the claim {name}, so it is an ID token of {self.preset.name} [LS-618]"
                )
        for names in self.preset.one_of:
            if not any(claims.get(each) for each in names):
                missing = " or ".join(names)
                raise TokenRefused(
                    f"the token lacks {missing}, which access tokens of {self.preset.name} have [LS-618]"
                )

    def _check_audience(self, claims: JSONObject, resource: str) -> None:
        wanted = self.audience or {resource}
        found = _at(claims, self._audience_path)
        if wanted.isdisjoint(_names([found] if isinstance(found, str) else found)):
            claim = ".".join(self._audience_path)
            raise TokenRefused(f"the token is for {_shown(found)} ({claim}), not for {' or '.join(sorted(wanted))}")


class Jwt(_OfIssuer):
    """JSON Web Tokens of one issuer, checked with the keys that it publishes."""

    def __init__(
        self,
        issuer: str,
        *,
        audience: str | Sequence[str] | None = None,
        audience_claim: str | None = None,
        algorithms: Sequence[str] = ALGORITHMS,
        jwks_uri: str | None = None,
        keys: str | bytes | Mapping[str, JSON] | None = None,
        scope_prefix: str = "",
        preset: str | None = None,
        insecure_issuer: bool = False,
    ) -> None:
        """Trust tokens that `issuer` has signed. Write it as its metadata do; a missing or additional slash at the end is mended.

        - `audience`: what a token must name; the `resource` of the server if left out. `audience_claim`: where.
        - `algorithms`: those of signatures. `none` and shared keys (HS256 and the like) are never accepted.
        - `jwks_uri`: where the keys are, if not to be found by the metadata.
        - `keys`: the public keys themselves, as PEM, a JWK or a JWKS. Then the issuer is a name only, and is never asked.
        - `scope_prefix`: clients ask for scopes with it in front ("api://ID/"); name them without it, here and at tools.
        - `preset`: a name of `PRESETS`, for a provider that its issuer does not show, such as one with a domain of yours.
        - `insecure_issuer`: let it, and `jwks_uri`, be http URLs of a private network. The risk: whatever machine of the network
          answers in its place, or reads along, decides which tokens are good. A host with a public address stays refused.

        Raises: ValueError; LinkspanError where the extra `auth` is not installed.
        """
        require_jose()
        own = None if keys is None else read_keys(keys)
        super().__init__(
            issuer, audience, audience_claim, scope_prefix, preset, jwks_uri, own, insecure_issuer=insecure_issuer
        )
        if self.preset.opaque:
            raise ValueError(
                f"the access tokens of {self.preset.name} are not JWTs: write auth=Protected.{self.preset.name.lower()}(...)"
            )
        if re.fullmatch(self.preset.unverifiable, self.issuer):
            raise ValueError(
                f"tokens of {self.issuer} can be verified by {self.preset.name} alone: use a custom authorization server, such "
                f"as {self.preset.example} [LS-616]"
            )
        unknown = [each for each in algorithms if each not in ALGORITHMS]
        if unknown or not algorithms:
            raise ValueError(f"algorithms must be of {', '.join(ALGORITHMS)}; got {list(algorithms)!r}")
        self._algorithms = frozenset(algorithms)

    def takes(self, issuer: str | None) -> bool:
        """Return whether a token claims this issuer."""
        return issuer in self.source.names

    def verify(self, token: str, resource: str, now: float) -> VerifyFlow[Verified | None]:
        """Return what a token allows. Raises: TokenRefused, IssuerUnavailable."""
        header = read_header(token)
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise TokenRefused(f"the token is signed with {_shown(algorithm)}, which is not accepted")
        if not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise TokenRefused(f"the token is a {_shown(kind)}, not an access token (at+jwt or JWT)")
        if kid is not None and not isinstance(kid, str):
            raise TokenRefused("the kid of the token is not a string")
        try:
            key = yield from self.source.key(kid, algorithm, now)
        except UnknownKey as problem:
            self._check_age(token, problem, resource, now)
            raise
        claims = read_jws(token, key, algorithm)
        if claims.get("iss") not in self.source.names:
            raise TokenRefused(f"the token was issued by {_shown(claims.get('iss'))}, not by {self.issuer}")
        return self.verified(token, claims, resource, now)

    def _check_age(self, token: str, problem: UnknownKey, resource: str, now: float) -> None:
        """Raise IssuerUnavailable where a token may be signed with a key that is newer than those that were read.

        Nothing has verified what it says: so all of it has to fit, and it has to be newer, too. Raises: TokenRefused.
        """
        claims = _decoded(token.split(".")[1])
        if claims is None or claims.get("iss") not in self.source.names:
            raise problem
        self.verified(token, claims, resource, now)
        issued: JSON = claims.get("iat")
        if isinstance(issued, int | float) and issued > problem.checked_at:
            raise IssuerUnavailable(
                f"{problem}, and the token is newer than the keys: they are read again in {problem.seconds:.0f} s",
                problem.seconds,
            ) from None


class Introspection(_OfIssuer):
    """Opaque tokens, about which the authorization server is asked (RFC 7662)."""

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str,
        *,
        endpoint: str | None = None,
        audience: str | Sequence[str] | None = None,
        audience_claim: str | None = None,
        scope_prefix: str = "",
        preset: str | None = None,
        method: str = "client_secret_basic",
        remember: float | None = None,
        insecure_issuer: bool = False,
    ) -> None:
        """Ask as the client `client_id`, at `endpoint`, or where the metadata say. See `Jwt` for the others.

        - `remember`: seconds for which an active answer is used again, whatever the server says of caching, but not beyond
          `exp`. The risk: a token that was revoked, or a user who was locked out, is let in for that long. Without it, the
          `Cache-Control` of the answer counts, up to a minute; Keycloak answers `no-cache`, so that each request asks.

        Raises: ValueError.
        """
        if remember is not None and not 0 < remember < float("inf"):
            raise ValueError(f"remember must be a number of seconds above 0, or None; got {remember!r}")
        super().__init__(
            issuer,
            audience,
            audience_claim,
            scope_prefix,
            preset,
            endpoint=endpoint,
            insecure_issuer=insecure_issuer,
        )
        self._endpoint = endpoint
        self._remember = remember
        self._credentials = client_id, client_secret, method
        client_authentication(*self._credentials)

    def takes(self, issuer: str | None) -> bool:
        """Return whether a token is opaque, or claims this issuer."""
        return issuer is None or issuer in self.source.names

    def verify(self, token: str, resource: str, now: float) -> VerifyFlow[Verified | None]:
        """Return what a token allows. Raises: TokenRefused, IssuerUnavailable."""
        endpoint = self._endpoint or (yield from self.source.metadata(now)).get("introspection_endpoint")
        if not isinstance(endpoint, str):
            raise IssuerUnavailable(f"the metadata of {self.issuer} has no introspection_endpoint: pass endpoint=")
        headers, fields = client_authentication(*self._credentials)
        body = urlencode({"token": token, "token_type_hint": "access_token", **fields}).encode()
        try:
            reply: HttpResult = yield Http("POST", endpoint, headers, body)
        except HttpUnavailable as failure:
            raise IssuerUnavailable(f"the introspection of {self.issuer} cannot be reached: {failure}") from None
        claims = json_object(reply.body) if reply.status == 200 else None
        if claims is None:
            raise IssuerUnavailable(
                f"the introspection of {self.issuer} answered {reply.status}: check the credentials"
            )
        if claims.get("active") is not True:
            raise TokenRefused(self._inactive)
        return self.verified(token, claims, resource, now, expires=False, seconds=self._seconds(reply))

    @property
    def _inactive(self) -> str:
        """Why a token may be not active, which no issuer says."""
        if self.preset is not PRESETS["keycloak"]:
            return f"{self.issuer} reports the token as not active"
        return (
            f"{self.issuer} reports the token as not active: where it is neither expired nor revoked, Keycloak wants the "
            f"client that asks in its aud: add an audience mapper with the Included Client Audience {self._credentials[0]} "
            "[LS-613]"
        )

    def _seconds(self, reply: HttpResult) -> float:
        """Return for how long an active answer is used again."""
        if self._remember is not None:
            return self._remember
        age = max_age(reply.headers)
        return LONGEST if age is None else min(age, LONGEST)


class ApiKeys:
    """Keys that you hand out yourself. Only their SHA-256 is kept, and compared in constant time."""

    issuer = None

    def __init__(self, keys: Mapping[str, Grant], *, header: str = "authorization") -> None:
        """Take grants by the SHA-256 of a key, in hexadecimal: `hashlib.sha256(b"the key").hexdigest()`.

        A key comes as a bearer token, or alone in a `header` of another name. Make keys with `secrets.token_urlsafe(32)`.
        Raises: ValueError for what is not such a digest, and for a grant without a subject or client.
        """
        self.header = header.lower()
        self._grants: list[tuple[bytes, Grant]] = []
        for digest, grant in keys.items():
            try:
                known = bytes.fromhex(digest)
            except ValueError:
                known = b""
            if len(known) != 32:
                raise ValueError("ApiKeys takes the SHA-256 of each key as 64 hexadecimal digits, not the key itself")
            if not (grant.subject or grant.client_id):
                raise ValueError("the grant of an API key needs a subject or a client_id: its sessions belong to that")
            self._grants.append((known, grant))

    def __repr__(self) -> str:
        return f"ApiKeys({len(self._grants)} keys, header={self.header!r})"

    def takes(self, issuer: str | None) -> bool:
        """Return whether a token could be a key."""
        return issuer is None

    def verify(self, token: str, resource: str, now: float) -> VerifyFlow[Verified | None]:
        """Return what a key allows; None for an unknown one."""
        import hmac

        yield from ()
        digest = sha256(token.encode()).digest()
        found = [grant for known, grant in self._grants if hmac.compare_digest(known, digest)]
        if found and found[0].expires is not None and found[0].expires <= now:
            raise TokenRefused("the API key has expired")
        return Verified(found[0], owner_of(found[0], token, is_alone=True)) if found else None


class FunctionVerifier(msgspec.Struct, frozen=True):
    """A function of the author's as a verifier."""

    function: Checker
    issuer: str | None = None

    def takes(self, issuer: str | None) -> bool:
        """Return True: the function decides."""
        return True

    def verify(self, token: str, resource: str, now: float) -> VerifyFlow[Verified | None]:
        """Return what the function returns. Raises: TokenRefused, IssuerUnavailable where it raises."""
        try:
            grant: object = yield CheckToken(self.function, token)
        except Exception as error:
            name = getattr(self.function, "__name__", type(self.function).__name__)
            raise IssuerUnavailable(
                f"the verify function {name} raised {type(error).__name__}, so the token is neither good nor bad: return "
                "None for a token that is not valid [LS-612]"
            ) from error
        if grant is None:
            return None
        if not isinstance(grant, Grant):
            raise TypeError(f"a function that verifies tokens returns a Grant or None, not {type(grant).__name__}")
        if not (grant.subject or grant.client_id):
            raise TokenRefused("the function returned a grant without a subject and a client")
        if grant.expires is not None and grant.expires <= now:
            raise TokenRefused("the grant has expired")
        return Verified(grant, owner_of(grant, token, is_alone=True))


def verify(verifiers: Sequence[Verifier], token: str, resource: str, now: float) -> VerifyFlow[Verified]:
    """Return what the first verifier finds that knows the token. Raises: TokenRefused, IssuerUnavailable."""
    parts = token.split(".")
    claims = _decoded(parts[1]) if len(parts) == 3 and _decoded(parts[0]) is not None else None
    claimed = claims.get("iss") if claims is not None else None  # which nothing has verified yet
    issuer = claimed if isinstance(claimed, str) else None
    for each in verifiers:
        if each.takes(issuer):
            found = yield from each.verify(token, resource, now)
            if found is not None:
                return found
    what = (
        f"issued by {_shown(issuer)}, which is not trusted here" if issuer is not None else "not known to any verifier"
    )
    raise TokenRefused(f"the token is {what}")


# Reading tokens.


def read_header(token: str) -> JSONObject:
    """Return the header of a JWS. Raises: TokenRefused."""
    found = _decoded(token.partition(".")[0])
    if found is None or token.count(".") != 2:
        raise TokenRefused("the token is not a signed JWT")
    return found


def _decoded(part: str) -> JSONObject | None:
    """Return the JSON object in a part of a JWS, which nothing has verified; None for anything else."""
    try:
        return json_object(binascii.a2b_base64(part.encode("ascii").translate(_FROM_URL) + b"=" * (-len(part) % 4)))
    except ValueError:
        return None


_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")


def read_jws(token: str, key: Any, algorithm: str) -> JSONObject:
    """Return the claims of a JWS that `key` has signed with `algorithm`. Raises: TokenRefused."""
    from joserfc.errors import JoseError
    from joserfc.jws import deserialize_compact

    try:
        payload = deserialize_compact(token, key, registry=_registry(algorithm)).payload
    except (JoseError, ValueError, TypeError) as problem:
        raise TokenRefused(f"the signature is not valid ({type(problem).__name__})") from None
    claims = json_object(payload)
    if claims is None:
        raise TokenRefused("the claims are not a JSON object")
    return claims


@cache
def _registry(algorithm: str) -> JWSRegistry:
    """Return what reads signatures of one algorithm. Proofs of possession have a key in their header, so it may be long."""
    from joserfc.errors import UnsupportedAlgorithmError
    from joserfc.jws import JWSRegistry

    class OneAlgorithm(JWSRegistry):
        max_header_length = _LARGEST_HEADER

        def get_alg(self, name: str) -> JWSAlgModel:
            if name != algorithm:
                raise UnsupportedAlgorithmError(name)
            return self.algorithms[name]  # without a warning that EdDSA is called Ed25519 now

    return OneAlgorithm(strict_check_header=False)


def require_jose() -> None:
    """Raise LinkspanError where the extra `auth`, which reads signatures, is not installed."""
    try:
        import joserfc  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        from linkspan.errors import LinkspanError, import_problem

        raise LinkspanError(import_problem("verifying JWTs needs joserfc", "auth", error)) from None


def _check_times(claims: JSONObject, now: float, *, expires: bool) -> float | None:
    """Return when a token ends. Raises: TokenRefused for one that has ended, or has not begun."""
    times: dict[str, float] = {}
    for name in ("exp", "nbf", "iat"):
        value = claims.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise TokenRefused("exp, nbf and iat must be numbers")
        if value is not None:
            times[name] = value
    if expires and "exp" not in times:
        raise TokenRefused("the token has no exp")
    if "exp" in times and now >= times["exp"] + _LEEWAY:
        raise TokenRefused("the token has expired")
    if max(times.get("nbf", now), times.get("iat", now)) > now + _LEEWAY:
        raise TokenRefused("the token is not valid yet (nbf, iat): compare the clocks")
    return times.get("exp")


def _is_alone(claims: JSONObject) -> bool:
    """Return whether claims prove that the client acts for itself: no user stands behind the token.

    RFC 9068 asks for `sub` here too, so what else issuers write is their own: Auth0 and FusionAuth `gty`, Entra `idtyp`.
    """
    grants = {name.replace("-", "_") for each in ("gty", "grant_type") for name in _names(claims.get(each))}
    return grants == {"client_credentials"} or claims.get("idtyp") == "app"


def _thumbprint(confirmation: JSON) -> str | None:
    """Return the key that a token is bound to. Raises: TokenRefused for a binding that cannot be checked here."""
    if confirmation is None:
        return None
    found: JSON = confirmation.get("jkt") if is_object(confirmation) else None
    if not isinstance(found, str) or not found:
        raise TokenRefused("the token is bound to something other than a DPoP key, which cannot be checked")
    return found


def _at(claims: JSON, path: tuple[str, ...]) -> JSON:
    for name in path:
        claims = claims.get(name) if is_object(claims) else None
    return claims


def _names(value: JSON) -> Iterator[str]:
    """Return names that are written as one text, as scopes are, or as a list."""
    if isinstance(value, str):
        yield from read_scopes(value)
    elif is_array(value):
        yield from (each for each in value if isinstance(each, str))


def _shown(value: JSON) -> str:
    return clip(repr(value), 200)
