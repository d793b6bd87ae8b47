"""Signing: proofs that the sender of a token has its key (DPoP), and assertions of who a client is (`private_key_jwt`).

The cryptography is that of joserfc (extra `auth`). Spec: RFC 9449, RFC 7638; RFC 7523, section 2.2.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from linkspan.auth.metadata import AuthorizationFailure
from linkspan.errors import import_hint
from linkspan.wire.values import sha256_base64url

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

    from linkspan.auth.identities import Key

    SigningKey = OctKey | RSAKey | ECKey | OKPKey

ALGORITHM: Final = "ES256"
_ASSERTION_SECONDS: Final = 60
_ALGORITHMS: Final = {
    "RSA": ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("Ed25519", "EdDSA"),
}
"""How a key of a kind, or on a curve, signs; what we take first, first."""


class ProofKey:
    """A key to which tokens are bound. It signs a new proof for each request."""

    def __init__(self, key: ECKey) -> None:
        self._key = key
        self._public = key.as_dict(private=False)

    @classmethod
    def generate(cls) -> ProofKey:
        """Return a new key. Raises: AuthorizationFailure without the extra `auth`."""
        try:
            from joserfc.jwk import ECKey
        except ImportError as error:
            raise _missing("DPoP", error) from None
        return cls(ECKey.generate_key("P-256"))

    @classmethod
    def load(cls, saved: str) -> ProofKey:
        """Return a key that `save` wrote. Raises: AuthorizationFailure."""
        try:
            from joserfc.jwk import ECKey
        except ImportError as error:
            raise _missing("DPoP", error) from None
        return cls(ECKey.import_key(json.loads(saved)))

    @property
    def thumbprint(self) -> str:
        """Return what names the key without showing it (RFC 7638)."""
        return self._key.thumbprint()

    def save(self) -> str:
        """Return the key as text for the store; it is a secret."""
        return json.dumps(self._key.as_dict(private=True))

    def proof(self, method: str, url: str, *, now: float, jti: str, token: str | None, nonce: str | None) -> str:
        """Return a proof for one request; `jti` must be new each time (RFC 9449, section 4.2)."""
        from joserfc import jwt

        parts = urlsplit(url)
        claims: dict[str, Any] = {
            "jti": jti,
            "htm": method,
            "htu": urlunsplit((parts.scheme, parts.netloc, parts.path or "/", "", "")),
            "iat": int(now),
        }
        if token is not None:
            claims["ath"] = sha256_base64url(token)
        if nonce is not None:
            claims["nonce"] = nonce
        return jwt.encode({"typ": "dpop+jwt", "alg": ALGORITHM, "jwk": self._public}, claims, self._key)


def is_nonce_request(error: str | None, nonce: str | None, sent: str | None) -> bool:
    """Return whether a server refused a proof only to give us a nonce for the next one; the same again would not help."""
    return error == "use_dpop_nonce" and nonce is not None and nonce != sent


def sign_assertion(
    client_id: str, key: Key, alg: str | None, supported: Collection[str] | None, issuer: str, *, now: float, jti: str
) -> str:
    """Return the assertion with which a client authenticates at the authorization server `issuer` (`private_key_jwt`).

    Its audience is the issuer, not an endpoint that another server could have named. Raises: AuthorizationFailure.
    """
    try:
        from joserfc import jwt
    except ImportError as error:
        raise _missing("key=", error) from None
    signing = _read_key(key)
    header = {"alg": _choose_algorithm(signing, alg, supported), "typ": "JWT"}
    if kid := signing.as_dict(private=False).get("kid"):
        header["kid"] = str(kid)
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": issuer,
        "jti": jti,
        "iat": int(now),
        "exp": int(now) + _ASSERTION_SECONDS,
    }
    return jwt.encode(header, claims, signing, algorithms=[header["alg"]])


def _read_key(key: Key) -> SigningKey:
    """Return the key. Raises: AuthorizationFailure, whose text does not show it."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    text = key.decode("utf-8", "replace") if isinstance(key, bytes) else key
    is_jwk = text.lstrip().startswith("{")
    for kind in (ECKey, RSAKey, OKPKey):
        with suppress(ValueError, TypeError, KeyError, AttributeError, JoseError):
            found = kind.import_key(json.loads(text) if is_jwk else text)
            if found.is_private:
                return found
    raise AuthorizationFailure("key= is not a private key", "pass PEM (PKCS #8) or a JWK as JSON [LS-411]")


def _choose_algorithm(key: SigningKey, alg: str | None, supported: Collection[str] | None) -> str:
    public = key.as_dict(private=False)
    possible = _ALGORITHMS.get(str(public.get("crv") or public["kty"]), ())
    wanted = (alg,) if alg is not None else possible
    for each in wanted:
        if each in possible and (supported is None or each in supported):
            return each
    raise AuthorizationFailure(
        f"key= signs with {' or '.join(possible) or 'no known algorithm'}, alg= is {alg}, "
        f"and the authorization server accepts {', '.join(supported or ('any',))}"
    )


def _missing(what: str, error: ImportError) -> AuthorizationFailure:
    return AuthorizationFailure(f"{what} needs joserfc and cryptography", import_hint("auth", error))
