"""A question that holds its call: `hold=True`. The function runs once, and goes on with the answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from linkspan import (
    CallToolResult,
    Client,
    Context,
    Declined,
    Depends,
    Limits,
    MemoryTransport,
    QuestionRefused,
    RegistrationError,
    Server,
    SyncClient,
    TextContent,
)
from over_http import serving

ERAS = ["2025-06-18", "2025-11-25", "2026-07-28"]
MODERN = "2026-07-28"


def hotel(**options: Any) -> tuple[Server, list[str]]:
    """Return a server with a tool that asks twice, and what its function did."""
    server, done = Server("hotel", **options), list[str]()

    @server.tool(hold=True)
    async def book(room: str, ctx: Context) -> str:
        done.append(f"look at {room}")
        nights = await ctx.ask("nights", int, "How many nights?")
        done.append(f"{nights} nights")
        try:
            sure = await ctx.ask("sure", bool, f"Really {nights} nights?")
        except asyncio.CancelledError:
            done.append("cancelled")
            raise
        finally:
            done.append("over")
        return f"{room}: {nights if sure else 0}"

    return server, done


def fill_in(form: Any) -> dict[str, Any]:
    return {"nights": 3} if "nights" in form.message and "How" in form.message else {"sure": True}


@pytest.mark.parametrize("era", ERAS)
def test_a_function_runs_once_and_goes_on_with_each_answer(era: str) -> None:
    server, done = hotel()
    with SyncClient(server, protocol_version=era, elicitation=fill_in) as client:
        assert client.call_tool("book", {"room": "Rome 5"}).text == "Rome 5: 3"
    assert done == ["look at Rome 5", "3 nights", "over"]


@pytest.mark.parametrize("era", ERAS[1:])
def test_every_kind_of_question_holds(era: str) -> None:
    server, runs = Server("hotel"), list[int]()

    @server.tool(hold=True)
    async def everything(ctx: Context) -> list[str]:
        runs.append(1)
        await ctx.ping()
        await ctx.ask_url("pay", "https://example.com/pay", "Pay")
        first, second = await ctx.sample("One"), await ctx.sample("Two")
        roots = await ctx.roots()
        name = [await ctx.ask("name", str, text) for text in ("Your name?", "Your surname?")]
        return [first.text, second.text, roots[0].uri[:7], *name]

    answers: Iterator[dict[str, str]] = iter([{"name": "Ada"}, {"name": "Lovelace"}])

    def elicit(form: Any) -> Any:
        return True if form.mode == "url" else next(answers)

    def sample(asked: Any) -> str:
        return f"<{asked.messages[0].content.text}>"

    with SyncClient(server, protocol_version=era, elicitation=elicit, sampling=sample, roots=["."]) as client:
        found = client.call_tool("everything").structured
    assert found == {"result": ["<One>", "<Two>", "file://", "Ada", "Lovelace"]}
    assert runs == [1]


@pytest.mark.parametrize("era", ERAS)
def test_a_user_who_declines_is_an_exception_at_the_question(era: str) -> None:
    server = Server("hotel")

    @server.tool(hold=True)
    async def book(ctx: Context) -> str:
        try:
            await ctx.ask("nights", int, "How many?")
        except Declined:
            return f"then {await ctx.ask('nights', int, 'At least one?')}"
        return "?"

    answers = iter([False, {"nights": 1}])
    with SyncClient(server, protocol_version=era, elicitation=lambda form: next(answers)) as client:
        assert client.call_tool("book").text == "then 1"


@pytest.mark.parametrize("era", ERAS)
def test_questions_that_are_asked_at_once_go_together(era: str) -> None:
    server = Server("hotel")

    @server.tool(hold=True)
    async def book(ctx: Context) -> list[int]:
        return list(await asyncio.gather(ctx.ask("a", int, "a?"), ctx.ask("b", int, "b?")))  # type: ignore[arg-type]

    def four(form: Any) -> dict[str, int]:
        return dict.fromkeys(form.requested_schema["properties"], 4)

    with SyncClient(server, protocol_version=era, elicitation=four) as client:
        assert client.call_tool("book").structured == {"result": [4, 4]}


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_cannot_be_asked_is_an_exception_at_the_question(era: str) -> None:
    server = Server("hotel")

    @server.tool(hold=True)
    async def book(ctx: Context) -> str:
        try:
            return await ctx.ask("nights", str, "How many?")
        except Exception as problem:
            return str(problem)

    with SyncClient(server, protocol_version=era) as client:
        assert "does not support" in client.call_tool("book").text


def test_a_handshake_client_that_refuses_is_an_exception_at_the_question() -> None:
    server = Server("hotel")

    @server.tool(hold=True)
    async def book(ctx: Context, caught: bool) -> str:
        try:
            return (await ctx.sample("Thank the guest")).text
        except QuestionRefused as problem:
            if not caught:
                raise
            return f"{problem.code} {problem.message[:8]}"

    with MemoryTransport(server) as pipe:
        capabilities = {"sampling": {}}
        info = {"name": "raw", "version": "1"}
        send(pipe, "initialize", protocolVersion="2025-11-25", capabilities=capabilities, clientInfo=info)
        assert "result" in json.loads(pipe.receive())
        pipe.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        for caught, text in ((True, "-1 no model"), (False, "The client refused 'sample-1': no model (-1)")):
            send(pipe, "tools/call", name="book", arguments={"caught": caught})
            question = json.loads(pipe.receive())
            assert question["method"] == "sampling/createMessage"
            error = {"code": -1, "message": "no model"}
            pipe.send(json.dumps({"jsonrpc": "2.0", "id": question["id"], "error": error}).encode() + b"\n")
            assert json.loads(pipe.receive())["result"]["content"][0]["text"] == text


def send(pipe: MemoryTransport, method: str, **params: Any) -> None:
    pipe.send(json.dumps({"jsonrpc": "2.0", "id": method, "method": method, "params": params}).encode() + b"\n")


# Without a client of ours.


def call(server: Server, params: dict[str, Any]) -> Any:
    """Send one `tools/call` of a modern client through `handle_json`, which has no connection that stays."""
    envelope = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": envelope}}
    answer = server.handle_json(json.dumps(message))
    assert answer is not None
    found = json.loads(answer)
    return found.get("result", found.get("error"))


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def test_a_modern_caller_brings_the_answers_to_the_same_process() -> None:
    server, done = hotel()
    params = {"name": "book", "arguments": {"room": "Rome 5"}}
    asked = call(server, params)
    assert asked["resultType"] == "input_required"
    assert done == ["look at Rome 5"]
    again = {**params, "requestState": asked["requestState"], "inputResponses": {"nights": accept(nights=2)}}
    asked = call(server, again)
    assert list(asked["inputRequests"]) == ["sure"]
    last = {**params, "requestState": asked["requestState"], "inputResponses": {"sure": accept(sure=True)}}
    assert call(server, last)["content"][0]["text"] == "Rome 5: 2"
    assert done == ["look at Rome 5", "2 nights", "over"]
    for replayed in (again, last):  # never run twice
        assert (error := call(server, replayed))["code"] == -32602
        assert "Begin again, without requestState" in error["message"]
    assert len(done) == 3


def test_another_process_says_to_begin_again() -> None:
    one, _ = hotel(request_state_keys=["k" * 32])
    two, done = hotel(request_state_keys=["k" * 32])
    params = {"name": "book", "arguments": {"room": "Rome 5"}}
    state = call(one, params)["requestState"]
    answer = {**params, "requestState": state, "inputResponses": {"nights": accept(nights=2)}}
    assert "Begin again" in call(two, answer)["message"]
    assert done == []


def test_a_wrong_answer_is_asked_for_again_and_a_missing_one_too() -> None:
    server, done = hotel()
    params = {"name": "book", "arguments": {"room": "Rome 5"}}
    state = call(server, params)["requestState"]
    asked = call(server, {**params, "requestState": state, "inputResponses": {"nights": accept(nights="x")}})
    assert "How many nights? (" in asked["inputRequests"]["nights"]["params"]["message"]
    asked = call(server, {**params, "requestState": asked["requestState"]})
    assert list(asked["inputRequests"]) == ["nights"]
    asked = call(
        server, {**params, "requestState": asked["requestState"], "inputResponses": {"nights": accept(nights=1)}}
    )
    assert list(asked["inputRequests"]) == ["sure"]
    assert done == ["look at Rome 5", "1 nights"]


def wait_for(condition: Callable[[], bool]) -> None:
    from time import monotonic, sleep

    until = monotonic() + 20
    while not condition() and monotonic() < until:
        sleep(0.005)
    assert condition()


def soon() -> Limits:
    """Return limits with a deadline that is over at once; the least that authors can write is a second."""
    limits = Limits()
    msgspec.structs.force_setattr(limits, "input_timeout", 0.05)
    return limits


def test_a_call_whose_answer_does_not_come_is_cancelled() -> None:
    server, done = hotel(limits=soon())
    params = {"name": "book", "arguments": {"room": "Rome 5"}}
    state = call(server, params)["requestState"]
    asked = call(server, {**params, "requestState": state, "inputResponses": {"nights": accept(nights=2)}})
    wait_for(lambda: "over" in done)
    assert done == ["look at Rome 5", "2 nights", "cancelled", "over"]
    late = {**params, "requestState": asked["requestState"], "inputResponses": {"sure": accept(sure=True)}}
    assert "Begin again" in call(server, late)["message"]


def test_calls_that_wait_are_bounded() -> None:
    server, done = hotel(limits=Limits(max_held_calls=2))
    params = {"name": "book", "arguments": {"room": "Rome 5"}}
    states = [call(server, params)["requestState"] for _ in range(2)]
    assert "max_held_calls" in call(server, params)["message"]
    again = {**params, "requestState": states[0], "inputResponses": {"nights": accept(nights=2)}}
    assert call(server, again)["resultType"] == "input_required"  # it waits once, as before
    assert done.count("look at Rome 5") == 3


def test_what_fails_after_its_time_is_reported() -> None:
    reported: list[BaseException] = []
    server = Server("hotel", limits=soon(), exception_reporter=lambda error, _: reported.append(error))

    @server.tool(hold=True)
    async def book(ctx: Context) -> None:
        try:
            await ctx.ask("nights", int, "How many?")
        finally:
            raise ValueError("cannot clean up")

    call(server, {"name": "book"})
    wait_for(lambda: bool(reported))
    assert str(reported[0]) == "cannot clean up"


def test_a_function_that_stops_waiting_has_its_value_for_the_answer() -> None:
    server = Server("hotel")

    @server.tool(hold=True)
    async def book(ctx: Context) -> str:
        try:
            return await asyncio.wait_for(ctx.ask("nights", str, "How many?"), 0.02)  # type: ignore[arg-type]
        except TimeoutError:
            return "too late"

    state = call(server, {"name": "book"})["requestState"]
    from time import sleep

    sleep(0.05)
    answer = {"name": "book", "requestState": state, "inputResponses": {"nights": accept(nights="2")}}
    assert call(server, answer)["content"][0]["text"] == "too late"


def test_a_handshake_request_without_a_way_back_is_refused_and_its_function_cancelled() -> None:
    server, done = hotel()

    @server.tool(hold=True)
    async def ping(ctx: Context) -> None:
        try:
            await ctx.ping()
        finally:
            done.append("over")

    answer = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ping"}})
    assert "cannot be asked here" in json.dumps(answer)
    wait_for(lambda: done == ["over"])


# Around it.


@pytest.mark.parametrize("era", ERAS)
def test_dependencies_stay_open_and_middleware_surrounds_each_round(era: str) -> None:
    server, done = Server("hotel"), list[str]()

    async def pool() -> AsyncIterator[str]:
        done.append("open")
        yield "pool"
        done.append("close")

    @server.middleware(only=["tools/call"])
    def around(call: Any) -> Iterator[None]:
        done.append(f"round {call.round}")
        yield

    @server.tool(hold=True)
    async def book(ctx: Context, db: str = Depends(pool)) -> str:
        return f"{db} {await ctx.ask('n', int, 'How many?')}"

    with SyncClient(server, protocol_version=era, elicitation=lambda form: {"n": 2}) as client:
        assert client.call_tool("book").text == "pool 2"
    assert done == ["round 1", "open", "round 2", "close"]


@pytest.mark.parametrize("era", ERAS)
def test_what_runs_again_inside_of_it_does_not_run_it_again(era: str) -> None:
    server, runs = Server("hotel"), list[str]()

    @server.resource("docs://{name}")
    async def doc(name: str, ctx: Context) -> str:
        runs.append("doc")
        return f"{name} {ctx.ask('page', int, 'Which page?')} {ctx.ask('line', int, 'Which line?')}"

    @server.tool(hold=True)
    async def read(ctx: Context) -> str:
        runs.append("read")
        found = await ctx.read_resource("docs://a")
        return str(found.contents[0].text)  # type: ignore[union-attr]

    def four(form: Any) -> dict[str, int]:
        return dict.fromkeys(form.requested_schema["properties"], 4)

    with SyncClient(server, protocol_version=era, elicitation=four) as client:
        assert client.call_tool("read").text == "a 4 4"
    assert runs == ["read", "doc", "doc", "doc"]


@pytest.mark.parametrize("era", ERAS)
def test_it_works_through_a_mount(era: str) -> None:
    server, done = hotel()
    outer = Server("outer")
    outer.mount(server, "inn")
    with SyncClient(outer, protocol_version=era, elicitation=fill_in) as client:
        assert client.call_tool("inn_book", {"room": "Rome 5"}).text == "Rome 5: 3"
    assert done == ["look at Rome 5", "3 nights", "over"]


@pytest.mark.parametrize("era", ERAS)
def test_a_function_for_a_whole_method_may_wait_too(era: str) -> None:
    server, runs = Server("hotel"), list[int]()

    @server.handler("tools/call", hold=True)
    async def call(params: dict[str, Any], ctx: Context) -> CallToolResult:
        runs.append(1)
        return CallToolResult(content=[TextContent(str(await ctx.ask("n", int, "How many?")))])

    with SyncClient(server, protocol_version=era, elicitation=lambda form: {"n": 2}) as client:
        assert client.call_tool("any").text == "2"
    assert runs == [1]


@asynccontextmanager
async def asking(server: Server, era: str) -> AsyncIterator[tuple[Client, asyncio.Event]]:
    """Connect a client whose user never answers; the event is set when they are asked."""
    asked = asyncio.Event()

    async def never(form: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    async with Client(server, protocol_version=era, elicitation=never) as client:
        yield client, asked


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_cancels_or_leaves_cancels_the_function(era: str) -> None:
    server, done = hotel()

    @server.tool(hold=True)
    async def wait(ctx: Context) -> None:
        try:
            await ctx.ask("n", int, "How many?")
        finally:
            done.append("over")

    async def main() -> None:
        async with asking(server, era) as (client, asked):
            task = asyncio.ensure_future(client.call_tool("wait"))
            await asyncio.wait_for(asked.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        for _ in range(200):
            if done:
                break
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert done == ["over"]


@pytest.mark.parametrize("era", ERAS)
def test_progress_belongs_to_the_request_that_brought_the_answer(era: str) -> None:
    server, seen = Server("hotel"), list[float]()

    @server.tool(hold=True)
    async def book(ctx: Context) -> None:
        ctx.progress(1)
        await ctx.ask("n", int, "How many?")
        ctx.progress(2)

    async def main() -> None:
        async with Client(server, protocol_version=era, elicitation=lambda form: {"n": 2}) as client:
            await client.call_tool("book", on_progress=lambda each: seen.append(each.progress))

    asyncio.run(main())
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"task": True}, "may go on in another process"), ({"isolated": True}, "isolated=True")],
)
def test_hold_is_refused_where_nothing_can_wait(options: dict[str, Any], problem: str) -> None:
    server = Server("hotel")

    async def book(room: str) -> str:
        return room

    with pytest.raises(RegistrationError, match=problem):
        server.tool(hold=True, **options)(book)


def test_a_plain_function_cannot_hold() -> None:
    with pytest.raises(RegistrationError, match="write `async def`"):
        Server("hotel").tool("book", hold=True)(lambda: None)


def test_a_method_that_cannot_ask_cannot_hold() -> None:
    async def pages(params: dict[str, Any]) -> None: ...

    with pytest.raises(RegistrationError, match="cannot ask the user"):
        Server("hotel").handler("tools/list", hold=True)(pages)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_question_may_be_in_the_words_of_the_protocol(era):
    server = Server("x")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}

    @server.tool(hold=True)
    async def held(ctx: Context) -> dict[str, object]:
        return dict(await ctx.question("q", "elicitation/create", {"message": "?", "requestedSchema": schema}))

    @server.tool
    def again(ctx: Context) -> dict[str, object]:
        with pytest.raises(ValueError, match="a client can be asked"):
            ctx.question("q", "tools/list")
        with pytest.raises(ValueError, match=r"the params of elicitation/create are wrong"):
            ctx.question("q", "elicitation/create", {})
        return dict(ctx.question("q", "elicitation/create", {"message": "?", "requestedSchema": schema}))

    with SyncClient(server, era=era, elicitation=lambda asked: {"a": 4}) as client:
        for tool in ("held", "again"):
            assert client.call_tool(tool).structured == {"action": "accept", "content": {"a": 4}}


@pytest.mark.parametrize("interface", ["asgi", "wsgi", "http", "stdio"])
def test_a_question_holds_its_call_over_each_transport(interface: str, tmp_path: Path) -> None:
    server, _ = hotel()
    with contextlib.ExitStack() as stack:
        target: Any
        if interface == "asgi":
            target = stack.enter_context(serving(server.asgi()))
        elif interface == "wsgi":
            target = stack.enter_context(serving_wsgi(server.wsgi()))
        else:
            (tmp_path / "inn.py").write_text(INN)
            target = tmp_path / "inn.py"
            if interface == "http":
                target = stack.enter_context(running_http(target))
        for era in ERAS[1:] if interface != "wsgi" else ERAS[2:]:
            with SyncClient(target, protocol_version=era, elicitation=fill_in) as client:
                assert client.call_tool("book", {"room": "Rome 5"}).text == "Rome 5: 3"


INN = """
import linkspan

server = linkspan.Server("inn")


@server.tool(hold=True)
async def book(room: str, ctx: linkspan.HeldContext) -> str:
    nights = await ctx.ask("nights", int, "How many nights?")
    sure = await ctx.ask("sure", bool, f"Really {nights} nights?")
    return f"{room}: {nights if sure else 0}"


if __name__ == "__main__":
    import sys

    server.run(*sys.argv[1:2], **({"port": int(sys.argv[2])} if sys.argv[1:] else {}))
"""


@contextlib.contextmanager
def serving_wsgi(app: Any) -> Iterator[str]:
    from wsgiref.simple_server import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

    with make_server("127.0.0.1", 0, app, handler_class=Quiet) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}/mcp"
        httpd.shutdown()
        thread.join()


@contextlib.contextmanager
def running_http(path: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(path), "http", str(port)], stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: _answers(port))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(10)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
