"""A call that is copied, or made again: it has the answers of the person, none of the secrets, and the same outcome."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benches import Desk, desk
from linkspan import Context, Server
from linkspan.cli.main import main
from linkspan.wire.redaction import REDACTED
from linkspan.workbench.code import MadeCall, Subject, as_command, as_pytest, as_python
from linkspan.workbench.exchanges import GivenAnswer
from linkspan.workbench.placeholders import Placeholders, SecretText, python_literal, shell_json, shell_word
from over_http import serving

OLD = "2025-11-25"
seen: list[Any] = []


def ferry_desk() -> Server:
    """Make a server that asks; what its calls came to is added to seen."""
    server = Server("desk")

    @server.tool
    async def book(ctx: Context, date: str) -> str:
        seats = await ctx.ask("seats", int, 'How many "seats"?\n`id` $HOME')
        meal = await ctx.ask("meal", bool, "A meal?")
        seen.append((date, seats, meal))
        return f"{seats} seats on {date}, {meal}"

    @server.tool
    async def poem(ctx: Context) -> str:
        said = await ctx.sample("A poem about the sea")
        text = str(getattr(said.content, "text", said))
        seen.append(text)
        return text

    @server.tool(annotations={"read_only_hint": True})
    def enter(user: str, password: str, more: dict[str, Any] | None = None) -> str:
        seen.append((user, password, more))
        return f"{user} with {password}"

    @server.tool
    async def look(ctx: Context) -> str:
        seen.append([each.uri for each in await ctx.roots()])
        return "seen"

    @server.prompt
    def plan(start: str) -> str:
        raise ValueError("no plan")

    return server


@pytest.fixture
def url() -> Iterator[str]:
    seen.clear()
    with serving(ferry_desk().asgi(path="/mcp")) as found:
        yield found


def answered(bench: Desk, number: int, *answers: dict[str, Any]) -> dict[str, Any]:
    """Answer the questions of a call, one after the other; return how it ended."""
    for each in answers:
        (question,) = bench.until(lambda: bench.ask("state")["questions"])
        bench.ask("answer", id=question["id"], **each)
        bench.until(lambda gone=question["id"]: gone not in [each["id"] for each in bench.ask("state")["questions"]])
    return bench.ended(number)


def run(source: str, path: Path, **env: str) -> None:
    """Run a program in a process of its own."""
    path.write_text(source)
    done = subprocess.run([sys.executable, path], timeout=60, capture_output=True, env={**os.environ, **env}, text=True)
    assert done.returncode == 0, (source, done.stderr)


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


class TestAnswers:
    """What the person answered is in the copies, and can be used again."""

    @pytest.mark.parametrize("revision", ["", OLD])
    def test_each_copy_gives_the_answers_to_forms(
        self, url: str, revision: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with desk(url) as bench:
            number = bench.ask("call", kind="tool", name="book", arguments={"date": "today"}, revision=revision)["id"]
            answered(bench, number, accept(seats=3), accept(meal=False))
            code = bench.ask(f"code?id={number}")
        wanted = ("today", 3, False)
        assert [wanted] == seen
        assert main(shlex.split(code["command"])[1:]) == 0
        run(code["python"], tmp_path / "program.py")
        exec(compile(code["pytest"], "test", "exec"), scope := {})
        scope["test_book"]()
        assert [wanted] * 4 == seen
        remark, _, rest = code["curl"].partition("\n")
        assert remark == "# The server asks 2 questions in this call: curl shows the first and cannot answer."
        assert rest.startswith(("curl ", "SESSION="))
        capfd.readouterr()

    def test_the_answer_of_a_model_is_in_the_program_and_missing_in_the_command(self, url: str, tmp_path: Path) -> None:
        with desk(url) as bench:
            number = bench.ask("call", kind="tool", name="poem", revision=OLD)["id"]
            answered(bench, number, {"action": "accept", "text": 'Waves "and" wind.'})
            code = bench.ask(f"code?id={number}")
            number = bench.ask("call", kind="tool", name="poem", revision=OLD)["id"]
            ended = answered(bench, number, {"action": "decline"})
            refused = bench.ask(f"code?id={number}")
        run(code["python"], tmp_path / "program.py")
        assert seen == ['Waves "and" wind.'] * 2
        first, _, line = code["command"].partition("\n")
        assert first == "# The server asks for the answer of a model, which this command cannot give."
        assert line.startswith("linkspan call ")
        assert ended["error"] or ended["is_error"]
        exec(compile(refused["pytest"], "test", "exec"), scope := {})
        scope["test_poem"]()
        assert len(seen) == 2

    def test_the_folders_that_were_offered_are_in_the_program(self, url: str, tmp_path: Path) -> None:
        subject = Subject((url,), url, ["--root", str(tmp_path)])
        with desk(url, roots=[str(tmp_path)], subject=subject) as bench:
            made = bench.call("look")
            assert made["state"] == "done"
            code = bench.ask(f"code?id={made['id']}")
        run(code["python"], tmp_path / "program.py")
        assert main(shlex.split(code["command"])[1:]) == 0
        assert seen == [[tmp_path.as_uri()]] * 3

    def test_a_repetition_uses_the_answers_again_or_asks_anew(self, url: str) -> None:
        with desk(url) as bench:
            number = bench.ask("call", kind="tool", name="book", arguments={"date": "today"})["id"]
            first = answered(bench, number, accept(seats=3), accept(meal=True))
            same = bench.ask("again", id=number, same_answers=True, confirmed=True)["id"]
            assert bench.ended(same)["result"]["content"] == first["result"]["content"]
            assert [each["content"] for each in bench.ended(same)["answers"]] == [{"seats": 3}, {"meal": True}]
            said = [each["text"] for each in bench.events("log")]
            assert len([each for each in said if each.startswith("answered as before: ")]) == 2
            anew = bench.ask("again", id=number, confirmed=True)["id"]
            assert (
                "4 seats" in answered(bench, anew, accept(seats=4), accept(meal=True))["result"]["content"][0]["text"]
            )
            status, _, body = bench.send("POST", "/api/again", json.dumps({"id": number}).encode())
            assert (status, b"may change something" in body) == (409, True)
            assert bench.send("POST", "/api/again", b'{"id": 99999}')[0] == 404

    def test_the_answers_are_kept_for_another_day(self, url: str, tmp_path: Path) -> None:
        history = tmp_path / "calls.jsonl"
        with desk(url, history=history) as bench:
            number = bench.ask("call", kind="tool", name="book", arguments={"date": "today"})["id"]
            answered(bench, number, accept(seats=3), accept(meal=True))
            bench.until(lambda: [kind for kind, _ in bench.said if kind == "call"])
        with desk(url, history=history) as bench:
            (kept,) = bench.ask("state")["exchanges"]
            same = bench.ask("again", id=kept["id"], same_answers=True, confirmed=True)["id"]
            assert bench.ended(same)["state"] == "done"
        assert seen == [("today", 3, True)] * 2

    def test_questions_without_end_are_not_all_kept(self) -> None:
        server = Server("curious")

        @server.tool
        async def ask(ctx: Context) -> str:
            return str(len(str(await ctx.ask("text", str, "What?"))))

        with desk(server) as bench:
            number = bench.ask("call", kind="tool", name="ask")["id"]
            ended = answered(bench, number, accept(text="x" * 100_000))
            assert ended["result"]["content"][0]["text"] == "100000"
            assert ended["answers"] == []
            bench.until(lambda: [each for each in bench.events("log") if "is not kept" in each["text"]])

    def test_words_of_a_server_stay_in_their_comment(self) -> None:
        hostile = "x\nimport os; os.abort()\r\x0b\u2028; rm -rf '$(id)' `id`\\"
        given = GivenAnswer("elicitation", hostile, "form", "accept", {"a'b": 'c"$(id)'})
        made = MadeCall("tool", "t", {}, "", answers=[given, GivenAnswer("elicitation", hostile, "url", "accept")])
        subject = Subject(["server.py"])
        for source in (as_python(subject, made), as_pytest(subject, made)):
            compile(source, "copy", "exec")
            assert "import os" not in source.splitlines()
        *remarks, line = as_command(subject, made).splitlines()
        assert remarks == ["# The server asks a question that you answered: do so in the terminal."]
        assert shlex.split(line)[-2:] == ["--answer", "a'b=c\"$(id)"]


class TestSecrets:
    """A secret is in no copy: a variable says where to put it."""

    ARGUMENTS = {"user": "ann", "password": "geheim-123", "more": {"pin": 4711, "url": "db://ann:geheim-123@host/x"}}
    VARIABLES = {"SECRET_PASSWORD": "geheim-123", "SECRET_URL": "geheim-123"}

    def test_each_copy_makes_the_same_request_once_its_variables_are_set(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with desk(url) as bench:
            made = bench.call("enter", self.ARGUMENTS)
            code = bench.ask(f"code?id={made['id']}")
            shown = [*bench.ask("state")["exchanges"], *(each["exchange"] for each in bench.events("exchange"))]
            assert "geheim" not in json.dumps([code, [each["arguments"] for each in shown]])
        seen.clear()
        for name in ("curl", "command"):
            line = code[name].replace("linkspan ", f"{shlex.quote(sys.executable)} -m linkspan ", 1)
            done = subprocess.run(
                ["bash", "-c", line], capture_output=True, timeout=60, env={**os.environ, **self.VARIABLES}, text=True
            )
            assert "geheim-123" in done.stdout, (line, done)
        run(code["python"], tmp_path / "program.py", **self.VARIABLES)
        for name, value in self.VARIABLES.items():
            monkeypatch.setenv(name, value)
        exec(compile(code["pytest"], "test", "exec"), scope := {})
        scope["test_enter"]()
        assert [tuple(self.ARGUMENTS.values())] * 4 == seen

    def test_a_call_is_made_again_with_its_secrets_while_these_are_known(self, url: str, tmp_path: Path) -> None:
        history = tmp_path / "calls.jsonl"
        with desk(url, history=history) as bench:
            made = bench.call("enter", self.ARGUMENTS)
            again = bench.ask("again", id=made["id"])["id"]
            assert bench.ended(again)["state"] == "done"
            bench.until(lambda: len([kind for kind, _ in bench.said if kind == "call"]) == 2)
        assert [tuple(self.ARGUMENTS.values())] * 2 == seen
        with desk(url, history=history) as bench:
            kept = bench.ask("state")["exchanges"][0]
            assert kept["arguments"]["password"] == REDACTED
            status, _, body = bench.send("POST", "/api/again", json.dumps({"id": kept["id"]}).encode())
            assert (status, b"not kept" in body) == (410, True)
            code = bench.ask(f"code?id={kept['id']}")
            assert '"$SECRET_PASSWORD"' in code["command"]
            assert 'os.environ["SECRET_PASSWORD"]' in code["python"]
            assert REDACTED not in json.dumps(code)
        assert len(seen) == 2

    def test_the_answer_to_a_form_that_asks_for_a_secret_is_not_in_the_copies(self) -> None:
        server = Server("doors")

        @server.tool
        async def open_door(ctx: Context) -> str:
            return f"open: {await ctx.ask('pin', str, 'Your PIN?')}"

        with desk(server) as bench:
            number = bench.ask("call", kind="tool", name="open_door")["id"]
            answered(bench, number, accept(pin="geheim-4711"))
            code = bench.ask(f"code?id={number}")
            assert "geheim" not in json.dumps([code, bench.ask("state")])
            assert '--answer pin="$SECRET_PIN"' in code["command"]
            assert '{"pin": os.environ["SECRET_PIN"]}' in code["python"]
            same = bench.ask("again", id=number, same_answers=True, confirmed=True)["id"]
            assert bench.ended(same)["result"]["content"][0]["text"] == "open: geheim-4711"

    def test_equal_secrets_have_one_variable_and_others_their_own(self) -> None:
        raw = {"a": {"token": "one"}, "b": {"token": "two"}, "c": [{"token": "one"}], "path": "x one y"}
        shown = {
            "a": {"token": REDACTED},
            "b": {"token": REDACTED},
            "c": [{"token": REDACTED}],
            "path": f"x {REDACTED} y",
        }
        found = Placeholders().without_secrets(raw, shown)
        assert found["a"]["token"] == found["c"][0]["token"] == SecretText(("", ""), ("SECRET_TOKEN",))
        assert found["b"]["token"].variables != found["a"]["token"].variables
        assert found["path"] == SecretText(("x ", " y"), ("SECRET_PATH",))
        assert Placeholders().without_secrets({"a": REDACTED}, {"a": REDACTED}) == {"a": REDACTED}  # it was typed so

    def test_placeholders_stand_between_quotes_of_each_language(self) -> None:
        text = SecretText(("a'", '"b'), ("SECRET_X",))
        value = {"it's \ue000": [SecretText(("a'", " b"), ("SECRET_X",)), SecretText(("", ""), ("SECRET_N",), "int")]}
        line = f"printf %s {shell_json(value)}; echo; printf %s {shell_word(text)}"
        variables = {"SECRET_X": "x y", "SECRET_N": "7"}
        filled = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, env=variables).stdout
        whole, word = filled.split("\n")
        assert json.loads(whole) == {"it's \ue000": ["a'x y b", 7]}
        assert word == "a'x y\"b"
        system = SimpleNamespace(environ=variables)
        assert eval(python_literal(value), {"os": system}) == json.loads(whole)


class TestOutcomes:
    """A test that is copied expects what has become of the call."""

    @pytest.mark.parametrize("kind", ["prompt", "tool", "resource"])
    def test_a_refused_call_is_expected_to_be_refused(self, url: str, kind: str) -> None:
        name = {"prompt": "plan", "tool": "no_such_tool", "resource": "no://such"}[kind]
        with desk(url) as bench:
            made = bench.call(name, {"start": "Mull"} if kind == "prompt" else {}, kind=kind)
            assert made["state"] == "error"
            source = bench.ask(f"code?id={made['id']}")["pytest"]
        exec(compile(source, "test", "exec"), scope := {})
        next(each for name, each in scope.items() if name.startswith("test_"))()
        assert "pytest.raises(ServerError)" in source
        wrong = (
            source.replace(f'"{name}"', '"enter"')
            .replace("get_prompt", "call_tool")
            .replace("read_resource", "call_tool")
        )
        exec(compile(wrong, "test", "exec"), scope := {})
        with pytest.raises(pytest.fail.Exception):
            next(each for name, each in scope.items() if name.startswith("test_"))()
