"""DPoP proofs at a resource server: each request proves that its sender has the key that the token is bound to.

No I/O: clock and randomness are arguments. Replays are remembered in this process. Spec: RFC 9449, sections 4.3, 7 and 9.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from linkspan.auth.jwks import TokenRefused, may_verify
from linkspan.auth.network import origin_of
from linkspan.auth.verifying import ALGORITHMS, read_header, read_jws
from linkspan.types.base import JSON, JSONObject, is_object
from linkspan.wire.values import encode_base64url, sha256_base64url

__all__ = ["PROOF_ALGORITHMS", "NonceNeeded", "NonceSource", "Proof", "Replays", "check_proof"]

PROOF_ALGORITHMS: Final = tuple(each for each in ALGORITHMS if each != "EdDSA")
_WINDOW: Final = 300.0
"""Seconds by which the time in a proof may differ from ours."""
_LONGEST_ID: Final = 256
_PRIVATE: Final = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))
_TIME_BYTES: Final = 8
_TAG_BYTES: Final = 16


class NonceNeeded(TokenRefused):
    """A proof has no nonce of this server, or an old one: the client receives another and tries again."""


class Proof(msgspec.Struct, frozen=True):
    """A proof, and what it must be for."""

    text: str
    method: str
    url: str
    token: str
    thumbprint: str
    """The key that the token is bound to."""


class NonceSource:
    """Values that a client must repeat within five minutes: made of the time and a key, so none is stored."""

    def __init__(self, key: bytes) -> None:
        """Take a key of 32 bytes, which all processes behind one address share."""
        self._key = key

    def new(self, now: float) -> str:
        """Return a nonce."""
        return self._sealed(int(now).to_bytes(_TIME_BYTES))

    def is_good(self, nonce: JSON, now: float) -> bool:
        """Return whether a nonce was made here, lately."""
        import hmac

        if not isinstance(nonce, str):
            return False
        try:
            made = binascii.a2b_base64(nonce.translate(_FROM_URL) + "==")[:_TIME_BYTES]
        except ValueError:
            return False
        fresh = now - _WINDOW <= int.from_bytes(made) <= now + 1
        return hmac.compare_digest(self._sealed(made).encode(), nonce.encode("utf-8", "replace")) and fresh

    def _sealed(self, made: bytes) -> str:
        import hmac

        return encode_base64url(made + hmac.digest(self._key, made, "sha256")[:_TAG_BYTES])


class Replays:
    """The ids of proofs that were used, by key, for as long as each could be used again. A flood from one key hurts that key."""

    def __init__(self, lock: AbstractContextManager[object], *, keys: int = 1000, proofs: int = 100_000) -> None:
        """Remember up to so many `proofs` of each of so many `keys`, with `lock` between threads."""
        self._lock = lock
        self._keys = keys
        self._proofs = proofs
        self._used: dict[str, dict[str, float]] = {}

    def use(self, thumbprint: str, proof_id: str, made: float, now: float) -> bool:
        """Note a proof; return whether this is the first time, and there is room to remember it."""
        with self._lock:
            used = self._used.pop(thumbprint, {})
            if len(used) >= self._proofs:
                used = {each: when for each, when in used.items() if when >= now - _WINDOW}
            self._used[thumbprint] = used  # the key that was used last stands last
            if len(self._used) > self._keys:
                del self._used[next(iter(self._used))]
            if proof_id in used or len(used) >= self._proofs:
                return False
            used[proof_id] = made
            return True


def check_proof(proof: Proof, *, now: float, replays: Replays, nonces: NonceSource | None = None) -> None:
    """Check a proof in the order of RFC 9449, section 4.3. With `nonces` it must have one. Raises: TokenRefused, NonceNeeded."""
    try:
        claims = _read(proof)
    except TokenRefused as problem:
        raise TokenRefused(f"the DPoP proof is not valid: {problem}", "invalid_dpop_proof") from None
    made, proof_id = claims.get("iat"), claims.get("jti")
    wrong: Mapping[str, bool] = {
        "htm": claims.get("htm") != proof.method,
        "htu": _normal_url(claims.get("htu")) != _normal_url(proof.url),
        "iat": type(made) not in (int, float) or abs(now - float(made or 0)) > _WINDOW,
        "ath": claims.get("ath") != sha256_base64url(proof.token),
        "jti": not isinstance(proof_id, str) or not 0 < len(proof_id) <= _LONGEST_ID,
    }
    if failed := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise TokenRefused(f"the DPoP proof does not fit the request: {', '.join(failed)}", "invalid_dpop_proof")
    if nonces is not None and not nonces.is_good(claims.get("nonce"), now):
        raise NonceNeeded("the DPoP proof has no nonce of this server, or an old one", "use_dpop_nonce")
    assert isinstance(proof_id, str)
    if not replays.use(proof.thumbprint, proof_id, float(made or 0), now):
        raise TokenRefused("the DPoP proof was used before", "invalid_dpop_proof")


def _read(proof: Proof) -> JSONObject:
    """Return the claims of a proof that is signed with the key in its header, to which the token is bound."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    header = read_header(proof.text)
    algorithm, jwk = header.get("alg"), header.get("jwk")
    if header.get("typ") != "dpop+jwt" or algorithm not in PROOF_ALGORITHMS:
        raise TokenRefused(f"typ is {header.get('typ')!r} and alg {algorithm!r}")
    if not is_object(jwk) or not may_verify(jwk) or not _PRIVATE.isdisjoint(jwk):
        raise TokenRefused("its jwk is not a public key")
    try:
        key: Any = import_key({name: jwk[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in jwk})
        thumbprint: str = key.thumbprint()
    except (JoseError, ValueError, TypeError, KeyError):
        raise TokenRefused("its jwk cannot be read") from None
    if thumbprint != proof.thumbprint:  # first, since the sender chooses how much work a signature is
        raise TokenRefused("it is signed with another key than the one the token is bound to")
    return read_jws(proof.text, key, algorithm)


_FROM_URL: Final = str.maketrans("-_", "+/")


def _normal_url(url: JSON) -> tuple[object, ...] | None:
    """Return a URL without query and fragment, in the form in which two are compared; None for an invalid URL."""
    origin = origin_of(url) if isinstance(url, str) else None
    return (*origin, urlsplit(url).path or "/") if origin is not None else None
