"""The public keys that an author gives to a verifier, instead of where an issuer publishes them: as PEM, as a JWK, as a JWKS.

What cannot be used is refused where it is written. No text of an error holds a key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from linkspan.auth.jwks import import_keys, json_object
from linkspan.types.base import JSON, JSONObject, is_array

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)
_SMALLEST: Final = 2048
"""Bits of an RSA key."""
_WANTED: Final = (
    "keys= takes a public key as PEM (the text of a file, not its path), as a JWK, or several as a JWKS. A shared secret "
    "(HS256 and the like) is not accepted"
)


def read_keys(given: str | bytes | Mapping[str, JSON]) -> Sequence[Any]:
    """Return the keys in PEM blocks, a JWK or a JWKS; a text may also be the JSON of one. Raises: ValueError."""
    if isinstance(given, Mapping):
        keys = _of_json(dict(given))
    else:
        text = given.decode("utf-8", "replace") if isinstance(given, bytes) else given
        found = json_object(text.encode("utf-8", "replace"))
        keys = _of_pem(text) if found is None else _of_json(found)
    unnamed = [each.key_type for each in keys if each.kid is None]
    if len(unnamed) != len(set(unnamed)):
        raise ValueError(
            "keys= has several keys of one kind without a kid: give a JWKS, in which each has the kid that its tokens name"
        )
    return keys


def _of_json(found: JSONObject) -> Sequence[Any]:
    members: JSON = found.get("keys", [found])
    if is_array(members) and any(isinstance(each, Mapping) and "d" in each for each in members):
        raise ValueError("keys= has a private key: leave its private members out (d, p, q, dp, dq, qi)")
    keys = import_keys({"keys": members})
    if not keys:
        raise ValueError(f"{_WANTED}; what was given has no key that can verify a signature")
    return keys


def _of_pem(text: str) -> Sequence[Any]:
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        raise ValueError(_WANTED)
    if any("PRIVATE" in each[1] for each in blocks):
        raise ValueError(
            "keys= has a private key: give its public one, which `openssl pkey -in key.pem -pubout` prints"
        )
    return [_of_block(each[0], each[1]) for each in blocks]


def _of_block(block: str, label: str) -> Any:
    """Return the key of one block, which may be a certificate, too."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    data = block.encode()
    try:
        native = load_pem_x509_certificate(data).public_key() if "CERT" in label else load_pem_public_key(data)
    except Exception:  # of its many parsers
        raise ValueError(f"{_WANTED}; the block {label} has none that can be read") from None
    if isinstance(native, RSAPublicKey) and native.key_size < _SMALLEST:
        raise ValueError("keys= has an RSA key of fewer than 2048 bits, which is not accepted")
    for theirs, ours in ((EllipticCurvePublicKey, ECKey), (RSAPublicKey, RSAKey), (Ed25519PublicKey, OKPKey)):
        if isinstance(native, theirs):
            return ours.import_key(native.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    raise ValueError(f"{_WANTED}; a key of the kind {type(native).__name__} verifies none of the algorithms")
