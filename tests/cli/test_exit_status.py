"""What goes wrong: the exit status, the sentence, no traceback, and nothing that a terminal would obey."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from shell import DICE, ODD, PATIENCE, TRAVEL, Shell, command

from linkspan.cli.terminal import ThreadWorker

FAILURES = [
    # Wrong command lines.
    (2, ["call", DICE, "rol"], "linkspan call: dice has no tool 'rol' (did you mean 'roll'?); it has roll"),
    (2, ["call", DICE, "roll", "sids=3"], "has no argument 'sids' (did you mean 'sides'?); it takes sides, count"),
    (2, ["call", DICE, "roll", '{"sids": 3}'], "(did you mean 'sides'?)"),
    (2, ["call", DICE, "roll", "sides"], "arguments are key=value, or one JSON object, got 'sides'"),
    (2, ["call", DICE, "roll", "sides=1", "sides=2"], "the argument 'sides' is given twice"),
    (2, ["call", DICE, "roll", "sides=six"], "sides must be JSON (integer); got 'six'"),
    (2, ["call", DICE, "roll", "sides=@nowhere"], "sides=@nowhere: No such file or directory"),
    (2, ["call", DICE, "roll", "{"], "the arguments: not valid JSON"),
    (2, ["call", TRAVEL, "convert_money", "euros=5"], "the tool 'convert_money' needs the argument currency: write currency=..."),
    (2, ["prompt", DICE, "gam"], "dice has no prompt 'gam' (did you mean 'game'?); it has game"),
    (2, ["prompt", TRAVEL, "trip"], "the prompt 'trip' needs the argument city"),
    (2, ["prompt", TRAVEL, "trip", "city=Rome", "day=2"], "has no argument 'day' (did you mean 'days'?)"),
    (2, ["call", "nowhere.py", "roll"], "'nowhere.py' cannot be read: No such file or directory"),
    (2, ["call", DICE, "roll", "--timeout", "0"], "--timeout: must be a number of seconds above 0"),
    (2, ["call", DICE, "roll", "--answer", "x"], "--answer must be followed by key=value, got 'x'"),
    (2, ["call", DICE, "roll", "--env", "NO_SUCH_VARIABLE"], "--env NO_SUCH_VARIABLE passes on a variable that is not set"),
    (2, ["call", DICE, "roll", "--protocol-version", "1999"], "'1999' is not supported; choose one of"),
    (2, ["call", "roll", "--"], "a command must follow --"),
    (2, ["call"], "the following arguments are required: TARGET"),
    # The server says no.
    (1, ["call", "refuse", "--", *ODD], "tools/call was refused: not today"),
    (1, ["call", DICE, "roll", "sides=0"], "the tool 'roll' answered with an error"),
    (1, ["call", DICE, "rol", "--unchecked"], "Unknown tool: rol; did you mean 'roll'?"),
    (1, ["call", DICE, "roll", "sides=many", "--unchecked"], "the tool 'roll' answered with an error"),
    (1, ["prompt", "any", "--", *ODD], "prompts/get was refused: Method not found"),
    # There is no server.
    (3, ["ping", "no-such-command"], "hint: 'no-such-command' is not on the PATH of the server"),
    (3, ["ping", "--", *ODD, "junk"], "hint: the server printed `Welcome to my server!` on stdout"),
    (3, ["ping", "--timeout", "0.4", "--", *ODD, "silent"], "give it a longer --timeout"),
    (3, ["ping", "--era", "legacy", "--", *ODD], "it refused initialize: Method not found (-32601)"),
    # It was there.
    (4, ["call", "die", "--", *ODD], "stderr: my disk is full"),
    (4, ["call", "garble", "--", *ODD], "invalid response to tools/call"),
    (4, ["call", "stick", "--timeout", "0.4", "--", *ODD], "tools/call of 'stick' timed out: no response or progress for 0.4 s"),
    # It needs somebody.
    (5, ["call", TRAVEL, "check_in", "train=1"], "hint: run this in a terminal to be asked, or answer with --answer FIELD=VALUE"),
    (5, ["call", TRAVEL, "praise", "city=Rome"], "hint: use a host: this command has no model to answer with"),
    (5, ["call", TRAVEL, "where_to_save"], "hint: offer it directories with --root DIR"),
    (5, ["call", TRAVEL, "check_in", "train=1", "--answer", "name=Ada"], "'Who travels?' (answer it with --answer born=...)"),
    (5, ["call", TRAVEL, "check_in", "train=1", "--answer", "name=Ada", "--era", "legacy"], "it requested input: 'Who travels?'"),
    (5, ["call", TRAVEL, "check_in", "train=1", "--answer", "born=today"], "--answer born must be a date like"),
    (5, ["call", TRAVEL, "pay", "--answer", "a=b"], "the user must open https://example.com/pay"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "arguments", "says"), FAILURES, ids=lambda each: str(each)[:40])
def test_the_exit_status_says_whose_fault_it_was(linkspan: Shell, status: int, arguments: list[str], says: str) -> None:
    done = linkspan(*arguments)
    assert (done.status, says in done.err) == (status, True), done
    assert "Traceback" not in done.err


def test_a_server_that_does_not_import_shows_its_own_traceback(linkspan: Shell, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import linkspan\nimport no_such_module\n")
    done = linkspan("call", str(file), "roll")
    assert done.status == 3
    assert "stderr: ModuleNotFoundError: No module named 'no_such_module'" in done.err
    assert "hint: the module `no_such_module` is not installed" in done.err


def test_json_has_the_error_with_its_fields(linkspan: Shell) -> None:
    done = linkspan("call", "die", "--json", "--", *ODD)
    error = done.json["error"]
    assert (done.status, done.err) == (4, "")
    assert error["type"] == "ConnectionLost"
    assert error["exit_code"] == 9
    assert error["stderr"] == "my disk is full\n"
    assert error["delivery"] == "maybe_sent"
    assert linkspan("call", "no", "--json", "--", *ODD).json["error"]["type"] == "WrongUse"
    assert linkspan("call", "refuse", "--json", "--", *ODD).json["error"]["code"] == -32000


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["call", DICE, "roll", "--no-such-option"], "unrecognized arguments: --no-such-option"),
        (["list"], "the following arguments are required: TARGET"),
        (["list", DICE, "--timeout", "soon"], "--timeout"),
        (["login"], "the following arguments are required: URL"),
        (["chat", "-p", "x", "--model"], "--model: expected one argument"),
        (["install", "cursor"], "the following arguments are required: SERVER"),
        (["uninstall"], "the following arguments are required: HOST, NAME"),
        (["init", "--http", "--auth"], "not allowed with argument"),
        (["no-such-verb"], "no-such-verb"),
    ],
)
def test_a_wrong_command_line_is_json_where_json_was_asked_for(
    linkspan: Shell, arguments: list[str], problem: str
) -> None:
    done = linkspan(*arguments, "--json")
    assert (done.status, done.json["error"]["type"], done.err) == (2, "WrongUse", "")
    assert problem in done.json["error"]["problem"]
    text = linkspan(*arguments)
    assert (text.status, text.out) == (2, "")
    assert problem in text.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", "--json"],
        ["run", "--json"],
        ["list", "--no-such-option", "--", "server", "--json"],
    ],
)
def test_a_wrong_command_line_is_text_where_stdout_or_the_option_is_not_ours(
    linkspan: Shell, arguments: list[str]
) -> None:
    done = linkspan(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("usage: linkspan")


SHOWN = "\\x1b]0;owned\\x07\\x1b[2J\\x9b31mred\\u202eevil"


@pytest.mark.parametrize(
    "arguments",
    [
        ["call", "evil", "-v", "--", *ODD],
        ["call", "refuse", "-v", "--", *ODD],
        ["list", "--", *ODD],
        ["list", "--long", "--", *ODD],
        ["ping", "--", *ODD],
    ],
    ids=lambda each: " ".join(each[:2]),
)
def test_nothing_that_a_server_sends_commands_the_terminal(linkspan: Shell, arguments: list[str]) -> None:
    done = linkspan(*arguments)
    assert SHOWN in done.out + done.err
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(done.out + done.err)


def test_json_keeps_the_very_text_without_what_a_terminal_obeys(linkspan: Shell) -> None:
    done = linkspan("call", "evil", "--json", "--", *ODD)
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r"} & set(done.out)
    assert done.json["content"][0]["text"] == "\x1b]0;owned\x07\x1b[2J\x9b31mred\u202eevil\r\nnext\tend"


def test_ctrl_c_tells_the_server_and_leaves() -> None:
    process = subprocess.Popen(
        command("call", "stick", "-v", "--", *ODD), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    seen = ""
    while "odd_server | stuck" not in seen:
        line = process.stderr.readline()
        assert line, seen
        seen += line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "interrupted\n" in err
    assert "odd_server | told: the user interrupted it\n" in err
    assert "Traceback" not in err


def test_nobody_reading_stdout_is_no_failure() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command("list", DICE), stdout=write, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_closed_streams_are_no_failure() -> None:
    line = f"{shlex.join(command('call', DICE, 'roll'))} <&- >&- 2>&-"
    assert subprocess.run(line, shell=True, timeout=PATIENCE).returncode == 0


def test_bytes_go_to_a_pipe_as_they_are() -> None:
    done = subprocess.run(command("read", TRAVEL, "travel://logo"), capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout[:6], done.stderr) == (0, b"GIF89a", b"")


def test_the_command_line_waits_for_no_event_loop() -> None:
    code = "import sys; from linkspan.cli.main import main; main(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, "call", DICE, "roll", "sides=1"], capture_output=True, text=True, timeout=PATIENCE
    )
    loaded = set(done.stdout.split())
    assert not {"asyncio", "difflib", "mimetypes", "webbrowser", "jsonschema", "jsonschema_rs"} & loaded
    ours = {each for each in loaded if each.startswith(("linkspan.server", "linkspan.schema"))}
    assert ours <= {
        "linkspan.schema",
        "linkspan.schema.summary",
    }  # words about schemas, without what checks or makes them


def test_work_that_exits_does_not_leave_the_main_thread_waiting() -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit, match="3"):
        ThreadWorker().run(leave)
