"""RFC 6570 templates: which URI fits, with which variables. Traversal never fits (RES-4).

Matching covers levels 1 to 3 and the explode of paths. Spec: https://www.rfc-editor.org/rfc/rfc6570
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from linkspan.errors import RegistrationError

__all__ = ["UriTemplate", "check_uri", "compile_template", "is_template"]

MAX_URI: Final = 8192
"""Characters of a URI that is looked at."""

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_UNSAFE = re.compile(r"[\s<>\"\\^`{}|\x00-\x1f\x7f]")
_RESERVED = "!#$&'()*+,/:;=?@[]%"


@dataclass(frozen=True, slots=True)
class _Operator:
    """How one kind of expression looks (RFC 6570, appendix A)."""

    first: str
    separator: str
    named: bool
    pattern: str


_PLAIN = r"[^/?#,;&=]*"
_OPERATORS: Mapping[str, _Operator] = {
    "": _Operator("", ",", False, r"[^/?#,]*"),
    "+": _Operator("", ",", False, r"[^?#]*"),
    "#": _Operator("#", ",", False, r".*"),
    ".": _Operator(".", ".", False, r"[^/?#.]*"),
    "/": _Operator("/", "/", False, r"[^/?#]*"),
    ";": _Operator(";", ";", True, _PLAIN),
    "?": _Operator("?", "&", True, r"[^&#]*"),
    "&": _Operator("&", "&", True, r"[^&#]*"),
}


@dataclass(frozen=True, slots=True)
class _Expression:
    operator: str
    names: tuple[str, ...]
    exploded: bool = False


@dataclass(frozen=True, slots=True)
class UriTemplate:
    """A compiled template."""

    template: str
    variables: tuple[str, ...]
    _parts: tuple[str | _Expression, ...]
    _pattern: re.Pattern[str]
    _wide: frozenset[str]
    _query: tuple[str, ...]

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the variables of `uri`, percent-decoded, or None where it does not fit or tries to climb out.

        Query variables may be absent and come in any order; other ones may not be empty.
        """
        if len(uri) > MAX_URI:
            return None
        path, _, query = uri.partition("?") if self._query else (uri, "", "")
        found = self._pattern.fullmatch(path)
        if found is None:
            return None
        raw = {name: value for name, value in zip(self._names(), found.groups(), strict=True) if value is not None}
        if self._query:
            given = [pair.partition("=") for pair in query.split("&") if pair]
            if any(name not in self._query for name, _, _ in given):
                return None
            raw |= {name: value for name, _, value in given}
        return self._decoded(raw)

    def expand(self, values: Mapping[str, str]) -> str:
        """Return the URI for `values`; a variable without a value is left out."""
        return "".join(part if isinstance(part, str) else _expand(part, values) for part in self._parts)

    def _names(self) -> list[str]:
        return [name for name in self.variables if name not in self._query]

    def _decoded(self, raw: Mapping[str, str]) -> dict[str, str] | None:
        from urllib.parse import unquote_to_bytes

        decoded: dict[str, str] = {}
        for name, value in raw.items():
            try:
                text = unquote_to_bytes(value).decode()
            except UnicodeDecodeError:
                return None
            if not _is_safe(text, slashes=name in self._wide, query=name in self._query):
                return None
            decoded[name] = text
        return decoded


def is_template(uri: str) -> bool:
    """Tell whether a URI has expressions in it."""
    return "{" in uri or "}" in uri


def check_uri(uri: str) -> None:
    """Refuse what cannot be a resource's URI. A URI without a scheme passes, as in `example.com/my_resource`.

    Raises: RegistrationError.
    """
    if not uri or _UNSAFE.search(uri):
        raise RegistrationError(
            f"{uri!r} cannot be a resource's URI: write one like 'note://today', with other characters percent-encoded"
        )
    scheme, colon, _ = uri.partition(":")
    if colon and "/" not in scheme and not _SCHEME.match(uri):
        raise RegistrationError(f"{uri!r} cannot be a resource's URI: a scheme is letters, digits, '+', '-' and '.'")


def compile_template(template: str) -> UriTemplate:
    """Compile an RFC 6570 template. Raises: RegistrationError that says what to write instead."""
    parts = _parse(template)
    expressions = [part for part in parts if isinstance(part, _Expression)]
    variables = tuple(name for each in expressions for name in each.names)
    if len(set(variables)) != len(variables):
        raise RegistrationError(f"{template!r} names a variable twice: give each one a name of its own")
    if not variables:
        raise RegistrationError(f"{template!r} has no {{variable}}: register it as a plain resource")
    query = tuple(name for each in expressions if each.operator in "?&" and each.operator for name in each.names)
    wide = frozenset(
        name for each in expressions if each.operator in ("+", "#") or each.exploded for name in each.names
    )
    return UriTemplate(template, variables, tuple(parts), _pattern(template, parts), wide, query)


def _parse(template: str) -> list[str | _Expression]:
    parts: list[str | _Expression] = []
    end = 0
    for found in _EXPRESSION.finditer(template):
        parts.append(template[end : found.start()])
        parts.append(_parse_expression(template, found.group(1)))
        end = found.end()
    parts.append(template[end:])
    literals = "".join(part for part in parts if isinstance(part, str))
    if "{" in literals or "}" in literals:
        raise RegistrationError(f"{template!r} has a brace without its partner: write variables as {{name}}")
    return [part for part in parts if part]


def _parse_expression(template: str, text: str) -> _Expression:
    operator = text[:1] if text[:1] in _OPERATORS and text[:1] else ""
    names = text[len(operator) :].split(",")
    exploded = False
    if operator == "/" and len(names) == 1 and names[0].endswith("*"):
        exploded, names = True, [names[0][:-1]]
    for name in names:
        if name.endswith("*") or ":" in name:
            raise RegistrationError(
                f"{template!r}: '*' and ':n' are not matched, except as {{/path*}}; write the plain name"
            )
        if not _VARIABLE.fullmatch(name):
            raise RegistrationError(f"{template!r}: {name!r} is not a variable's name; use letters, digits and '_'")
    return _Expression(operator, tuple(names), exploded)


def _pattern(template: str, parts: list[str | _Expression]) -> re.Pattern[str]:
    """Build one expression in which every part ends where the next begins, so that it runs in linear time."""
    pieces: list[str] = []
    after_expression = False
    for part in parts:
        if isinstance(part, str):
            pieces.append(re.escape(part))
            after_expression = False
            continue
        operator = _OPERATORS[part.operator]
        if operator.named and part.operator in "?&":
            continue
        if after_expression and not operator.first:
            raise RegistrationError(f"{template!r}: put something between two variables, so that each one has an end")
        after_expression = True
        separator = ""
        for name in part.names:
            label = re.escape(name) + "=" if operator.named else ""
            pattern = r"[^?#]+" if part.exploded else operator.pattern.replace("*", "+")
            pieces.append(f"{re.escape(separator or operator.first)}{label}({pattern})")
            separator = operator.separator
    return re.compile("".join(pieces))


def _is_safe(text: str, *, slashes: bool, query: bool) -> bool:
    """Refuse what would climb out of where a variable belongs, however it was encoded."""
    if "\x00" in text or query:
        return "\x00" not in text
    if "\\" in text:
        return False
    segments = text.split("/")
    return (slashes or len(segments) == 1) and not any(segment in (".", "..") for segment in segments)


def _expand(expression: _Expression, values: Mapping[str, str]) -> str:
    from urllib.parse import quote

    operator = _OPERATORS[expression.operator]
    shown: list[str] = []
    for name in expression.names:
        if name not in values:
            continue
        safe = _RESERVED if expression.operator in ("+", "#") else "/" if expression.exploded else ""
        text = quote(values[name], safe=safe + "-._~")
        shown.append(f"{name}={text}" if operator.named else text)
    return operator.first + operator.separator.join(shown) if shown else ""
