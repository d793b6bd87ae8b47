"""The reference pages agree with the code: tables, codes of errors, members of configurations, variables of the environment."""

from __future__ import annotations

import ast
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import figures
from linkspan.server.tools import ToolKeywords

DOCS = Path(__file__).parent.parent / "docs"
CODE = re.compile(r" ?\[(LS-\d{3})\]")


def module(name: str) -> Any:
    spec = spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


TABLES = module("tables")


@pytest.mark.parametrize("page", [*TABLES.with_tables()], ids=lambda page: page.name)
def test_the_tables_are_those_of_the_code(page: Path) -> None:
    assert page.read_text() == TABLES.filled(page.read_text()), "run python docs/tables.py"


def test_every_table_is_on_a_page() -> None:
    placed = {name for page in TABLES.with_tables() for name in TABLES.PLACE.findall(page.read_text())}
    assert placed == set(TABLES.TABLES)


@pytest.mark.parametrize("name", [*TABLES.SETTINGS])
def test_no_table_of_limits_is_empty(name: str) -> None:
    assert TABLES.TABLES[name]().count("\n") > 1, "each limit needs a docstring below it"


def texts_by_code() -> dict[str, set[str]]:
    """Return the texts of the sources that carry a code."""
    conf = module("conf")
    found: dict[str, set[str]] = {}
    for source in figures.sources().values():
        tree = ast.parse(source)
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if not isinstance(node, ast.expr) or id(node) in inside or (text := conf.template(node)) is None:
                continue
            for code in CODE.findall(text):
                found.setdefault(code, set()).add(CODE.sub("", text))
    return found


def sections() -> dict[str, str]:
    """Return what the page of errors has on each code."""
    parts = re.split(r"^### (LS-\d{3})$", (DOCS / "errors.md").read_text(), flags=re.MULTILINE)
    assert len(parts) // 2 == len(set(parts[1::2])), "a code has two headings"
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_code_has_a_heading_and_every_heading_is_of_a_code() -> None:
    assert sections().keys() == texts_by_code().keys()


def test_every_text_with_a_code_is_below_its_heading() -> None:
    page = sections()
    missing = [
        (code, text)
        for code, texts in texts_by_code().items()
        for text in texts
        if sum(letter.isalpha() for letter in text) >= 10 and text not in page[code]
    ]
    assert missing == []


def test_every_code_has_a_cause_and_a_cure() -> None:
    assert [code for code, section in sections().items() if "**Cure:**" not in section] == []


def test_every_number_of_the_protocol_is_on_the_page_of_errors() -> None:
    page = (DOCS / "errors.md").read_text()
    numbers = re.findall(r"^[A-Z_]+ = (-32\d{3})$", figures.sources()["errors.py"], re.MULTILINE)
    assert len(numbers) >= 9
    assert [number for number in numbers if f"| {number} |" not in page] == []


def test_every_member_of_a_configuration_is_on_its_page() -> None:
    source = figures.sources()["client/config.py"]
    entry = next(
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "_FileEntry"
    )
    calls = [node for node in ast.walk(entry) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    read = ("_text", "_texts", "_list", "_items", "_url")
    named = [call.args[0] for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in read]
    named += [
        part
        for node in ast.walk(entry)
        if isinstance(node, ast.For | ast.comprehension)
        for part in ast.walk(node.iter)
    ]
    members = {each.value for each in named if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    page = (DOCS / "configuration.md").read_text()
    assert len(members) >= 10
    assert [each for each in sorted(members) if f"`{each}`" not in page] == []


def test_every_variable_of_linkspan_is_on_the_page() -> None:
    named = r"\b(?:LINKSPAN_[A-Z_]+|[A-Z]+_API_KEY|NO_COLOR|[A-Z]+_MULTIPROC_DIR|HTTPS?_PROXY|NO_PROXY)\b"
    variables = {name for source in figures.sources().values() for name in re.findall(named, source)}
    page = (DOCS / "configuration.md").read_text()
    assert {each for each in variables if f"`{each}`" not in page} == {"OTHER_API_KEY"} & variables


def test_each_keyword_of_a_tool_is_in_an_example() -> None:
    section = (DOCS / "tools.md").read_text().partition("## Every keyword")[2].partition("\n## ")[0]
    assert [each for each in ToolKeywords.__annotations__ if f"{each}=" not in section] == []
