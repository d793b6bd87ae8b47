"""Mistakes of new users: each is refused where it is written, in one sentence that says what to write instead."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest

from linkspan import (
    Client,
    ClientGroup,
    Context,
    Depends,
    Host,
    Prompt,
    PromptArgument,
    RegistrationError,
    Server,
    SyncClient,
    SyncClientGroup,
    Tool,
)


class MyContext(Context):
    """A context with something of the author's."""


def direct(ctx: MyContext) -> None: ...
def optional(a: int, context: MyContext | None = None) -> None: ...
def annotated(ctx: Annotated[MyContext, "text"]) -> None: ...
def loose(args: Any, ctx: MyContext) -> None: ...
def needing(_: Annotated[None, Depends(direct)]) -> None: ...


class TestASubclassOfTheContext:
    """Nothing would make one: the function would get a plain `Context`."""

    @pytest.mark.parametrize(
        "register",
        [
            lambda server: server.tool(direct),
            lambda server: server.tool(optional),
            lambda server: server.prompt(annotated),
            lambda server: server.tool(needing),
            lambda server: server.define_custom_method("acme/add", loose),
        ],
    )
    def test_it_is_refused(self, register: Callable[[Server], object]) -> None:
        with pytest.raises(RegistrationError) as caught:
            register(Server())
        assert str(caught.value).endswith(
            "has the type MyContext, but it gets a Context: annotate it with Context, and write what MyContext adds as "
            "functions or dependencies"
        )

    def test_the_context_itself_is_taken(self) -> None:
        server = Server()

        @server.tool
        def tool(ctx: Context[int], again: int = 0) -> str:
            return type(ctx).__name__

        reply = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "tool"}})
        assert reply["result"]["content"][0]["text"] == "Context"


def helper() -> int:
    return 3


def forgot_to_call(x: int = helper) -> int:
    return x


def forgot_to_make(x: list[int] = list) -> int:
    return len(x)


@dataclasses.dataclass(frozen=True)
class ForeignDepends:
    """Looks as that of FastAPI does."""

    dependency: Callable[..., object]


ForeignDepends.__name__, ForeignDepends.__module__ = "Depends", "fastapi.params"


def by_default(x: Any = ForeignDepends(helper)) -> None: ...
def by_hint(x: Annotated[int, ForeignDepends(helper)]) -> None: ...


def through(x: Annotated[Any, Depends(by_default)]) -> None: ...


def numbers() -> Iterator[int]:
    yield 1


async def later_numbers() -> Any:
    yield 1


ANY: Any = None
SERVER = Server("there")
SERVER.tool(name="f")(helper)


def called(*arguments: Any, **options: Any) -> object:
    with SyncClient(SERVER) as client:
        return client.call_tool(*arguments, **options)


def called_on_a_loop(*arguments: Any) -> object:
    async def main() -> object:
        async with Client(SERVER) as client:
            return await client.call_tool(*arguments)

    return asyncio.run(main())


NO_LIST = "takes a mapping from names to servers, such as {'shop': 'https://shop.example/mcp'}, not a list"
NOT_5 = "takes a mapping for arguments, such as {'city': 'Rome'}, not 5"
YIELDS = (
    "yields, but a client gets one answer: return a list, and call ctx.progress or ctx.log for what comes before it"
)
FASTAPI = "parameter x has the Depends of fastapi, which nothing calls here: write `from linkspan import Depends`"
MISTAKES: list[tuple[Callable[[], object], str]] = [
    (
        lambda: Server().resource(helper),
        "@server.resource needs the URI of the resource: write @server.resource('docs://helper')",
    ),
    (
        lambda: Server().resource(),  # type: ignore[call-overload]
        "@server.resource needs the URI of the resource: write @server.resource('docs://...')",
    ),
    *(
        (
            partial(Server().completion, *given),
            "@server.completion needs the prompt or template, and its argument: "
            "write @server.completion('my_prompt', 'my_argument')",
        )
        for given in ((), (helper,), ("a_prompt",), ("a_prompt", helper), (5, "argument"))
    ),
    (
        lambda: Server().handler(),  # type: ignore[call-arg]
        "@server.handler needs the name of the method: write @server.handler('tools/...')",
    ),
    *(
        (
            getattr(Server(), name),
            f"@server.{name} is written without parentheses, above the function",
        )
        for name in ("completion_handler", "lifespan", "on_session_end", "resources_read_handler")
    ),
    (
        lambda: Server().custom_method(helper),
        "@server.custom_method needs the name of the method: write @server.custom_method('acme/helper')",
    ),
    (
        lambda: Server().define_tool(helper),
        "define_tool() takes a string or None for name=, such as name='...', not the function helper",
    ),
    (
        lambda: Server(auth="secret"),
        "Server() takes a Protected or None for auth=, such as auth=Protected('https://...', "
        "issuer='https://...'), not a str; use Protected(url, verify=ApiKeys({sha256_of_a_key: Grant(...)})) for keys "
        "that you hand out",
    ),
    (lambda: Server(5), "Server() takes a string for name=, such as name='...', not 5"),
    (lambda: Server(tools=5), "Server() takes a list for tools=, such as tools=[...], not 5"),
    (lambda: Server(tools=helper), "Server() takes a list for tools=, such as tools=[helper], not the function helper"),
    (lambda: Server(ttl_ms="5"), "Server() takes a number of milliseconds for ttl_ms=, such as ttl_ms=10, not '5'"),
    (
        lambda: Server(require_initialized="yes"),
        "Server() takes True or False for require_initialized=, such as require_initialized=True, not 'yes'",
    ),
    (
        lambda: Server(request_state_keys="a long secret in a text"),
        "Server() takes a list or None for request_state_keys=, such as request_state_keys=[...], not a str",
    ),
    (
        lambda: Server(extensions=["tasks"]),
        "extensions= takes values such as Extension('com.example/notes', ...), not 'tasks'",
    ),
    (
        lambda: Server().tool(timeout="5s")(helper),
        "tool() takes a number of seconds or None for timeout=, such as timeout=5.0, not '5s'",
    ),
    (
        lambda: Server().tool(timeout=True)(helper),
        "tool() takes a number of seconds or None for timeout=, such as timeout=5.0, not True",
    ),
    (
        lambda: Server().tool(structured="no")(helper),
        "tool() takes True or False for structured=, such as structured=True, not 'no'",
    ),
    (lambda: Server().middleware(5), "middleware is a function, not 5: write @server.middleware above one"),
    (
        lambda: Server().middleware(helper, only=5),
        "middleware helper: only= takes a list, such as ['tools/list'], not 5",
    ),
    (lambda: Server().tool(numbers), f"numbers {YIELDS}"),
    (lambda: Server().tool(later_numbers), f"later_numbers {YIELDS}"),
    (lambda: Server().prompt(later_numbers), f"later_numbers {YIELDS}"),
    (lambda: Server().resource("docs://a")(numbers), f"numbers {YIELDS}"),
    (lambda: Server().define_custom_method("acme/a", numbers), f"numbers {YIELDS}"),
    (lambda: Server().tool(by_default), f"by_default: {FASTAPI}"),
    (lambda: Server().tool(by_hint), f"by_hint: {FASTAPI}"),
    (lambda: Server().tool(through), f"by_default: {FASTAPI}"),
    (
        lambda: Server().prompt(forgot_to_make),
        "forgot_to_make: the default of parameter x is the class list, which nothing calls: write list() for a value of it",
    ),
    (
        lambda: Server().tool(forgot_to_call),
        "forgot_to_call: the default of parameter x is the function helper, which nothing calls: write "
        "Depends(helper) to call it for each call, or helper() for one value",
    ),
    (
        lambda: SyncClient(SERVER, elicitation="yes"),
        "SyncClient() takes a function or None for elicitation=, such as elicitation=my_function, not 'yes'",
    ),
    (
        lambda: Client(SERVER, middleware=helper),
        "Client() takes a list for middleware=, such as middleware=[helper], not the function helper",
    ),
    (lambda: SyncClientGroup([SERVER]), f"SyncClientGroup() {NO_LIST}"),
    (lambda: ClientGroup([SERVER]), f"ClientGroup() {NO_LIST}"),
    (lambda: called("f", 5), f"call_tool() {NOT_5}"),
    (lambda: called_on_a_loop("f", 5), f"call_tool() {NOT_5}"),
    (lambda: SyncClient(SERVER).get_prompt("f", ANY or 5), f"get_prompt() {NOT_5}"),
    (
        lambda: called("f", timeout="5s"),
        "call_tool() takes a number of seconds or None for timeout=, such as timeout=5.0, not '5s'",
    ),
]


@pytest.mark.parametrize(("mistake", "sentence"), MISTAKES, ids=[sentence[:60] for _, sentence in MISTAKES])
def test_it_is_refused_where_it_is_written(mistake: Callable[[], object], sentence: str) -> None:
    with pytest.raises((RegistrationError, TypeError)) as caught:
        mistake()
    assert str(caught.value) == sentence


def test_a_host_of_a_list_is_refused() -> None:
    async def main() -> None:
        Host([SERVER])

    with pytest.raises(TypeError, match="Host\\(\\) takes a mapping from names to servers"):
        asyncio.run(main())


def test_what_is_right_is_taken() -> None:
    Server("a", "1", tools=iter([helper]), page_size=None, ttl_ms=5, server_context=dict, request_state_ttl=60)
    server = Server()
    server.tool(name=None, timeout=5, structured=True, meta=None)(helper)
    server.prompt(numbers)  # all of whose messages are taken
    SyncClient(SERVER, roots=["/project"], elicitation=lambda params: None, env=None).close_now()


# Completions of what does not exist.


class Report(Prompt):
    """A prompt with an argument."""

    arguments = (PromptArgument("month"),)

    @staticmethod
    def template(args: Any) -> str:
        return "x"


def completing(ref: str, argument: str, **options: Any) -> Server:
    server = Server("shop", prompts=[Report], **options)
    server.define_resource_template("shop://{item}", "items", read=lambda item: item)
    server.completion(ref, argument)(lambda value: [value])
    return server


DEAD = [
    ("reprot", "month", "there is no prompt and no resource template 'reprot'; did you mean 'report'?"),
    ("report", "mnth", "the prompt 'report' has no argument 'mnth'; did you mean 'month'?; it has month"),
    (
        "shop://{item}",
        "itm",
        "the resource template 'shop://{item}' has no argument 'itm'; did you mean 'item'?; it has item",
    ),
]
WAYS: dict[str, Callable[[Server], object]] = {
    "handle": lambda server: server.handle({"jsonrpc": "2.0", "id": 1, "method": "ping"}),
    "asgi": lambda server: server.asgi(),
    "wsgi": lambda server: server.wsgi(),
    "connect": lambda server: server.connect(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("ref", "argument", "problem"), DEAD)
def test_a_completion_of_what_does_not_exist_is_refused_when_the_server_first_serves(
    ref: str, argument: str, problem: str, way: str
) -> None:
    server = completing(ref, argument)
    for _ in range(2):
        with pytest.raises(RegistrationError) as caught:
            WAYS[way](server)
        assert str(caught.value) == f"@server.completion({ref!r}, {argument!r}): {problem}"


@pytest.mark.parametrize(("ref", "argument"), [("report", "month"), ("shop://{item}", "item")])
def test_a_completion_may_come_before_what_it_completes(ref: str, argument: str) -> None:
    server = Server("shop")
    server.completion(ref, argument)(lambda value: [value])
    server.define_prompt("report", handler=Report.template, arguments=[PromptArgument("month")])
    server.define_resource_template("shop://{item}", "items", read=lambda item: item)
    assert WAYS["handle"](server) == {"jsonrpc": "2.0", "id": 1, "result": {}}


def lives() -> Iterator[None]:
    yield


@pytest.mark.parametrize("options", [{"auto_notify": True}, {"lifespan": lives}])
def test_it_is_a_warning_where_prompts_can_still_come(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    server = completing("later", "month", **options)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            WAYS["handle"](server)
    assert caplog.messages == [
        "@server.completion('later', 'month'): there is no prompt and no resource template 'later'"
    ]


# What a person sees of it.

BAD = """from linkspan import Server, Tool, RegistrationError

server = Server("shop")

class Connection: ...

def register():
    WRITTEN

register()
"""
LINES = {
    "@server.tool\n    def q(con: Connection): ...": "q: parameter con has the type Connection, which JSON cannot carry",
    "@server.tool(name='q')\n    def q(con: Connection): ...": "q: parameter con has the type Connection",
    "server.tool(timeout='5s')": "tool() takes a number of seconds",
    "server.tool(titel='x')": "tool() has no 'titel'",
    "Server(tools=[5])": "a tool is a function or a Tool, not int",
    "Server(auth='secret')": "Server() takes a Protected",
    "server.lifespan(5)": "cannot be called",
    "server.define_custom_method('ping', print)": "Method ping already defined",
    "server.completion_handler(5)": "5 has no signature",
    "server.middleware(5)": "middleware is a function",
    "type('Bad name', (Tool,), {'name': 'a b'})": "'a b' cannot name a tool",
}


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("written", LINES)
def test_the_traceback_ends_in_the_authors_line_and_one_of_ours(written: str, debug: bool, tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(BAD.replace("WRITTEN", written))
    environment = {**os.environ, "LINKSPAN_DEBUG": str(int(debug))}
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, env=environment)
    frames = [line.split('"')[1] for line in run.stderr.splitlines() if line.startswith("  File ")]
    assert LINES[written] in run.stderr.splitlines()[-1]
    ours = [each for each in frames if "linkspan" in Path(each).parts]
    assert (len(ours) > 1) is debug, run.stderr


def test_pytest_leaves_our_frame_out() -> None:
    with pytest.raises(RegistrationError) as caught:
        Server().tool(numbers)
    shown = caught.traceback.filter(caught)
    assert [Path(str(each.path)).name for each in shown] == ["test_mistakes.py"]


def test_an_error_of_the_authors_own_code_keeps_its_frames() -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise TypeError("mine")

    with pytest.raises(TypeError, match="mine") as caught:
        Server().tool(annotations=ANY)(_annotated(Broken()))
    assert any(each.name == "__getattr__" for each in caught.traceback)


def _annotated(value: object) -> Callable[..., object]:
    def function(x: Any = None) -> None: ...

    function.__annotations__["x"] = Annotated[int, value]
    return function


def test_a_class_keeps_its_place() -> None:
    class Good(Tool):
        @staticmethod
        def call(count: int) -> int:
            return count

    assert Server(tools=[Good])
