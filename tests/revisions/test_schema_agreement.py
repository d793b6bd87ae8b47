"""Our shapes, stepped down, against the official schema of every revision.

The table `fields.json` stands in where the schemas are not at hand; where they are, it is checked against them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from any_shape import KINDS, objects
from hypothesis import HealthCheck, given, settings
from official_schemas import DEFINITIONS, FOLDER, IS_PRESENT, find, read_schema, read_table, written_table

from linkspan.revisions import LATEST, REVISIONS, Revision
from linkspan.revisions.stepdown import knows_field, plan_for, step_down
from linkspan.types.base import Wire
from linkspan.types.messages import (
    CancelledParams,
    Completion,
    CreateMessageParams,
    DiscoverResult,
    ElicitParams,
    ElicitResult,
    InitializeParams,
    InitializeResult,
    ListRootsResult,
    LoggingMessageParams,
    ModelPreferences,
    ProgressParams,
    ServerCapabilities,
    ToolAnnotations,
)
from linkspan.wire.values import from_builtins, to_builtins

with_schemas = pytest.mark.skipif(not IS_PRESENT, reason=f"no official schemas in {FOLDER}")

TABLE = written_table()
PARAMS = tuple(kind for kind in DEFINITIONS if not issubclass(kind, Wire))
STAMPS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What the modern era, or the server, puts into every result that needs it; so our shapes do not require it."""
META_IN_BASE = {
    *(kind for kind in DEFINITIONS if not issubclass(kind, Wire)),
    CreateMessageParams,
    ElicitParams,
    ElicitResult,
    ListRootsResult,
    LoggingMessageParams,
    ProgressParams,
}
"""Params and results of the client: some revisions name `_meta` only in the shape that these extend."""
NOT_SPOKEN = {"execution", "task", "tasks", "elicitationId"}
"""The experimental tasks of one revision, and the id that the handshake era gives to a question."""
ASKED_GENTLY: dict[type[Any], set[str]] = {
    InitializeParams: {"capabilities", "clientInfo"},
    CancelledParams: {"requestId"},
    ElicitParams: {"requestedSchema"},
}
"""Members that a revision requires and that we do not insist on: of lenient peers, and of the two kinds of question."""

revisions = pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)
quickly = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def ours(kind: type[Any], revision: Revision) -> set[str]:
    """Return the members that we say a revision has, each required one with a mark."""
    required_from_here = len(kind.__struct_fields__) - len(kind.__struct_defaults__)
    defaults = (msgspec.NODEFAULT,) * required_from_here + kind.__struct_defaults__
    tag = set() if kind.__struct_config__.tag is None else {"type!"}
    return tag | {
        f"{name}!" if default is msgspec.NODEFAULT else name
        for field, name, default in zip(kind.__struct_fields__, kind.__struct_encode_fields__, defaults, strict=True)
        if not issubclass(kind, Wire) or knows_field(revision, kind, field)
    }


def theirs(kind: type[Any], revision: Revision) -> set[str]:
    """Return the members that the schema of a revision names, but for those of which we say above why they differ."""
    members = set(TABLE[revision.date].get(kind.__name__, ()))
    gently = STAMPS.keys() | ASKED_GENTLY.get(kind, set()) | {"_meta"}
    relaxed = {name.rstrip("!") if name.rstrip("!") in gently else name for name in members}
    return relaxed - NOT_SPOKEN - {"resultType"}


def without_meta(kind: type[Any], members: set[str]) -> set[str]:
    return members - {"_meta"} if kind in META_IN_BASE else members


def is_in(kind: type[Any], revision: Revision) -> bool:
    return kind.__name__ in TABLE[revision.date]


@with_schemas
def test_the_table_beside_this_test_says_what_the_official_schemas_say() -> None:
    assert read_table() == TABLE


@revisions
@pytest.mark.parametrize("kind", KINDS)
def test_every_shape_has_the_members_of_its_revision_and_no_others(kind: type[Wire], revision: Revision) -> None:
    """IMPL-1, ANN-1, TITLE-1, TOOL-1, RES-1, PR-1, PROG-2, SAM-2, META-2."""
    if is_in(kind, revision):
        found = without_meta(kind, ours(kind, revision))
        if kind is ServerCapabilities and revision.era == "legacy":
            found -= {"extensions"}  # declared in handshakes, too (EXT-1), in a shape that is no closed set (MSG-51)
        assert found == without_meta(kind, theirs(kind, revision))


@revisions
@pytest.mark.parametrize("kind", PARAMS)
def test_the_params_of_a_request_have_room_for_every_revision(kind: type[Any], revision: Revision) -> None:
    """What only later revisions have is never there in the earlier ones, so one shape reads them all (MSG-50)."""
    if is_in(kind, revision):
        found, official = without_meta(kind, ours(kind, revision)), without_meta(kind, theirs(kind, revision))
        assert official <= found
        assert not any(name.endswith("!") for name in found - official)


@pytest.mark.parametrize("kind", PARAMS)
def test_the_params_of_a_request_have_no_member_that_no_revision_has(kind: type[Any]) -> None:
    every = set().union(*(theirs(kind, revision) for revision in REVISIONS.values()))
    assert without_meta(kind, ours(kind, LATEST)) == without_meta(kind, every)


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_revision_pays_nothing_for_the_others(kind: type[Wire]) -> None:
    assert plan_for(LATEST, kind) is None


@pytest.mark.parametrize("kind", [ElicitResult, ToolAnnotations, Completion, ModelPreferences])
def test_a_shape_that_never_changed_has_no_way_down(kind: type[Wire]) -> None:
    assert [plan_for(revision, kind) for revision in REVISIONS.values()] == [None] * len(REVISIONS)


@cache
def validator(kind: type[Wire], date: str) -> jsonschema_rs.Validator:
    """Compile the official definition of a shape."""
    schema = read_schema(date)
    definitions = {name: schema[name] for name in ("$defs", "definitions", "$schema") if name in schema}
    definitions.setdefault("$defs", {})["JSONValue"] = {}  # the generated one allows no floats and no null (JS-7)
    return jsonschema_rs.validator_for(definitions | {"anyOf": find(schema, kind)})


def assert_valid_everywhere(kind: type[Wire], members: dict[str, Any]) -> None:
    """Step a value down to every revision that has its shape, and ask that revision's schema."""
    value = from_builtins(members, kind)
    for date, revision in REVISIONS.items():
        if not is_in(kind, revision):
            continue
        stepped = to_builtins(step_down(revision, value))
        if revision.era == "modern":
            stamped = {name: stamp for name, stamp in STAMPS.items() if f"{name}!" in TABLE[date][kind.__name__]}
            stepped = stamped | stepped
        problems = [f"{error.instance_path}: {error.message}" for error in validator(kind, date).iter_errors(stepped)]
        assert not problems, (date, stepped)


@with_schemas
@pytest.mark.parametrize("members", ["all", "some", "no"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_out_is_valid_in_every_revision(kind: type[Wire], members: str) -> None:
    """TOOL-3, TOOL-4, SAM-4, ELI-4, JS-5: with all, some and none of the optional members."""

    @quickly
    @given(objects(kind, members=members))
    def check(value: dict[str, Any]) -> None:
        assert_valid_everywhere(kind, value)

    check()


@with_schemas
def test_a_page_to_open_is_a_valid_question_of_the_newest_revision() -> None:
    """ELI-1, ELI-3: a form goes without a mode, a page does not."""
    page = ElicitParams("Pay?", mode="url", url="https://example.com/pay")
    assert validator(ElicitParams, LATEST.date).is_valid(to_builtins(step_down(LATEST, page)))


def test_each_era_has_its_own_way_to_say_what_a_server_is() -> None:
    """DISC-1, INI-2."""
    for revision in REVISIONS.values():
        assert is_in(InitializeResult, revision) == (revision.era == "legacy")
        assert is_in(DiscoverResult, revision) == (revision.era == "modern")
