"""The facts of each revision: methods and content types against the official schemas, the rest against a table."""

from __future__ import annotations

from typing import Any

import pytest
from official_schemas import FOLDER, IS_PRESENT, read_schema

from linkspan.revisions import (
    DEFAULT_NEGOTIATED,
    LATEST,
    LATEST_LEGACY,
    LEGACY,
    MODERN,
    REVISIONS,
    Revision,
    supported_versions,
)

revisions = pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)
with_schemas = pytest.mark.skipif(not IS_PRESENT, reason=f"no official schemas in {FOLDER}")


def definitions_of(revision: Revision) -> dict[str, Any]:
    schema = read_schema(revision.date)
    return schema.get("$defs") or schema["definitions"]


def methods_in(definitions: dict[str, Any], union: str) -> set[str]:
    """Return the methods of a union of messages, without the experimental tasks of one revision, which are not served."""
    found = definitions.get(union, {"anyOf": []})
    each = [found] if "properties" in found else [definitions[ref["$ref"].rpartition("/")[2]] for ref in found["anyOf"]]
    methods = {message["properties"]["method"]["const"] for message in each}
    return {method for method in methods if not method.removeprefix("notifications/").startswith("tasks/")}


def types_in(definitions: dict[str, Any], shape: dict[str, Any]) -> set[str]:
    """Return the types of the content blocks that a member may hold, alone or in a list."""
    if "$ref" in shape:
        shape = definitions[shape["$ref"].rpartition("/")[2]]
    if "anyOf" in shape:
        return set().union(*(types_in(definitions, each) for each in shape["anyOf"]))
    return types_in(definitions, shape["items"]) if "items" in shape else {shape["properties"]["type"]["const"]}


@with_schemas
@revisions
def test_clients_may_call_the_requests_of_the_schema(revision: Revision) -> None:
    """MSG-52."""
    assert revision.requests == methods_in(definitions_of(revision), "ClientRequest")


@with_schemas
@revisions
def test_servers_may_ask_what_the_schema_lets_them_ask(revision: Revision) -> None:
    """MSG-6, MRTR-S3: the modern era has no server requests; there, the same questions travel inside results."""
    definitions = definitions_of(revision)
    asked, carried = methods_in(definitions, "ServerRequest"), methods_in(definitions, "InputRequest")
    assert revision.server_requests == asked | carried


@with_schemas
@revisions
def test_each_side_may_send_the_notifications_of_the_schema(revision: Revision) -> None:
    """PROG-4: in the modern era progress comes from servers only."""
    definitions = definitions_of(revision)
    assert revision.client_notifications == methods_in(definitions, "ClientNotification")
    assert revision.server_notifications == methods_in(definitions, "ServerNotification")


@with_schemas
@revisions
@pytest.mark.parametrize(
    ("fact", "shape", "member"),
    [
        ("content", "CallToolResult", "content"),
        ("content", "PromptMessage", "content"),
        ("sampling_content", "SamplingMessage", "content"),
        ("sampling_content", "CreateMessageResult", "content"),
    ],
)
def test_content_blocks_are_of_the_types_of_the_schema(revision: Revision, fact: str, shape: str, member: str) -> None:
    """TOOL-3, PR-2, SAM-4: sound came second, links third, tools in sampling fourth."""
    definitions = definitions_of(revision)
    assert getattr(revision, fact) == types_in(definitions, definitions[shape]["properties"][member])


@pytest.mark.parametrize(
    ("fact", "by_revision"),
    [
        ("era", ["legacy", "legacy", "legacy", "legacy", "modern"]),
        ("batching", [False, True, False, False, False]),  # MSG-30, MSG-33
        ("error_id_required", [True, True, True, False, False]),  # MSG-5
        ("resource_not_found", [-32002, -32002, -32002, -32002, -32602]),  # RES-3
        ("structured_content", ["none", "none", "object", "object", "any"]),  # TOOL-4
        ("sampling_lists", [False, False, False, True, True]),  # SAM-4
        ("rich_forms", [False, False, False, True, True]),  # ELI-4
    ],
)
def test_each_fact_changed_when_the_table_says(fact: str, by_revision: list[object]) -> None:
    """The changelogs of the revisions."""
    assert [getattr(revision, fact) for revision in REVISIONS.values()] == by_revision


def test_the_versions_are_in_order_and_split_into_two_eras() -> None:
    """ERA-1, ERA-6, ERA-8."""
    assert list(REVISIONS) == sorted(REVISIONS)
    assert (*LEGACY, *MODERN) == tuple(REVISIONS)
    assert supported_versions() == list(REVISIONS)[::-1]
    assert (LATEST.date, LATEST_LEGACY.date) == (MODERN[-1], LEGACY[-1])
    assert DEFAULT_NEGOTIATED.batching


def test_a_revision_is_the_one_before_it_with_changes() -> None:
    later = LATEST.evolve("9999-01-01", add=["x/new", "roots/list"], remove=["tools/list"], batching=True)
    assert later.date == "9999-01-01"
    assert later.requests == LATEST.requests - {"tools/list"} | {"x/new"}
    assert later.server_requests == LATEST.server_requests
    assert (later.batching, LATEST.batching) == (True, False)
    assert later.new_fields == {}
    with pytest.raises(TypeError, match="sampling_list"):
        LATEST.evolve("9999-01-01", sampling_list=True)
