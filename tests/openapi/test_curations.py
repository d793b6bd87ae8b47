"""Which operations are tools: without a curation, by patterns, by a file, and what changed since that was written."""

from __future__ import annotations

import json
import logging
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from linkspan import Edit, RegistrationError, SyncClient
from linkspan.cli.openapi import main
from linkspan.errors import LinkspanError
from linkspan.openapi import from_openapi, read_curation

BASE = "https://api.example.com/v1"


def pets(count: int = 1) -> dict[str, Any]:
    """Return a document with two operations for each kind of pet."""
    paths = {}
    for number in range(count):
        query = [{"name": name, "in": "query", "schema": {"type": "integer"}} for name in ("per_page", "page")]
        paths[f"/pets{number}"] = {
            "get": {"operationId": f"pets/list{number}", "summary": "List pets", "tags": ["pets"], "parameters": query},
            "delete": {"operationId": f"pets/delete{number}", "tags": ["admin"]},
        }
    return {"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "servers": [{"url": BASE}], "paths": paths}


def names(*arguments: Any, **options: Any) -> list[str]:
    with SyncClient(from_openapi(*arguments, **options)) as client:
        return [tool.name for tool in client.list_tools()]


def test_without_a_choice_those_that_read_are_tools() -> None:
    assert names(pets(2)) == ["pets_list0", "pets_list1"]
    assert len(names(pets(40))) == 40
    with pytest.raises(RegistrationError, match=r"Pets has 41 operations that read.*linkspan openapi init"):
        from_openapi(pets(41))


def test_tools_of_too_many_tokens_need_a_choice() -> None:
    document = pets(30)
    for item in document["paths"].values():
        item["get"]["parameters"] = [
            {"name": f"p{number}", "in": "query", "description": "x " * 150, "schema": {}} for number in range(20)
        ]
    with pytest.raises(RegistrationError, match="tokens at most: choose"):
        from_openapi(document)


def test_patterns_choose(caplog: pytest.LogCaptureFixture) -> None:
    assert names(pets(2), only=["tag:admin"]) == ["pets_delete0", "pets_delete1"]
    assert names(pets(2), only=["destructive", "*list1"]) == ["pets_delete0", "pets_list1", "pets_delete1"]
    assert names(pets(2), only=["pets/list0", "GET /pets1"]) == ["pets_list0", "pets_list1"]
    with caplog.at_level(logging.WARNING):
        assert names(pets(1), only=["nothing", "readOnly"]) == ["pets_list0"]
    assert "no operation is meant by 'nothing'" in caplog.text
    with pytest.raises(RegistrationError, match="takes a list"):
        from_openapi(pets(), only="tag:admin")


def test_init_lists_all_and_a_server_takes_what_is_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, curation = tmp_path / "api.json", tmp_path / "api.toml"
    document.write_text(json.dumps(pets(2)))
    assert main(["init", str(document), "-o", str(curation)]) == 0
    assert "On: 2 tools, ~" in capsys.readouterr().out
    found = tomllib.loads(curation.read_text())["tools"]
    assert {name: each["on"] for name, each in found.items()} == {
        "pets_list0": True, "pets_delete0": False, "pets_list1": True, "pets_delete1": False,
    }  # fmt: skip
    assert found["pets_list0"]["operation"] == "pets/list0"
    assert names(document, curation=curation) == ["pets_list0", "pets_list1"]
    assert main(["init", str(document), "-o", str(curation)]) == 2
    assert "pass --force" in capsys.readouterr().err


def test_check_shows_what_changed_and_the_tool_stays_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    document, curation = tmp_path / "api.json", tmp_path / "api.toml"
    document.write_text(json.dumps(pets(3)))
    main(["init", str(document), "-o", str(curation)])
    capsys.readouterr()
    assert main(["check", str(document), str(curation)]) == 0
    assert "nothing has changed" in capsys.readouterr().out
    changed = pets(4)
    changed["paths"]["/pets0"]["get"]["parameters"].append({"name": "q", "in": "query", "schema": {}})
    del changed["paths"]["/pets1"]["get"]
    changed["paths"]["/pets2"]["delete"]["parameters"] = [{"name": "q", "in": "query", "schema": {}}]
    document.write_text(json.dumps(changed))
    assert main(["check", str(document), str(curation)]) == 1
    kinds = [line.partition(": ")[::2] for line in capsys.readouterr().out.splitlines()]
    assert [(kind, rest.partition(":")[0]) for kind, rest in kinds] == [
        ("changed", "pets_list0 (on)"), ("gone", "pets_list1 (on)"), ("changed", "pets_delete2 (off)"),
        ("new", "pets_list3"), ("new", "pets_delete3"),
    ]  # fmt: skip
    with caplog.at_level(logging.WARNING):
        assert names(document, curation=curation) == ["pets_list2"]
    assert "has changed since it was chosen" in caplog.text
    assert "has no operation 'pets/list1'; did you mean" in caplog.text


def test_a_curation_edits_its_tools() -> None:
    tool = {
        "operation": "pets/list0",
        "description": "{description} Newest first.",
        "fix": {"page": 1},
        "rename": {"per_page": "limit"},
        "default": {"limit": 20},
        "describe": {"limit": "How many"},
        "tags": ["mine"],
    }
    server = from_openapi(pets(), curation={"tools": {"list_pets": tool}})
    with SyncClient(server) as client:
        (found,) = client.list_tools()
    assert (found.name, found.description) == ("list_pets", "List pets Newest first.")
    assert found.input_schema["properties"] == {"limit": {"type": "integer", "default": 20, "description": "How many"}}
    server = from_openapi(pets(), edits={"pets_list0": Edit(hide=["page"])})
    with SyncClient(server) as client:
        assert [*client.list_tools()[0].input_schema["properties"]] == ["per_page"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tool": {}}, "tables .tools.NAME. only"),
        ({"tools": {"a": {}}}, "operation"),
        ({"tools": {"a": {"operation": "x", "hidden": []}}}, "hidden"),
        ({"tools": {"a": {"operation": "x", "on": "yes"}}}, "bool"),
    ],
)
def test_curations_that_cannot_be_read(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem):
        read_curation(given)


def test_a_curation_that_does_not_fit_is_refused() -> None:
    with pytest.raises(RegistrationError, match="there is no argument 'pages'; did you mean 'page'"):
        from_openapi(pets(), curation={"tools": {"a": {"operation": "pets/list0", "hide": ["pages"]}}})


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[tools")
    document = tmp_path / "api.json"
    document.write_text(json.dumps(pets()))
    for arguments in (
        ["check", str(document), str(broken)],
        ["check", str(document)],
        ["init", str(tmp_path / "absent.json")],
        ["init", str(broken)],
    ):
        assert main(arguments) == 2
        assert capsys.readouterr().err.startswith("linkspan openapi: ")


def test_what_calls_need_is_named_when_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)
    with pytest.raises(LinkspanError, match=r"calling an API needs httptools: .*\[LS-601\]"):
        from_openapi(pets())
