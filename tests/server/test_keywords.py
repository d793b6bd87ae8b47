"""Keywords that a call does not have, at run time and in a type checker; and the help that lists those it has."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from linkspan import Client, Server, SyncClient
from linkspan.client.base import CallKeywords, ListKeywords, RequestKeywords, call_options
from linkspan.core.http_checks import HttpKeywords, HttpPolicy
from linkspan.errors import install_hint
from linkspan.serve.http import HttpRunKeywords, UvicornKeywords, prepare_http, serve_http
from linkspan.serve.stdio import StdioKeywords, StdioTransport
from linkspan.server.prompts import Prompt, PromptInfo
from linkspan.server.tools import PromptDefinition, PromptKeywords, Tool, ToolDefinition, ToolInfo, ToolKeywords

ROOT = Path(__file__).parent.parent.parent
CODE = [*(ROOT / "src").rglob("*.py")]


def keywords_of(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """Return what may be passed by name, without what collects the rest."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(function).parameters
    return {name: each for name, each in found.items() if each.kind in kinds}


CALLS: dict[str, tuple[Callable[..., object], str, str]] = {
    "tool": (lambda **given: Server().tool(**given), "titel", "title"),
    "prompt": (lambda **given: Server().prompt(**given), "descripton", "description"),
    "resource": (lambda **given: Server().resource("a://b", **given), "mimetype", "mime_type"),
    "define_tool": (lambda **given: Server().define_tool("a", **given), "inputschema", "input_schema"),
    "define_prompt": (lambda **given: Server().define_prompt("a", **given), "argument", "arguments"),
    "define": (lambda **given: Tool.define(**given), "output_shema", "output_schema"),
    "Server": (lambda **given: Server("a", **given), "instruction", "instructions"),
    "Client": (lambda **given: Client("a.py", **given), "timeout", "timeouts"),
    "SyncClient": (lambda **given: SyncClient("a.py", **given), "header", "headers"),
    "asgi": (lambda **given: Server().asgi(**given), "alowed_hosts", "allowed_hosts"),
    "wsgi": (lambda **given: Server().wsgi(**given), "otherwize", "otherwise"),
    "run": (lambda **given: Server().run("http", **given), "prot", "port"),
    "call_tool": (lambda **given: SyncClient(Server()).call_tool("b", **given), "time_out", "timeout"),
    "ping": (lambda **given: SyncClient(Server()).ping(**given), "timeuot", "timeout"),
    "iter_tools": (lambda **given: Client(Server()).iter_tools(**given), "header", "headers"),
    "complete": (lambda **given: SyncClient(Server()).complete(None, "b", "c", **given), "Auth", "auth"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_keyword_names_the_nearest_and_what_there_is(call: str) -> None:
    function, given, meant = CALLS[call]
    with pytest.raises(
        TypeError, match=rf"^{call}\(\) has no '{given}', did you mean '{meant}'\? It takes .*\b{meant}\b"
    ):
        function(**{given: None})


@pytest.mark.parametrize("call", CALLS)
def test_a_keyword_like_none_that_there_is_names_what_there_is(call: str) -> None:
    function, _, there = CALLS[call]
    with pytest.raises(TypeError, match=rf"^{call}\(\) has no 'qqqq'; it takes .*\b{there}\b"):
        function(qqqq=True)


def test_the_error_for_tool_lists_its_keywords() -> None:
    with pytest.raises(TypeError) as caught:
        Server().tool(qqqq=False)  # type: ignore[call-overload]
    known = (
        "name, title, description, icons, meta, inline, tags, when, scopes, annotations, output_schema, structured, hold, "
        "timeout, concurrency, max_waiting, isolated, processes, memory, task"
    )
    assert str(caught.value) == f"tool() has no 'qqqq'; it takes {known}"


def test_a_subclass_is_named_as_it_is() -> None:
    class Desk(Server): ...

    with pytest.raises(TypeError, match=r"^Desk\(\) has no 'qqqq'"):
        Desk(qqqq=1)


def test_an_option_of_http_without_http_says_the_line_that_was_meant() -> None:
    with pytest.raises(
        TypeError, match=r"^run\(\) serves stdio, which has no 'port': write run\(\"http\", port=\.\.\.\)"
    ):
        Server().run(port=8000)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"^run\(\) has no 'grase', did you mean 'grace'\? It takes input_fd, "):
        Server().run(grase=1)  # type: ignore[call-overload]


def test_fields_of_the_policy_may_be_given_to_run_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr("linkspan.serve.http_uvicorn.make_uvicorn", lambda *given, **more: seen.append((given, more)))
    monkeypatch.setattr("linkspan.serve.http_uvicorn.serve_with_uvicorn", lambda _, listener: listener.close() or 0)
    policy = HttpPolicy(max_streams=5, max_sessions=7)
    serve_http(Server(), port=0, policy=policy, max_streams=6, sessions=False, log_level="info", ws="none")  # type: ignore[call-arg]
    [((endpoint,), more)] = seen  # type: ignore[misc]
    found = endpoint.policy
    assert (found.max_streams, found.max_sessions, found.sessions) == (6, 7, False)
    assert more["options"] == {"log_level": "info", "ws": "none"}, "uvicorn has options that no type here names"


def test_what_we_decide_is_no_option_of_uvicorn() -> None:
    for name in ("lifespan", "reload", "timeout_graceful_shutdown", "factory"):
        with pytest.raises(TypeError, match=rf"^run\(\) has no '{name}'"):
            serve_http(Server(), port=0, **{name: 1})  # type: ignore[arg-type]


def test_typed_keywords_are_those_there_are() -> None:
    assert HttpKeywords.__annotations__.keys() == set(HttpPolicy.__struct_fields__)
    for name, hint in HttpKeywords.__annotations__.items():
        assert hint == HttpPolicy.__annotations__[name], name
    for info, keywords, definition, written in (
        (ToolInfo, ToolKeywords, ToolDefinition, Tool),
        (PromptInfo, PromptKeywords, PromptDefinition, Prompt),
    ):
        described = keywords.__annotations__ | definition.__annotations__
        assert described.keys() == set(info.__struct_fields__)
        assert set(info.__struct_fields__) < written.__annotations__.keys()
        for name, hint in described.items():
            assert hint == info.__annotations__[name], name
    assert StdioKeywords.__annotations__.keys() == keywords_of(StdioTransport.__init__).keys() - {"self", "server"}
    more = {**HttpKeywords.__annotations__, **UvicornKeywords.__annotations__}
    own = keywords_of(prepare_http).keys() - {"server"}
    assert HttpRunKeywords.__annotations__.keys() == own | more.keys()
    assert len(HttpRunKeywords.__annotations__) == len(own) + len(more), "a name means one thing"
    from linkspan.serve.http_uvicorn import SETTINGS

    assert UvicornKeywords.__annotations__.keys() <= SETTINGS
    assert not SETTINGS & HttpKeywords.__annotations__.keys()
    for function, constant in ((Server.asgi, "_ASGI"), (Server.wsgi, "_WSGI")):
        listed = getattr(sys.modules["linkspan.serve.server"], constant)
        assert set(listed) == keywords_of(function).keys() - {"self"}


def test_the_methods_of_a_client_take_the_keywords_of_their_types() -> None:
    kinds = {each.__name__: each for each in (ListKeywords, RequestKeywords, CallKeywords)}
    for face in (Client, SyncClient):
        for name, method in inspect.getmembers(face, inspect.isfunction):
            hint = method.__annotations__.get("options")
            if name.startswith("_") or hint is None:
                continue
            known = list(kinds[hint.removeprefix("Unpack[").removesuffix("]")].__annotations__)
            with pytest.raises(TypeError, match=f"it takes {', '.join(known)}$"):
                call_options(name, {"qqqq": 1})


def test_help_shows_the_parameters() -> None:
    shown = pydoc.plain(pydoc.render_doc(Server.tool))
    for name in ToolKeywords.__annotations__:
        assert re.search(rf"\b{name}: ", shown), name
    assert "Offer a function as a tool" in shown
    assert "timeouts: 'Timeouts'" in pydoc.plain(pydoc.render_doc(SyncClient.__init__))
    assert "page_size: 'int | None' = None" in pydoc.plain(pydoc.render_doc(Server))


WRONG = {
    "server.asgi(alowed_hosts=[])": 'Unexpected keyword argument "alowed_hosts"',
    "server.wsgi(max_stream=1)": 'Unexpected keyword argument "max_stream"',
    "server.tool(enabled=False)": 'Unexpected keyword argument "enabled"',
    "server.prompt(arguments=[])": 'Unexpected keyword argument "arguments"',
    'server.run("http", prot=1)': 'No overload variant of "run"',
    "server.run(port=1)": 'No overload variant of "run"',
    'Server("a", titel="b")': 'Unexpected keyword argument "titel"',
    'SyncClient("a", timeout=1)': 'Unexpected keyword argument "timeout"',
    "server.asgi(max_streams='many')": "incompatible type",
    'SyncClient("a").call_tool("b", time_out=1)': 'Unexpected keyword argument "time_out"',
    'SyncClient("a").list_tools(timeout=1)': 'Unexpected keyword argument "timeout"',
    'SyncClient("a").ping(total=1)': 'Unexpected keyword argument "total"',
    'Client("a").call_tool("b", timeout="1")': "incompatible type",
    'Client("a").iter_prompts(meta={})': 'Unexpected keyword argument "meta"',
}
RIGHT = """
from collections.abc import AsyncIterator, Iterator
from typing import assert_type
from linkspan import Client, Server, SyncClient
from linkspan.flows.tool_results import ToolResult
from linkspan.types.messages import Tool
server = Server("a", title="b", page_size=3)
@server.tool
def one() -> int: return 1
@server.tool(title="Two", inline=True, annotations={"readOnlyHint": True}, output_schema={"type": "object"})
def two() -> int: return 2
number: int = one() + two()
server.asgi(path="/mcp", allowed_hosts=["a"], cors=True, max_streams=1)
server.run()
server.run(grace=2)
server.run("http", port=0, allowed_hosts=["a"], ssl_certfile="a.pem")
client = SyncClient("a")
assert_type(client.call_tool("b", {}, timeout=1, total=2.5, on_progress=print, meta={"c": 1}, auth="d"), ToolResult)
assert_type(client.list_tools(headers={"a": "b"}, auth=lambda: "d"), list[Tool])
assert_type(client.iter_tools(), Iterator[Tool])
client.ping(timeout=1)
client.request("x/y", {}, timeout=None, headers={})
async def use(client: Client) -> None:
    assert_type(await client.call_tool("b", timeout=1, stopper=None), ToolResult)
    assert_type(await client.list_tools(auth="d"), list[Tool])
    assert_type(client.iter_tools(), AsyncIterator[Tool])
"""


@pytest.mark.timeout(400)
def test_a_type_checker_refuses_what_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from linkspan import Client, Server, SyncClient\nserver = Server()\n" + "\n".join(WRONG)
    )
    (tmp_path / "right.py").write_text(RIGHT)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), "--no-pretty"]
    ended = subprocess.run(
        [*command, str(tmp_path / "wrong.py"), str(tmp_path / "right.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    told = {int(found[1]): found[2] for found in re.finditer(r"wrong\.py:(\d+): error: (.*)", ended.stdout)}
    for number, (line, error) in enumerate(WRONG.items(), 3):
        assert error in told.get(number, ""), f"{line}\n{ended.stdout}{ended.stderr}"
    assert "right.py" not in ended.stdout


def test_hints_say_what_works_from_a_clone() -> None:
    assert install_hint("http") == "run pip install '.[http]' in your clone of Linkspan [LS-601]"
    pattern = re.compile(r"pip install '?linkspan|install linkspan\[")
    assert not [
        path for path in (*CODE, *(ROOT / "docs").glob("*.md"), ROOT / "README.md") if pattern.search(path.read_text())
    ]
    extras = re.findall(r"install_hint\(['\"](\w+)['\"]\)", "\n".join(path.read_text() for path in CODE))
    declared = (ROOT / "pyproject.toml").read_text()
    assert extras
    for extra in extras:
        assert re.search(rf"^{extra} = \[", declared, re.MULTILINE), extra
