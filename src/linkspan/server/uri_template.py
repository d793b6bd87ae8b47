"""RFC 6570 templates: which URI fits, with which variables. Traversal never fits (RES-4).

Matching covers levels 1 to 3 and the explode of paths. It takes time in proportion to the URI, whatever the template: the
places where a variable can begin are found from left to right, each part of the URI looked at once per variable, and the
values are read off from right to left. Nothing is tried twice. Spec: https://www.rfc-editor.org/rfc/rfc6570
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

import msgspec

from linkspan.errors import RegistrationError

MAX_URI: Final = 8192
"""Characters of a URI that is looked at; a longer one fits no template."""

# Expressions as texts: `re` compiles and keeps each one when it is first used, which takes longer than loading this module.
_EXPRESSION = r"\{([^{}]*)\}"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*"
_SCHEME = r"[A-Za-z](?:[A-Za-z0-9+.-]|\{[^{}]*\})*:"
_HOST = r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(/|$)"
_LONE_PERCENT = r"%(?![0-9A-Fa-f]{2})"
_UNSAFE = r"[\s<>\"\\^`{}|\x00-\x1f\x7f\ud800-\udfff]|" + _LONE_PERCENT
_RESERVED = "!#$&'()*+,/:;=?@[]%"


class _Operator(msgspec.Struct, frozen=True):
    """How one kind of expression looks (RFC 6570, appendix A), and which characters a value of it may have."""

    first: str
    separator: str
    named: bool
    value: str


_SEGMENT = r"[^/?#]*"
_PATH = r"[^?#]*"
_PAIR = r"[^&#]*"
_OPERATORS: Mapping[str, _Operator] = {
    "": _Operator("", ",", False, _SEGMENT),
    "+": _Operator("", ",", False, _PATH),
    "#": _Operator("#", ",", False, r"(?s:.*)"),
    ".": _Operator(".", ".", False, _SEGMENT),
    "/": _Operator("/", "/", False, _SEGMENT),
    ";": _Operator(";", ";", True, r"[^/?#;]*"),
    "?": _Operator("?", "&", True, _PAIR),
    "&": _Operator("&", "&", True, _PAIR),
}


class _Expression(msgspec.Struct, frozen=True):
    operator: str
    names: tuple[str, ...]
    exploded: bool = False

    @property
    def is_query(self) -> bool:
        return self.operator in ("?", "&")


class _Hole(msgspec.Struct, frozen=True):
    """A variable's place: which characters fill it, and the text behind it, which is empty only at the end."""

    name: str
    value: re.Pattern[str]
    slashes: bool
    relative: bool
    after: str

    def next_starts(self, text: str, starts: list[int]) -> list[int]:
        """Return where the next variable can begin, if this one begins at one of `starts`; both rise."""
        found: list[int] = []
        end = -1
        for start in starts:
            if start < end:
                continue  # in the run of characters that was searched already
            end = _end_of(self.value, text, start)
            at = text.find(self.after, start + 1, end + len(self.after))
            while at >= 0:
                found.append(at + len(self.after))
                at = text.find(self.after, at + 1, end + len(self.after))
        return found


class UriTemplate(msgspec.Struct, frozen=True):
    """A compiled template."""

    template: str
    variables: tuple[str, ...]
    _parts: tuple[str | _Expression, ...]
    _before: str
    _holes: tuple[_Hole, ...]
    _query: frozenset[str]
    _fixed_pairs: int

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the variables of `uri`, percent-decoded, or None where it does not fit or tries to climb out.

        Query variables may be absent and come in any order; an unknown or repeated one does not fit. Other variables may not
        be empty. Where a URI can be read in several ways, later variables are as short as they can be. No value has a NUL or
        a backslash, and none is or has a segment `.` or `..`, however it was encoded and whatever blanks are in it. Slashes
        stand as they are in values of `{+var}`, `{#var}`, `{/var*}` and of the query; in others they are encoded (`%2F`).
        Only values of the first three begin with a slash, and only where none stands before them.
        """
        if len(uri) > MAX_URI:
            return None
        split = self._split(uri)
        raw = self._fill(split[0]) if split is not None else None
        if split is None or raw is None:
            return None
        for name, _, value in (pair.partition("=") for pair in split[1] if pair):
            if name not in self._query or name in raw:
                return None
            raw[name] = value
        return self._decode(raw)

    def expand(self, values: Mapping[str, str]) -> str:
        """Return the URI for `values`; a variable without a value is left out."""
        return "".join(part if isinstance(part, str) else _expand(part, values) for part in self._parts)

    def _split(self, uri: str) -> tuple[str, list[str]] | None:
        """Part what is matched in order from the pairs of the query expressions, which come in any order.

        None where a fragment follows: it is no part of the last pair.
        """
        if not self._query:
            return uri, []
        path, mark, query = uri.partition("?")
        if "#" in query:
            return None
        pairs = query.split("&") if mark else []
        if not self._fixed_pairs:
            return path, pairs
        return path + mark + "&".join(pairs[: self._fixed_pairs]), pairs[self._fixed_pairs :]

    def _fill(self, text: str) -> dict[str, str] | None:
        """Return what fills each hole, still encoded, or None."""
        if not self._holes:
            return {} if text == self._before else None
        if not text.startswith(self._before) or not text.endswith(self._holes[-1].after):
            return None
        rows = [[len(self._before)]]
        for hole in self._holes[:-1]:
            rows.append(hole.next_starts(text, rows[-1]))
        raw: dict[str, str] = {}
        end = len(text)
        for hole, starts in zip(reversed(self._holes), reversed(rows), strict=True):
            end -= len(hole.after)
            place = bisect_left(starts, end)
            if not place or _end_of(hole.value, text, starts[place - 1]) < end:
                return None
            raw[hole.name] = text[starts[place - 1] : end]
            end = starts[place - 1]
        return raw

    def _decode(self, raw: Mapping[str, str]) -> dict[str, str] | None:
        from urllib.parse import unquote_to_bytes

        holes = {hole.name: hole for hole in self._holes}
        decoded: dict[str, str] = {}
        for name in self.variables:
            if name not in raw:
                continue
            try:
                text = unquote_to_bytes(raw[name]).decode()
            except UnicodeError:
                return None
            if not _is_safe(text, holes.get(name)):
                return None
            decoded[name] = text
        return decoded


def is_template(uri: str) -> bool:
    """Return whether a URI has expressions in it."""
    return "{" in uri or "}" in uri


def check_uri(uri: str) -> None:
    """Refuse what cannot be a resource's URI (RFC 3986): clients that parse it drop the whole list. Raises: RegistrationError.

    One that begins with a host, as the source documents write it (E1b), is taken with a warning.
    """
    if not uri or re.search(_UNSAFE, uri):
        raise RegistrationError(
            f"{uri!r} cannot be a resource's URI: write one like 'note://today', with other characters percent-encoded"
        )
    if re.match(_HOST, uri) is None:
        _check_scheme(uri, uri)
        return
    from logging import getLogger

    line = "the URI %r has no scheme, so some clients refuse it: write 'https://%s', or one of your own such as 'note://%s'"
    getLogger("linkspan.server").warning(line, uri, uri, uri)


def compile_template(template: str) -> UriTemplate:
    """Compile an RFC 6570 template. Raises: RegistrationError, which names what to write instead."""
    parts = _parse(template)
    expressions = [part for part in parts if isinstance(part, _Expression)]
    variables = tuple(name for each in expressions for name in each.names)
    if len(set(variables)) != len(variables):
        raise RegistrationError(f"{template!r} names a variable twice: give each one a name of its own")
    if not variables:
        raise RegistrationError(f"{template!r} has no {{variable}}: register it as a plain resource")
    query = frozenset(name for each in expressions if each.is_query for name in each.names)
    texts, slots = _lay_out(template, parts)
    if texts[0]:
        _check_scheme(template, template)
    fixed = _fixed_pairs(template, parts, "".join(texts)) if query else 0
    holes = tuple(
        _Hole(
            name,
            re.compile(_PATH if expression.exploded else _OPERATORS[expression.operator].value),
            slashes=expression.exploded or expression.operator in ("+", "#"),
            relative=texts[n].endswith("/") and (n, texts[n].lower()) != (0, "file://"),
            after=texts[n + 1],
        )
        for n, (name, expression) in enumerate(slots)
    )
    return UriTemplate(template, variables, tuple(parts), texts[0], holes, query, fixed)


def _parse(template: str) -> list[str | _Expression]:
    parts: list[str | _Expression] = []
    end = 0
    for found in re.finditer(_EXPRESSION, template):
        parts.append(template[end : found.start()])
        parts.append(_parse_expression(template, found.group(1)))
        end = found.end()
    parts.append(template[end:])
    literals = [part for part in parts if isinstance(part, str)]
    if any("{" in literal or "}" in literal for literal in literals):
        raise RegistrationError(f"{template!r} has a brace without its partner: write variables as {{name}}")
    if any(re.search(_UNSAFE, literal) for literal in literals):
        raise RegistrationError(f"{template!r} has a character that no URI has: percent-encode it")
    return [part for part in parts if part]


def _parse_expression(template: str, text: str) -> _Expression:
    operator = text[:1] if text[:1] in _OPERATORS else ""
    names = text[len(operator) :].split(",")
    exploded = False
    if operator == "/" and len(names) == 1 and names[0].endswith("*"):
        exploded, names = True, [names[0][:-1]]
    for name in names:
        if name.endswith("*") or ":" in name:
            raise RegistrationError(
                f"{template!r}: '*' and ':n' are not matched, except as {{/path*}}; write the plain name"
            )
        if not re.fullmatch(_VARIABLE, name):
            raise RegistrationError(f"{template!r}: {name!r} is not a variable's name; use letters, digits and '_'")
    return _Expression(operator, tuple(names), exploded)


def _lay_out(template: str, parts: list[str | _Expression]) -> tuple[list[str], list[tuple[str, _Expression]]]:
    """Return the texts around the variables in front of the query's own, and those variables: one text more than variables."""
    texts = [""]
    slots: list[tuple[str, _Expression]] = []
    in_query = False
    for part in parts:
        in_query = in_query or (isinstance(part, _Expression) and part.is_query)
        if isinstance(part, str):
            texts[-1] += part
        elif not part.is_query:
            operator = _OPERATORS[part.operator]
            for n, name in enumerate(part.names):
                texts[-1] += (operator.separator if n else operator.first) + (f"{name}=" if operator.named else "")
                if slots and not texts[-1]:
                    raise RegistrationError(
                        f"{template!r}: put something between two variables, so that each one has an end"
                    )
                slots.append((name, part))
                texts.append("")
        if in_query and not (isinstance(part, _Expression) and part.is_query):
            raise RegistrationError(f"{template!r}: put {{?query}} variables at the end, with nothing behind them")
    return texts, slots


def _fixed_pairs(template: str, parts: list[str | _Expression], ordered: str) -> int:
    """Return how many pairs of the query are written out in the template, in front of `{&more}`."""
    marks = [part.operator for part in parts if isinstance(part, _Expression) and part.is_query]
    _, mark, query = ordered.partition("?")
    if "#" in ordered:
        raise RegistrationError(f"{template!r}: query variables cannot come behind a '#'; leave the fragment out")
    if "?" in (marks if mark else marks[1:]):
        raise RegistrationError(f"{template!r} begins its query twice: write {{&name}} for what comes later")
    if not mark and marks[0] == "&":
        raise RegistrationError(f"{template!r}: {{&name}} goes on with a query; write {{?name}} to begin one")
    return query.count("&") + 1 if mark else 0


def _check_scheme(uri: str, text: str) -> None:
    if re.match(_SCHEME, text):
        return
    scheme, colon, _ = text.partition(":")
    if colon and "/" not in scheme:
        raise RegistrationError(f"{uri!r} cannot be a resource's URI: a scheme is letters, digits, '+', '-' and '.'")
    raise RegistrationError(
        f"{uri!r} cannot be a resource's URI, for it has no scheme: write 'https://{uri}', or one of your own such as "
        f"'note://{uri}'"
    )


def _end_of(value: re.Pattern[str], text: str, start: int) -> int:
    """Return where the characters of a value end that begins at `start`."""
    found = value.match(text, start)
    return found.end() if found else start


def _is_safe(text: str, hole: _Hole | None) -> bool:
    """Refuse what would climb out of where a variable belongs, however it was encoded. The query has no hole."""
    if "\x00" in text or "\\" in text:
        return False
    segments = text.split("/")
    if any(map(_climbs, segments)):
        return False
    if not text.startswith("/"):
        return True
    return hole is not None and hole.slashes and not hole.relative


def _climbs(segment: str) -> bool:
    """Return whether a segment is `.` or `..`, or becomes one where a system drops blanks and dots at the end of a name."""
    dots = "".join(segment.split())
    return dots in (".", "..") or (dots != segment and dots != "" and not dots.strip("."))


def _expand(expression: _Expression, values: Mapping[str, str]) -> str:
    from urllib.parse import quote

    operator = _OPERATORS[expression.operator]
    reserved = expression.operator in ("+", "#")
    shown: list[str] = []
    for name in expression.names:
        if name not in values:
            continue
        text = quote(values[name], safe=_RESERVED if reserved else "/" if expression.exploded else "")
        if reserved:
            text = re.sub(_LONE_PERCENT, "%25", text)
        if not operator.named:
            shown.append(text)
        else:
            shown.append(name if not text and expression.operator == ";" else f"{name}={text}")
    return operator.first + operator.separator.join(shown) if shown else ""
