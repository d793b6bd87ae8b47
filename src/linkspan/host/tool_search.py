"""Tools that a model finds when it needs them, where there are too many to show them all.

Once a catalogue is over its budget, the model is shown one tool that searches, and what it has found so far, in the order in
which it was found: the beginning of every request stays the same, so that providers can keep it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from linkspan.host.messages import CHARACTERS_OF_A_TOKEN, ToolSpec
from linkspan.host.results import advice, named
from linkspan.types.base import JSON, JSONObject, is_object

__all__ = ["FIND", "Finder"]

FIND: Final = "find_tools"
_AT_ONCE: Final = 8
_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WEIGHT_OF_NAME: Final = 3


class Finder:
    """What a model has found. `budget` is in tokens."""

    def __init__(self, budget: int) -> None:
        """Show all tools as long as they cost no more than `budget`."""
        self._budget = budget * CHARACTERS_OF_A_TOKEN
        self._found: dict[str, None] = {}
        self.searching = False

    def shown(self, specs: Sequence[ToolSpec]) -> list[ToolSpec]:
        """Return the tools to show the model now."""
        self.searching = self.searching or sum(map(_cost, specs)) > self._budget
        if not self.searching:
            return list(specs)
        by_name = {spec.name: spec for spec in specs}
        return [_find_spec(len(specs)), *(by_name[name] for name in self._found if name in by_name)]

    def search(self, arguments: JSONObject, specs: Sequence[ToolSpec], server_of: Callable[[str], str]) -> str:
        """Serve the tool that searches: what fits best can be called from now on. What a server says of it is marked as that."""
        wanted: JSON = arguments.get("query")
        words = _words(wanted) if isinstance(wanted, str) else []
        if not words:
            return "query must be a few words about what the tool should do"
        chosen = _ranked(words, specs)[:_AT_ONCE]
        if not chosen:
            return f"No tools match {' '.join(words)!r}. Try other words for it."
        self._found.update(dict.fromkeys(spec.name for spec in chosen))
        lines = [f"{named(spec.name)}: {advice(_summary(spec), server_of(spec.name))}" for spec in chosen]
        return "\n".join(["These tools can be called now:", *lines])


def _find_spec(count: int) -> ToolSpec:
    return ToolSpec(
        FIND,
        f"Find tools by what they do, before you decide that something cannot be done. There are {count} tools; those that you "
        "find can be called afterwards.",
        {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "A few words about what the tool should do."}},
            "required": ["query"],
        },
    )


def _ranked(words: Sequence[str], specs: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Order tools by how many of the words they have, rare words first; a word in the name counts most."""
    bags = [_bag(spec) for spec in specs]
    spread = Counter(word for bag in bags for word in bag)
    rarity = {word: math.log(1 + len(specs) / spread[word]) for word in words if spread[word]}
    scores = [sum(rarity.get(word, 0.0) * min(bag[word], _WEIGHT_OF_NAME + 1) for word in words) for bag in bags]
    order = sorted(range(len(specs)), key=lambda number: -scores[number])
    return [specs[number] for number in order if scores[number] > 0]


def _bag(spec: ToolSpec) -> Counter[str]:
    parameters: JSON = spec.schema.get("properties")
    names = " ".join(parameters) if is_object(parameters) else ""
    return Counter(_words(spec.name) * _WEIGHT_OF_NAME + _words(spec.description) + _words(names))


def _words(text: str) -> list[str]:
    """Return the words of a text, a plural for its singular."""
    found = _WORD.findall(_CAMEL.sub(" ", text).lower())
    return [word.removesuffix("s") if len(word) > 3 else word for word in found]


def _summary(spec: ToolSpec) -> str:
    first = spec.description.strip().partition("\n")[0]
    return first if len(first) <= 200 else f"{first[:197]}..."


def _cost(spec: ToolSpec) -> int:
    return len(spec.name) + len(spec.description) + len(msgspec.json.encode(spec.schema))
