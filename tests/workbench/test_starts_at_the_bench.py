"""How the workbench shows a server that starts slowly, badly or twice, that goes away, and what belongs to which call."""

from __future__ import annotations

import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benches import Desk, desk
from linkspan import Context, Server
from linkspan.cli.unavailable import Unavailable
from linkspan.workbench.code import Subject
from linkspan.workbench.served import ServedFile
from over_http import serving

HEAD = "from linkspan import Server\nserver = Server('ferries')\n"
TOOL = "@server.tool\ndef fares() -> int:\n    return 4\n"


def is_ready(found: Desk, generation: int) -> bool:
    state = found.bench.state()
    return (state["generation"], state["status"]) == (generation, "ready")


def waiting(found: Desk) -> str:
    shown = found.bench.state()["waiting"]
    return str(shown["text"]) if shown is not None else ""


# A start that takes long.


def test_an_import_without_an_end_is_shown_where_it_stands_and_a_save_starts_anew(tmp_path: Path) -> None:
    file = tmp_path / "ferries.py"
    file.write_text(HEAD + "def wait():\n    while True:\n        pass\nwait()\n")
    with desk(str(file), file=str(file), wait=False) as found:
        text = found.until(lambda: waiting(found) if "in wait" in waiting(found) else "")
        assert "the server has not answered for " in text
        assert "line 6, in <module>" in text
        assert "linkspan/" not in text  # the author's frames only
        assert found.bench.state()["status"] == "connecting"
        assert [text for kind, text in found.said if kind == "waiting" and "in wait" in text]
        file.write_text(HEAD + TOOL)
        found.until(lambda: is_ready(found, 2))
        assert not waiting(found)
        assert not [text for kind, text in found.said if kind == "broken"]
        assert found.call("fares")["state"] == "done"


def test_a_command_that_is_silent_is_shown_with_what_it_has_printed_and_can_be_restarted() -> None:
    command = [sys.executable, "-c", "import sys, time\nprint('loading the model', file=sys.stderr)\ntime.sleep(600)"]
    with desk(command, subject=Subject(command), wait=False) as found:
        found.until(lambda: "loading the model" in waiting(found))
        found.ask("restart")
        found.until(lambda: found.bench.state()["generation"] == 2)
        found.until(lambda: waiting(found))


@pytest.mark.parametrize("problem", ["raise RuntimeError('boom')", "1 / 0", "import there_is_no_such_module"])
def test_a_file_of_ours_that_raises_is_started_once(tmp_path: Path, problem: str) -> None:
    file, log = tmp_path / "ferries.py", tmp_path / "log"
    file.write_text(f"open({str(log)!r}, 'a').write('x')\n{HEAD}{problem}\n")
    with desk(str(file), file=str(file)) as found:
        state = found.bench.state()
        assert (state["status"], log.read_text()) == ("broken", "x")
        assert problem.partition("\n")[0] in state["problem"]["text"]


def test_a_lifespan_that_fails_is_shown_as_the_state_until_it_begins(tmp_path: Path) -> None:
    file = tmp_path / "ferries.py"
    source = (
        "from contextlib import contextmanager\nfrom linkspan import Server\n@contextmanager\ndef lifespan():\n"
        "    BODY\n    yield 1\nserver = Server('ferries', lifespan=lifespan)\n" + TOOL
    )
    file.write_text(source.replace("BODY", "raise KeyError('DATABASE_URL')"))
    with desk(str(file), file=str(file)) as found:
        problem = found.until(lambda: found.bench.state()["problem"])
        assert found.bench.state()["status"] == "ready"
        assert "line 5, in lifespan" in problem["text"]
        assert "KeyError: 'DATABASE_URL'" in problem["text"]
        assert [text for kind, text in found.said if kind == "failing" and "DATABASE_URL" in text]
        assert found.call("fares")["state"] == "error"
        assert found.bench.state()["problem"] is not None
        file.write_text(source.replace("BODY", "pass"))
        found.until(lambda: is_ready(found, 2))
        assert found.call("fares")["state"] == "done"
        assert found.bench.state()["problem"] is None


# A server that goes away.


def test_a_url_that_has_gone_away_is_shown_so_and_is_found_again() -> None:
    server = Server("harbour")

    @server.tool
    def tide() -> str:
        return "high"

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(server.asgi(path="/mcp"), port) as url:
        bench = desk(url)
        found = bench.__enter__()
        assert found.bench.state()["status"] == "ready"
    try:
        found.until(lambda: found.bench.state()["status"] == "broken")
        assert "address can be reached" in found.bench.state()["problem"]["then"]
        assert found.call("tide")["state"] == "error"
        with serving(server.asgi(path="/mcp"), port):
            found.until(lambda: found.bench.state()["status"] == "ready")
            assert found.bench.state()["problem"] is None
            assert found.call("tide")["state"] == "done"
    finally:
        bench.__exit__(None, None, None)


def test_what_is_shown_of_stderr_with_a_call_is_what_came_with_it(tmp_path: Path) -> None:
    file = tmp_path / "loud.py"
    file.write_text(
        "import os, sys\n"
        + HEAD
        + "@server.tool\ndef say(text: str) -> str:\n    print(text, file=sys.stderr, flush=True)\n"
        "    return text\n@server.tool\ndef die() -> None:\n    print('last words', file=sys.stderr, flush=True)\n"
        "    os._exit(7)\n"
    )
    with desk(str(file), file=str(file)) as found:
        found.call("say", {"text": "words of before"})
        found.until(lambda: [each for each in found.events("log") if "words of before" in each["text"]])
        died = found.call("die")
        assert died["error"]["stderr"] == "last words"
        found.until(lambda: found.bench.state()["status"] == "ready")
        assert found.call("say", {"text": "again"})["state"] == "done"


# What belongs to a call.


JOBS = f"""
{HEAD.replace("'ferries'", "'jobs', store='memory:'")}
@server.tool(task=True)
async def bake() -> str:
    return {{}}["bread"]

@server.prompt
def plan(port: str) -> str:
    return port

@server.completion("plan", "port")
def ports(value: str) -> list[str]:
    return [{{}}["Oban"]]
"""


def test_the_traceback_of_a_task_and_of_a_completion_is_with_what_caused_it(tmp_path: Path) -> None:
    file = tmp_path / "jobs.py"
    file.write_text(JOBS)
    with desk(str(file), file=str(file)) as found:
        made = found.call("bake")
        assert made["is_error"] is True
        found.until(lambda: "KeyError: 'bread'" in found.bench.exchanges.get(made["id"]).report)  # type: ignore[union-attr]
        completed = found.ask("complete", kind="prompt", name="plan", argument="port", value="O")
        assert "KeyError: 'Oban'" in completed["report"]
        assert completed["values"] == []


def test_a_task_that_is_stopped_is_cancelled_once() -> None:
    server = Server("jobs", store="memory:")

    @server.tool(task=True)
    async def sleep(ctx: Context) -> str:
        import asyncio

        await asyncio.sleep(600)
        return "late"

    with desk(server) as found:
        number = found.ask("call", kind="tool", name="sleep")["id"]
        found.until(lambda: found.bench.exchanges.get(number).task)  # type: ignore[union-attr]
        found.ask("stop", id=number)
        assert found.ended(number)["state"] == "stopped"
        sent = [each for each in found.events("message") if each["side"] == "client"]
        assert [each["method"] for each in sent].count("tasks/cancel") == 1


STRAY = """
import json, sys
for line in ("hello", '{"level": "info"}', '["a", "b"]', "[]"):
    print(line, flush=True)
print("(stdout) on stderr", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
"""


def test_a_line_on_stdout_that_is_no_message_is_shown_once() -> None:
    command = [sys.executable, "-c", STRAY]
    with desk(command, subject=Subject(command)) as found:
        found.until(lambda: [each for each in found.events("log") if "on stderr" in each["text"]])
        shown = [each["text"].strip() for each in found.events("log") if each["source"] in ("stdout", "stderr")]
        for line in ("hello", '{"level": "info"}', '["a", "b"]', "[]"):
            assert [text for text in shown if text.endswith(line)] == [f"not a message of the protocol: {line}"]
        assert "(stdout) on stderr" in shown
        assert not [each for each in found.events("message") if "level" in each["message"]]


# A file over HTTP.


@contextmanager
def served(file: Path, **setup: Any) -> Generator[Desk]:
    listener = socket.create_server(("127.0.0.1", 0))
    served_file = ServedFile(str(file), listener, {}, None, Unavailable)
    subject = Subject((served_file.url,), served_file.url)
    with desk(served_file.url, file=str(file), served=served_file, subject=subject, **setup) as found:
        yield found


def test_a_broken_file_over_http_is_shown_as_one_over_stdio_is(tmp_path: Path) -> None:
    file = tmp_path / "ferries.py"
    file.write_text(HEAD + "1 / 0\n")
    with served(file) as found:
        state = found.bench.state()
        assert state["status"] == "broken"
        assert "ferries.py" in state["problem"]["text"]
        assert "ZeroDivisionError" in state["problem"]["text"]
        address = state["target"]["url"]
        with pytest.raises(urllib.error.HTTPError) as caught:  # other clients get an answer, and the reason
            urllib.request.urlopen(address, timeout=30)
        assert (caught.value.code, b"ZeroDivisionError" in caught.value.read()) == (503, True)
        file.write_text(HEAD + "@server.tool\ndef fares(port: str) -> int:\n    return {}[port]\n")
        found.until(lambda: is_ready(found, 2))
        crashed = found.call("fares", {"port": "x"})
        found.until(lambda: "KeyError: 'x'" in found.bench.exchanges.get(crashed["id"]).report)  # type: ignore[union-attr]
        file.write_text(HEAD + TOOL)
        found.until(lambda: is_ready(found, 3))
        made = found.call("fares")
        assert (made["state"], found.bench.state()["target"]["url"]) == ("done", address)
        assert address in found.ask(f"code?id={made['id']}")["curl"]


def test_an_import_without_an_end_over_http_is_shown_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "ferries.py"
    file.write_text(HEAD + "while True:\n    pass\n")
    with served(file, wait=False) as found:
        found.until(lambda: "line " in waiting(found))
        file.write_text(HEAD + TOOL)
        found.until(lambda: is_ready(found, 2))
        assert found.call("fares")["state"] == "done"


def test_a_server_over_http_that_dies_is_shown_so(tmp_path: Path) -> None:
    file = tmp_path / "ferries.py"
    file.write_text("import os\n" + HEAD + "@server.tool\ndef die() -> None:\n    os._exit(7)\n" + TOOL)
    with served(file) as found:
        assert found.call("die")["state"] == "error"
        found.until(lambda: found.bench.state()["status"] == "broken")
        assert "exit status 7" in found.bench.state()["problem"]["text"]
        found.ask("restart")
        found.until(lambda: is_ready(found, 2))
        assert found.call("fares")["state"] == "done"
