"""Table K: how the project is released, and with what licence; and that no row of any table is without a test."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import linkspan
from linkspan import Server, SyncClient
from over_http import serving

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


# K1
def test_the_version_is_written_in_one_place_and_is_semantic() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"] == {"path": "src/linkspan/_version.py"}
    assert linkspan.__version__ == version("linkspan")
    assert re.fullmatch(r"\d+\.\d+\.\d+", linkspan.__version__)


# K1
def test_the_changelog_has_a_place_for_what_is_not_released() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == "Unreleased"
    released = [each.split()[0].strip("[]") for each in headings[1:]]
    assert released[:1] in ([], [linkspan.__version__])


# K1
def test_a_merge_that_changes_the_version_publishes_it() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert f"paths: [{PROJECT['tool']['hatch']['version']['path']}]" in workflow
    assert "id-token: write" in workflow
    assert "release.yml" in (ROOT / "RELEASING.md").read_text()


# K2
def test_the_licence_is_mit_in_its_file_and_in_the_metadata() -> None:
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert PROJECT["project"]["license"] == "MIT"
    assert PROJECT["project"]["license-files"] == ["LICENSE"]


# K3
def test_a_client_speaks_http() -> None:
    server = Server("far")
    server.define_tool(name="hello", handler=lambda: "hello")
    with serving(server.asgi()) as url, SyncClient(url) as client:
        assert client.call_tool("hello").text == "hello"


COUNTS = {"A": 9, "B": 12, "C-": 10, "D": 9, "E": 5, "F": 8, "G": 4, "H": 14, "I": 6, "J": 18, "K": 3}
ROWS = {f"{table}{row}" for table, count in COUNTS.items() for row in range(1, count + 1)}


def test_each_row_of_the_source_documents_has_a_test() -> None:
    written = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    above = re.findall(r"^# (.+)\n(?:@.*\n(?:[ )].*\n)*)?def test_", written, re.M)
    assert ROWS - {row for line in above for row in re.findall(r"[A-K]-?\d+", line)} == set()
