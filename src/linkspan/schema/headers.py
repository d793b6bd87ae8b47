"""`x-mcp-header` in input schemas: found, and held to its rules (XH-1 ... XH-4).

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from linkspan.errors import RegistrationError
from linkspan.schema.kinds import is_array, is_object
from linkspan.types.base import JSON

__all__ = ["HEADER_KEYWORD", "header_paths"]

HEADER_KEYWORD = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = ("integer", "string", "boolean")
_DATA = ("default", "enum", "const", "examples", "required")
_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")


def header_paths(schema: Mapping[str, JSON], name: str = "the input schema") -> dict[tuple[str, ...], str]:
    """Return the header name of each annotated property, by its path. Raises: RegistrationError for a misplaced one."""
    found: dict[tuple[str, ...], str] = {}
    try:
        _search(schema, (), True, found)
        _check_unique(found)
    except RegistrationError as problem:
        raise RegistrationError(f"{name}: {problem}") from None
    return found


def _check_unique(found: Mapping[tuple[str, ...], str]) -> None:
    names = [name.lower() for name in found.values()]
    for path, name in found.items():
        if names.count(name.lower()) > 1:
            raise RegistrationError(
                f"{'.'.join(path)}: another argument has the header {name!r} too; choose another name"
            )


def _search(schema: JSON, path: tuple[str, ...], reachable: bool, found: dict[tuple[str, ...], str]) -> None:
    if is_array(schema):
        items: list[JSON] = schema
        for each in items:
            _search(each, path, False, found)
        return
    if not is_object(schema):
        return
    members: Mapping[str, JSON] = schema
    if HEADER_KEYWORD in members:
        found[path] = _checked(members, path, reachable)
    for key, each in members.items():
        if key in _DATA:
            continue
        if key in _MAPS and is_object(each):
            inner: Mapping[str, JSON] = each
            for name, one in inner.items():
                _search(one, (*path, name), reachable and key == "properties", found)
        else:
            _search(each, (*path, key), False, found)


def _checked(schema: Mapping[str, JSON], path: tuple[str, ...], reachable: bool) -> str:
    where = ".".join(path) or "the whole"
    name: JSON = schema[HEADER_KEYWORD]
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise RegistrationError(f"{where}: {name!r} cannot be part of a header name; use letters, digits and '-'")
    if not reachable or not path:
        raise RegistrationError(
            f"{where}: only a plain argument or a field of a nested object can go into the header {name!r}, "
            "not one inside an array, a dictionary or a union"
        )
    if schema.get("type") not in _TYPES:
        raise RegistrationError(f"{where}: only a string, an integer or a boolean can go into the header {name!r}")
    return name
