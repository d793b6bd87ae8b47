"""`linkspan chat`: at a terminal, in a pipe, and for one question."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from shell import DICE, ODD, TRAVEL, AtTerminal, Done, at_terminal, command

from linkspan.cli.chat_ui import History, ask_approval, ask_review
from linkspan.cli.terminal import Style, Terminal
from linkspan.host.consent import Approval
from linkspan.types.messages import Tool, ToolAnnotations
from linkspan.wire.redaction import neutral

PROMPT = "> "
READY = "/help lists the commands"
ASKED = "[n]o: "

Line = dict[str, Any]


class Scripts:
    """Chats with a scripted model, in a home of their own."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path
        self.home = tmp_path / "home"
        self.env = {"LINKSPAN_HOME": str(self.home), "LINKSPAN_MODEL": ""}

    def model(self, *lines: Line | str) -> str:
        file = self.path / f"script{len(list(self.path.iterdir()))}.jsonl"
        messages = [{"say": each} if isinstance(each, str) else each for each in lines]
        file.write_text("".join(f"{json.dumps(each)}\n" for each in messages))
        return f"scripted:{file}"

    def run(self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
        ended = subprocess.run(
            command("chat", *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **self.env, **(env or {})},
        )
        return Done(ended.returncode, ended.stdout, ended.stderr)

    @contextmanager
    def at_terminal(self, *arguments: str) -> Iterator[AtTerminal]:
        with at_terminal("chat", *arguments, env=self.env) as terminal:
            terminal.expect(READY)
            terminal.expect(PROMPT)
            yield terminal


@pytest.fixture
def chat(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


def call(name: str, **arguments: Any) -> Line:
    return {"call": {"name": name, "arguments": arguments}}


ROLL = call("roll", sides=1, count=2)


# One question.


def test_one_question_prints_the_answer_and_nothing_else_on_stdout(chat: Scripts) -> None:
    done = chat.run(
        DICE, "--model", chat.model({"say": "I roll.", **ROLL}, "Twice one."), "--yes", "-p", "Roll two dice"
    )
    assert (done.status, done.out) == (0, "Twice one.\n")
    assert re.sub(r"after [\d.]+ m?s", "after a while", done.err) == (
        'dice: 1 tool\n-> dice: roll {"sides": 1, "count": 2}\n<- roll after a while: [1,1]\n'
    )


def test_a_model_uses_a_tool_that_runs_as_a_task(chat: Scripts, tmp_path: Path) -> None:
    (tmp_path / "indexer.py").write_text(
        "from linkspan import Server, Task\n"
        'server = Server("indexer")\n'
        'server.define_tool("index", handler=lambda: "indexed", task=Task(required=True, poll=0.05))\n'
        "server.run()\n"
    )
    arguments = [str(tmp_path / "indexer.py"), "--model", chat.model(call("index"), "I got: {last}"), "--yes"]
    done = chat.run(*arguments, "-p", "Index")
    assert (done.status, "<- index after" in done.err, "indexed" in done.out) == (0, True, True)


def test_where_nobody_can_be_asked_the_model_is_told(chat: Scripts) -> None:
    done = chat.run(DICE, "--model", chat.model(ROLL, "I got: {last}"), "-p", "Roll two dice")
    assert done.status == 0
    assert done.out.startswith("I got: This call needs the user's consent, and no user can be asked now.")
    assert 'roll {"sides": 1, "count": 2} was not called: This call needs the user' in done.err


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        (["--allow", "dice/r*"], True),
        (["--trust", "dice"], True),
        (["--yes", "--deny", "dice"], False),
        (["--trust", "mice"], False),
    ],
)
def test_options_say_what_runs_without_a_question(chat: Scripts, options: list[str], runs: bool) -> None:
    done = chat.run(DICE, "--model", chat.model(ROLL, "{last}"), *options, "-q", "-p", "Roll")
    assert ("[1,1]" in done.out, done.err) == (runs, "")


def test_a_pattern_that_fits_nothing_is_pointed_out(chat: Scripts) -> None:
    patterns = ["--deny", "dise", "--allow", "dice/r*", "--deny", "no-such*/x"]
    done = chat.run(DICE, "no-such-command-anywhere", "--model", chat.model("Hi."), *patterns, "-p", "Hi")
    assert [line for line in done.err.splitlines() if "matches" in line] == ["--deny dise matches no tool"]


def test_json_is_one_document(chat: Scripts) -> None:
    model = chat.model(ROLL, "Twice one.\u001b[2J")
    done = chat.run(DICE, "--model", model, "--yes", "--json", "-p", "Roll")
    found = done.json
    assert (done.status, found["text"], found["reason"], found["model"]) == (0, "Twice one.\x1b[2J", "answered", model)
    assert [each["type"] for each in found["messages"]] == ["user", "assistant", "tools", "assistant"]
    assert found["usage"]["output_tokens"] == 2
    assert "\x1b" not in done.out


def test_a_question_can_come_from_stdin_and_a_system_prompt_from_a_file(chat: Scripts, tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("Speak like a pirate.")
    system = f"@{tmp_path / 'system.txt'}"
    done = chat.run("--model", chat.model("You said: {last}"), "--system", system, "-p", "-", stdin="Ahoy?\n")
    assert (done.status, done.out) == (0, "You said: Ahoy?\n")


def test_an_answer_that_is_empty_is_said_to_be_one(chat: Scripts) -> None:
    done = chat.run("--model", chat.model(""), "-p", "Hello?")
    assert (done.status, done.out, done.err) == (0, "", "No response from the server\n")


def test_the_model_gives_no_answer_is_status_1(chat: Scripts) -> None:
    done = chat.run("--model", chat.model(), "-p", "Hello?")
    assert (done.status, done.out) == (1, "")
    assert "the script has no further reply" in done.err
    asked = chat.run("--model", chat.model(), "--json", "-p", "Hello?")
    assert (asked.status, asked.json["error"]["type"]) == (1, "ModelError")


def test_a_bound_is_status_1(chat: Scripts) -> None:
    done = chat.run(DICE, "--model", chat.model({**ROLL, "again": True}), "--yes", "--max-rounds", "3", "-p", "Roll")
    assert (done.status, done.out) == (1, "")
    assert done.err.count("-> dice: roll") == 3
    assert "--max-rounds" in done.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "anthropic:NAME                     with the key in ANTHROPIC_API_KEY"),
        (["--model", "anthropic:some"], "ANTHROPIC_API_KEY"),
        (["--model", "nobody:some"], "no provider 'nobody'"),
        (["--model", "scripted:/no/such/file"], "cannot be read"),
        (["no_such_file.py", "--model", "MODEL"], "'no_such_file.py' cannot be read"),
        (["--config", "no_such.json", "--model", "MODEL"], "'no_such.json' cannot be read"),
        (["--model", "MODEL", "--load", "/no/such/file"], "--load /no/such/file"),
        (["--model", "MODEL", "--system", "@/no/such/file"], "--system @/no/such/file"),
        (["--model", "MODEL", "--max-rounds", "0"], "must be a number above 0"),
        (["--model", "MODEL", "-p", " "], "-p must be followed by a question"),
    ],
)
def test_what_cannot_be_is_status_2_with_a_sentence(chat: Scripts, arguments: list[str], says: str) -> None:
    model = chat.model("Hello.")
    keyless = {"ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": ""}
    done = chat.run(*(model if each == "MODEL" else each for each in arguments), env=keyless)
    assert (done.status, done.out) == (2, "")
    assert says in done.err
    assert "Traceback" not in done.err


def test_with_json_what_cannot_be_is_a_document_too(chat: Scripts) -> None:
    done = chat.run("--model", chat.model("Hello."), "--json")
    problem = "--json goes with -p: a dialogue has no single JSON document"
    assert (done.status, done.json, done.err) == (2, {"error": {"type": "WrongUse", "problem": problem}}, "")


def test_servers_that_fail_are_named_with_a_hint_and_the_rest_goes_on(chat: Scripts, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    servers = {
        "missing": {"command": "no-such-command-anywhere"},
        "unset": {"command": "x", "env": {"KEY": "${NO_SUCH_VARIABLE_ANYWHERE}"}},
        "odd": {"command": ODD[0], "args": ODD[1:]},
        "silent": {"command": ODD[0], "args": [*ODD[1:], "silent"]},
    }
    config.write_text(json.dumps({"mcpServers": servers}))
    script = [call("die"), ROLL, "Went on."]
    arguments = ["--config", str(config), DICE, "--model", chat.model(*script), "--yes", "--timeout", "2"]
    done = chat.run(*arguments, "-p", "Roll")
    assert (done.status, done.out) == (0, "Went on.\n")
    flat = " ".join(done.err.split())
    for words in (
        "missing: the command 'no-such-command-anywhere' was not found",
        "NO_SUCH_VARIABLE_ANYWHERE, which is not set",
        "silent: ",
        "odd: 11 tools",
        "dice: 1 tool",
        "odd: disconnected: the server ended with exit status 9",
        '-> dice: roll {"sides": 1, "count": 2}',
    ):
        assert words in flat, flat


# In a pipe.


def test_in_a_pipe_each_line_is_a_turn_and_the_banner_is_the_articles(chat: Scripts) -> None:
    model = chat.model("One.", {"say": "\u001b]0;owned\u0007Two."}, "")
    done = chat.run("--model", model, stdin="first\n\nsecond\nthird\nEXIT\nnever\n")
    assert done.status == 0
    assert done.out == (
        "MCP Client Started!\nType your queries 'exit' to exit.\n"
        "One.\n\\x1b]0;owned\\x07Two.\nNo response from the server\n"
    )
    assert "\x1b" not in done.err


def test_a_model_that_fails_ends_its_turn_only(chat: Scripts) -> None:
    model = chat.model({"say": "First.", "when": "first"}, {"say": "Third.", "when": "third"})
    done = chat.run("--model", model, "-q", stdin="first\nsecond\nthird\n")
    assert (done.status, done.out) == (0, "First.\nThird.\n")
    assert "the script has no further reply" in done.err


# At a terminal.


def test_a_call_is_shown_asked_for_and_made(chat: Scripts) -> None:
    with chat.at_terminal(DICE, "--model", chat.model({"say": "I roll.", **ROLL}, "Twice one.")) as person:
        person.type("Roll two dice")
        shown = person.expect(ASKED)
        assert "I roll." in shown
        assert "The model wants to call roll of the server dice." in shown
        assert "Roll dice." in shown
        assert "hints of its server: only reads" in shown
        assert '"sides": 1,' in shown
        assert "->" not in shown
        person.type("")
        person.expect(ASKED)
        person.type("y")
        assert '-> dice: roll {"sides": 1, "count": 2}' in person.expect("<- roll after")
        person.expect("Twice one.")
        person.expect(PROMPT)
        person.type("exit")
        assert person.end() == 0


def test_no_refuses_session_and_always_are_remembered(chat: Scripts) -> None:
    model = chat.model(ROLL, "{last}", ROLL, "Second.", ROLL, "Third.")
    with chat.at_terminal(DICE, "--model", model) as person:
        person.type("Roll")
        person.expect(ASKED)
        person.type("n")
        person.expect("was not called: The user refused this call")
        person.expect("The user refused this call.")
        person.expect(PROMPT)
        person.type("Roll")
        person.expect(ASKED)
        person.type("always")
        person.expect("Second.")
        person.expect(PROMPT)
        person.type("Roll")
        assert "Call it?" not in person.expect("Third.")
        person.expect(PROMPT)
        person.press("\x04")
        assert person.end() == 0
    done = chat.run(DICE, "--model", chat.model(ROLL, "Fourth: {last}"), "-p", "Roll")
    assert "[1,1]" in done.out
    assert stat.S_IMODE((chat.home / "host.json").stat().st_mode) == 0o600


def test_a_form_is_filled_in_and_a_page_is_declined(chat: Scripts) -> None:
    model = chat.model(call("book", train="EC 7"), "Booked: {last}", call("pay"), "Paid: {last}")
    with chat.at_terminal(TRAVEL, "--yes", "--model", model) as person:
        person.type("Book")
        person.expect("How many seats?")
        person.expect("(whole number)")
        person.type("2")
        person.expect("Send this to everything")
        person.type("y")
        person.expect("Booked: ")
        person.expect(PROMPT)
        person.type("Pay")
        assert "https://example.com/pay" in person.expect("Open it in your browser?")
        person.type("n")
        person.expect("Paid: ")
        person.expect(PROMPT)
        person.type("/quit")
        assert person.end() == 0
    assert (chat.home / "history").read_text() == "Book\nPay\n/quit\n"


def test_a_server_gets_a_text_of_the_model_once_the_person_has_seen_it(chat: Scripts) -> None:
    model = chat.model(call("praise", city="Oslo"), "Oslo is fine.", "Done: {last}")
    with chat.at_terminal(TRAVEL, "--allow", "everything", "--model", model) as person:
        person.type("Praise Oslo")
        assert "Praise Oslo in one sentence" in person.expect(ASKED)
        person.type("y")
        person.expect("The model wrote:")
        assert "Oslo is fine." in person.expect("Send it to everything?")
        person.type("y")
        person.expect("Done: ")


def test_progress_moves_and_ctrl_c_stops_the_turn_and_not_the_program(chat: Scripts) -> None:
    model = chat.model({"say": "I wait.", **call("wait_for_train", seconds=60)}, "Still here.")
    with chat.at_terminal(TRAVEL, "--yes", "--model", model) as person:
        person.type("Wait")
        person.expect("-> everything: wait_for_train")
        person.expect("[")
        person.expect("%")
        person.signal()
        person.expect("stopped; the conversation so far is kept")
        person.expect(PROMPT)
        person.type("Are you there?")
        person.expect("Still here.")
        person.expect(PROMPT)
        person.press("\x04")
        assert person.end() == 0


def test_ctrl_c_at_a_question_stops_the_turn_too(chat: Scripts) -> None:
    with chat.at_terminal(DICE, "--model", chat.model(ROLL, "Still here.")) as person:
        person.type("Roll")
        person.expect(ASKED)
        person.signal()
        person.expect("stopped")
        person.expect(PROMPT)
        person.type("Are you there?")
        person.expect("Still here.")


def test_ctrl_c_at_the_prompt_clears_the_line_and_twice_ends(chat: Scripts) -> None:
    with chat.at_terminal("--model", chat.model("Hello.")) as person:
        person.press("half a line")
        person.expect("half a line")
        person.signal()
        assert "press Ctrl-C again" not in person.expect(PROMPT)
        person.signal()
        person.expect("press Ctrl-C again")
        person.expect(PROMPT)
        person.signal()
        assert person.end() == 0


@contextmanager
def slow_provider(chunks: list[str], hold: threading.Event) -> Iterator[str]:
    """An OpenAI-compatible server that says these words, and then nothing until `hold` is set."""

    class Provider(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for words in chunks:
                self._send({"choices": [{"index": 0, "delta": {"content": words}}]})
            hold.wait(30)

        def _send(self, chunk: Line) -> None:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1#slow"
    finally:
        hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_words_come_as_they_are_said_and_ctrl_c_stops_them(chat: Scripts) -> None:
    hold = threading.Event()
    with slow_provider(["Once ", "upon \u001b[31m"], hold) as model, chat.at_terminal("--model", model) as person:
        person.type("Tell me a story")
        person.expect("Once upon \\x1b[31m")
        person.signal()
        person.expect("stopped")
        person.expect(PROMPT)
        saved = chat.path / "story.json"
        person.type(f"/save {saved}")
        person.expect("2 messages saved")
        assert json.loads(saved.read_text())[1]["parts"][0]["text"] == "Once upon \x1b[31m (stopped)"


def test_what_was_typed_ahead_answers_no_question(chat: Scripts) -> None:
    model = chat.model(call("wait_for_train", seconds=1), ROLL, "Done: {last}")
    with chat.at_terminal(TRAVEL, DICE, "--allow", "everything", "--model", model) as person:
        person.type("Wait, then roll")
        person.expect("-> everything")
        person.type("always")
        person.expect(ASKED)
        person.type("n")
        person.expect("The user refused this call")


def test_a_definition_that_changed_is_shown_as_a_difference(chat: Scripts, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    source = (
        'from linkspan import Server\nserver = Server("shop")\n@server.tool\n'
        'def buy() -> str:\n    """WORDS"""\n    return "ok"\n'
    )
    file.write_text(source.replace("WORDS", "Buy a hat."))
    done = chat.run(str(file), "--model", chat.model(call("buy"), "Bought."), "--yes", "-p", "Buy")
    assert done.out == "Bought.\n"
    file.write_text(source.replace("WORDS", "Buy a zeppelin."))
    with chat.at_terminal(str(file), "--yes", "--model", chat.model(call("buy"), "And now: {last}")) as person:
        person.type("Buy")
        shown = person.expect(ASKED)
        assert "Its definition has changed since it was first used" in shown
        assert "-description: Buy a hat." in shown
        assert "+description: Buy a zeppelin." in shown
        person.type("n")
        person.expect("And now: The user refused")


def test_commands_are_about_the_chat(chat: Scripts) -> None:
    with chat.at_terminal(DICE, "--model", chat.model("First."), "--no-color") as person:

        def ask(line: str, *answers: str) -> str:
            person.type(line)
            for answer in answers:
                person.expect(answer)
            return person.expect(PROMPT)

        ask("Hello", "First.")
        ask("/help", "/tools [WORD]", "/save FILE", "/quit")
        ask("/tools", "roll  (dice) Roll dice.")
        ask("/tools zeppelin", "No tools match that")
        ask("/servers", "dice: 1 tool")
        ask("/allow", "/allow PATTERN")
        ask("/allow mice", "No tool matches this pattern; servers with tools: dice")
        ask("/allow dice", "These run without a question until the chat ends: dice/roll")
        ask("/model", "The model is scripted:")
        ask("/model nobody:x", "no provider 'nobody'")
        ask(f"/model {chat.model(ROLL, 'Twice.')}", "The model is scripted:")
        assert "Call it?" not in ask("Roll", "-> dice", "Twice.")
        saved = chat.path / "chat.json"
        ask(f"/save {saved}", "6 messages saved")
        ask(f"/save {saved}", "6 messages saved")
        ask(f"/save {chat.home / 'history'}", "exists already")
        ask("/rest", "There is no /rest; did you mean /reset?")
        ask("/reset", "6 messages forgotten")
        person.type("/quit")
        assert person.end() == 0
    done = chat.run("--load", str(saved), "--model", chat.model("Go on."), "--json", "-p", "And?")
    assert [each["type"] for each in done.json["messages"]][-2:] == ["user", "assistant"]
    assert len(done.json["messages"]) == 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_good_order_with_the_terminal_as_it_was(chat: Scripts, number: signal.Signals) -> None:
    import termios

    with chat.at_terminal(DICE, "--model", chat.model()) as person:
        before = termios.tcgetattr(person._master)  # type: ignore[attr-defined]
        assert not before[3] & termios.ICANON, "a line is being edited"
        person.signal(number)
        assert person.process.wait(30) == 128 + number
        after = termios.tcgetattr(person._master)  # type: ignore[attr-defined]
        assert after[3] & termios.ICANON
        assert after[3] & termios.ECHO


# The pieces.


class Person:
    """Types these lines."""

    interactive = True
    err = Style(on=False)

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.shown = ""

    def write_line(self, text: str) -> None:
        self.shown += f"{text}\n"

    def read(self, prompt: str) -> str:
        self.shown += prompt
        if not self._lines:
            raise EOFError
        return self._lines.pop(0)


def test_all_that_will_be_sent_can_be_seen_and_nothing_in_it_commands_the_terminal() -> None:
    text = "x\x1b[2J" * 3_000
    tool = Tool("send", {"type": "object"}, description="Send.", annotations=ToolAnnotations(destructive_hint=True))
    person = Person("m", "y")
    assert ask_approval(person, Approval("mail", tool, {"text": text, "zz": "the end"})) == "once"
    head, _, whole = person.shown.partition("[m]ore: ")
    assert "cut: the text has" in head
    assert "the end" not in head
    assert "the end" in whole
    assert "may destroy" in head
    assert "\x1b" not in person.shown


def test_no_argument_can_look_like_a_line_of_ours() -> None:
    person = Person("y")
    ask_approval(person, Approval("mail", Tool("send", {"type": "object"}), {"text": 'x"\u2028  "to": "you'}))
    assert '\n      "text": "x\\"\\u2028  \\"to\\": \\"you"\n' in person.shown


def test_what_an_eye_does_not_see_is_seen_in_an_approval() -> None:
    person = Person("y", "y")
    hidden = "all\u200b \u2764\ufe0f \u06cc\u200c\u062e \u2060\U000e0101"
    tool = Tool("send\u200b", {"type": "object"}, description=hidden)
    ask_approval(person, Approval("ma\u2060il", tool, {"to": hidden}, change=f"+description: {hidden}"))
    ask_approval(person, Approval("mail", tool, {hidden: 1}))
    ask_review(person, "mail", hidden)
    escaped = "all\\u200b \u2764\\ufe0f \u06cc\\u200c\u062e \\u2060"
    assert person.shown.count(f"{escaped}\\U000e0101") == 3, "a change, a description, and a text for a server"
    assert person.shown.count(f'"{escaped}\\udb40\\udd01"') == 2, "arguments are JSON"
    assert "send\\u200b of the server ma\\u2060il" in person.shown
    assert not re.search("[\u200b\u200c\u2060\ufe0f\U000e0101]", person.shown)


def test_an_answer_in_pieces_is_shown_as_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    whole = "\u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3 \u06cc\u200c\u062e \u2764\ufe0f\ufe0f.\n"
    terminal = Terminal(color=False)
    for piece in whole:
        terminal.write_answer(piece)
    assert capsys.readouterr().out == neutral(whole) == whole.replace("\ufe0f.", "\\ufe0f.")


def test_the_end_of_the_input_is_no_and_an_answer_that_is_late_does_nothing() -> None:
    approval = Approval("mail", Tool("send", {"type": "object"}), {})
    assert ask_approval(Person("what?", "perhaps"), approval) == "no"
    late = Person("y")
    assert ask_approval(late, approval, lambda: True) == "no"
    assert "This answer is no longer needed" in late.shown


def test_half_an_end_of_line_waits_for_the_other_half(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    for piece in ("one\r", "\ntwo\r", "three", "\r"):
        terminal.write_answer(piece)
    terminal.end_line()
    assert capsys.readouterr().out == "one\ntwo\\x0dthree\\x0d\n"


def test_history_is_the_owners_and_keeps_no_secrets(tmp_path: Path) -> None:
    history = History(tmp_path / "new" / "history")
    kept = [history.add(line) for line in ("one", " two", "my password=hunter2hunter2", "three\nfour", "")]
    assert kept == [True, False, False, True, False]
    assert list(history.lines()) == ["one", "three four"]
    assert stat.S_IMODE((tmp_path / "new" / "history").stat().st_mode) == 0o600
    (tmp_path / "new" / "history").write_text("".join(f"{number}\n" for number in range(2500)))
    assert list(history.lines()) == [str(number) for number in range(1500, 2500)]
    assert len((tmp_path / "new" / "history").read_text().splitlines()) == 1000


# Configurations.


def dice_config(path: Path, **members: Any) -> str:
    """Write a configuration of the dice server, and of one that is switched off."""
    dice = {"command": sys.executable, "args": ["-m", "linkspan", "run", DICE], **members}
    inputs = [
        {"id": "pin", "type": "promptString", "description": "the secret number", "password": True},
        {"id": "mood", "type": "pickString", "options": ["calm", "wild"], "default": "calm"},
    ]
    path.write_text(
        json.dumps({"servers": {"dice": dice, "old": {"command": "x", "disabled": True}}, "inputs": inputs})
    )
    return str(path)


def test_a_server_that_is_switched_off_is_named(chat: Scripts, tmp_path: Path) -> None:
    config = dice_config(tmp_path / "mcp.json")
    done = chat.run("--config", config, "--model", chat.model("Hello."), "-p", "Hi")
    assert (done.status, done.err) == (0, f"old: is disabled in {config}\ndice: 1 tool\n")


def test_inputs_of_a_configuration_are_asked_for_once_and_passwords_are_not_shown(
    chat: Scripts, tmp_path: Path
) -> None:
    config = dice_config(tmp_path / "mcp.json", env={"PIN": "${input:pin}", "MOOD": "${input:mood}${input:mood}"})
    with at_terminal("chat", "--config", config, "--model", chat.model("Hello."), env=chat.env) as person:
        person.expect("The configuration needs the secret number")
        person.expect("pin: ")
        person.type("1234567")
        person.expect("2) wild")
        person.expect("mood [calm]: ")
        person.type("sad")
        person.expect("mood [calm]: ")
        person.type("2")
        person.expect("dice: 1 tool")
        person.expect(PROMPT)
        person.type("exit")
        assert person.end() == 0
        assert "1234567" not in person.seen
    assert [*chat.home.glob("*")] == []


def test_whoever_gives_no_input_loses_that_server_only(chat: Scripts, tmp_path: Path) -> None:
    config = dice_config(tmp_path / "mcp.json", env={"PIN": "${input:pin}"})
    with at_terminal("chat", "--config", config, "--model", chat.model("Hello."), env=chat.env) as person:
        person.expect("pin: ")
        person.press("\x04")
        person.expect("no value was given for the input 'pin'")
        person.expect(PROMPT)


def test_without_servers_the_configurations_that_are_there_are_named(chat: Scripts, tmp_path: Path) -> None:
    home = tmp_path / "somebody"
    (home / ".cursor").mkdir(parents=True)
    dice_config(home / ".cursor" / "mcp.json")
    done = chat.run("--model", chat.model("Hello."), stdin="Hi\n", env={"HOME": str(home)})
    assert f"--config FILE uses those of another host:\n  {home}/.cursor/mcp.json (Cursor)\n" in done.err


CRASHES = """
import sys
from linkspan import Server

server = Server("ferries")


@server.tool
def departures(port: str) -> str:
    print("looking it up", file=sys.stderr)
    return {"Oban": "07:30"}[port]


if __name__ == "__main__":
    server.run()
"""


def test_a_crash_of_a_file_is_shown_to_the_user_and_not_to_the_model(chat: Scripts, tmp_path: Path) -> None:
    file = tmp_path / "ferries.py"
    file.write_text(CRASHES)
    done = chat.run(str(file), "--model", chat.model(call("departures", port="x"), "No."), "--yes", "-p", "?", "--json")
    assert "in departures\n    return {" in done.err
    assert "KeyError: 'x'" in done.err
    assert "run_call" not in done.err
    assert "KeyError" not in done.out
    assert "incident" in done.out


def test_of_a_command_the_user_sees_what_it_printed_during_the_call(chat: Scripts, tmp_path: Path) -> None:
    file = tmp_path / "ferries.py"
    file.write_text(CRASHES)
    started = f"{sys.executable} {file}"
    done = chat.run(started, "--model", chat.model(call("departures", port="x"), "No."), "--yes", "-p", "?", "--json")
    assert "ferries | KeyError: 'x'\n" in done.err
    assert "KeyError" not in done.out
