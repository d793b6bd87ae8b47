"""The lifespan of a server: what it opens before its first call and closes at its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Annotated, Any

import pytest

from linkspan import Client, Context, Depends, RegistrationError, Server, ServerError, SyncClient, ToolError
from linkspan.serve.memory import MemoryTransport


@dataclass
class Pool:
    """What a lifespan opens; it knows the threads in which it was opened and closed."""

    is_open: bool = True
    threads: list[str] = field(default_factory=list)


@dataclass
class Log:
    """What happened, in its order, and what the lifespan waits for."""

    events: list[str] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    entering: threading.Event = field(default_factory=threading.Event)


def make_server(kind: str, log: Log | None = None, **options: Any) -> tuple[Server, Log]:
    log = log or Log()
    server = Server("pooled", **options)

    @contextmanager
    def opened() -> Iterator[Pool]:
        log.events.append("enter")
        pool = Pool()
        try:
            yield pool
        finally:
            pool.is_open = False
            log.events.append("leave")

    def plain() -> Iterator[Pool]:
        log.entering.set()
        with opened() as pool:
            yield pool

    async def coroutine(server: Server) -> AsyncIterator[Pool]:
        log.entering.set()
        task = asyncio.current_task()
        with opened() as pool:
            async with asyncio.timeout(60):  # as cancel scopes do, it insists on one task
                yield pool
        assert asyncio.current_task() is task

    def manager() -> contextlib.AbstractContextManager[Pool]:
        return opened()

    @asynccontextmanager
    async def async_manager(server: Server) -> AsyncIterator[Pool]:
        with opened() as pool:
            yield pool

    made: dict[str, Any] = {"def": plain, "async": coroutine, "manager": manager, "async manager": async_manager}
    server.lifespan(made[kind])

    @server.tool
    def in_thread(pool: Pool, times: int = 1) -> bool:
        return pool.is_open

    @server.tool
    async def on_loop(pool: Pool) -> bool:
        return pool.is_open

    @server.tool(inline=True)
    def inline(ctx: Context[Pool]) -> bool:
        return ctx.lifespan.is_open

    return server, log


TOOLS = ("in_thread", "on_loop", "inline")
every_kind = pytest.mark.parametrize("kind", ["def", "async", "manager", "async manager"])


def call(server: Server, name: str, **arguments: object) -> Any:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return server.handle(request)


# Where it is entered and left.


@every_kind
def test_a_client_for_threads_enters_it_with_its_first_call_and_leaves_it_when_it_closes(kind: str) -> None:
    server, log = make_server(kind)
    with SyncClient(server) as client:
        assert [tool.name for tool in client.list_tools()] == list(TOOLS)
        assert log.events == []
        assert [client.call_tool(name).structured for name in TOOLS] == [{"result": True}] * 3
        assert log.events == ["enter"]
    assert log.events == ["enter", "leave"]


@every_kind
def test_two_loops_after_each_other_enter_it_once_each(kind: str) -> None:
    server, log = make_server(kind)

    async def main() -> list[object]:
        async with Client(server) as client:
            return [(await client.call_tool(name)).structured for name in TOOLS]

    for runs in (1, 2):
        assert asyncio.run(main()) == [{"result": True}] * 3
        assert log.events == ["enter", "leave"] * runs


@every_kind
def test_single_messages_enter_it_once_and_keep_it(kind: str) -> None:
    server, log = make_server(kind)
    for name in TOOLS * 2:
        assert call(server, name)["result"]["structuredContent"] == {"result": True}
    assert log.events == ["enter"]


@pytest.mark.parametrize("workers", [0, 4])
@every_kind
def test_a_pipe_in_memory_leaves_it_when_it_is_closed(kind: str, workers: int) -> None:
    server, log = make_server(kind)
    with MemoryTransport(server, max_workers=workers) as pipe:
        for number, name in enumerate(TOOLS):
            pipe.send(line(number, "tools/call", name=name))
            assert b'"structuredContent":{"result":true}' in pipe.receive(10)
    assert log.events == ["enter", "leave"]


def test_it_stays_open_until_the_last_client_has_closed() -> None:
    server, log = make_server("def")
    first, second = SyncClient(server).connect(), SyncClient(server).connect()
    first.call_tool("in_thread")
    first.close()
    assert second.call_tool("in_thread").structured == {"result": True}
    assert log.events == ["enter"]
    second.close()
    assert log.events == ["enter", "leave"]


def test_an_event_loop_that_ends_leaves_it_in_its_task() -> None:
    server, log = make_server("async")

    async def main() -> object:
        client = await Client(server).connect()  # never closed
        return (await client.call_tool("on_loop")).structured

    assert asyncio.run(main()) == {"result": True}
    assert log.events == ["enter", "leave"]


# Concurrent calls.


@every_kind
def test_fifty_calls_at_once_enter_it_once(kind: str) -> None:
    server, log = make_server(kind)
    with SyncClient(server) as client, ThreadPoolExecutor(50) as threads:
        found = list(threads.map(lambda at: client.call_tool(TOOLS[at % 3]).structured, range(50)))
    assert found == [{"result": True}] * 50
    assert log.events == ["enter", "leave"]


@every_kind
def test_fifty_tasks_at_once_enter_it_once(kind: str) -> None:
    server, log = make_server(kind)

    async def main() -> list[object]:
        async with Client(server) as client:
            results = await asyncio.gather(*(client.call_tool(TOOLS[at % 3]) for at in range(50)))
            return [each.structured for each in results]

    assert asyncio.run(main()) == [{"result": True}] * 50
    assert log.events == ["enter", "leave"]


def slow_server(log: Log) -> Server:
    server = Server("slow")

    @server.lifespan
    def live() -> Iterator[Pool]:
        log.entering.set()
        assert log.go.wait(10)
        log.events.append("enter")
        yield Pool()
        log.events.append("leave")

    @server.tool
    def use(pool: Pool) -> bool:
        log.events.append("call")
        return pool.is_open

    return server


def line(number: int, method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


def test_lists_and_pings_are_answered_while_it_is_entered() -> None:
    log = Log()
    with MemoryTransport(slow_server(log)) as pipe:
        pipe.send(line(1, "tools/call", name="use"))
        assert log.entering.wait(10)
        pipe.send(line(2, "ping") + line(3, "tools/list"))
        assert b'"id":2' in pipe.receive(10)
        log.go.set()
        assert b'"id":1' in pipe.receive(10)
    assert log.events == ["enter", "call", "leave"]


def test_a_call_that_is_cancelled_while_it_waits_does_not_run() -> None:
    log = Log()
    with MemoryTransport(slow_server(log)) as pipe:
        pipe.send(line(1, "tools/call", name="use"))
        assert log.entering.wait(10)
        pipe.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n')
        log.go.set()
        pipe.send(line(2, "tools/call", name="use"))
        assert b'"id":2' in pipe.receive(10)
    assert log.events == ["enter", "call", "leave"]


def test_a_client_that_goes_while_it_is_entered_leaves_it_at_once() -> None:
    log = Log()
    pipe = MemoryTransport(slow_server(log))
    pipe.send(line(1, "tools/call", name="use"))
    assert log.entering.wait(10)
    closing = threading.Thread(target=pipe.close)
    closing.start()
    log.go.set()
    closing.join(10)
    assert log.events == ["enter", "leave"]


def test_an_async_one_is_cancelled_if_nothing_waits_for_it_any_more() -> None:
    server, events = Server("slow"), []
    entering = threading.Event()

    @server.lifespan
    async def live() -> AsyncIterator[None]:
        entering.set()
        try:
            await asyncio.Event().wait()
            yield
        finally:
            events.append("cancelled")

    @server.tool
    def use() -> None: ...

    with MemoryTransport(server) as pipe:
        pipe.send(line(1, "tools/call", name="use"))
        assert entering.wait(10)
    assert events == ["cancelled"]


# Failures.


@pytest.mark.parametrize("kind", ["def", "async"])
def test_a_failure_is_one_readable_error_for_every_caller(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    log, reported = Log(), SimpleQueue[BaseException]()
    server = Server("broken", exception_reporter=lambda error, context: reported.put(error))

    def plain() -> Iterator[None]:
        log.events.append("enter")
        raise ConnectionError("postgres://admin:secret@db")
        yield

    async def coroutine() -> AsyncIterator[None]:
        log.events.append("enter")
        raise ConnectionError("postgres://admin:secret@db")
        yield

    server.lifespan(plain if kind == "def" else coroutine)
    server.define_tool("use", handler=lambda: "never")
    answers = [call(server, "use")["error"] for _ in range(3)]
    assert log.events == ["enter"]
    assert len({each["message"] for each in answers}) == 1
    message = answers[0]["message"]
    assert message.startswith("The server could not start (incident ")
    assert answers[0]["code"] == -32603
    incident = message.partition("incident ")[2].rstrip(")")
    assert f"the lifespan failed (incident {incident})" in caplog.messages
    assert (
        str(reported.get(timeout=60)) == "postgres://admin:secret@db"
    )  # off the loop, so that callers do not wait for it
    assert reported.empty()


def test_its_author_may_choose_what_callers_read() -> None:
    server = Server("broken")

    @server.lifespan
    def live() -> Iterator[None]:
        raise ToolError("the database is being migrated; try again at noon")
        yield

    @server.tool
    def use() -> None: ...

    expected = "The server could not start: the database is being migrated; try again at noon"
    assert call(server, "use")["error"]["message"] == expected


def test_the_next_client_tries_again_after_a_failure() -> None:
    server, attempts = Server("flaky"), []

    @server.lifespan
    def live() -> Iterator[int]:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError
        yield 7

    @server.tool
    def use(ctx: Context) -> int:
        return ctx.lifespan

    with MemoryTransport(server) as pipe:
        pipe.send(line(1, "tools/call", name="use"))
        assert b"could not start" in pipe.receive(10)
    with MemoryTransport(server) as pipe:
        pipe.send(line(1, "tools/call", name="use"))
        assert b'{"result":7}' in pipe.receive(10)


@pytest.mark.parametrize("kind", ["def", "async"])
def test_a_failure_at_the_end_is_logged(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("broken")

    def plain() -> Iterator[int]:
        yield 1
        raise ValueError("too late")

    async def coroutine() -> AsyncIterator[int]:
        yield 1
        raise ValueError("too late")

    server.lifespan(plain if kind == "def" else coroutine)
    server.define_tool("use", handler=lambda: "fine")
    with SyncClient(server) as client:
        assert client.call_tool("use").text == "fine"
    assert [each.exc_info[0] for each in caplog.records if each.exc_info] == [ValueError]


@pytest.mark.parametrize("kind", ["def", "async"])
def test_an_end_that_takes_too_long_is_left_behind(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    server, never = Server("stuck", lifespan_timeout=0.05), threading.Event()

    def plain() -> Iterator[int]:
        yield 1
        never.wait(10)

    async def coroutine() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    server.lifespan(plain if kind == "def" else coroutine)
    server.define_tool("use", handler=lambda: "fine")
    with SyncClient(server) as client:
        client.call_tool("use")
    never.set()
    assert caplog.messages == [
        f"the lifespan {'plain' if kind == 'def' else 'coroutine'} did not end within 0.05 s (lifespan_timeout)"
    ]


# By type.


def test_what_it_yields_is_passed_by_its_class_and_not_in_any_schema() -> None:
    server = Server("pooled")

    @server.lifespan
    def live() -> Iterator[Pool]:
        yield Pool(threads=["mine"])

    def first(pool: Pool, ctx: Context) -> str:
        assert ctx.lifespan is pool
        return pool.threads[0]

    @server.tool
    def of_dependency(name: Annotated[str, Depends(first)]) -> str:
        return name

    @server.prompt
    def ask(topic: str, pool: Pool) -> str:
        return f"{topic} {pool.threads[0]}"

    @server.resource("pool://one")
    def one(pool: Pool) -> str:
        return pool.threads[0]

    @server.resource("pool://{name}/more")
    async def more(name: str, pool: Pool) -> str:
        return name + pool.threads[0]

    @server.completion("ask", "topic")
    def topics(value: str, pool: Pool) -> list[str]:
        return pool.threads

    @server.custom_method("acme/first")
    def custom(number: int, pool: Pool) -> str:
        return pool.threads[number]

    with_schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    server.define_tool("by_hand", input_schema=with_schema, handler=lambda args, server_context: args["a"])

    @server.define_tool("whole", input_schema=with_schema)
    def whole(args: dict[str, Any], pool: Pool) -> str:
        return pool.threads[0] * args["a"]

    with SyncClient(server) as client:
        tools = {tool.name: tool for tool in client.list_tools()}
        assert all("pool" not in str(tool.input_schema) for tool in tools.values())
        assert [each.name for each in client.list_prompts()[0].arguments or ()] == ["topic"]
        assert client.call_tool("of_dependency").text == "mine"
        assert client.call_tool("whole", {"a": 2}).text == "minemine"
        assert "now mine" in str(client.get_prompt("ask", {"topic": "now"}))
        assert "minded" not in str(client.read_resource("pool://one"))
        assert "amine" in str(client.read_resource("pool://a/more"))
        assert client.request("acme/first", {"number": 0}) == "mine"


def test_a_dict_stays_an_argument() -> None:
    server = Server("plain")

    @server.lifespan
    def live() -> Iterator[dict[str, int]]:
        yield {"a": 1}

    @server.tool
    def use(data: dict[str, int], ctx: Context[dict[str, int]]) -> int:
        return data["a"] + ctx.lifespan["a"]

    assert call(server, "use", data={"a": 2})["result"]["structuredContent"] == {"result": 3}


def test_a_server_without_one_says_so(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("none")

    @server.tool
    def use(ctx: Context) -> str:
        return str(ctx.lifespan)

    assert call(server, "use")["result"]["isError"]
    assert "this server has no lifespan: pass Server(lifespan=...)" in caplog.text


# Registration.


async def no_yield() -> None: ...


def returns_something() -> int:
    return 1


def unknown():
    return contextlib.nullcontext()


def two(server: Server, other: int) -> Iterator[None]:
    yield


REFUSED = [
    (no_yield, "the lifespan no_yield is a coroutine function without a yield"),
    (returns_something, "it is unknown what the lifespan returns_something returns: write a generator function"),
    (unknown, "it is unknown what the lifespan unknown returns: write a generator function"),
    (two, "the lifespan two has the parameters server, other: it may have one"),
    (contextlib.nullcontext(), "cannot be called"),
]


@pytest.mark.parametrize(("function", "problem"), REFUSED)
def test_what_cannot_be_a_lifespan_is_refused(function: Any, problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem):
        Server(lifespan=function)


@dataclass
class Model:
    """What another lifespan opens."""

    name: str


def model_of(log: Log, kind: str, fails: str = "") -> Any:
    """Return a lifespan that yields a Model, and perhaps fails."""

    def steps(threads: set[str]) -> Iterator[Model]:
        log.events.append("enter model")
        threads.add(threading.current_thread().name)
        if fails == "entering":
            raise OSError("no model")
        yield Model("small")
        threads.add(threading.current_thread().name)
        log.events.append("leave model" if len(threads) == 1 else f"left in {threads}")
        if fails == "leaving":
            raise OSError("model lost")

    def plain() -> Iterator[Model]:
        yield from steps(set())

    async def coroutine() -> AsyncIterator[Model]:
        made = steps(set())
        yield next(made)
        await asyncio.sleep(0)
        next(made, None)

    return coroutine if kind == "async" else plain


KINDS = ["def", "async"]
two_kinds = pytest.mark.parametrize(("first", "second"), [(one, other) for one in KINDS for other in KINDS])


def with_two(first: str, second: str, fails: str = "", **options: Any) -> tuple[Server, Log]:
    server, log = make_server(first, **options)
    server.lifespan(model_of(log, second, fails))

    @server.tool
    def both(pool: Pool, model: Model, ctx: Context[tuple[Pool, Model]]) -> bool:
        assert ctx.lifespan == (pool, model)
        return pool.is_open and model.name == "small"

    def of_model(model: Model) -> str:
        return model.name

    @server.tool
    async def through(name: Annotated[str, Depends(of_model)]) -> bool:
        return name == "small"

    return server, log


class TestSeveral:
    @two_kinds
    def test_they_are_entered_in_order_and_left_in_reverse_order(self, first: str, second: str) -> None:
        server, log = with_two(first, second)
        for _ in range(2):
            with SyncClient(server) as client:
                assert [client.call_tool(name).structured for name in ("both", "through")] == [{"result": True}] * 2
            assert log.events == ["enter", "enter model", "leave model", "leave"]
            log.events.clear()

    @two_kinds
    def test_they_are_entered_on_the_loop_of_a_client(self, first: str, second: str) -> None:
        server, log = with_two(first, second)

        async def main() -> object:
            async with Client(server) as client:
                return (await client.call_tool("both")).structured

        assert asyncio.run(main()) == {"result": True}
        assert log.events == ["enter", "enter model", "leave model", "leave"]

    @two_kinds
    def test_what_was_entered_is_left_if_the_next_one_fails(self, first: str, second: str) -> None:
        server, log = with_two(first, second, "entering")
        with SyncClient(server) as client, pytest.raises(ServerError, match="The server could not start"):
            client.call_tool("both")
        assert log.events == ["enter", "enter model", "leave"]

    @two_kinds
    def test_one_that_fails_as_it_is_left_does_not_keep_the_others_from_their_end(
        self, first: str, second: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        server, log = with_two(first, second, "leaving")
        with SyncClient(server) as client:
            assert client.call_tool("both").structured == {"result": True}
        assert log.events == ["enter", "enter model", "leave model", "leave"]
        assert "model lost" in caplog.text

    def test_they_may_stand_in_a_list(self) -> None:
        log = Log()
        server = Server("both", lifespan=[model_of(log, "def"), Session])

        @server.tool
        def both(model: Model, session: Session) -> str:
            return model.name + type(session).__name__

        assert call(server, "both")["result"]["content"][0]["text"] == "smallSession"

    def test_each_has_its_own_time_to_close(self, caplog: pytest.LogCaptureFixture) -> None:
        server, log = with_two("async", "async", lifespan_timeout=0.1)

        @server.lifespan
        async def stuck() -> AsyncIterator[None]:
            yield
            await asyncio.sleep(60)

        async def main() -> None:
            async with Client(server) as client:
                await client.call_tool("both_of_three")

        @server.tool
        def both_of_three(ctx: Context[Any]) -> int:
            return len(ctx.lifespan)

        asyncio.run(main())
        assert log.events == ["enter", "enter model", "leave model", "leave"]
        assert "stuck did not end within 0.1 s" in caplog.text

    def test_two_of_one_class_are_refused(self) -> None:
        with pytest.raises(
            RegistrationError, match="the lifespans plain and plain both yield a Model: let one of them"
        ):
            Server(lifespan=[model_of(Log(), "def"), model_of(Log(), "def")])

    def test_one_that_comes_after_the_first_call_is_refused(self) -> None:
        server, _ = make_server("def")
        with SyncClient(server) as client:
            client.call_tool("in_thread")
            with pytest.raises(RegistrationError, match="Session comes too late: register it before the first call"):
                server.lifespan(Session)
        server.lifespan(Session)


def test_it_comes_before_the_handlers_that_take_what_it_yields() -> None:
    server = Server("late")

    @server.tool
    def use(pool: Pool) -> None: ...

    with pytest.raises(
        RegistrationError,
        match=r"use takes a Pool, which the lifespan live yields: register the lifespan before it, or let it take that as "
        r"ctx\.lifespan",
    ):

        @server.lifespan
        def live() -> Iterator[Pool]:
            yield Pool()


def test_a_class_that_json_cannot_carry_names_the_lifespan_as_a_cure() -> None:
    server = Server("late")
    with pytest.raises(
        RegistrationError, match=r"JSON cannot carry; .*; if a lifespan yields it, register the lifespan first"
    ):

        @server.tool
        def use(session: Session) -> None: ...


def test_an_isolated_tool_cannot_have_it() -> None:
    server, _ = make_server("def")
    with pytest.raises(RegistrationError, match="no lifespan"):

        @server.tool(isolated=True)
        def use(pool: Pool) -> None: ...


class Session:
    """A context manager that its author wrote as a class."""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_a_class_is_a_factory_of_context_managers() -> None:
    server = Server("classy", lifespan=Session)

    @server.tool
    def use(session: Session) -> str:
        return type(session).__name__

    assert call(server, "use")["result"]["content"][0]["text"] == "Session"


def test_a_server_that_is_used_again_while_its_lifespan_is_left_enters_it_again() -> None:
    entered, leaving, go = SimpleQueue[int](), threading.Event(), threading.Event()

    @contextmanager
    def lifespan(_: Server) -> Iterator[None]:
        entered.put(1)
        yield
        leaving.set()
        assert go.wait(60)

    server = Server("again", lifespan=lifespan)
    server.tool(name="t")(lambda: "ok")
    first, second = SyncClient(server), SyncClient(server)
    assert first.call_tool("t").text == "ok"
    with ThreadPoolExecutor(2) as threads:
        closing = threads.submit(first.close)
        assert leaving.wait(60)
        try:
            called = threads.submit(second.call_tool, "t")
            give_up = time.monotonic() + 30
            while server._dispatcher.lifespan._next is None:  # type: ignore[union-attr]
                assert time.monotonic() < give_up
                time.sleep(0.005)
        finally:
            go.set()
        assert called.result(60).text == "ok"
        closing.result(60)
    second.close()
    assert entered.qsize() == 2
