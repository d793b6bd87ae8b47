"""An issuer in the test: keys, tokens and proofs that are right, except for what a test changes."""

from __future__ import annotations

import hmac
import json
import time
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

from linkspan.auth.verifying import Jwt

ISSUER = "https://login.example.com"
RESOURCE = "https://api.example.com/mcp"
KEY = ECKey.generate_key("P-256", {"kid": "k1", "alg": "ES256", "use": "sig"})
OTHER = ECKey.generate_key("P-256", {"kid": "k1"})
JWKS: dict[str, Any] = {"keys": [KEY.as_dict(private=False)]}
ALL = ["ES256", "ES384", "RS256", "Ed25519"]


class _Careless(jws.JWSRegistry):
    """Signs whatever a test wants."""

    def check_header(self, header: Any) -> None:
        pass


def token(
    header: dict[str, Any] | None = None, key: ECKey | RSAKey | bytes = KEY, now: float | None = None, **claims: Any
) -> str:
    """Return an access token for Ann; None leaves a claim, or a member of the header, out."""
    now = time.time() if now is None else now
    members: dict[str, Any] = {
        "iss": ISSUER,
        "aud": RESOURCE,
        "sub": "ann",
        "client_id": "editor",
        "scope": "files:read",
        "iat": int(now),
        "exp": int(now) + 600,
        **claims,
    }
    payload = json.dumps({name: value for name, value in members.items() if value is not None}).encode()
    return signed({"alg": "ES256", "kid": "k1", "typ": "at+jwt", **(header or {})}, payload, key)


def signed(header: dict[str, Any], payload: bytes, key: Any) -> str:
    """Return a JWS of anything."""
    header = {name: value for name, value in header.items() if value is not None}
    if header.get("alg") == "none" or isinstance(key, bytes):
        text = f"{_encoded(json.dumps(header).encode())}.{_encoded(payload)}"
        return f"{text}.{_encoded(hmac.digest(key, text.encode(), 'sha256')) if isinstance(key, bytes) and key else ''}"
    return jws.serialize_compact(header, payload, key, registry=_Careless(algorithms=ALL))


def proof(
    token: str,
    key: ECKey | bytes = OTHER,
    header: dict[str, Any] | None = None,
    now: float | None = None,
    **claims: Any,
) -> str:
    """Return a DPoP proof for a POST with a token."""
    members = {
        "jti": sha256(repr((time.monotonic_ns(), claims)).encode()).hexdigest(),
        "htm": "POST",
        "htu": RESOURCE,
        "iat": int(time.time() if now is None else now),
        "ath": _encoded(sha256(token.encode()).digest()),
        **claims,
    }
    payload = json.dumps({name: value for name, value in members.items() if value is not None}).encode()
    public = key.as_dict(private=False) if not isinstance(key, bytes) else {}
    jwk = {name: value for name, value in public.items() if name in ("kty", "crv", "x", "y")}
    return signed({"typ": "dpop+jwt", "alg": "ES256", "jwk": jwk, **(header or {})}, payload, key)


def bound(key: ECKey = OTHER, **claims: Any) -> str:
    """Return a token that is bound to a key."""
    return token(cnf={"jkt": key.thumbprint()}, **claims)


def jwt(**options: Any) -> Jwt:
    """Return a verifier that knows the key, and so asks nobody."""
    return Jwt(ISSUER, **{"keys": JWKS, **options})


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
