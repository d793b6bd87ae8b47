"""Configuration files, lists, bundles, profiles and reports of the doctor."""

from __future__ import annotations

import json
import zipfile
from datetime import date, timedelta
from itertools import combinations, product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_doctor_commands import COMMANDS
from test_doctor_urls import ADDRESSES, LOGINS, OPEN, REGISTERED

from linkspan.client.config import config_path
from linkspan.contract.snapshot import Snapshot, collected
from linkspan.doctor.bundle import bundle
from linkspan.doctor.configs import config, unread
from linkspan.doctor.examining import of_list
from linkspan.doctor.profiles import InvalidProfiles, profiles
from linkspan.doctor.verdicts import FAULTS, Verdict, counts, fault, markdown, settled, skipped

HOSTS = profiles()
DESKTOP, CURSOR, CODE = HOSTS["claude-desktop"], HOSTS["cursor"], HOSTS["vscode"]
GOOD = {"command": "/bin/sh", "args": ["/srv/server.py"]}


def wrong(found: Any) -> list[str]:
    return sorted({each.id for each in found if each.level in ("fault", "warning")})


def of(entry: Any, section: str = "mcpServers") -> str:
    return json.dumps({section: {"ferries": entry}})


FILES: list[Any] = [
    ("", DESKTOP, of(GOOD)),
    ("", CODE, "// servers\n" + of(GOOD, "servers")),
    ("", CURSOR, of({"url": "https://example.com/mcp"})),
    ("", DESKTOP, of({**GOOD, "args": ["-y", "@scope/server", "tools.list"]})),
    ("D26", DESKTOP, of({"command": "no-such-command-of-ferries"})),
    ("D32", DESKTOP, of({**GOOD, "args": ["server.py"]})),
    ("D32", DESKTOP, of({**GOOD, "args": ["../server.js"]})),
    ("", DESKTOP, of({**GOOD, "args": ["server.py"], "cwd": "/srv"})),
    ("D33", DESKTOP, of({**GOOD, "env": {"KEY": "${FERRIES_KEY}"}})),
    ("D33", CURSOR, of({**GOOD, "env": {"KEY": "${FERRIES_KEY}"}})),
    ("", CURSOR, of({**GOOD, "env": {"KEY": "${FERRIES_KEY:-none}"}})),
    ("D35", DESKTOP, of({"url": "https://example.com/mcp"})),
    ("D35", DESKTOP, of({"command": "https://example.com/mcp"})),
    ("D35", CURSOR, of({**GOOD, "type": "http"})),
    ("D35", CURSOR, of({})),
    ("D36", DESKTOP, of(GOOD, "servers")),
    ("D36", CODE, of(GOOD)),
    ("D36", CODE, "{}"),
    ("D36", CODE, of(5, "servers")),
    ("D37", DESKTOP, "{" + of(GOOD)),
    ("D37", DESKTOP, "// servers\n" + of(GOOD)),
    ("D37", DESKTOP, of(GOOD)[:-1] + ",}"),
    ("D38", DESKTOP, "\ufeff" + of(GOOD)),
]


@pytest.mark.parametrize(("id", "host", "text"), FILES)
def test_each_fault_of_a_file_is_named_alone(tmp_path: Path, id: str, host: Any, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, "utf-8")
    assert wrong(config(file, host, windows=False)) == ([id] if id else [])


def test_scripts_on_windows_need_its_shell(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    for command, expected in (("npx", ["D27"]), ("npx.cmd", []), ("cmd", [])):
        file.write_text(of({"command": command}))
        assert [each for each in wrong(config(file, DESKTOP, windows=True)) if each != "D26"] == expected


def test_files_that_a_host_does_not_read(tmp_path: Path) -> None:
    assert wrong(unread("claude-code", tmp_path, tmp_path)) == []
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "mcp.json").write_text("{}")
    assert wrong(unread("claude-code", tmp_path, tmp_path)) == ["D39"]
    assert wrong(config(tmp_path / "nowhere.json", DESKTOP)) == ["D39"]


def test_what_install_writes_has_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from linkspan.cli.main import main

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    server = tmp_path / "ferries.py"
    server.write_text("from linkspan import Server\n\nserver = Server('ferries')\n")
    files = 0
    for (name, host), workspace in product(HOSTS.items(), (False, True)):
        file = config_path(host.title, workspace=workspace)
        if file is not None:  # those without are configured on their pages
            assert (
                main(
                    [
                        "install",
                        "gemini-cli" if name == "gemini" else name,
                        str(server),
                        "--yes",
                        *(["--workspace"] if workspace else []),
                    ]
                )
                == 0
            )
            assert wrong(config(file, host)) == []
            files += 1
    assert files >= 8


# Lists.


def tool(name: str = "list_departures", **members: Any) -> dict[str, Any]:
    return {
        "name": name,
        "title": "Departures",
        "description": "List the departures of today from one port.",
        "inputSchema": {"type": "object", "properties": {"port": {"type": "string", "description": "Name."}}},
        "annotations": {"readOnlyHint": True},
        **members,
    }


def taking(**properties: Any) -> dict[str, Any]:
    return tool(inputSchema={"type": "object", "properties": properties})


TREE = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/N"}},
    "$defs": {"N": {"properties": {"a": {"$ref": "#/$defs/N"}}}},
}
BOTH = [tool("search"), tool("fetch")]


LISTS: list[Any] = [
    ("", BOTH),
    ("D40", [*BOTH, taking(ports={"type": "array", "description": "Names."})]),
    ("D41", [*BOTH, taking(**{"port name": {"type": "string"}})]),
    ("D42", [*BOTH, tool(inputSchema={"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})]),
    ("D43", [*BOTH, tool("list departures")]),
    ("D44", [*BOTH, tool(inputSchema=TREE)]),
    ("D45", [*BOTH, tool("a" * 58)]),
    ("D46", [*BOTH, *(tool(f"tool_{n}") for n in range(50))]),
    ("D47", [*BOTH, *(tool(f"tool_{n}", description="A long story. " * 400) for n in range(10))]),
    ("D48", [*BOTH, tool(annotations={})]),
    ("D50", [tool()]),
]


@pytest.mark.parametrize(("id", "tools"), LISTS)
def test_each_fault_of_a_list_is_named_alone(id: str, tools: list[dict[str, Any]]) -> None:
    found = of_list(Snapshot("ferries", items={"tool": collected("tool", tools)}), HOSTS)
    assert wrong(found) == ([id] if id else [])


@pytest.mark.parametrize(("one", "other"), [*combinations(LISTS[1:-1], 2)])
def test_two_faults_of_a_list_are_both_named(one: Any, other: Any) -> None:
    tools = {each["name"]: each for each in one[1]}
    for each in other[1]:
        name = each["name"] if each["name"] not in tools else f"{each['name']}_2"
        tools[name] = {**each, "name": name}
    found = of_list(Snapshot("ferries", items={"tool": collected("tool", [*tools.values()])}), HOSTS)
    assert wrong(found) == sorted({one[0], other[0]})


def test_a_result_without_structured_content_is_a_fault_of_a_tool_with_an_output_schema() -> None:
    tools = [*BOTH, tool(outputSchema={"type": "object"})]
    found = Snapshot("ferries", items={"tool": collected("tool", tools)})
    assert wrong(of_list(found, HOSTS, {"list_departures": False, "search": False})) == ["D49"]
    for called in ({"list_departures": True}, {"search": False}, {}):
        assert wrong(of_list(found, HOSTS, called)) == []


# Bundles.


MANIFEST: dict[str, Any] = {
    "name": "ferries",
    "version": "1.0.0",
    "description": "Ferries.",
    "author": {"name": "Ann"},
    "server": {"type": "uv", "mcp_config": {"command": "uv", "args": ["run", "server.py"]}},
    "compatibility": {"runtimes": {"python": ">=3.11 <3.15"}},
}


MANIFESTS: list[Any] = [
    ("", {}),
    ("D51", {"author": None}),
    ("D51", {"compatibility": {"runtimes": {"python": ">=3.11,<3.15"}}}),
    ("D51", {"server": {"type": "python", "mcp_config": {"command": "python3"}}}),
    ("D51", {"server": {"type": "python"}}),
]


@pytest.mark.parametrize(("id", "change"), MANIFESTS)
def test_the_manifest_of_a_bundle(tmp_path: Path, id: str, change: dict[str, Any]) -> None:
    file = tmp_path / "ferries.mcpb"
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("manifest.json", json.dumps({**MANIFEST, **change}))
    assert wrong(bundle(file)) == ([id] if id else [])
    (tmp_path / "bad.mcpb").write_bytes(b"no archive")
    assert wrong(bundle(tmp_path / "bad.mcpb")) == ["D51"]


# Profiles and reports.


def test_no_profile_is_older_than_half_a_year_and_each_has_a_source() -> None:
    newest = max(each.date for each in HOSTS.values())
    assert all(newest - each.date < timedelta(days=180) for each in HOSTS.values())
    assert date.today() - newest < timedelta(days=180), "look at the sources again, and write today's date"
    assert all(each.source and each.title for each in HOSTS.values())


def test_another_file_of_profiles_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    for text in ("[a", "[a]\ntitle = 5", '[a]\ntitle = "A"\nwhat = 1'):
        file.write_text(text)
        with pytest.raises(InvalidProfiles, match=r"^hosts\.toml: "):
            profiles(file)


def test_reports_have_the_worst_of_each_fault_and_no_secret() -> None:
    found = settled([
        Verdict("D01", "ok"),
        skipped("D02", "why"),
        fault("D01", "Authorization: Bearer sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaa1\x1b[31m", "write `it` | <b>"),
        Verdict("D03", "ok"),
    ])  # fmt: skip
    assert [(each.id, each.level) for each in found] == [("D01", "fault"), ("D02", "skipped"), ("D03", "ok")]
    assert counts(found) == "1 fault, 0 warnings, 1 ok, 1 skipped"
    report = markdown("a | b", found)
    assert ("sk-aaaa" in report, "\x1b" in report, "write \\`it\\` \\| \\<b\\>" in report) == (False, False, True)
    assert msgspec.to_builtins(found[0])["level"] == "fault"
    assert set(FAULTS) == {f"D{n:02}" for n in range(1, 52)}


def test_each_fault_is_named_alone_in_some_test() -> None:
    elsewhere = {"D03", "D27", "D39", "D49"}  # they have tests of their own
    lists = (FILES, LISTS, MANIFESTS, COMMANDS, ADDRESSES, OPEN, LOGINS, REGISTERED)
    assert {each[0] for rows in lists for each in rows} - {""} | elsewhere == set(FAULTS)
