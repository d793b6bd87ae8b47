"""What awaits and what blocks is written twice: the same names, parameters and words, but for the words of waiting."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from linkspan import Client, SyncClient
from linkspan.client.client import Changes
from linkspan.client.sync_client import SyncChanges
from linkspan.client.tasks import ClientTask, SyncClientTask
from linkspan.client.tool_functions import SyncToolFunctions, ToolFunctions
from linkspan.host.group import ClientGroup, SyncClientGroup

PAIRS = [
    (Client, SyncClient),
    (Changes, SyncChanges),
    (ClientTask, SyncClientTask),
    (ToolFunctions, SyncToolFunctions),
    (ClientGroup, SyncClientGroup),
]
BLOCKING = [
    (r"\basync (?=with|for|def)", ""),
    (r"\bawait ", ""),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\b(Client|Changes|ClientTask|ClientGroup|ToolFunctions)\b", r"Sync\1"),
    (r"\bSyncSync", "Sync"),
    (r"\bAny task\b", "Any thread"),
]
"""What blocks, in the words of what awaits."""
WAITS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
REFUSES = {"__enter__", "__exit__", "__iter__", "__next__"}
"""In a class that awaits, these say to write `async with`."""
DIFFERENT = {"Client.tools", "SyncClient.tools"}
"""Where it awaits, the attribute can be awaited, too: that lists the tools."""


def blocking(text: str | None) -> str:
    for pattern, words in BLOCKING:
        text = re.sub(pattern, words, text or "")
    return " ".join((text or "").split())


def face(kind: type[Any], *, awaits: bool) -> dict[str, Any]:
    """Return what a class offers, by the name that it has where it blocks."""
    found: dict[str, Any] = {}
    for name, value in inspect.getmembers(kind):
        if not (inspect.isfunction(value) or isinstance(value, property)):
            continue
        is_shown = not name.startswith("_") or name in WAITS or (name in REFUSES and not awaits) or name == "__init__"
        if is_shown and f"{kind.__name__}.{name}" not in DIFFERENT:
            found[WAITS.get(name, name)] = value
    return found


@pytest.mark.parametrize(("awaits", "blocks"), PAIRS)
def test_what_blocks_offers_what_awaits_offers(awaits: type[Any], blocks: type[Any]) -> None:
    ours, theirs = face(awaits, awaits=True), face(blocks, awaits=False)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        other = theirs[name]
        assert blocking(inspect.getdoc(value)) == blocking(inspect.getdoc(other)), name
        if not isinstance(value, property):
            signature = blocking(str(inspect.signature(value)))
            assert signature == blocking(str(inspect.signature(other))), name
