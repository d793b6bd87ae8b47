"""JSON values as keys: two that are equal in JSON have one key. 1.0 is 1, true is not; the order of members is nothing."""

from __future__ import annotations

import msgspec

from linkspan.schema.kinds import is_items, is_object
from linkspan.types.base import JSON

__all__ = ["canonical"]

_encoder = msgspec.json.Encoder(order="deterministic")


def canonical(value: JSON) -> str | bytes:
    """Return a text for itself, and the canonical bytes of anything else.

    Both are hashed with a secret of this process, so that nobody can choose values whose hashes collide, as with numbers.
    """
    return value if isinstance(value, str) else _encoder.encode(_settled(value))


def _settled(value: JSON) -> JSON:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if is_object(value):
        return {name: _settled(each) for name, each in value.items()}
    if is_items(value):
        return [_settled(each) for each in value]
    return value
