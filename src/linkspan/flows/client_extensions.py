"""The extensions of a client, as options: what it declares, and what it does with their results and methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from linkspan.core.extension import Extension, MakesExtension
from linkspan.flows.state import ClientOptions
from linkspan.types.base import JSONObject


def extended(options: ClientOptions, given: Sequence[Extension | MakesExtension]) -> ClientOptions:
    """Return options with extensions on. Raises: ValueError for one that clients do not have, or that is there twice."""
    declared: JSONObject = {}
    extensions: list[Extension] = []
    for value in given:
        record: object = getattr(value, "extension", value)
        if not isinstance(record, Extension):
            raise ValueError(f"extensions= takes values such as Tasks(), got {value!r}")
        extensions.append(record)
    for each in extensions:
        if each.client is None or each.id in declared:
            problem = "clients do not have it" if each.client is None else "it is there twice"
            raise ValueError(f"extensions=: {each.id}: {problem}")
        declared[each.id] = each.client
    profile = structs.replace(
        options.profile,
        capabilities={**options.profile.capabilities, "extensions": declared},
        undeclared_in_handshakes=frozenset(each.id for each in extensions if each.needs_envelope),
    )
    return structs.replace(
        options,
        profile=profile,
        results={kind: flow for each in extensions for kind, flow in each.results.items()},
        named_by=names_by_method(extensions),
    )


def names_by_method(extensions: Iterable[Extension]) -> dict[str, str]:
    """Return, for the methods of extensions, the member of the params that `Mcp-Name` repeats, as it is on the wire."""
    found: dict[str, str] = {}
    for name, method in (each for extension in extensions for each in extension.methods.items()):
        shape = method.params
        if shape.named_by is not None:
            found[name] = shape.__struct_encode_fields__[shape.__struct_fields__.index(shape.named_by)]
    return found
