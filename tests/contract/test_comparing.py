"""What changed for the clients of a server: a rule for each kind of change, and the reports about it."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan import Server, SyncClient
from linkspan.contract.comparing import LEVELS, RULES, ContractChange, changes, markdown, summary
from linkspan.contract.snapshot import InvalidLock, Snapshot, read, written
from linkspan.contract.taking import take
from linkspan.contract.tokens import tokens_of

STRING = {"type": "string"}


def tool(name: str = "book", **members: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"date": STRING, "seats": {"type": "integer"}},
        "additionalProperties": False,
    }
    return {"name": name, "inputSchema": schema, **members}


def taking(**properties: Any) -> dict[str, Any]:
    schema = tool()["inputSchema"]
    return tool(inputSchema={**schema, "properties": {**schema["properties"], **properties}})


def giving(*required: str, closed: bool = False, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema |= {"required": list(required)} if required else {}
    return tool(outputSchema=schema | ({"additionalProperties": False} if closed else {}))


def having(kind: str, *items: dict[str, Any], **members: Any) -> Snapshot:
    return Snapshot("ferries", items={kind: {each["name"]: each for each in items}}, **members)


def prompt(*arguments: dict[str, Any], **members: Any) -> Snapshot:
    return having("prompt", {"name": "plan", "arguments": list(arguments), **members})


def tools(*items: dict[str, Any], **members: Any) -> Snapshot:
    return having("tool", *items, **members)


def template(uri: str, media: str) -> Snapshot:
    return having("template", {"name": "port", "uriTemplate": uri, "mimeType": media})


SCHEMA = tool()["inputSchema"]
CHANGES: list[tuple[Snapshot, Snapshot, list[tuple[str, str]]]] = [
    (tools(tool()), tools(), [("C01", "is gone")]),
    (tools(tool()), tools(tool("reserve")), [("C01", "is called reserve now"), ("C50", "is new")]),
    (tools(taking(port=STRING)), tools(tool()), [("C02", "argument port: is gone")]),
    (tools(tool()), tools(tool(inputSchema={**SCHEMA, "required": ["date"]})), [("C03", "argument date: became required")]),
    (tools(taking(port=STRING)), tools(taking(port={"enum": ["oban"]})), [("C04", 'argument port: accepts only "oban"')]),
    (tools(taking(port=STRING)), tools(taking(port={**STRING, "maxLength": 9})), [("C04", "argument port: maxLength 9 is new")]),
    (tools(taking(port=STRING)), tools(taking(port={**STRING, "pattern": "a"})), [("C04", 'argument port: pattern "a" is new')]),
    (
        tools(tool(inputSchema={"type": "object", "properties": {}})),
        tools(tool(inputSchema={"type": "object", "properties": {}, "additionalProperties": False})),
        [("C05", "its arguments: refuses members without a name here")],
    ),
    (tools(giving(port=STRING)), tools(giving()), [("C06", "result port: is gone")]),
    (tools(giving("port", port=STRING)), tools(giving()), [("C06", "result port: is gone")]),
    (tools(giving("port", closed=True, port=STRING)), tools(giving(closed=True)), [("C06", "result port: is gone")]),
    (tools(giving("port", port=STRING)), tools(giving(port=STRING)), [("C06", "result port: may be left out")]),
    (tools(giving(port={"enum": ["a"]})), tools(giving(port={"enum": ["a", "b"]})), [("C07", 'result port: accepts "b", too')]),
    (tools(giving(closed=True)), tools(giving(closed=True, port=STRING)), [("C07", "result port: is new")]),
    (tools(giving(closed=True)), tools(giving("port", closed=True, port=STRING)), [("C07", "result port: is new and required")]),
    (tools(giving()), tools(giving("port", port=STRING)), [("C53", "result port: is new and required")]),
    (tools(giving(port=STRING)), tools(tool()), [("C08", "the output schema is gone")]),
    (template("port://{a}", "a/b"), template("port://{b}", "a/b"), [("C09", "uriTemplate port://{a} became port://{b}")]),
    (prompt(), prompt({"name": "day", "required": True}), [("C10", "argument day: is new and required")]),
    (prompt({"name": "day"}), prompt({"name": "day", "required": True}), [("C10", "argument day: became required")]),
    (prompt({"name": "day"}), prompt(), [("C02", "argument day: is gone")]),
    (tools(capabilities=("tools",)), tools(), [("C11", "the capability tools is gone")]),
    (tools(revisions=("2025-06-18", "2025-11-25")), tools(revisions=("2025-11-25",)),
     [("C12", "the revision 2025-06-18 is gone")]),
    (tools(revisions=("2025-11-25",)), tools(),
     [("C40", "the revision 2025-11-25 is no longer named; a handshake may still agree on it")]),
    (tools(capabilities=("tools.listChanged",)), tools(), [("C39", "the capability tools.listChanged is gone")]),
    (tools(tool(title="A")), tools(tool(title="B")), [("C31", "its title changed")]),
    (tools(tool(title="Book")), tools(tool()), []),
    (
        tools(tool(execution={"taskSupport": "optional"})),
        tools(tool()),
        [("C13", "no longer runs as a task")],
    ),
    (
        tools(tool(annotations={"readOnlyHint": True})),
        tools(tool(annotations={"readOnlyHint": False})),
        [("C30", "readOnlyHint true became false")],
    ),
    (tools(tool()), tools(tool(annotations={"destructiveHint": True})), [("C30", "destructiveHint true is new")]),
    (tools(tool(description="A")), tools(tool(description="B")), [("C31", "its description changed")]),
    (tools(taking(seats={"type": "integer"})), tools(taking(seats={"type": "integer", "default": 1})),
     [("C32", "argument seats: no default became the default 1")]),
    (tools(taking(port=STRING)), tools(taking(port={**STRING, "format": "date"})),
     [("C33", 'argument port: format "date" is new')]),
    (tools(taking(port={"not": STRING})), tools(taking(port={"not": {"type": "null"}})),
     [("C34", "argument port: its not changed")]),
    (tools(tool()), tools(tool(description="word " * 200)),
     [("C31", "its description is new"),
      ("C35", "its tools take ~264 tokens instead of ~32 tokens")]),
    (
        tools(tool()),
        tools(tool(inputSchema={**SCHEMA, "properties": dict(reversed(SCHEMA["properties"].items()))})),
        [("C36", "its arguments: the order of its members changed")],
    ),
    (tools(caller="ann"), tools(), [("C37", "the caller ann became (no name)")]),
    (
        tools(tool(inputSchema={"type": "object", "properties": {"port": STRING}})),
        tools(tool(inputSchema={"type": "object", "properties": {}})),
        [("C38", "argument port: is gone, and ignored where it is sent")],
    ),
    (tools(tool()), tools(taking(port=STRING)), [("C51", "argument port: is new")]),
    (tools(taking(port=STRING)), tools(taking(port={"type": ["string", "null"]})),
     [("C52", "argument port: string became string | null")]),
    (prompt({"name": "day", "required": True}), prompt({"name": "day"}), [("C52", "argument day: may be left out")]),
    (tools(giving()), tools(giving(port=STRING)), [("C53", "result port: is new")]),
    (tools(tool()), tools(giving(port=STRING)), [("C54", "the output schema is new")]),
    (tools(giving(port=STRING)), tools(giving(port={**STRING, "maxLength": 9})), [("C55", "result port: maxLength 9 is new")]),
    (tools(tool()), tools(tool(annotations={"idempotentHint": True})), [("C56", "idempotentHint false became true")]),
    (tools(), tools(revisions=("2026-07-28",)), [("C57", "the revision 2026-07-28 is new")]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES)
def test_each_change_has_its_rule(old: Snapshot, new: Snapshot, expected: list[tuple[str, str]]) -> None:
    found = [(each.code, each.words) for each in changes(old, new)]
    grown = [("C35", words) for code, words in found if code == "C35" and code not in dict(expected)]
    assert found == sorted([*expected, *grown], key=lambda each: LEVELS.index(RULES[each[0]][0]))
    assert changes(new, new) == []


def test_every_rule_is_tested_and_has_a_level() -> None:
    assert {code for *_, expected in CHANGES for code, _ in expected} == set(RULES)
    assert {level for level, _ in RULES.values()} == set(LEVELS)


def test_the_worst_change_comes_first_and_the_report_is_safe_in_a_pull_request() -> None:
    old = tools(tool(description="One."), tool("old"))
    new = tools(tool(description="```\n<b>@all</b> | ![x](http://a)"), tool("n|ew"))
    found = changes(old, new)
    assert [each.level for each in found] == sorted((each.level for each in found), key=LEVELS.index)
    report = markdown(found, old, new)
    assert "tool n\\|ew" in report
    assert "````diff\n- One.\n+ ```\n+ <b>@all</b> | ![x](http://a)\n````" in report
    assert summary([], old, old) == "ferries: nothing changed; list ~69 tokens"
    assert summary([ContractChange("C01", "tool a", "is gone")], tools(tool(), tool("b")), tools(tool())).startswith(
        "ferries: 1 breaking, 0 risky, 0 additive; list ~"
    )


# Locks.


def ferries() -> Server:
    server = Server("ferries", "1.0", instructions="Ask for the port.")

    @server.tool(annotations={"readOnlyHint": True})
    def departures(port: str, limit: int = 5) -> list[str]:
        """List departures."""
        return [port]

    @server.prompt
    def plan(day: str) -> str:
        """Plan a day."""
        return day

    @server.resource("ferry://{port}")
    def port(port: str) -> str:
        return port

    @server.resource("ferry://all")
    def all_ports() -> str:
        return ""

    return server


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_lock_says_what_a_server_offers_and_reads_as_it_was_written(era: Any) -> None:
    with SyncClient(ferries(), era=era) as client:
        found, whole = take(client), take(client, resources=True, caller="ann")
    assert (found.server, found.instructions, "2025-11-25" in found.revisions) == ("ferries", "Ask for the port.", True)
    assert {kind: list(items) for kind, items in found.items.items()} == {
        "tool": ["departures"],
        "prompt": ["plan"],
        "template": ["port"],
        "resource": [],
    }
    assert (list(whole.of("resource")), whole.caller) == (["ferry://all"], "ann")
    assert read(written(whole), "tools.lock") == whole
    assert written(read(written(found), "tools.lock")) == written(found)
    assert '"properties": {"port": {"type": "string"}, "limit"' in written(found)  # in the order of the function
    assert changes(found, found) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "tools.lock is empty"),
        ("{}", "is not a lock of this version"),
        ('{"lock": 2, "server": "a"}', "is not a lock of this version"),
        ('{"lock": 1, "server": "a", "revisions": 5}', "line 1: Expected `array`"),
        ('{"lock": 1, "server": "a"}\n<<<<<<< HEAD\n', "line 2 is not JSON (a merge left its marks here)"),
        ('{"lock": 1, "server": "a"}\n\n[1]', "line 3 is not a JSON object"),
        ('{"lock": 1, "server": "a"}\n{"kind": "toll", "name": "x"}', "line 2: a line is an item with a kind"),
        ('{"lock": 1, "server": "a"}\n{"kind": [], "name": "x"}', "line 2: a line is an item with a kind"),
        ('{"lock": 1, "server": "a"}\n' + '{"kind": "tool", "name": "x"}\n' * 2, "line 3: the tool 'x' is there twice"),
    ],
)
def test_a_lock_that_cannot_be_read_names_the_line(text: str, words: str) -> None:
    with pytest.raises(InvalidLock, match=r"^tools\.lock") as caught:
        read(text, "tools.lock")
    assert words in str(caught.value)


def test_tokens_are_estimated_by_bytes_and_letters() -> None:
    assert tokens_of("a" * 44) == 10
    assert tokens_of("я" * 11) == 10  # two bytes each
    assert tokens_of({"a": [1, 2]}) == round(11 / 4.4)
