"""Where secrets were in a call that is copied: variables that a person sets before the copy is run. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from linkspan.types.base import JSON, is_array, is_object
from linkspan.wire.redaction import REDACTED

_PREFIX: Final = "SECRET_"
"""A variable of an argument begins with it, so that `path` does not become the `PATH` of the shell."""
_PRIVATE_USE: Final = range(0xE000, 0xF8FF)
"""Characters that mean nothing."""


class SecretText(msgspec.Struct, frozen=True):
    """A text or a number without its secrets: a variable stands between each two of its parts."""

    parts: tuple[str, ...]
    variables: tuple[str, ...]
    number: Literal["", "int", "float"] = ""
    """What a number was."""


class Placeholders:
    """Puts a variable in the place of each secret of one call: the same one where the same secret is."""

    def __init__(self, *, kept: bool = False) -> None:
        """`kept` is for a call whose secrets are gone: of an earlier day."""
        self._kept = kept
        self._names: dict[tuple[str, str], str] = {}
        self.hidden: set[str] = set()
        """The texts that had a secret."""

    def without_secrets(self, raw: JSON, shown: JSON, name: str = "argument") -> Any:
        """Return a value in which a `SecretText` is where `shown`, which is redacted, hides a part of `raw`."""
        if is_object(raw) and is_object(shown) and len(raw) == len(shown):
            pairs = zip(raw.values(), shown.items(), strict=True)
            return {key: self.without_secrets(value, each, key) for value, (key, each) in pairs}
        if is_array(raw) and is_array(shown) and len(raw) == len(shown):
            return [self.without_secrets(value, each, name) for value, each in zip(raw, shown, strict=True)]
        if not isinstance(shown, str) or REDACTED not in shown or (raw == shown and not self._kept):
            return shown
        self.hidden.add(str(raw))
        parts = tuple(shown.split(REDACTED))
        gaps = range(len(parts) - 1)
        number: Any = type(raw).__name__ if isinstance(raw, int | float) else ""
        return SecretText(parts, tuple(self._variable(name, f"{gap} {raw}") for gap in gaps), number)

    def _variable(self, name: str, secret: str) -> str:
        found = self._names.get((name, secret))
        if found is None:
            base = found = _PREFIX + re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")
            while found in self._names.values():
                found = f"{base}_{len(self._names) + 1}"
            self._names[name, secret] = found
        return found


def has_secrets(value: object) -> bool:
    """Return whether a `SecretText` is in a value."""
    inside = value.values() if is_object(value) else value if is_array(value) else ()
    return isinstance(value, SecretText) or any(map(has_secrets, inside))


def shell_word(value: str | SecretText) -> str:
    """Return a text as a word of a shell."""
    return shlex.quote(value) if isinstance(value, str) else _joined(_pieces(value))


def shell_json(value: Any) -> str:
    """Return a value as JSON, as a word of a shell."""
    text = json.dumps(value, ensure_ascii=False, default=lambda each: _joined(_pieces(each)))
    if not has_secrets(value):
        return shlex.quote(text)
    mark = next(chr(each) for each in _PRIVATE_USE if chr(each) not in text)
    marked = json.dumps(_marked(value, mark), ensure_ascii=False)
    pieces = re.split(f'"{mark}#|#{mark}"|{mark}', marked)  # a number loses its quotes
    return _joined((piece, n % 2 == 1) for n, piece in enumerate(pieces))


def _marked(value: Any, mark: str) -> JSON:
    """Return a value with its variables between marks."""
    if isinstance(value, SecretText):
        edge = f"{mark}#{{}}#{mark}" if value.number else f"{mark}{{}}{mark}"
        return "".join(edge.format(piece) if is_variable else piece for piece, is_variable in _pieces(value))
    if is_array(value):
        return [_marked(each, mark) for each in value]
    if is_object(value):
        return {key: _marked(each, mark) for key, each in value.items()}
    return value


def _pieces(value: SecretText) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text and its variables, and whether it is one."""
    for n, part in enumerate(value.parts):
        yield part, False
        if n < len(value.variables):
            yield value.variables[n], True


def _joined(pieces: Iterator[tuple[str, bool]]) -> str:
    words = (f'"${piece}"' if is_variable else shlex.quote(piece) for piece, is_variable in pieces if piece)
    return "".join(words)


def python_literal(value: Any) -> str:
    """Return a value as Python, with double quotes where that is natural."""
    if isinstance(value, SecretText):
        pieces = [each for each in _pieces(value) if each[0]]
        words = (f'os.environ["{text}"]' if is_variable else python_literal(text) for text, is_variable in pieces)
        return f"{value.number}({next(words)})" if value.number else " + ".join(words)
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text if value.isprintable() and "\\" not in text.replace('\\"', "").replace("\\\\", "") else repr(value)
    if is_array(value):
        return f"[{', '.join(map(python_literal, value))}]"
    if is_object(value):
        return f"{{{', '.join(f'{python_literal(name)}: {python_literal(each)}' for name, each in value.items())}}}"
    return repr(value)
