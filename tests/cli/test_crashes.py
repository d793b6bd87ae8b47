"""A crash of one's own server shows itself: to the person at the terminal, and to the log of a program; never to the model."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest
from shell import Shell

from linkspan import Report, Server, SyncClient, ToolError
from over_http import serving

SOURCE = """
import json
from linkspan import Server, ToolError

server = Server("ferries")
TIMETABLE = {"Oban": "07:30"}


def look_up(port):
    return TIMETABLE[port]


@server.tool
def departures(port: str) -> str:
    return look_up(port)


@server.tool
async def parse(text: str) -> str:
    return json.loads(text)


@server.tool(isolated=True)
def apart(port: str) -> str:
    return look_up(port)


@server.tool
def refuse() -> str:
    raise ToolError("there are no ferries today")


@server.prompt
def plan(port: str) -> str:
    return look_up(port)


@server.resource("ferries://today")
def today() -> str:
    return look_up("Mull")


if __name__ == "__main__":
    server.run()
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "ferries.py"
    path.write_text(SOURCE)
    return str(path)


def frames(text: str) -> list[str]:
    return [line.rpartition(", in ")[2] for line in text.splitlines() if line.startswith("  File ")]


@pytest.mark.parametrize(
    ("words", "shown", "last"),
    [
        (["call", "FILE", "departures", "port=x"], ["departures", "look_up"], "KeyError: 'x'"),
        (["call", "FILE", "parse", "text={"], ["parse"], "json.decoder.JSONDecodeError: "),
        (["prompt", "FILE", "plan", "port=x"], ["plan", "look_up"], "KeyError: 'x'"),
        (["read", "FILE", "ferries://today"], ["today", "look_up"], "KeyError: 'Mull'"),
    ],
)
def test_a_crash_in_a_file_shows_the_authors_frames(
    linkspan: Shell, file: str, words: list[str], shown: list[str], last: str
) -> None:
    done = linkspan(*(file if each == "FILE" else each for each in words))
    assert done.status == 1
    assert frames(done.err) == shown
    assert "run_call" not in done.err
    assert f"\n{last}" in done.err
    assert "Traceback" not in done.out


def test_a_crash_in_a_process_of_its_own_shows_the_authors_frames(linkspan: Shell, file: str) -> None:
    done = linkspan("call", file, "apart", "port=x")
    assert frames(done.err)[-2:] == ["apart", "look_up"]
    assert "isolated_main" not in done.err


def test_frames_of_libraries_are_counted(linkspan: Shell, file: str) -> None:
    assert "  ... 3 frames of json left out\n" in linkspan("call", file, "parse", "text={").err


def test_a_variable_that_only_the_shell_has_is_named(
    linkspan: Shell, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cure = "hint: it needs the environment variable FERRY_KEY: pass --env FERRY_KEY (the shell has it, but a server gets only"
    assert cure not in linkspan("call", file, "departures", "port=FERRY_KEY").err
    monkeypatch.setenv("FERRY_KEY", "secret")
    assert cure in linkspan("call", file, "departures", "port=FERRY_KEY").err


def test_what_the_author_raises_for_the_model_is_no_crash(linkspan: Shell, file: str) -> None:
    assert linkspan("call", file, "refuse") == (
        1,
        "there are no ferries today\n",
        "ferries: the tool 'refuse' answered with an error\n",
    )


def test_quiet_shows_a_crash_and_no_refusal(linkspan: Shell, file: str) -> None:
    assert frames(linkspan("call", "-q", file, "departures", "port=x").err) == ["departures", "look_up"]
    assert linkspan("call", "-q", file, "refuse").err == ""


def test_verbose_shows_all_frames_once(linkspan: Shell, file: str) -> None:
    err = linkspan("call", "-v", file, "departures", "port=x").err
    assert err.count("KeyError: 'x'") == 1
    assert "run_call" in err
    assert "LS1" not in err


def test_with_json_a_crash_is_one_line_of_json_on_stderr(linkspan: Shell, file: str) -> None:
    done = linkspan("call", "--json", file, "departures", "port=x")
    assert done.json["isError"]
    found = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
    assert [(each["tool"], frames(each["traceback"])) for each in found] == [("departures", ["departures", "look_up"])]
    assert found[0]["incident"] in done.json["content"][0]["text"]
    assert "run_call" not in done.err


def test_a_secret_is_not_shown(linkspan: Shell, file: str) -> None:
    err = linkspan("call", "--env", "API_KEY=swordfish", file, "departures", "port=swordfish").err
    assert "KeyError" in err
    assert "swordfish" not in err.partition("Traceback")[2]


def test_of_a_url_the_log_of_its_server_is_named(linkspan: Shell) -> None:
    server = Server("ferries")

    @server.tool
    def departures(port: str) -> str:
        return {"Oban": "07:30"}[port]

    @server.tool
    def refuse() -> str:
        raise ToolError("there are no ferries today")

    @server.prompt
    def plan(port: str) -> str:
        return departures(port)

    with serving(server.asgi()) as url:
        done = linkspan("call", url + "/mcp", "departures", "port=x")
        refused = linkspan("call", url + "/mcp", "refuse")
        asked = linkspan("prompt", url + "/mcp", "plan", "port=x")
    incident = done.out.rpartition("incident ")[2][:6]
    assert done.err.splitlines()[-1].endswith(f": the log of the server has the reason, under incident {incident}")
    assert refused.err.splitlines()[-1].endswith(": the log of the server may have the reason")
    assert ": the log of the server has the reason, under incident " in asked.err


COMMAND = """
import sys
from linkspan import Server
server = Server("ferries")
print("this was before the call", file=sys.stderr, flush=True)

@server.tool
def departures(lines: int) -> str:
    for number in range(lines):
        print("line", number, file=sys.stderr)
    raise {error}

server.run()
"""


def command(tmp_path: Path, error: str) -> list[str]:
    path = tmp_path / "other.py"
    path.write_text(COMMAND.replace("{error}", error))
    return [sys.executable, str(path)]


def test_of_a_command_what_it_printed_during_the_call_is_shown(linkspan: Shell, tmp_path: Path) -> None:
    done = linkspan("call", "departures", "lines=40", "--", *command(tmp_path, "linkspan.ToolError('no')"))
    assert "before the call" not in done.err
    assert "NameError" in done.err
    done = linkspan(
        "call", "departures", "lines=40", "--", *command(tmp_path, "__import__('linkspan').ToolError('no')")
    )
    assert [line.partition(" | ")[2] for line in done.err.splitlines() if " | " in line] == [
        f"line {number}" for number in range(28, 40)
    ]


def test_of_a_command_that_printed_nothing_the_log_is_named(linkspan: Shell, tmp_path: Path) -> None:
    done = linkspan("call", "departures", "lines=0", "--", *command(tmp_path, "__import__('linkspan').ToolError('no')"))
    assert done.err.splitlines()[1:] == ["other: the log of the server may have the reason"]


def test_a_client_of_a_file_logs_its_crashes(file: str, caplog: pytest.LogCaptureFixture) -> None:
    with SyncClient(file) as client:
        result = client.call_tool("departures", {"port": "x"})
    (record,) = [each for each in caplog.records if each.name == "linkspan.client" and each.levelno == logging.ERROR]
    assert frames(record.getMessage()) == ["departures", "look_up"]
    assert "look_up" not in result.text


def test_reports_go_to_the_callback_in_place_of_the_log(file: str, caplog: pytest.LogCaptureFixture) -> None:
    reports: list[Report] = []
    printed: list[str] = []
    with SyncClient(file, on_report=reports.append, on_stderr=printed.append) as client:
        result = client.call_tool("departures", {"port": "x"})
    (report,) = reports
    assert (report.level, report.logger, report.tool) == ("ERROR", "linkspan.server", "departures")
    assert report.incident is not None
    assert report.incident in result.text
    assert "run_call" in "".join(printed), "what the log prints is unchanged"
    assert not [each for each in caplog.records if each.levelno == logging.ERROR]


def test_a_report_names_the_mounted_server_that_failed(file: str, tmp_path: Path) -> None:
    outer = tmp_path / "outer.py"
    outer.write_text("""
import ferries
from linkspan import Server
server = Server("harbour")
server.mount(ferries.server, "sea")
""")
    assert Path(file) == tmp_path / "ferries.py"
    reports: list[Report] = []
    with SyncClient(str(outer), on_report=reports.append) as client:
        client.call_tool("sea_departures", {"port": "x"})
    assert [(each.tool, each.server) for each in reports] == [("sea_departures", "ferries")]


def test_the_variable_that_asks_for_reports_is_not_inherited(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    path.write_text("""
import os
from linkspan import Server
server = Server("environment")
@server.tool
def names() -> list[str]:
    return sorted(os.environ)
""")
    with SyncClient(str(path)) as client:
        assert "LINKSPAN_REPORT" not in client.call_tool("names").decode(list[str])
