"""What people type by habit: verbs and options of other programs, slips of the keyboard, lines that end too early."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from shell import DICE, Shell, at_terminal

from linkspan import Server, ServerError, SyncClient
from linkspan._version import __version__
from linkspan.cli.call_lines import CallLines
from over_http import serving

REFUSED = [
    (["lst"], "there is no verb 'lst'; did you mean 'list'?"),
    (["tools", DICE], "there is no verb 'tools'; did you mean 'list'?"),
    (["proxy"], "there is no verb 'proxy'; did you mean 'bridge'?"),
    (["frobnicate"], "there is no verb 'frobnicate'; `linkspan help` lists them"),
    (["server.py"], "did you mean linkspan dev server.py, linkspan list server.py or linkspan run server.py?"),
    (["https://example.com/mcp"], "did you mean linkspan dev https://example.com/mcp or linkspan list https"),
    (["list", "--lnog", DICE], "unrecognized arguments: --lnog; did you mean '--long'?"),
    (["run", DICE, "--htpp"], "unrecognized arguments: --htpp; did you mean '--http'?"),
    (["run", DICE, "--transport", "sse"], "invalid choice: 'sse' (choose from"),
    (["help", "cal"], "there is no verb 'cal'; did you mean 'call'?"),
    (["list", DICE, "rol"], "dice has no 'rol' (did you mean 'roll'?); it has roll, odds, dice://odds/{sides}, game"),
]


@pytest.mark.parametrize(("line", "says"), REFUSED, ids=lambda each: str(each)[:30])
def test_a_wrong_word_is_refused_with_the_right_one(linkspan: Shell, line: list[str], says: str) -> None:
    done = linkspan(*line)
    assert (done.status, done.out) == (2, "")
    assert says in done.err


def test_help_and_version_are_verbs_too(linkspan: Shell) -> None:
    assert linkspan("version") == (0, f"linkspan {__version__}\n", "")
    assert linkspan("help").out == linkspan("--help").out
    assert linkspan("help", "ping").out == linkspan("ping", "--help").out


def test_call_without_a_tool_lists_the_tools_and_says_what_is_missing(linkspan: Shell) -> None:
    done = linkspan("call", DICE)
    assert (done.status, done.out) == (2, linkspan("list", DICE, "tools").out)
    assert done.err == "dice: name the tool to call; these are its tools\n"


def test_list_shows_one_item_whole(linkspan: Shell) -> None:
    done = linkspan("list", DICE, "roll")
    assert done.status == 0
    assert done.out.startswith("tools (1)\n\n  roll - Roll dice [read-only]\n")
    assert '"maximum": 1000' in done.out
    assert linkspan("list", DICE, "dice://odds/{sides}").out.startswith("templates (1)\n")


def test_inspect_is_ping_and_all_lists_in_one(linkspan: Shell) -> None:
    done = linkspan("inspect", DICE)
    assert done.out.startswith("dice 1.0.0\n  protocol      2026-07-28 (modern)\n")
    assert '"maximum": 1000' in done.out
    found = linkspan("inspect", DICE, "--json").json
    assert {"capabilities", "era", "tools", "prompts", "resourceTemplates"} <= found.keys()


def test_verbose_shows_the_headers_of_http_too_and_no_secret(linkspan: Shell) -> None:
    server = Server("shop")
    server.define_tool(name="ping", handler=lambda: "pong")
    with serving(server.asgi(path="/mcp")) as url:
        done = linkspan("call", url, "ping", "-v", "-H", "Authorization: Bearer geheim-123")
    assert f"POST {url} 200, " in done.err
    assert "\n  > mcp-method: tools/call\n" in done.err
    assert "\n  > authorization: Bearer [redacted]\n" in done.err
    assert "\n  < content-type: application/json\n" in done.err
    assert "geheim" not in done.err


def test_a_server_over_http_writes_a_line_for_each_call() -> None:
    lines: list[str] = []
    server = Server("shop")
    server.define_tool(name="ping", handler=lambda: "pong")
    server.define_tool(name="fail", handler=lambda: 1 / 0)
    server.watch(CallLines(lines.append))
    with SyncClient(server) as client:
        client.list_tools()
        client.call_tool("ping")
        client.call_tool("fail")
        with suppress(ServerError):
            client.call_tool("p\x1b[31ming")
    assert [re.sub(r"\d+", "0", each) for each in lines] == [
        "0:0:0 call   ping: ok, 0 ms\n",
        "0:0:0 call   fail: error, 0 ms\n",
        "0:0:0 call   (unknown): error -0, 0 ms\n",
    ]


# discover


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the files of two hosts, the second of them broken."""
    servers = {
        "dice": {"command": "linkspan", "args": ["run", DICE], "env": {"API_KEY": "sk-1234567890"}},
        "docs": {"url": "https://user:geheim@example.com/mcp"},
    }
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (tmp_path / ".claude.json").write_text('{"mcpServers": {')
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_discover_reads_the_files_of_hosts_and_shows_no_secret(linkspan: Shell, home: Path) -> None:
    done = linkspan("discover")
    assert done.status == 0
    assert f"Cursor: {home}/.cursor/mcp.json\n  dice  linkspan run {DICE}\n  docs  https://" in done.out
    assert ".claude.json' is not valid JSON" in done.out
    assert "geheim" not in done.out
    assert "sk-1234567890" not in linkspan("discover", "--json").out


def test_discover_starts_nothing_without_a_person_who_agrees(linkspan: Shell, home: Path) -> None:
    done = linkspan("discover", "--start")
    assert (done.status, done.out) == (2, "")
    assert "--start asks before it runs a command" in done.err
    with at_terminal("discover", "--start", env={"HOME": str(home)}) as terminal:
        terminal.expect("start it? [y/N] ")
        terminal.type("y")
        terminal.expect("https://")
        terminal.expect("start it? [y/N] ")
        terminal.type("")
        terminal.expect("2026-07-28, 1 tool, ~")
        assert terminal.end() == 0
