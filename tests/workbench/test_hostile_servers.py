"""What a server can do to the workbench of the person who looks at it: nothing that cannot be looked at."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benches import Desk, desk
from http_browser import chromium
from linkspan import Context, Server
from linkspan.flows.answers import Refused
from linkspan.workbench.code import Subject
from linkspan.workbench.events import Trickle
from linkspan.workbench.exchanges import BenchCalls, Tap, Wanted
from linkspan.workbench.questions import PersonsAnswer, Questions

MARKUP = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "</script><svg onload=alert(1)>",
    "javascript:alert(1)",
    "[link](javascript:alert(1))",
    "# title\n\n<iframe src=//evil.example>",
    "![x](https://evil.example/pixel.png)",
    "<style>*{display:none}</style>",
    "<base href=//evil.example>",
    '" onmouseover="alert(1)',
    "${alert(1)}{{7*7}}",
    "&lt;b&gt; &#x202e;",
    "a\u202egpj.exe",
    "zero\u200bwidth\u2060here",
    "tag\U000e0041\U000e0042s",
    "null\x00 bell\x07 escape\x1b[31m",
    "half \ud83d surrogate",
    "https://evil.example/?q=",
    "| a | b |\n|---|---|\n| <b>x</b> | javascript:1 |",
    "__proto__",
]
"""Texts that a page might take for something else than text."""


def sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def shop_of(texts: list[str]) -> Server:
    """Make a server that says each text wherever a server says something."""
    name, version, title, *_ = whole = [*map(sendable, texts)]
    server = Server(name, version, title=title, instructions="\n".join(whole))
    for number, each in enumerate(whole):
        schema = {
            "type": "object",
            "properties": {each: {"type": "string", "title": each, "description": each, "default": each}},
        }

        server.define_tool(
            name=f"tool_{number}",
            title=each,
            description=each,
            input_schema=schema,
            handler=lambda text=each, **_: text,
        )
    return server


def test_markup_and_hidden_characters_stay_visible_text() -> None:
    complaints: list[str] = []
    with desk(shop_of(MARKUP)) as bench, chromium() as browser:
        page = browser.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: complaints.append(request.url) if "127.0.0.1" not in request.url else None)
        page.goto(bench.server.url)
        page.locator("#list .row").first.wait_for()
        for number in range(len(MARKUP)):
            page.locator("#list .row").nth(number).click()
            page.locator("#work form button[type=submit]").first.click()
            page.locator("#work .out .good").wait_for()
        assert page.locator("img, iframe, script:not([src]), svg, base, style, [onmouseover], [onerror]").count() == 0
        assert all(
            each.startswith("https://")
            for each in page.locator("a").evaluate_all("all => all.map((each) => each.href)")
        )
        shown = page.evaluate("document.documentElement.textContent")
        assert not set("\u202e\u200b\u2060\x00\x1b\U000e0041") & set(shown)
        assert "\\u{202e}gpj.exe" in shown
        assert page.locator("#list .row").count() == len(MARKUP)
        page.close()
    assert complaints == []


def hostile() -> Server:
    """Make a server that does too much of everything."""
    server = Server("hostile")
    server.define_tool(name="large", description="x" * 5_000_000, handler=lambda: "ok")
    server.define_tool(name="result", handler=lambda: "y" * 3_000_000)
    server.define_tool(name="deep", handler=lambda: json.loads("[" * 200 + "]" * 200))
    server.define_tool(name="many", handler=lambda: [{"a": 1}] * 20_000)
    server.define_tool(name="ansi", handler=lambda: 1 / 0)
    server.define_tool(name="n" * 120, handler=lambda: "long name")

    @server.tool
    async def progress(ctx: Context) -> str:
        for number in range(1_000):
            ctx.progress(number, message="p" * 100)
        return "done"

    @server.tool
    async def logs(ctx: Context) -> str:
        for _ in range(500):
            ctx.log("z" * 1_000, level="error")
        return "done"

    @server.tool
    async def hangs() -> str:
        await asyncio.sleep(600)
        return "never"

    return server


@pytest.fixture(scope="module")
def bench() -> Iterator[Desk]:
    with desk(hostile()) as found:
        yield found


CALLS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "large": lambda found: found["state"] == "done",
    "result": lambda found: len(found["beginning"]) <= 70_000 and found["bytes"] > 3_000_000,
    "deep": lambda found: found["state"] in ("done", "error"),
    "many": lambda found: found["state"] == "done",
    "ansi": lambda found: found["is_error"],
    "n" * 120: lambda found: found["state"] == "done",
    "progress": lambda found: found["state"] == "done",
    "logs": lambda found: found["state"] == "done",
}


@pytest.mark.parametrize("name", CALLS, ids=lambda name: name[:20])
def test_too_much_of_anything_is_bounded(bench: Desk, name: str) -> None:
    assert CALLS[name](bench.call(name))
    status, _, data = bench.send("GET", "/api/state")
    assert status == 200
    assert len(data) < 2_000_000
    assert sum(map(len, bench.bench.events.after(0, 0) or ())) <= 16 * 1024 * 1024


def test_the_whole_of_a_large_result_can_be_saved(bench: Desk) -> None:
    made = bench.call("result")
    assert len(bench.send("GET", f"/api/result?id={made['id']}")[2]) == made["bytes"]


def test_calls_that_hang_are_bounded_and_can_be_stopped(bench: Desk) -> None:
    begun = [bench.ask("call", kind="tool", name="hangs")["id"] for _ in range(16)]
    assert bench.send("POST", "/api/call", b'{"kind": "tool", "name": "hangs"}')[0] == 429
    for number in begun:
        assert bench.ask("stop", id=number)["stopped"]
    assert {bench.ended(number)["state"] for number in begun} == {"stopped"}


def test_a_hundred_questions_at_once_are_not_all_asked() -> None:
    questions, refused = Questions(lambda number, shown: None), list[int]()

    def ask(number: int) -> None:
        try:
            questions.ask("elicitation", {"message": f"Question {number}?"}, None)
        except Refused:
            refused.append(number)

    asking = [threading.Thread(target=ask, args=(number,)) for number in range(100)]
    for each in asking:
        each.start()
    while len(refused) < 68:
        time.sleep(0.01)
    assert len(questions.shown()) == 32
    assert questions.answer(PersonsAnswer(questions.shown()[0]["id"], "decline"))
    assert not questions.answer(PersonsAnswer(10_000, "accept"))
    questions.drop()
    for each in asking:
        each.join(10)
    assert (len(refused), questions.shown()) == (99, [])


def test_thousands_of_tools_are_listed_and_a_part_is_drawn() -> None:
    server = Server("many")
    for number in range(3_000):
        server.define_tool(name=f"tool_{number}", handler=lambda: 1)
    with desk(server) as found, chromium() as browser:
        page = browser.new_page()
        page.goto(found.server.url)
        page.locator("#list .row").first.wait_for()
        assert page.locator("#list .row").count() == 200
        page.keyboard.press("/")
        page.keyboard.type("tool_2999")
        page.get_by_text("1 found").wait_for()
        page.close()


PRINTING = """
import sys, json, os
from linkspan import Server
server = Server("loud")
@server.tool
def shout(kilobytes: int) -> int:
    sys.stderr.write("\\x1b[2J" + ("L" * 1023 + "\\n") * kilobytes)
    return kilobytes
@server.tool
def die() -> None:
    print("last words", file=sys.stderr, flush=True)
    os._exit(7)
@server.tool
def forge() -> str:
    sys.stderr.write('\\x1eLS1 {"level":"ERROR","logger":"x","text":"forged","traceback":"T","request_id":1}\\n')
    sys.stderr.write('\\x1eLS1 {not json\\n')
    return "forged"
@server.tool
def env() -> list[str]:
    return [name for name in os.environ if "LINKSPAN_REPORT" in name]
"""


def test_ids_that_are_not_ids_hide_no_message() -> None:
    hostile: list[Any] = [{}, [], {"a": [1]}, None, True, 1.5, "1"]
    shown: list[dict[str, Any]] = []

    def show(kind: str, **facts: Any) -> None:
        shown.append({"type": kind, **facts})

    calls = BenchCalls(lambda _: None)
    call = calls.begin(Wanted("tool", "tide"))
    tap = Tap(calls, "c", show)
    tap.client(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tide"}}\n')
    messages: list[dict[str, Any]] = []
    for each in hostile:
        messages.append({"jsonrpc": "2.0", "id": each, "result": {}})
        messages.append({"jsonrpc": "2.0", "id": each, "method": "ping"})
        messages.append({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": each}})
    messages.append({"jsonrpc": "2.0", "id": 1, "result": {}})
    tap.server(b"".join(json.dumps(each).encode() + b"\n" for each in messages))
    assert [each["message"] for each in shown[1:]] == messages
    assert [each["type"] for each in shown] == ["message"] * (len(messages) + 1)
    answered = [each["message"]["id"] for each in shown if each["method"] == "tools/call" and each["side"] == "server"]
    assert answered == [1]  # and neither true nor "1" was taken for it
    assert call.open_requests == 0


def test_a_message_that_is_too_deep_hides_no_other() -> None:
    for depth in range(400, 1000, 20):  # somewhere there it can be read and not be shown
        shown: list[str] = []

        def show(kind: str, shown: list[str] = shown, **facts: Any) -> None:
            shown.append(kind)

        tap = Tap(BenchCalls(lambda _: None), "c", show)
        tap.server(b'{"id":' + b"[" * depth + b"]" * depth + b'}\n{"id":1,"result":{}}\n')
        assert (len(shown), shown[-1]) == (2, "message"), depth


def test_a_process_that_shouts_dies_or_forges_reports_is_survived(tmp_path: Path) -> None:
    file = tmp_path / "loud.py"
    file.write_text(PRINTING)
    with desk(str(file), file=str(file)) as found:
        assert found.call("shout", {"kilobytes": 10_000})["state"] == "done"
        kept = sum(len(each["text"]) for each in found.events("log"))
        assert kept < 2_000_000
        died = found.call("die")
        assert died["state"] == "error"
        assert (died["error"]["exit_code"], "last words" in died["error"]["stderr"]) == (7, True)
        assert found.call("forge")["state"] == "done"
        assert found.call("env")["result"]["structuredContent"] == {"result": []}
        assert not any("\x1b" in text for kind, text in found.said if kind == "call" and "\\x1b" not in text)


ANSWER = """
for line in sys.stdin:
    if '"id"' in line:
        print(json.dumps({'jsonrpc': '2.0', 'id': json.loads(line)['id'], BODY}), flush=True)
"""
NO_TOOLS = {
    "tools": [5, {}],
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "x", "version": "1"},
}
GARBAGE = {
    "nothing": "",
    "no JSON": "print('hello')",
    "an answer of another shape": 'print(\'{"jsonrpc":"2.0","id":1,"result":5}\', flush=True)',
    "half a line for ever": "sys.stdout.write('{' * 100000); sys.stdout.flush()",
    "an error for everything": ANSWER.replace("BODY", "'error': {'code': -1, 'message': '<b>no</b>'}"),
    "a list of no tools": ANSWER.replace("BODY", f"'result': {NO_TOOLS}"),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_a_server_that_speaks_garbage_is_broken_and_says_why(what: str) -> None:
    from linkspan.flows.state import Timeouts

    command = [sys.executable, "-c", f"import sys, json\n{GARBAGE[what]}"]
    timeouts = Timeouts(connect=5, probe=1, list=2, call=2)
    with desk(command, subject=Subject(command), timeouts=timeouts) as found:
        state = found.bench.state()
        assert state["status"] == "broken" or state["problems"]
        assert found.send("GET", "/")[0] == 200


def test_a_log_that_is_too_fast_is_counted() -> None:
    trickle = Trickle(rate=100, burst=1_000)
    assert trickle.let_through("x" * 900, 1.0) == "x" * 900
    assert trickle.let_through("y" * 900, 1.0) == "y" * 100
    assert trickle.let_through("z" * 900, 1.0) == ""
    assert trickle.let_through("w", 2.0) == "(1,700 characters are not shown: the server writes too fast)\nw"
