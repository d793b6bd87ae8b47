"""The shape of a result, as its schema has it, and for how long the result may be kept."""

from __future__ import annotations

import msgspec

from linkspan.checks.findings import Unmet, expect
from linkspan.types.base import JSONObject


def expect_shape(found: JSONObject, shape: type[msgspec.Struct], what: str) -> None:
    """Expect a result to have the shape of its schema. Raises: Unmet."""
    try:
        msgspec.convert(found, shape)
    except msgspec.ValidationError as problem:
        raise Unmet(f"{what}: {problem}") from problem


def expect_cacheable(found: JSONObject, what: str) -> None:
    """Expect a result to say for how long and for whom it may be kept. Raises: Unmet."""
    ttl, scope = found.get("ttlMs"), found.get("cacheScope")
    fine = isinstance(ttl, int) and not isinstance(ttl, bool) and ttl >= 0
    expect(fine, f"{what} has the ttlMs {ttl!r}; must be an integer from 0")
    expect(scope in ("public", "private"), f"{what} has the cacheScope {scope!r}; must be public or private")
