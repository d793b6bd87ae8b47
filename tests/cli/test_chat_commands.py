"""What a user types in a chat: prompts, resources, several lines, and what is kept."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from shell import DICE, TRAVEL, AtTerminal, Done, at_terminal, command

from linkspan import Server
from linkspan.cli.chat_commands import Commands
from linkspan.cli.chat_offers import Offers, read_arguments
from linkspan.cli.markdown import markdown_writer
from linkspan.cli.options import WrongUse
from linkspan.cli.pictures import drawing, protocol_of, save_picture
from linkspan.cli.terminal import Terminal
from linkspan.host.host import Host
from linkspan.host.messages import Picture
from linkspan.types.messages import Prompt, PromptArgument

READY = "/help lists the commands"


class Chat:
    """Chats with a scripted model, in a home of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {"LINKSPAN_HOME": str(path / "home"), "LINKSPAN_MODEL": ""}

    def model(self, *lines: Any) -> str:
        file = self.path / f"script{len(list(self.path.iterdir()))}.jsonl"
        file.write_text("".join(json.dumps({"say": each} if isinstance(each, str) else each) + "\n" for each in lines))
        return f"scripted:{file}"

    def run(self, *arguments: str, typed: str = "") -> Done:
        ended = subprocess.run(
            command("chat", *arguments),
            input=typed,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **self.env},
        )
        return Done(ended.returncode, ended.stdout, ended.stderr)

    def sessions(self) -> Any:
        return self.run("--sessions", "--json").json["sessions"]


@pytest.fixture
def chat(tmp_path: Path) -> Chat:
    return Chat(tmp_path)


ECHO = {"say": "You said: {last}", "again": True}


def answers(done: Done) -> list[str]:
    assert done.status == 0, done.err
    return done.out.splitlines()[2:]


# Prompts and resources.


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("/game players=three", "for three players"),
        ("/game three of us", "for three of us players"),
        ("/game", "for two players"),
        ('/game players="a b"', "for a b players"),
        ("Read @dice://odds/6.", "You said: Read @dice://odds/6.\n<resource_contents"),
        ("ann@example.com and @ann", "You said: ann@example.com and @ann\n"),
    ],
)
def test_prompts_and_resources_are_added_as_they_are_typed(chat: Chat, typed: str, answer: str) -> None:
    done = chat.run(DICE, "--model", chat.model(ECHO), typed=f"{typed}\n")
    assert answer in done.out


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("/gane", "There is no /gane; did you mean /game?"),
        ("/game players=1 playrs=2", "no argument 'playrs' (did you mean 'players'?)"),
        ("Read @nothing://here", "no server has the resource nothing://here"),
        ("/trip", "needs its arguments"),
    ],
)
def test_what_cannot_be_added_is_explained_and_nothing_is_asked(chat: Chat, typed: str, problem: str) -> None:
    done = chat.run(DICE, TRAVEL, "--model", chat.model(ECHO), typed=f"{typed}\n")
    assert problem in done.err
    assert answers(done) == []


def test_a_prompt_of_both_sides_is_a_conversation(chat: Chat) -> None:
    done = chat.run(TRAVEL, "--model", chat.model("Indeed."), "-q", typed="/check_terms\n")
    assert "Indeed." in done.out
    (listed,) = chat.sessions()
    saved = json.loads((chat.path / "home" / "sessions" / f"{listed['name']}.json").read_text())
    roles = [each["type"] for each in saved["messages"]]
    assert roles == ["user", "assistant"] * (len(roles) // 2)


@pytest.mark.parametrize(
    ("text", "given"),
    [("", {}), ("one two", {"a": "one two"}), ("a=1 b='2 3'", {"a": "1", "b": "2 3"}), ("b=x", {"b": "x"})],
)
def test_arguments_of_a_prompt(text: str, given: dict[str, str]) -> None:
    prompt = Prompt(name="p", arguments=[PromptArgument(name="a"), PromptArgument(name="b")])
    assert read_arguments(prompt, text) == given


def test_an_open_quote_is_explained() -> None:
    with pytest.raises(WrongUse, match="quotes go in pairs"):
        read_arguments(Prompt(name="p", arguments=[PromptArgument(name="a")]), "a='x")


def test_a_near_name_of_a_server_is_not_obeyed_by_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    nothing: Any = None
    offers: Any = SimpleNamespace(prompts={"sumari\x1b]0;evil\x07ze": nothing})
    Commands(Terminal(), nothing, nothing, offers, nothing, nothing).run("/sumarize")
    assert "did you mean /sumari\\x1b]0;evil\\x07ze?" in capsys.readouterr().err


def test_a_reference_in_markdown_hides_nothing() -> None:
    pytest.importorskip("rich", reason="Markdown needs rich")
    written: list[str] = []
    writer = markdown_writer(written.append, lambda: 80)
    assert writer is not None
    writer.add("&#8238;live&ZeroWidthSpace; **&#x202e;**")
    writer.end()
    assert "\\u202elive\\u200b" in "".join(written)
    assert "\u202e" not in "".join(written)


def test_a_prompt_without_messages_asks_nothing_and_is_named(chat: Chat, tmp_path: Path) -> None:
    code = (
        "from linkspan import Server\nserver = Server('s')\n\n@server.prompt\ndef nothing() -> list:\n    return []\n"
    )
    (tmp_path / "empty.py").write_text(code)
    done = chat.run(str(tmp_path / "empty.py"), "--model", chat.model(ECHO), typed="/nothing\n")
    assert "the prompt has no messages, so nothing is asked" in done.err
    assert answers(done) == []


# At a terminal.


def test_tab_completes_and_a_missing_argument_is_asked_for(chat: Chat) -> None:
    pytest.importorskip("readline", reason="completion needs readline")
    with at_terminal("chat", DICE, TRAVEL, "--model", chat.model(ECHO), env=chat.env) as terminal:
        terminal.expect(READY)
        terminal.expect("> ")
        terminal.press("/ga\t pl\tfour\n")
        terminal.expect("for four players")
        terminal.press("What is @dice://o\t6\n")
        terminal.expect("a chance of 1 in 6")
        terminal.press("/trip days=2 city=Ro\t\n")
        terminal.expect("city=Rome")
        terminal.expect("Rome")
        terminal.type("/trip days=2")
        terminal.expect("city")
        terminal.type("Oslo")
        terminal.expect("Oslo")
        terminal.type("/quit")
        assert terminal.end() == 0


def test_ctrl_c_at_an_argument_gives_the_prompt_up_and_not_the_chat(chat: Chat) -> None:
    with at_terminal("chat", TRAVEL, "--model", chat.model(ECHO), env=chat.env) as terminal:
        terminal.expect(READY)
        terminal.expect("> ")
        terminal.type("/trip days=2")
        terminal.expect("city")
        terminal.signal()
        terminal.expect("> ")
        terminal.type("Hello")
        terminal.expect("You said: Hello")
        terminal.type("exit")
        assert terminal.end() == 0


def test_what_is_suggested_can_be_typed_and_hides_nothing() -> None:
    server = Server("odd")

    @server.prompt
    def ask(city: str) -> str:
        return city

    @server.completion("ask", "city")
    def cities(value: str) -> list[str]:
        return ["Rome", "New York", "Ro\x1b[2Jme", "Ro\u202eme"]

    async def suggested() -> list[Sequence[str]]:
        async with Host({"odd": server}) as host:
            offers = Offers(host, ["help", "ask"])
            await offers.refresh()
            return [await offers.suggest(line) for line in ("/", "/odd_ask ", "/odd_ask city=", "plain", "/no x=")]

    assert asyncio.run(suggested()) == [["/help", "/ask", "/odd_ask"], ["city="], ["city=Rome"], [], []]


def shown(terminal: AtTerminal, until: str) -> str:
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.expect(until)).replace("\r", "")


def test_markdown_is_rendered_block_by_block(chat: Chat) -> None:
    pytest.importorskip("rich", reason="Markdown needs rich")
    text = "# Title\n\n- **one**\n- two\n\n```python\nx = 1\n```\n\n[link](https://example.com)\u001b[2J"
    env = {**chat.env, "NO_COLOR": "", "TERM": "xterm-256color"}
    with at_terminal("chat", "--model", chat.model(text, "Plain."), env=env) as terminal:
        terminal.expect(READY)
        terminal.type("Hi")
        seen = shown(terminal, "x1b[2J")
        assert [each in seen for each in ("Title", " • one", " x = 1", "link (https://example.com)\\")] == [True] * 4
        assert "**" not in seen
        assert "```" not in seen
        terminal.type("More")
        terminal.expect("Plain.")
        terminal.type("exit")
        assert terminal.end() == 0


def test_several_lines_are_one_message(chat: Chat) -> None:
    typed = 'one\\\ntwo\n"""\nthree\n\nfour\n"""\n'
    done = chat.run("--model", chat.model(ECHO), typed=typed)
    assert answers(done) == ["You said: one", "two", "You said: three", "", "four"]


# What is kept.


def test_a_question_can_be_asked_again(chat: Chat) -> None:
    done = chat.run(
        "--model", chat.model("One.", "Two."), "--private", typed="/retry\nHi\n/retry\n/retry\n/model x:y\n"
    )
    assert answers(done) == ["One.", "Two."]
    assert "There is no question to ask again." in done.err
    assert "/retry asks again" in done.err
    assert chat.sessions() == []
    assert not (chat.path / "home" / "history").exists()


def test_a_question_that_failed_can_be_asked_again(chat: Chat) -> None:
    other = chat.model("Better.")
    done = chat.run("--model", chat.model(), typed=f"Hi\n/model {other}\n/retry\n")
    assert answers(done) == ["Better."]


def test_sessions_are_listed_and_resumed(chat: Chat) -> None:
    model = chat.model("One.", "Two.")
    chat.run("--model", model, typed="First question\n/clear\nSecond question\n")
    second, first = sorted(chat.sessions(), key=lambda each: str(each["title"]), reverse=True)
    assert (first["title"], first["count"], first["model"]) == ("First question", 2, model)
    folder = chat.path / "home" / "sessions"
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.glob("*.json")} == {0o600}
    assert first["name"] in chat.run("--sessions").out
    done = chat.run("--resume", first["name"], "--model", chat.model("Three."), typed="Third\n/sessions\n")
    assert "after 2 messages" not in done.out
    assert {each["title"]: each["count"] for each in chat.sessions()} == {"First question": 4, "Second question": 2}
    once = chat.run("--continue", "--model", chat.model("{last}!"), "--json", "-p", "Fourth")
    assert (once.json["text"], len(once.json["messages"])) == ("Fourth!", 6)
    wrong = chat.run("--resume", "nothing", "--model", model)
    assert (wrong.status, "there is no session 'nothing'" in wrong.err) == (2, True)
    resumed = chat.run("--model", chat.model("Five."), typed=f"/resume {second['name']}\nFifth\n/resume x\n")
    assert answers(resumed) == ["Five."]
    assert {each["title"]: each["count"] for each in chat.sessions()} == {"First question": 6, "Second question": 4}


def test_a_summary_takes_the_place_of_a_conversation(chat: Chat) -> None:
    done = chat.run("--model", chat.model("One.", "A summary.", "Two."), typed="/compact\nHi\n/compact\nMore\n")
    assert answers(done) == ["One.", "Two."]
    assert "There is no conversation yet." in done.err
    assert "2 messages replaced by this summary." in done.err
    (listed,) = chat.sessions()
    assert (listed["title"], listed["count"]) == ("Hi", 4)


def test_without_a_place_for_sessions_the_chat_goes_on(chat: Chat) -> None:
    (chat.path / "home").mkdir()
    (chat.path / "home" / "sessions").write_text("in the way")
    done = chat.run("--model", chat.model("One."), typed="Hi\n")
    assert answers(done) == ["One."]
    assert "this chat cannot be kept" in done.err


# Pictures.

PNG = Picture(b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 4000).decode(), "image/png")
JPEG = Picture("/9j/", "image/jpeg")


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM_PROGRAM": "iTerm.app", "TMUX": "/tmp/tmux"}, None),
        ({"TERM_PROGRAM": "iTerm.app", "TERM": "screen-256color"}, None),
        ({"TERM": "xterm-256color"}, None),
    ],
)
def test_how_a_terminal_draws(environ: dict[str, str], protocol: str | None) -> None:
    assert protocol_of(environ) == protocol


def test_pictures_are_drawn_in_pieces_that_the_terminal_takes() -> None:
    drawn = drawing(PNG, "kitty")
    assert drawn is not None
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", drawn)
    assert "".join(data for _, data in pieces) == PNG.data
    assert [control[-3:] for control, _ in pieces] == ["m=1", "m=0"] or pieces[-1][0].endswith("m=0")
    assert drawing(JPEG, "kitty") is None
    assert drawing(PNG, None) is None
    iterm = drawing(JPEG, "iterm2")
    assert iterm is not None
    assert iterm.startswith("\x1b]1337;File=inline=1;size=3;")
    assert iterm.endswith(":/9j/\x07")


def test_a_picture_that_is_not_drawn_is_saved(tmp_path: Path) -> None:
    line = save_picture(JPEG, lambda: str(tmp_path / "pictures"))
    assert line == f"[picture: image/jpeg, 3 bytes, saved as {tmp_path}/pictures/picture-1.jpg]"
    assert (tmp_path / "pictures" / "picture-1.jpg").read_bytes() == b"\xff\xd8\xff"
    assert save_picture(JPEG, lambda: None) == "[picture: image/jpeg, 3 bytes, not saved]"
    (tmp_path / "file").touch()
    assert "cannot be written" in save_picture(JPEG, lambda: str(tmp_path / "file"))


PAINTER = f"""
from linkspan import Server
from linkspan.types.base import ImageContent
server = Server("painter")
@server.tool
def paint() -> ImageContent:
    return ImageContent({PNG.data!r}, "image/png")
"""


def test_a_picture_of_a_tool_is_saved_with_its_chat_or_where_it_is_wanted(chat: Chat) -> None:
    server = chat.path / "painter.py"
    server.write_text(PAINTER)
    paint = {"call": {"name": "paint"}}
    done = chat.run(str(server), "--yes", "--model", chat.model(paint, "Done."), "-v", typed="Paint\n")
    (saved,) = (chat.path / "home" / "sessions").glob("*/picture-1.png")
    assert f"saved as {saved}]" in done.err
    wanted = chat.path / "wanted"
    chat.run(str(server), "--yes", "--model", chat.model(paint, "Done."), "--save", str(wanted), "-p", "Paint")
    assert [each.name for each in wanted.iterdir()] == ["picture-1.png"]


def test_without_rich_answers_are_plain(chat: Chat) -> None:
    code = "import sys; sys.modules['rich'] = None; sys.modules['rich.console'] = None\n"
    code += "from linkspan.cli.markdown import markdown_writer; print(markdown_writer(print, lambda: 80))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


def test_skills_of_servers_are_listed_and_the_model_loads_what_the_rules_allow(chat: Chat, tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "tides"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tides\ndescription: Read tide tables\n---\n\nAsk for the harbour.\n")
    server = tmp_path / "tide_server.py"
    server.write_text(
        "from linkspan import Server\nfrom linkspan.skills import Skills\n"
        f"server = Server('tides', extensions=[Skills({str(tmp_path / 'skills')!r})])\n"
    )
    calls = [{"call": {"name": "load_skill", "arguments": {"skill": "tides"}}}, {"say": "Answer: {last}"}]
    done = chat.run(str(server), "--yes", "--model", chat.model(*calls), typed="/skills\nWhen is high water?\n")
    assert "tides" in done.out + done.err
    assert "Read tide tables" in done.out + done.err
    assert "Ask for the harbour." in done.out
