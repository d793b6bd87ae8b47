"""What the author of a server sees at the workbench: calls, crashes, questions, restarts, the same call as code."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pytest

from benches import Desk, desk
from linkspan import Ask, Context, Header, Server
from linkspan.cli.main import main
from linkspan.host.models import ScriptedModel
from linkspan.testing.recorder import TranscriptWriter, read_transcript
from linkspan.types.base import JSONObject
from linkspan.wire.redaction import Redactor
from linkspan.workbench.code import Subject, scheme_of
from linkspan.workbench.exchanges import BenchCalls, Wanted
from linkspan.workbench.history import CallHistory
from linkspan.workbench.listing import Listing, marks
from over_http import serving

OLD = "2025-11-25"
SOURCE = '''
from linkspan import Server

server = Server("ferries", version="1.0.0")

@server.tool
def departures(port: str) -> list[str]:
    """List today's ferries from a port."""
    return {"Oban": ["07:30"]}[port]
'''


def harbour(seen: list[Any] | None = None) -> Server:
    """Make a server of everything that the workbench shows; it adds the arguments of `tide` to `seen`."""
    server = Server("harbour", "2.0.0", instructions="Ask for the tide first.")

    @server.tool(annotations={"read_only_hint": True})
    def tide(port: str, days: int = 1) -> dict[str, Any]:
        """Say when the tide is high."""
        if seen is not None:
            seen.append({"port": port, "days": days})
        return {"port": port, "days": days}

    @server.tool
    def book(date: str, seats: Annotated[int, Ask("How many seats?")]) -> str:
        """Book a ferry."""
        return f"{seats} seats on {date}"

    @server.tool
    async def poem(ctx: Context) -> str:
        """Let the model write."""
        return str(await ctx.sample("A poem about the sea"))

    @server.tool
    async def wait(ctx: Context) -> str:
        """Never end."""
        import asyncio

        ctx.progress(1, total=2, message="half")
        await asyncio.sleep(60)
        return "late"

    @server.resource("tide://{port}")
    def tide_of(port: str) -> str:
        """The tide of one port."""
        return f"high in {port}"

    @server.prompt
    def plan(start: str) -> str:
        """Plan a crossing."""
        return f"From {start} to Oban."

    return server


@pytest.fixture(scope="module")
def bench() -> Iterator[Desk]:
    with desk(harbour()) as found:
        yield found


def test_everything_is_listed_with_what_it_costs(bench: Desk) -> None:
    state = bench.ask("state")
    assert (state["status"], state["server"]["name"], state["instructions"]) == (
        "ready",
        "harbour",
        "Ask for the tide first.",
    )
    assert [each["name"] for each in state["lists"]["tools"]] == ["tide", "book", "poem", "wait"]
    assert all(10 < each < 200 for each in state["tokens"]["tools"])
    assert bench.said[0][0] == "ready"
    assert "harbour 2.0.0, 2026-07-28, 4 tools, 1 template, 1 prompt, ~" in bench.said[0][1]


def test_tools_resources_and_prompts_are_called_and_their_messages_kept(bench: Desk) -> None:
    found = bench.call("tide", {"port": "Oban"})
    assert (found["state"], found["revision"]) == ("done", "2026-07-28")
    assert found["result"]["structuredContent"] == {"port": "Oban", "days": 1}
    mine = [each for each in bench.events("message") if each["exchange"] == found["id"]]
    assert [(each["side"], each["method"]) for each in mine] == [("client", "tools/call"), ("server", "tools/call")]
    assert mine[1]["ms"] >= 0
    assert bench.call("tide://Oban", kind="resource")["result"]["contents"][0]["text"] == "high in Oban"
    assert "From Mull" in json.dumps(bench.call("plan", {"start": "Mull"}, kind="prompt")["result"])


def test_a_call_that_fails_says_why(bench: Desk) -> None:
    found = bench.call("tyde")
    assert found["state"] == "error"
    assert "tyde" in found["error"]["problem"]
    assert bench.call("tide", {"port": 5})["is_error"] is True


@pytest.mark.parametrize("revision", ["", OLD])
def test_a_question_waits_for_the_person_and_other_calls_go_on(bench: Desk, revision: str) -> None:
    number = bench.ask("call", kind="tool", name="book", arguments={"date": "today"}, revision=revision)["id"]
    (question,) = bench.until(lambda: bench.ask("state")["questions"])
    assert question["exchange"] == number
    assert "seats" in question["params"]["requestedSchema"]["properties"]
    assert bench.call("tide", {"port": "Oban"})["state"] == "done"
    bench.ask("answer", id=question["id"], action="accept", content={"seats": 3})
    assert bench.ended(number)["result"]["content"][0]["text"] == "3 seats on today"
    assert bench.ask("state")["questions"] == []
    status, _, _ = bench.send("POST", "/api/answer", json.dumps({"id": question["id"], "action": "cancel"}).encode())
    assert status == 404


def test_the_person_plays_the_model_or_refuses(bench: Desk) -> None:
    for answer, ends in ({"action": "accept", "text": "Waves."}, "Waves."), ({"action": "decline"}, None):
        number = bench.ask("call", kind="tool", name="poem", revision=OLD)["id"]
        (question,) = bench.until(lambda: bench.ask("state")["questions"])
        assert question["kind"] == "sampling"
        bench.ask("answer", id=question["id"], **answer)
        found = bench.ended(number)
        assert ends is None or ends in json.dumps(found["result"])
        assert ends is not None or found["is_error"] or found["error"]


def test_a_call_can_be_stopped_with_its_progress_seen(bench: Desk) -> None:
    number = bench.ask("call", kind="tool", name="wait")["id"]
    bench.until(lambda: any(each["exchange"] == number for each in bench.events("progress")))
    assert bench.ask("stop", id=number) == {"stopped": True}
    assert bench.ended(number)["state"] == "stopped"
    assert bench.ask("stop", id=number) == {"stopped": False}


def test_what_may_change_something_is_called_again_only_if_the_person_says_so(bench: Desk) -> None:
    again = {"kind": "tool", "arguments": {"date": "today"}, "again": True}
    status, _, body = bench.send("POST", "/api/call", json.dumps({**again, "name": "book"}).encode())
    assert (status, b"may change something" in body) == (409, True)
    assert bench.call("tide", {"port": "Oban"}, again=True, revision=OLD)["revision"] == OLD
    number = bench.ask("call", **again, name="book", confirmed=True)["id"]
    (question,) = bench.until(lambda: bench.ask("state")["questions"])
    bench.ask("answer", id=question["id"], action="cancel")
    bench.ended(number)


def test_an_argument_is_completed(bench: Desk) -> None:
    server = Server("lists")

    @server.prompt
    def from_(port: str) -> str:
        return port

    @server.completion("from_", "port")
    def ports(value: str) -> list[str]:
        return [each for each in ("Oban", "Otter Ferry", "Ullapool") if each.startswith(value)]

    with desk(server) as found:
        assert found.ask("complete", kind="prompt", name="from_", argument="port", value="O")["values"] == [
            "Oban",
            "Otter Ferry",
        ]


def test_other_capabilities_are_declared_to_a_server_that_is_started_anew() -> None:
    with desk(harbour()) as found:
        found.ask("declare", elicitation=False, sampling=False, roots=False)
        found.until(lambda: found.bench.state()["generation"] == 2 and found.bench.state()["status"] == "ready")
        result = found.call("book", {"date": "today"})
        assert result["error"] or result["is_error"]


def test_a_model_drafts_what_the_person_sends() -> None:
    with desk(harbour(), model=ScriptedModel(["The sea is grey."])) as found:
        number = found.ask("call", kind="tool", name="poem", revision=OLD)["id"]
        (question,) = found.until(lambda: found.ask("state")["questions"])
        text = found.ask("draft", id=question["id"])["text"]
        found.ask("answer", id=question["id"], action="accept", text=text)
        assert "The sea is grey." in json.dumps(found.ended(number)["result"])


# A file that is being written.


def test_a_crash_shows_the_authors_frames_on_its_call_and_a_save_restarts(tmp_path: Path) -> None:
    file = tmp_path / "ferries.py"
    file.write_text(SOURCE)
    with desk(str(file), file=str(file)) as found:
        crashed = found.call("departures", {"port": "x"})
        assert crashed["is_error"] is True
        report = found.until(lambda: found.bench.exchanges.get(crashed["id"]).report)  # type: ignore[union-attr]
        assert "line 9, in departures" in report
        assert report.endswith("KeyError: 'x'\n")
        assert "site-packages" not in report
        assert (
            "KeyError"
            in found.until(lambda: [text for kind, text in found.said if kind == "call" and "KeyError" in text])[0]
        )

        began = time.monotonic()
        file.write_text(
            SOURCE.replace("port: str", "port: str, day: str") + "\n@server.tool\ndef fares() -> int:\n    return 4\n"
        )
        found.until(lambda: found.bench.state()["generation"] == 2 and found.bench.state()["status"] == "ready")
        assert time.monotonic() - began < 15
        changes = {each["name"]: each for each in found.bench.state()["changes"]}
        assert (changes["fares"]["mark"], changes["departures"]["mark"]) == ("+", "~")
        assert changes["departures"]["level"] == "breaking"
        assert "day" in " ".join(changes["departures"]["what"])

        file.write_text(SOURCE + "\n@server.tool(\n")
        problem = found.until(lambda: found.bench.state()["problem"])
        assert "SyntaxError" in problem["text"]
        assert "save the file" in problem["then"]
        file.write_text(SOURCE)
        found.until(lambda: found.bench.state()["status"] == "ready")
        assert found.call("departures", {"port": "Oban"})["state"] == "done"


def test_a_command_of_another_kind_is_a_target_too() -> None:
    command = [sys.executable, str(Path(__file__).parent.parent / "cli" / "odd_server.py")]
    with desk(command, subject=Subject(command)) as found:
        assert found.bench.state()["status"] == "ready"
        assert found.bench.state()["lists"]["tools"]


def test_what_cannot_be_reached_is_said_with_its_reason() -> None:
    with desk(["no-such-program-here"]) as found:
        assert found.bench.state()["status"] == "broken"
        assert "no-such-program-here" in found.bench.state()["problem"]["text"]


# The same call as code.


def test_each_line_that_is_copied_makes_the_same_request(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []
    server = harbour(seen)
    arguments = {"port": 'O\'ban "x" $HOME `id` \\ é', "days": 2}
    with serving(server.asgi(path="/mcp")) as url, desk(url) as found:
        for revision in ("", OLD):
            made = found.call("tide", arguments, revision=revision)
            code = found.ask(f"code?id={made['id']}")
            seen.clear()
            done = subprocess.run(["bash", "-c", code["curl"]], capture_output=True, text=True, timeout=60, check=True)
            assert "structuredContent" in done.stdout, (code["curl"], done)
            assert main(shlex.split(code["command"])[1:]) == 0
            program = tmp_path / "program.py"
            program.write_text(code["python"])
            subprocess.run([sys.executable, program], check=True, timeout=60, capture_output=True)
            exec(compile(code["pytest"], "test", "exec"), scope := {})
            scope["test_tide"]()
            assert seen == 4 * [arguments]
    capfd.readouterr()


def test_calls_at_once_are_copied_with_their_own_headers() -> None:
    server = Server("ports")
    for name in ("first", "second"):

        @server.tool(name=name)
        def told(region: Annotated[str, Header("Region")]) -> str:
            return region

    with serving(server.asgi(path="/mcp")) as url, desk(url) as found:
        calls = [(name, region) for name in ("first", "second") for region in ("north", "süd")]
        made = [found.ask("call", kind="tool", name=name, arguments={"region": each})["id"] for name, each in calls]
        for (_, region), number in zip(calls, made, strict=True):
            assert found.ended(number)["state"] == "done"
            line = found.ask(f"code?id={number}")["curl"]
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=True)
            assert json.loads(done.stdout)["result"]["structuredContent"] == {"result": region}, (line, done)


def test_the_other_era_is_spoken_and_a_transcript_is_written(tmp_path: Path) -> None:
    with TranscriptWriter(tmp_path / "x.transcript") as transcript, desk(harbour(), transcript=transcript) as found:
        for generation, revision in ((2, OLD), (3, found.bench.state()["revision"])):
            found.bench.switch_era()
            found.until(
                lambda wanted=generation: (
                    (found.bench.state()["generation"], found.bench.state()["status"]) == (wanted, "ready")
                )
            )
            assert found.bench.state()["revision"] == revision
            found.call("tide", {"port": str(generation)})
    lines = [
        entry.message.get("method") for entry in read_transcript(tmp_path / "x.transcript") if entry.side == "client"
    ]
    assert lines.count("tools/call") == 2
    assert "initialize" in lines


def test_a_file_that_cannot_be_loaded_is_started_once(tmp_path: Path) -> None:
    file, log = tmp_path / "server.py", tmp_path / "log"
    file.write_text(f"open({str(log)!r}, 'a').write('x')\nimport there_is_no_such_module\n")
    with desk(str(file), file=str(file)) as found:
        assert found.bench.state()["status"] == "broken"
        assert log.read_text() == "x"


def test_no_secret_is_in_what_is_copied_shown_or_kept(tmp_path: Path) -> None:
    history = tmp_path / "dev" / "calls.jsonl"
    headers = {"Authorization": "Bearer geheim-12345", "X-Api-Key": "schluessel-678"}
    with serving(harbour().asgi(path="/mcp")) as url:
        schemes = {name: scheme_of(value) for name, value in headers.items()}
        subject = Subject((url,), url, headers=list(headers), schemes=schemes)
        with desk(url, headers=headers, history=history, subject=subject) as found:
            made = found.call("tide", {"port": "geheim-12345"})
            code = found.ask(f"code?id={made['id']}")
            assert '-H "authorization: Bearer $TOKEN"' in code["curl"]
            assert '-H "Authorization: Bearer $TOKEN" -H "X-Api-Key: $X_API_KEY"' in code["command"]
            assert '"x-api-key: $X_API_KEY"' in code["curl"]
            for each in (code["python"], code["pytest"]):
                assert '"Authorization": f"Bearer {os.environ[\'TOKEN\']}"' in each
                assert '"X-Api-Key": os.environ["X_API_KEY"]' in each
            everything = json.dumps([found.events("http"), found.events("message"), found.events("exchange")])
            assert "geheim-12345" not in everything
            assert "schluessel" not in everything + json.dumps(code)
    assert stat.S_IMODE(os.stat(history).st_mode) == 0o600
    assert "geheim" not in history.read_text()
    with serving(harbour().asgi(path="/mcp")) as url, desk(url, history=history) as found:
        (kept,) = found.bench.state()["exchanges"]
        assert (kept["name"], kept["kept"], kept["arguments"]) == ("tide", True, {"port": "[redacted]"})
        found.ask("forget")
        assert not history.exists()


def test_the_history_is_bounded_and_bears_damage(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    history = CallHistory(path, Redactor())
    assert (
        history.write(
            lambda: [
                {"name": f"call {number}", "kind": "tool", "arguments": {"text": "x" * 20_000}} for number in range(300)
            ]
        )
        is None
    )
    assert path.stat().st_size <= 2 * 1024 * 1024
    path.write_bytes(b'\xff{"half\n[1]\n{"name": 5}\n' + path.read_bytes())
    assert history.read()[-1]["name"] == "call 299"
    blocked = CallHistory(tmp_path / "calls.jsonl" / "below", Redactor())
    problem = blocked.write(lambda: [{"name": "x"}])
    assert problem is not None
    assert problem.startswith("the history is not kept: ")
    assert blocked.write(lambda: [{"name": "x"}]) is None, "it is told once"
    path.unlink()
    assert blocked.write(lambda: [{"name": "y"}]) is None
    assert blocked.read() == [{"name": "y"}]


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_what_a_handler_logs_is_shown_in_each_revision(revision: str) -> None:
    server = Server("logging")

    @server.tool
    def sail(ctx: Context) -> str:
        ctx.debug("hoisting")
        ctx.info("sailing")
        return "done"

    with desk(server) as found:
        found.call("sail", {}, revision=revision)
        assert found.until(
            lambda: (
                {"hoisting", "sailing"} <= {str(each.get("text")).rpartition(": ")[2] for each in found.events("log")}
            )
        )


def test_calls_that_end_together_are_all_kept(tmp_path: Path) -> None:
    history, ended = CallHistory(tmp_path / "calls.jsonl", Redactor()), list[JSONObject]()

    def end(number: int) -> str | None:
        ended.append({"name": f"call {number}", "text": "x" * 1000})
        return history.write(lambda: [*ended])

    with ThreadPoolExecutor(16) as pool:
        assert [*pool.map(end, range(150))] == [None] * 150
    assert {each["name"] for each in history.read()} == {f"call {number}" for number in range(150)}


@pytest.mark.parametrize(
    ("state", "ended"), [("done", "done"), ("error", "error"), ("stopped", "stopped"), ("running", "stopped")]
)
def test_a_call_of_an_earlier_day_ended_as_it_did(state: Any, ended: str) -> None:
    before, after = BenchCalls(lambda _: None), BenchCalls(lambda _: None)
    call = before.begin(Wanted("tool", "tide"))
    call.state = state
    after.restore(before.shown())
    assert [(each["name"], each["state"], each["kept"]) for each in after.shown()] == [("tide", ended, True)]


def test_marks_say_what_a_client_must_know() -> None:
    tool = {"name": "book", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    gone = {"name": "cancel", "inputSchema": {"type": "object"}}
    needed = {**tool, "inputSchema": {**tool["inputSchema"], "required": ["a"]}}  # type: ignore[dict-item]
    found = marks(
        Listing({"tools": [tool, gone]}),
        Listing({"tools": [needed, {"name": "fares", "description": "x", "inputSchema": {}}]}),
    )
    assert {(each.name, each.mark, each.level) for each in found} == {
        ("book", "~", "breaking"),
        ("cancel", "-", "breaking"),
        ("fares", "+", "additive"),
    }


def test_a_new_tool_marks_itself_and_not_the_server() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "what " * 50}}}
    old = Listing({"tools": [{"name": "book", "inputSchema": {}}]}, instructions="Book early.")
    new = Listing(
        {"tools": [*old.items["tools"], {"name": "fares", "inputSchema": schema}]}, instructions="Book early."
    )
    assert [(each.kind, each.name, each.mark) for each in marks(old, new)] == [("tools", "fares", "+")]
    told = Listing(new.items, instructions="Book late.")
    (own,) = marks(new, told)
    assert (own.kind, own.name, own.mark, own.what) == ("server", "", "~", ["its instructions changed"])


def test_a_template_is_marked_by_the_uri_that_the_page_lists() -> None:
    old = {"name": "tide_of", "uriTemplate": "tide://{port}", "description": "a"}
    gone = {"name": "fare", "uriTemplate": "fare://{port}"}
    new = {**old, "description": "b"}
    added = {"name": "map", "uriTemplate": "map://{port}"}
    found = marks(Listing({"templates": [old, gone]}), Listing({"templates": [new, added]}))
    assert {(each.kind, each.name, each.mark) for each in found} == {
        ("templates", "tide://{port}", "~"),
        ("templates", "fare://{port}", "-"),
        ("templates", "map://{port}", "+"),
    }


LOGGING = """
import logging, sys
from linkspan import Server
SETTING
log = logging.getLogger("ferries")
server = Server("ferries")
@server.tool
def sail() -> str:
    log.info("hoisting")
    log.warning("a gale")
    return "done"
"""


def test_what_an_author_logs_has_its_level_and_its_logger(tmp_path: Path) -> None:
    file = tmp_path / "ferries.py"
    file.write_text(LOGGING.replace("SETTING", ""))
    with desk(str(file), file=str(file)) as found:
        found.call("sail")
        (warned,) = found.until(lambda: [each for each in found.events("log") if "a gale" in each["text"]])
        assert (warned["source"], warned["level"], warned["logger"], warned["text"]) == (
            "log",
            "WARNING",
            "ferries",
            "a gale",
        )
        assert not [each for each in found.events("log") if "hoisting" in each["text"]], (
            "Python does not print it either"
        )


def test_what_an_author_has_set_up_for_the_log_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "ferries.py"
    file.write_text(
        LOGGING.replace("SETTING", "logging.basicConfig(level='INFO', format='MY %(levelname)s %(message)s')")
    )
    with desk(str(file), file=str(file)) as found:
        found.call("sail")
        found.until(lambda: "MY WARNING a gale" in "".join(each["text"] for each in found.events("log")))
        printed = "".join(each["text"] for each in found.events("log") if each["source"] == "stderr")
        assert "MY INFO hoisting" in printed
