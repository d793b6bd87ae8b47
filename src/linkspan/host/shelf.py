"""Results that are too large for a model: kept whole, with the head and a handle in their place.

Nothing is lost: the model can read on, or search. Everything here counts characters.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from linkspan.host.messages import CHARACTERS_OF_A_TOKEN, ToolSpec
from linkspan.host.telling import marked
from linkspan.types.base import JSON, JSONObject

__all__ = ["READ", "SEARCH", "Shelf"]

READ: Final = "read_result"
SEARCH: Final = "search_result"
_MAX_KEPT: Final = 32 * 1024 * 1024
_MAX_FOUND: Final = 20
_AROUND: Final = 150

_SPECS: Final = (
    ToolSpec(
        READ,
        "Read on in a tool result that was too large to show at once.",
        {
            "type": "object",
            "properties": {
                "handle": {"type": "string", "description": "The handle that the result's note names, such as r1."},
                "offset": {
                    "type": "integer",
                    "description": "The character to begin at; the note says how far it was shown.",
                },
            },
            "required": ["handle"],
        },
    ),
    ToolSpec(
        SEARCH,
        "Find a text in a tool result that was too large to show at once.",
        {
            "type": "object",
            "properties": {
                "handle": {"type": "string", "description": "The handle that the result's note names, such as r1."},
                "text": {"type": "string", "description": "What to look for: plain text, in upper or lower case."},
            },
            "required": ["handle", "text"],
        },
    ),
)


class Problem(Exception):
    """The model asked for something that is not there; the text tells it what is."""


class Shelf:
    """The large results of one conversation. The oldest go when there are too many."""

    def __init__(self, budget: int) -> None:
        """Show at most about `budget` tokens of a result at once."""
        self._page = budget * CHARACTERS_OF_A_TOKEN
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._sources: dict[str, tuple[str, str]] = {}
        self._size = 0
        self._count = 0

    def specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools that read results: none before there is one."""
        return _SPECS if self._count else ()

    def fit(self, text: str, server: str, tool: str) -> str:
        """Return what a tool of a server answered, marked as that; of a large text the head."""
        return marked(self._fitted(text, (server, tool)), server, tool)

    def _fitted(self, text: str, source: tuple[str, str]) -> str:
        """Return a text as it is, or its head with a note that says how to get at the rest."""
        if len(text) <= self._page:
            return text
        self._count += 1
        handle = f"r{self._count}"
        self._kept[handle], self._sources[handle] = text, source
        self._size += len(text)
        while self._size > _MAX_KEPT and len(self._kept) > 1:
            oldest, dropped = self._kept.popitem(last=False)
            self._size -= len(dropped)
            del self._sources[oldest]
        return self._shown(handle, text, 0)

    def call(self, name: str, arguments: JSONObject) -> str:
        """Serve one of the tools: what comes of it is still what that server answered. Raises: Problem."""
        handle: JSON = arguments.get("handle")
        if not isinstance(handle, str) or handle not in self._kept:
            known = ", ".join(self._kept) or "none"
            raise Problem(
                f"There is no result {handle!r}; those that are kept: {known}. Call the tool again if it is gone."
            )
        self._kept.move_to_end(handle)
        text = self._read(handle, arguments) if name == READ else self._search(handle, arguments)
        return marked(text, *self._sources[handle])

    def _read(self, handle: str, arguments: JSONObject) -> str:
        text = self._kept[handle]
        offset: JSON = arguments.get("offset", 0)
        if not isinstance(offset, int) or not 0 <= offset < len(text):
            raise Problem(f"offset must be a number from 0 to {len(text) - 1}, got {offset!r}")
        return self._shown(handle, text, offset)

    def _search(self, handle: str, arguments: JSONObject) -> str:
        text, wanted = self._kept[handle], arguments.get("text")
        if not isinstance(wanted, str) or not wanted:
            raise Problem("text must be the words to look for")
        whole, sought = text.lower(), wanted.lower()
        places: list[int] = []
        place = whole.find(sought)
        while place >= 0 and len(places) < _MAX_FOUND:
            places.append(place)
            place = whole.find(sought, place + max(len(sought), _AROUND))
        if not places:
            return f"{wanted!r} is nowhere in {handle} ({len(text)} characters)."
        shown = [f"at {each}: ...{text[max(0, each - _AROUND) : each + len(sought) + _AROUND]}..." for each in places]
        more = "\n(there is more; look for something more special)" if place >= 0 else ""
        return "\n".join(shown) + more

    def _shown(self, handle: str, text: str, offset: int) -> str:
        end = min(len(text), offset + self._page)
        line_end = text.rfind("\n", offset + self._page * 9 // 10, end)
        if line_end > 0 and end < len(text):
            end = line_end + 1
        if end == len(text):
            return f"{text[offset:]}\n[{handle}: this was the end, characters {offset} to {end}]"
        return (
            f"{text[offset:end]}\n[{handle}: characters {offset} to {end} of {len(text)}. To read on: {READ} with handle "
            f"{handle!r} and offset {end}. To find something: {SEARCH}.]"
        )
