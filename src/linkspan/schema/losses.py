"""What a schema says no more after a conversion, in plain words: where, and what. Bounded, each said once."""

from __future__ import annotations

import re

from linkspan.schema.problems import quote

__all__ = ["Losses", "below"]

_MOST = 50
_PLAIN = re.compile(r"[\w.$@-]{1,64}")


class Losses:
    """The sentences so far. A part that is given up as a whole takes back what was said about its own parts."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: list[str] = []

    def __len__(self) -> int:
        return len(self._told)

    def tell(self, path: str, words: str) -> None:
        """Write down what is lost at a place (`/filter/kind`; empty for the arguments as a whole)."""
        self._told.append(f"{path or 'the arguments'}: {words}")

    def forget(self, since: int) -> None:
        """Take back what was said since there were so many."""
        del self._told[since:]

    def listed(self) -> list[str]:
        """Return the sentences, each once, and of a great many only the first."""
        told = list(dict.fromkeys(self._told))
        more = len(told) - _MOST
        return [*told[:_MOST], f"and {more} more"] if more > 0 else told


def below(path: str, step: str) -> str:
    """Return the place of a member, or of the items (`*`), of what `path` names."""
    return f"{path}/{step if _PLAIN.fullmatch(step) or step == '*' else quote(step)}"
