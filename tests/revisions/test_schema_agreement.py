"""Our shapes, stepped down, against the official schema of every revision.

The table `fields.json` stands in where the schemas are not at hand; where they are, it is checked against them.
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from official import DEFINITIONS, FOLDER, IS_PRESENT, find, read_schema, read_table, written_table
from shapes import KINDS, objects

from linkspan.revisions import LATEST, REVISIONS, Revision
from linkspan.revisions.stepdown import knows_field, plan_for, step_down
from linkspan.types.base import Wire
from linkspan.types.elicitation import ElicitParams
from linkspan.types.lifecycle import DiscoverResult, InitializeResult
from linkspan.types.requests import CancelledParams, InitializeParams
from linkspan.wire.values import from_builtins, to_builtins

with_schemas = pytest.mark.skipif(not IS_PRESENT, reason=f"no official schemas in {FOLDER}")

TABLE = written_table()
PARAMS = tuple(kind for kind in DEFINITIONS if not issubclass(kind, Wire))
STAMPED = {"resultType", "ttlMs", "cacheScope"}
"""What the modern era, or the server, puts into every result that needs it; so our shapes do not require it."""
NOT_SPOKEN = {"execution", "task", "tasks", "elicitationId"}
"""The experimental tasks of one revision, and the id that the handshake era gives to a question."""
ASKED_GENTLY: dict[type[Any], set[str]] = {
    InitializeParams: {"capabilities", "clientInfo"},
    CancelledParams: {"requestId"},
    ElicitParams: {"requestedSchema"},
}
"""Members that a revision requires and that we do not insist on: of lenient peers, and of the two kinds of question."""

revisions = pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)


def ours(kind: type[Any], revision: Revision) -> dict[str, bool]:
    """Return the members that we say `revision` has, and whether they are required."""
    config, fields = kind.__struct_config__, kind.__struct_fields__
    found = {} if config.tag is None else {config.tag_field: True}
    for place, (field, name) in enumerate(zip(fields, kind.__struct_encode_fields__, strict=True)):
        if not issubclass(kind, Wire) or knows_field(revision, kind, field):
            found[name] = place < len(fields) - len(kind.__struct_defaults__) and not _has_default(kind, place)
    return found


def _has_default(kind: type[Any], place: int) -> bool:
    first = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    return place >= first and kind.__struct_defaults__[place - first] is not _nodefault


def theirs(kind: type[Any], revision: Revision) -> dict[str, bool] | None:
    members = TABLE[revision.date].get(kind.__name__)
    return members and {name.rstrip("!"): name.endswith("!") for name in members}


@with_schemas
def test_the_table_beside_this_test_says_what_the_official_schemas_say() -> None:
    assert TABLE == read_table()


@revisions
@pytest.mark.parametrize("kind", KINDS)
def test_every_shape_has_the_members_of_its_revision(kind: type[Wire], revision: Revision) -> None:
    """IMPL-1, ANN-1, TITLE-1, TOOL-1, RES-1, PR-1, SAM-2, META-2 and the rest of checklist 2.2."""
    official = theirs(kind, revision)
    if official is None:
        return
    found = ours(kind, revision)
    assert set(found) - STAMPED - {"_meta"} == set(official) - STAMPED - NOT_SPOKEN - {"_meta"}
