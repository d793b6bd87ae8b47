"""Sealing `requestState`: what a client carries from one round to the next, and must not be able to change (MRTR-S5).

Where `cryptography` is installed a state is encrypted (AES-256-GCM); elsewhere it is signed (HMAC-SHA256), which keeps it
whole but not secret: the client can read it. A state names its form and version, and a process takes only the form that it
makes, so a client cannot downgrade it to the weaker one; processes that share keys must agree on having `cryptography`. A
state is bound to the method, the target, the arguments, the principal and the server, and it expires. Clocks and randomness are
arguments. Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from linkspan.errors import INTERNAL_ERROR, INVALID_PARAMS, RegistrationError, RemoteProtocolError
from linkspan.wire.values import encode_base64url

MAX_BYTES: Final = 64 * 1024
"""The largest sealed state, in characters: a larger one is neither made nor looked at."""

_MIN_KEY: Final = 16
_NONCE: Final = 12
_KID: Final = 4


class RequestStateInvalid(RemoteProtocolError):
    """The state was not made here, was changed, belongs to another request, or has expired. `reason` is for the log only."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            INVALID_PARAMS, "Invalid params: requestState is not valid for this request; begin again without it"
        )
        self.reason = reason


class Binding(msgspec.Struct, frozen=True):
    """What a state belongs to: nothing else may bring it back."""

    method: str
    target: str
    arguments: str
    principal: str | None
    audience: str

    def encoded(self) -> bytes:
        """Return the same bytes for the same binding, and other bytes for any other."""
        return msgspec.json.encode([self.method, self.target, self.arguments, self.principal, self.audience])


class _SealedContent(msgspec.Struct, array_like=True):
    expires: float
    payload: bytes


class _Seal(Protocol):
    """One way of sealing, with one key."""

    kid: bytes

    def close(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        """Seal `data`."""
        ...

    def open(self, nonce: bytes, data: bytes, bound: bytes) -> bytes | None:
        """Return what was sealed, or None if it was not sealed so."""
        ...


class RequestStateKeys:
    """A ring of secrets: the first one seals, all of them open, so a new key can be put in front of an old one."""

    __slots__ = ("_seals", "_secrets")

    def __init__(self, *keys: bytes | str) -> None:
        """Take secrets of 16 bytes or more. Raises: RegistrationError for a shorter one, or none at all."""
        secrets = [key.encode() if isinstance(key, str) else key for key in keys]
        if not secrets or any(len(secret) < _MIN_KEY for secret in secrets):
            raise RegistrationError(
                f"request_state_keys needs secrets of at least {_MIN_KEY} bytes: make one with secrets.token_bytes(32)"
            )
        self._secrets = secrets
        self._seals: tuple[str, list[_Seal]] | None = None

    @classmethod
    def ephemeral(cls, random: Callable[[int], bytes]) -> RequestStateKeys:
        """Make a random key, unique to this process."""
        return cls(random(32))

    def seals(self) -> tuple[str, list[_Seal]]:
        """Return the mark of the form that this process uses, and one seal for each key."""
        if self._seals is None:
            try:
                from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            except ImportError:
                self._seals = "h1", [_Signed(secret) for secret in self._secrets]
            else:
                self._seals = "a1", [_Encrypted(secret, AESGCM) for secret in self._secrets]
        return self._seals


def digest(raw: bytes) -> str:
    """Return a digest of a request's arguments, whatever the order and spacing of their members; none at all are `{}`."""
    import hashlib  # loads OpenSSL, which most servers never need

    arguments = msgspec.json.decode(raw or b"null")
    canonical = msgspec.json.encode({} if arguments is None else arguments, order="deterministic")
    return hashlib.sha256(canonical).hexdigest()


def seal(
    keys: RequestStateKeys,
    binding: Binding,
    payload: bytes,
    *,
    now: float,
    ttl: float,
    random: Callable[[int], bytes],
    limit: int = MAX_BYTES,
) -> str:
    """Return a state that only this key ring opens, only for `binding`, only for `ttl` seconds.

    Raises: RemoteProtocolError if the payload is too large to travel.
    """
    form, seals = keys.seals()
    nonce = random(_NONCE)
    first = seals[0]
    data = msgspec.msgpack.encode(_SealedContent(now + ttl, payload))
    token = form + encode_base64url(first.kid + nonce + first.close(nonce, data, form.encode() + binding.encoded()))
    if len(token) > limit:
        raise RemoteProtocolError(INTERNAL_ERROR, f"Internal error: the state between two rounds is over {limit} bytes")
    return token


def unseal(keys: RequestStateKeys, token: str, binding: Binding, *, now: float, limit: int = MAX_BYTES) -> bytes:
    """Return the payload of a state. Raises: RequestStateInvalid, which does not tell a client why."""
    import hmac

    form, seals = keys.seals()
    if len(token) > limit or not token.startswith(form):
        raise RequestStateInvalid("too long, or not of this form")
    sealed = _bytes(token.removeprefix(form))
    kid, nonce, data = sealed[:_KID], sealed[_KID : _KID + _NONCE], sealed[_KID + _NONCE :]
    bound = form.encode() + binding.encoded()
    for each in seals:
        if hmac.compare_digest(each.kid, kid) and (opened := each.open(nonce, data, bound)) is not None:
            kept = msgspec.msgpack.decode(opened, type=_SealedContent)
            if kept.expires <= now:
                raise RequestStateInvalid("expired")
            return kept.payload
    raise RequestStateInvalid("sealed by another key, changed, or for another request")


class _Encrypted:
    """AES-256-GCM; the binding is authenticated data."""

    def __init__(self, secret: bytes, cipher: Any) -> None:
        self.kid = _derive(secret, b"kid")[:_KID]
        self._cipher = cipher(_derive(secret, b"encrypt"))

    def close(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        sealed: bytes = self._cipher.encrypt(nonce, data, bound)
        return sealed

    def open(self, nonce: bytes, data: bytes, bound: bytes) -> bytes | None:
        from cryptography.exceptions import InvalidTag

        try:
            opened: bytes = self._cipher.decrypt(nonce, data, bound)
        except (InvalidTag, ValueError):
            return None
        return opened


class _Signed:
    """HMAC-SHA256 over the nonce, the binding and the data, which stays readable."""

    _SIZE: Final = 32

    def __init__(self, secret: bytes) -> None:
        self.kid = _derive(secret, b"kid")[:_KID]
        self._key = _derive(secret, b"sign")

    def close(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        return self._tag(nonce, data, bound) + data

    def open(self, nonce: bytes, data: bytes, bound: bytes) -> bytes | None:
        import hmac

        tag, data = data[: self._SIZE], data[self._SIZE :]
        return data if hmac.compare_digest(tag, self._tag(nonce, data, bound)) else None

    def _tag(self, nonce: bytes, data: bytes, bound: bytes) -> bytes:
        import hmac

        return hmac.digest(self._key, b"%d:%b%d:%b%b" % (len(nonce), nonce, len(bound), bound, data), "sha256")


def _derive(secret: bytes, purpose: bytes) -> bytes:
    """Derive a key for one purpose (HKDF-SHA256, RFC 5869, one block)."""
    import hmac

    extracted = hmac.digest(b"linkspan request state", secret, "sha256")
    return hmac.digest(extracted, purpose + b"\x01", "sha256")


def _bytes(text: str) -> bytes:
    try:
        data = text.encode("ascii")
        if b"+" in data or b"/" in data or b"=" in data:
            raise ValueError(text)
        decoded = binascii.a2b_base64(data.translate(_FROM_URL) + b"=" * (-len(data) % 4), strict_mode=True)
    except ValueError:
        raise RequestStateInvalid("not base64url") from None
    if encode_base64url(decoded) != text:
        raise RequestStateInvalid("not the one spelling of its bytes")
    return decoded


_FROM_URL = bytes.maketrans(b"-_", b"+/")
