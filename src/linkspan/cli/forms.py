"""The fields of a server's form, and texts that people type into them. Pure: the dialogue is in `questions`.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation (checklist 4.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from linkspan.client.answers import form_choices, form_problem
from linkspan.types.base import JSON, is_array, is_object
from linkspan.wire.redaction import is_secret_field

__all__ = ["Field", "Unreadable", "fields_of", "read_value"]


class Unreadable(ValueError):
    """A text is no value for a field; the message says what would be."""


class Field(msgspec.Struct, frozen=True):
    """One field of a form."""

    name: str
    schema: Mapping[str, JSON]
    required: bool
    default: JSON = None
    """None: there is none, or the server's own default does not fit its field."""

    @property
    def title(self) -> str:
        """What to call it."""
        title: JSON = self.schema.get("title")
        return title if isinstance(title, str) and title else self.name

    @property
    def kind(self) -> str:
        """What belongs into it, in words."""
        if self.schema.get("type") == "array":
            return "some of these, with commas between them"
        if form_choices(self.schema):
            return "one of these"
        wanted: JSON = self.schema.get("format")
        words = (
            _FORMATS[wanted][0]
            if isinstance(wanted, str) and wanted in _FORMATS
            else _KINDS.get(_type(self.schema), "text")
        )
        return ", ".join([words, *_bounds(self.schema)])

    def shown(self, value: JSON) -> str:
        """Return a value as people know it."""
        if is_array(value):
            return ", ".join(self.shown(each) for each in value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return form_choices(self.schema).get(value, str(value))

    @property
    def secret(self) -> bool:
        """Whether it looks as if it wants what no form may ask for (ELI-7)."""
        return is_secret_field(self.name, {**self.schema})


def fields_of(schema: Mapping[str, JSON] | None) -> list[Field]:
    """Return the fields of a form, in its order."""
    members = schema or {}
    properties: JSON = members.get("properties")
    required: JSON = members.get("required")
    needed = required if is_array(required) else []
    found = properties.items() if is_object(properties) else ()
    return [_field(name, field, needed=name in needed) for name, field in found if is_object(field)]


def _field(name: str, schema: Mapping[str, JSON], *, needed: bool) -> Field:
    default: JSON = schema.get("default")
    unfit = default is not None and form_problem(schema, default) is not None
    return Field(name, schema, needed or unfit, None if unfit else default)


def read_value(field: Field, text: str) -> JSON:
    """Return what was typed as a value of the field. Raises: Unreadable."""
    schema = field.schema
    if schema.get("type") == "array":
        value: JSON = [_chosen(schema, each.strip()) for each in text.split(",") if each.strip()]
    elif form_choices(schema):
        value = _chosen(schema, text.strip())
    else:
        value = _READERS.get(_type(schema), _text)(text)
    problem = form_problem(schema, value)
    wanted: JSON = schema.get("format")
    if problem is None and isinstance(value, str) and isinstance(wanted, str) and wanted in _FORMATS:
        words, fits = _FORMATS[wanted]
        problem = None if fits(value) else f"must be {words}"
    if problem is not None:
        raise Unreadable(problem)
    return value


def _type(schema: Mapping[str, JSON]) -> str:
    kind: JSON = schema.get("type")
    return kind if isinstance(kind, str) else "string"


def _chosen(schema: Mapping[str, JSON], text: str) -> JSON:
    """Return the choice that a text names: by its value, its title, or its number in the list."""
    choices = form_choices(schema)
    for value, title in choices.items():
        if text == str(value) or text.casefold() == title.casefold():
            return value
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return list(choices)[int(text) - 1]
    if not choices:
        return text
    raise Unreadable(f"must be one of {', '.join(choices.values())} (or its number), not {text!r}")


def _text(text: str) -> JSON:
    return text


def _whole(text: str) -> JSON:
    try:
        return int(text)
    except ValueError:
        raise Unreadable(f"must be a whole number, not {text!r}") from None


def _decimal(text: str) -> JSON:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value or value in (float("inf"), float("-inf")):
        raise Unreadable(f"must be a number, not {text!r}")
    return int(value) if re.fullmatch(r"[+-]?\d+", text.strip()) else value


def _truth(text: str) -> JSON:
    word = text.strip().casefold()
    if word in ("y", "yes", "true", "on", "1"):
        return True
    if word in ("n", "no", "false", "off", "0"):
        return False
    raise Unreadable(f"must be yes or no, not {text!r}")


def _is_date(text: str) -> bool:
    from datetime import date

    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == 10


def _is_moment(text: str) -> bool:
    from datetime import datetime

    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "T" in text


_READERS: Final[Mapping[str, Callable[[str], JSON]]] = {
    "string": _text,
    "integer": _whole,
    "number": _decimal,
    "boolean": _truth,
}
_KINDS: Final[Mapping[str, str]] = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "yes or no",
}
_FORMATS: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    "date": ("a date like 1999-12-31", _is_date),
    "date-time": ("a moment like 1999-12-31T09:00:00Z", _is_moment),
    "email": ("an e-mail address", lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None),
    "uri": ("a URI like https://example.com", lambda text: re.match(r"[A-Za-z][A-Za-z0-9+.-]*:\S", text) is not None),
}


def _bounds(schema: Mapping[str, JSON]) -> list[str]:
    """Return what the field says of sizes, in words."""
    words = {
        "minimum": "at least {}",
        "maximum": "at most {}",
        "minLength": "at least {} characters",
        "maxLength": "at most {} characters",
    }
    return [each.format(schema[name]) for name, each in words.items() if isinstance(schema.get(name), int | float)]
