"""DPoP proofs at a resource server: each request proves that its sender has the key that the token is bound to.

No I/O: clock and randomness are arguments. What was used is remembered in this process, and has a name under which processes
that share a store can remember it for each other. Spec: RFC 9449, sections 4.3, 7, 9 and 11.1.
"""

from __future__ import annotations

import binascii
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from linkspan.auth.jwks import TokenRefused, may_verify
from linkspan.auth.network import origin_of
from linkspan.auth.verifying import ALGORITHMS, read_header, read_jws
from linkspan.types.base import JSON, JSONObject, is_object
from linkspan.wire.values import encode_base64url, sha256_base64url

PROOF_ALGORITHMS: Final = tuple(each for each in ALGORITHMS if each != "EdDSA")
_WINDOW: Final = 300.0
"""Seconds by which the time in a proof may differ from ours."""
_MOST_OF_KEY: Final = 100_000
"""Proofs of one key that are remembered."""
_MOST: Final = 1_000_000
"""Proofs of all keys that are remembered in one process: 100 MB, or 250 MB if each has a key of its own."""
USED_BEFORE: Final = "the DPoP proof was used before"
_DIGEST_BYTES: Final = 16
"""What is remembered of a proof."""
_LONGEST_ID: Final = 256
"""Characters of the `jti` of a proof."""
_PRIVATE: Final = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))
"""Members of a key that must not be in a proof: they are secret."""
_TIME_BYTES: Final = 8
_TAG_BYTES: Final = 16
_FROM_URL: Final = str.maketrans("-_", "+/")
"""From base64url to base64."""


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


class UsedProof(msgspec.Struct, frozen=True):
    """A proof that is good, and was used with that."""

    name: str
    """What stands for it and for no other: the digest of its key and its id, in hexadecimal."""
    until: float
    """When it is too old to be used again."""


class _Generation(msgspec.Struct):
    """The proofs that were made in the same 300 seconds."""

    digests: set[bytes] = msgspec.field(default_factory=set[bytes])
    of_key: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """How many there are of each key."""


class Replays:
    """The proofs that were used, for as long as each could be used again: by the time when they were made, in generations.

    A flood from one key hurts that key. Where all together are too many, further ones are refused: what is forgotten too early
    could be used again.
    """

    def __init__(
        self, lock: AbstractContextManager[object], *, of_key: int = _MOST_OF_KEY, in_all: int = _MOST
    ) -> None:
        """Remember up to so many proofs `of_key`, of each one, and so many `in_all`, with `lock` between threads."""
        self._lock = lock
        self._of_key = of_key
        self._in_all = in_all
        self._generations: dict[int, _Generation] = {}

    def use(self, thumbprint: str, proof_id: str, made: float, now: float) -> UsedProof:
        """Remember a proof. Raises: TokenRefused for one that was used before, and where there is no room to remember it."""
        digest = sha256(f"{thumbprint} {proof_id}".encode()).digest()[:_DIGEST_BYTES]
        with self._lock:
            kept = self._kept((now - _WINDOW) // _WINDOW)
            if any(digest in each.digests for each in kept):
                raise TokenRefused(USED_BEFORE, "invalid_dpop_proof")
            of_key = sum(each.of_key.get(thumbprint, 0) for each in kept)
            in_all = sum(len(each.digests) for each in kept)
            if of_key >= self._of_key or in_all >= self._in_all:
                raise TokenRefused("too many DPoP proofs were used in a short time", "invalid_dpop_proof")
            generation = self._generations.setdefault(int(made // _WINDOW), _Generation())
            generation.digests.add(digest)
            generation.of_key[thumbprint] = generation.of_key.get(thumbprint, 0) + 1
        return UsedProof(digest.hex(), made + _WINDOW)

    def _kept(self, oldest: float) -> Collection[_Generation]:
        """Forget the generations before the one with the number `oldest`; return the others.

        These are two, and a third of clocks that are ahead.
        """
        for number in [each for each in self._generations if each < oldest]:
            del self._generations[number]
        return self._generations.values()


def check_proof(proof: Proof, *, now: float, replays: Replays, nonces: NonceSource | None = None) -> UsedProof:
    """Check and use a proof in the order of RFC 9449, section 4.3. With `nonces` it must have one.

    Raises: TokenRefused, NonceNeeded.
    """
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
    return replays.use(proof.thumbprint, proof_id, float(made or 0), now)


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


def _normal_url(url: JSON) -> tuple[object, ...] | None:
    """Return a URL without query and fragment, in the form in which two are compared; None for an invalid URL."""
    origin = origin_of(url) if isinstance(url, str) else None
    return (*origin, urlsplit(url).path or "/") if origin is not None else None
