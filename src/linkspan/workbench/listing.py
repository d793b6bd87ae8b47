"""What a server offers at one moment, what that costs a model to read, and what a restart has changed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from linkspan.contract.comparing import changes
from linkspan.contract.linting import lint
from linkspan.contract.snapshot import Snapshot, collected, tool_tokens
from linkspan.contract.tokens import tokens_of
from linkspan.types.base import JSON, JSONObject, is_object
from linkspan.workbench.events import cut_json

KINDS: Final = {"tools": "tool", "resources": "resource", "templates": "template", "prompts": "prompt"}
"""For each list the kind of its items."""
_MARKS: Final = {"C50": "+", "C51": "~", "C01": "-"}
_GROWN: Final = "C35"
_ITSELF: Final = "the server"
_MANY: Final = 1_000
"""Tools of which none is linted: the page shows a part of them."""


class Listing(msgspec.Struct, frozen=True):
    """The lists of a server by their kinds, as they are on the wire."""

    items: Mapping[str, Sequence[JSONObject]] = {}
    problems: Mapping[str, str] = {}
    """Why a list could not be had."""
    instructions: str | None = None

    def tokens(self) -> dict[str, list[int]]:
        """Return an estimate of the tokens of each item; of a tool, of what a model is sent."""
        return {
            kind: [tool_tokens(item) if kind == "tools" else tokens_of(item) for item in items]
            for kind, items in self.items.items()
        }

    def shown(self) -> JSONObject:
        """Return what a browser gets, with the beginnings of long texts. It takes a while for long lists: ask once."""
        cut = Listing({kind: [cut_json(item) for item in items] for kind, items in self.items.items()}, {})
        return {
            "lists": {kind: list(items) for kind, items in cut.items.items()},
            "problems": dict(self.problems),
            "tokens": self.tokens(),
            "advice": cut.advice(),
        }

    def snapshot(self) -> Snapshot:
        """Return what can be compared and linted."""
        items = {KINDS[kind]: collected(KINDS[kind], found) for kind, found in self.items.items()}
        return Snapshot("", items=items, instructions=self.instructions)

    def advice(self) -> dict[str, list[JSONObject]]:
        """Return what the rules say of each tool: `code`, `level` and `words`."""
        found: dict[str, list[JSONObject]] = {}
        if len(self.items.get("tools", ())) < _MANY:
            for each in lint(self.snapshot()):
                found.setdefault(each.item, []).append({"code": each.code, "level": each.level, "words": each.words})
        return found


class ItemMark(msgspec.Struct, frozen=True):
    """One item that a restart has changed."""

    kind: str
    """Its list, such as `tools`; `server` for the server itself."""
    name: str
    """As the page knows it: the URI of a resource, of a template with its variables; empty for the server itself."""
    mark: str
    """`+`, `~` or `-`."""
    level: str
    """How bad it is for clients."""
    what: Sequence[str] = ()


def marks(before: Listing, after: Listing) -> list[ItemMark]:
    """Return what is different, the worst for clients first.

    That the lists as a whole cost more is left out: the items that do are here themselves.
    """
    lists = {kind: name for name, kind in KINDS.items()}
    templates = {
        str(each.get("name")): str(each.get("uriTemplate"))
        for listing in (before, after)
        for each in reversed(listing.items.get("templates", ()))  # the first of several with one name counts
    }
    found: dict[str, ItemMark] = {}
    for each in changes(before.snapshot(), after.snapshot()):
        if each.code == _GROWN:
            continue
        kind, _, name = each.place.partition(" ") if each.place != _ITSELF else ("server", "", "")
        old = found.get(each.place)
        if old is not None:
            found[each.place] = msgspec.structs.replace(old, what=[*old.what, each.words])
            continue
        mark = _MARKS.get(each.code, "~")
        name = templates.get(name, name) if kind == "template" else name
        found[each.place] = ItemMark(lists.get(kind, "server"), name, mark, each.level, [each.words])
    return [*found.values()]


def reads_only(listing: Listing, kind: str, name: str) -> bool:
    """Return whether asking twice changes nothing: a tool that is marked so, or a resource or a prompt."""
    if kind != "tool":
        return True
    tools = listing.items.get("tools", ())
    annotations: JSON = next((each.get("annotations") for each in tools if each.get("name") == name), None)
    return is_object(annotations) and annotations.get("readOnlyHint") is True
