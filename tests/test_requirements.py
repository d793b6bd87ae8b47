"""`docs/requirements.md` has each requirement that the sources quote by its id, and no other; pages that they quote exist."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from linkspan.checks import running
from linkspan.checks.requirement import REQUIREMENTS
from linkspan.revisions import LATEST, LATEST_LEGACY, Revision

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "requirements.md"
ID = r"[A-Z][A-Z0-9]*(?:-[A-Z])?-?\d+"
ROW = re.compile(rf"^\| ({ID}) \| (\S.*) \| (\S.*) \|$", re.MULTILINE)
QUOTED = re.compile(rf"(?<![\w-])({ID})(?: to ({ID}))?(?![\w-])")
HEADING = re.compile(r"^### ([^:\n]+):", re.MULTILINE)
OTHERS = {"AES", "C", "LS", "P", "SEP", "SHA", "UTF"}
"""What stands before a hyphen and a number and is no requirement: algorithms, error codes, rows of the source documents."""

PAGES = {
    "2024-11-05": "basic basic/lifecycle basic/messages basic/transports basic/utilities/cancellation",
    "2025-03-26": "basic basic/lifecycle basic/transports basic/authorization basic/utilities/cancellation changelog",
    "2025-06-18": "basic basic/lifecycle basic/transports basic/authorization changelog schema client/elicitation",
    "2025-11-25": (
        "basic basic/lifecycle basic/transports basic/authorization basic/utilities/cancellation basic/utilities/ping "
        "basic/utilities/progress basic/utilities/tasks changelog client/elicitation client/roots client/sampling schema "
        "server server/prompts server/resources server/tools server/utilities/completion server/utilities/logging "
        "server/utilities/pagination"
    ),
    "2026-07-28": (
        "basic basic/authorization basic/authorization/authorization-server-discovery "
        "basic/authorization/client-registration basic/authorization/security-considerations basic/patterns "
        "basic/patterns/cancellation basic/patterns/mrtr basic/patterns/progress basic/patterns/subscriptions "
        "basic/transports basic/transports/stdio basic/transports/streamable-http basic/versioning changelog "
        "client/elicitation client/roots client/sampling deprecated schema server server/discover server/prompts "
        "server/resources server/tools server/utilities/caching server/utilities/completion server/utilities/logging "
        "server/utilities/pagination"
    ),
}
"""Pages of the specification that exist, by revision."""


def parts(id: str) -> tuple[str, int]:
    """Return the prefix and the number of an id."""
    found = re.fullmatch(r"(.*?)-?(\d+)", id)
    assert found is not None
    return found[1], int(found[2])


@cache
def quotes(text: str) -> tuple[tuple[str, str], ...]:
    """Return the first and the last id of each quotation; those of a single id are the same."""
    return tuple((found[1], found[2] or found[1]) for found in QUOTED.finditer(text))


def unlisted(text: str, rows: Iterable[str]) -> set[str]:
    """Return the ids in a text that have no row."""
    prefixes = {parts(each)[0] for each in rows}
    ends = {each for pair in quotes(text) for each in pair}
    return {each for each in ends if parts(each)[0] in prefixes} - set(rows)


def unknown(text: str, rows: Iterable[str]) -> set[str]:
    """Return what looks like an id in a text and has a prefix without rows."""
    prefixes = {parts(each)[0] for each in rows} | OTHERS
    return {each for pair in quotes(text) for each in pair if "-" in each and parts(each)[0] not in prefixes}


def unquoted(texts: Iterable[str], rows: Iterable[str]) -> set[str]:
    """Return the rows that no text names, alone or within a range such as `MSG-1 to MSG-5`."""
    ranges = [(*parts(first), parts(last)[1]) for text in texts for first, last in quotes(text)]
    ends: dict[str, list[tuple[int, int]]] = {}
    for prefix, first, last in ranges:
        ends.setdefault(prefix, []).append((first, last))
    return {row for row in rows if not any(a <= parts(row)[1] <= b for a, b in ends.get(parts(row)[0], []))}


@pytest.fixture(scope="module")
def rows() -> list[str]:
    return [found[1] for found in ROW.finditer(PAGE.read_text())]


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    roots = (ROOT / "src", ROOT / "compat" / "src", ROOT / "tests")
    files = (each for root in roots for each in sorted(root.rglob("*.py")) if each != Path(__file__))
    return {str(each.relative_to(ROOT)): each.read_text() for each in files}


def test_each_id_that_is_quoted_has_a_row(rows: list[str], sources: dict[str, str]) -> None:
    missing = {name: found for name, text in sources.items() if (found := unlisted(text, rows))}
    assert not missing, "add a row to docs/requirements.md"


def test_each_prefix_in_the_product_is_known(rows: list[str], sources: dict[str, str]) -> None:
    found = {name: ids for name, text in sources.items() if "tests/" not in name and (ids := unknown(text, rows))}
    assert not found, "add rows to docs/requirements.md, or a prefix to OTHERS"


def test_each_requirement_of_the_check_has_a_row(rows: list[str]) -> None:
    assert running.LEVELS, "its import registers the requirements"
    assert {each.id for each in REQUIREMENTS} <= set(rows)


def test_each_row_is_quoted(rows: list[str], sources: dict[str, str]) -> None:
    assert not unquoted(sources.values(), rows) - {each.id for each in REQUIREMENTS}


def test_rows_are_in_order_and_under_their_headings(rows: list[str]) -> None:
    sections = HEADING.split(PAGE.read_text())
    listed = list[str]()
    for heading, text in zip(sections[1::2], sections[2::2], strict=True):
        ids = [found[1] for found in ROW.finditer(text)]
        assert {parts(each)[0] for each in ids} == set(heading.split(", "))
        assert ids == sorted(ids, key=parts), heading
        listed += ids
    assert listed == rows
    assert len(set(rows)) == len(rows)


def test_each_place_is_a_link_or_a_rule_of_the_project() -> None:
    text = PAGE.read_text()
    defined = set(re.findall(r"^\[([^\]]+)\]: https://", text, re.MULTILINE))
    used = set[str]()
    for id, _, places in ROW.findall(text):
        links = re.findall(r"\[([^\]]+)\]", places)
        assert re.sub(r"\[[^\]]+\]", "", places).replace(", ", "") in ("", "Linkspan"), id
        used.update(links)
    assert used == defined


@pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY], ids=lambda each: each.date)
def test_each_page_of_the_check_exists(revision: Revision) -> None:
    for each in REQUIREMENTS:
        if revision.era in each.eras:
            page = each.page(revision).partition(f"/{revision.date}/")[2].partition("#")[0]
            assert page in PAGES[revision.date].split(), each.id


def test_each_page_of_the_specification_that_is_quoted_exists(sources: dict[str, str]) -> None:
    texts = {**sources, **{each.name: each.read_text() for each in (ROOT / "docs").rglob("*.md")}}
    pages = r"modelcontextprotocol\.io/specification/(\d{4}-\d\d-\d\d)/([\w/-]+)"
    for name, text in texts.items():
        for date, page in re.findall(pages, text):
            assert page in PAGES[date].split(), name


def test_ids_are_told_from_what_looks_like_them() -> None:
    rows = ["MSG-1", "MSG-2", "MSG-3", "MRTR-S2", "H5-1", "AU-C40"]
    text = "MSG-9, MSG-1 to MSG-3; UTF-8 and SHA-256, LS-106, A-Z0-9, XMSG-7, MRTR-S2, H5-1, AU-C41, FOO-3"
    assert unlisted(text, rows) == {"MSG-9", "AU-C41"}
    assert unknown(text, rows) == {"XMSG-7", "FOO-3"}
    assert unquoted([text], rows) == {"AU-C40"}
