"""Nothing that a program passes is dropped silently: each keyword is read, refused with the line to write, or logged."""

import ast
import logging
from pathlib import Path

import httpx
import pytest
from compat_kit import client_of

from linkspan_compat import keywords
from linkspan_compat.errors import NotServed
from linkspan_compat.fast.tasks import TaskConfig

SOURCES = sorted((Path(__file__).parent.parent / "src" / "linkspan_compat").rglob("*.py"))
SWALLOWS = {"model_dump", "model_dump_json", "model_validate", "model_copy"}
"""Methods of models: what they are given says how they are written, and changes nothing that is sent."""

NEVER_READ = {
    "related_request_id",  # what a handler sends belongs to its request
    "progress_token",  # and so does its progress
    *("server_url", "mcp_url"),  # the URL of the connection counts
    "include_in_schema",  # no schema of the routes is made
    "name_as_prefix",  # one server needs no prefix
    "params_type",  # of notifications, which nobody is given
    "serializable",  # values are kept in this process
    "mount_path",  # the path comes with each request
    *(
        "request",
        "params",
        "app",
        "context",
        "path",
        "local",
        "target",
        "uri",
        "kind",
        "timeout",
        "namespace",
        "provider",
    ),
}


def functions(tree):
    return [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_refusal(function):
    """Return whether a function does nothing but refuse."""
    return isinstance(function.body[-1], ast.Raise) or "efuse" in (ast.get_docstring(function) or "")


def test_no_function_takes_any_keyword_and_drops_it():
    found = [
        f"{file.name}:{function.lineno} {function.name}(**{function.args.kwarg.arg})"
        for file in SOURCES
        for function in functions(ast.parse(file.read_text()))
        if function.args.kwarg is not None
        and function.name not in SWALLOWS
        and not is_refusal(function)
        and function.args.kwarg.arg not in names_read(function)
        and (file.name, function.name) not in {("auth.py", "__init__"), ("logs.py", "configure_logging")}
    ]
    assert found == []


def names_read(function):
    return {each.id for each in ast.walk(function) if isinstance(each, ast.Name)}


def test_no_function_has_a_parameter_that_nothing_reads():
    found = set()
    for file in SOURCES:
        for function in functions(ast.parse(file.read_text())):
            given = function.args
            body = [each for each in function.body if not isinstance(each, ast.Expr | ast.Pass)]
            is_own = function.name.startswith("_") and function.name != "__init__"
            if not body or is_own or is_refusal(function):
                continue
            parameters = {each.arg for each in [*given.posonlyargs, *given.args, *given.kwonlyargs]}
            found |= {
                f"{function.name}({each})"
                for each in parameters - names_read(function) - {"self", "cls", "_"} - NEVER_READ
                if not each.startswith("_")
            }
    assert found == set()


def test_all_keywords_that_are_checked_have_an_entry():
    known = {*keywords._REFUSED, *keywords._NEEDLESS, *keywords._LOST}
    assert not keywords._REFUSED.keys() & (keywords._NEEDLESS.keys() | keywords._LOST.keys())
    assert known >= {"auth", "event_store", "security", "task", "cache", "storage"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"auth": lambda context: False}, "scopes="),
        ({"app": object()}, "Apps"),
    ],
)
def test_a_tool_with_what_is_not_served_is_refused(fast, given, said):
    from fastmcp import FastMCP

    with pytest.raises(NotServed, match=said):
        FastMCP("x").tool(lambda: 1, name="one", **given)
    for add in (FastMCP("x").resource("a://b", name="a", **given), FastMCP("x").prompt(name="a", **given)):
        with pytest.raises(NotServed, match=said):
            add(lambda: "1")
    with pytest.raises(TypeError, match="unexpected keyword"):
        FastMCP("x").tool(lambda: 1, name="one", colour="red")
    with pytest.raises(NotServed, match="task=True"):
        FastMCP("x").prompt(lambda: "1", name="one", task=TaskConfig("required"))


@pytest.mark.parametrize(
    ("task", "is_said"), [(True, True), (TaskConfig(), True), (TaskConfig("optional"), True), (False, False)]
)
def test_prompts_and_resources_are_no_tasks(fast, task, is_said, caplog):
    from fastmcp import FastMCP

    keywords._said.clear()
    server = FastMCP("x")
    with caplog.at_level(logging.INFO, "linkspan.compat"):
        server.prompt(lambda: "done", name="one", task=task)
        server.resource("a://b", name="two", task=task)(lambda: "done")
    said = [each for each in ("prompt", "resource") if f"{each}(task=...) has no effect" in caplog.text]
    assert said == (["prompt", "resource"] if is_said else [])
    with client_of(server) as client:
        assert client.read_resource("a://b").contents[0].text == "done"


@pytest.mark.parametrize(
    "given",
    [
        {"providers": [1]},
        {"transforms": [1]},
        {"tool_transformations": {"a": 1}},
        {"request_state_security": object()},
        {"resource_security": object()},
    ],
)
def test_a_server_of_fastmcp_with_what_is_not_served_is_refused(fast, given):
    from fastmcp import FastMCP

    with pytest.raises(NotServed, match=f"FastMCP.{next(iter(given))}=.*write for Linkspan"):
        FastMCP("x", **given)


@pytest.mark.parametrize(
    "given",
    [
        {"dereference_schemas": False},
        {"sampling_handler": print},
        {"session_state_store": object()},
        {"client_log_level": "error"},
        {"cache_ttl": 5},
        {"include_fastmcp_meta": False},
        {"list_page_size": 10},
    ],
)
def test_a_server_of_fastmcp_says_what_it_misses(fast, given, caplog):
    from fastmcp import FastMCP

    keywords._said.clear()
    with caplog.at_level(logging.INFO, "linkspan.compat"):
        FastMCP("x", **given)
        FastMCP("x", **given)
    (said,) = [each for each in caplog.records if each.name == "linkspan.compat"]
    assert said.message.startswith(f"FastMCP({next(iter(given))}=...) has no effect: ")
    assert said.levelname == ("INFO" if "list_page_size" in given else "WARNING")


def test_a_server_of_fastmcp_reads_the_others(fast, caplog):
    from fastmcp import FastMCP

    server = FastMCP("x", strict_input_validation=True, on_duplicate="error", experimental_capabilities={"a": {}})

    @server.tool
    def double(number: int) -> int:
        return 2 * number

    @server.prompt
    def ask() -> str:
        return "?"

    with pytest.raises(ValueError, match="already exists"):
        server.prompt(ask)
    with client_of(server) as client:
        assert client.server_capabilities.experimental == {"a": {}}
        assert "Input validation error" in client.call_tool("double", {"number": "2"}).text
        assert client.call_tool("double", {"number": 2}).structured == {"result": 4}
    with pytest.raises(TypeError, match="colour"):
        FastMCP("x", colour="red")


@pytest.mark.parametrize("given", [{"extensions": [1]}, {"resource_security": 1}])
def test_a_server_of_mcp_2_with_what_is_not_served_is_refused(mcp2, given):
    from mcp.server import Server
    from mcp.server.mcpserver import MCPServer

    with pytest.raises(NotServed, match="write for Linkspan"):
        MCPServer("x", **given)
    with pytest.raises(TypeError, match="colour"):
        MCPServer("x", colour="red")
    with pytest.raises(NotServed):
        Server("x", get_tool_input_schema=print)
    with pytest.raises(NotServed):
        MCPServer("x").resource("a://{b}", security=1)


def test_what_is_never_called_is_said(mcp2, caplog):
    from mcp.server import Server

    keywords._said.clear()

    async def changed(ctx, params): ...

    with caplog.at_level(logging.INFO, "linkspan.compat"):
        server = Server("x", on_roots_list_changed=changed)
        server.add_notification_handler("notifications/x", None, changed)
    assert [each.levelname for each in caplog.records] == ["WARNING", "WARNING"]
    assert "what a client announces is not passed on" in caplog.text


def test_bounds_of_http_are_those_of_linkspan(mcp2, caplog):
    from mcp.server.mcpserver import MCPServer

    keywords._said.clear()
    from linkspan_compat.server.http import _bounds

    given = {"max_sessions": 3, "session_idle_timeout": 9.0, "retry_interval": 5, "max_request_body_size": 10}
    assert _bounds(dict(given)) == {"max_sessions": 3, "session_idle": 9.0, "retry": 5, "max_body_bytes": 10}
    with caplog.at_level(logging.INFO, "linkspan.compat"):
        MCPServer("x").streamable_http_app(event_store=object(), json_response=True, **given)
    assert [(each.levelname, "event_store" in each.message) for each in caplog.records] == [
        ("WARNING", True),
        ("INFO", False),
    ]
    with pytest.raises(TypeError, match="colour"):
        MCPServer("x").streamable_http_app(colour="red")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"proxy": "http://127.0.0.1:9"}, "proxy"),
        ({"event_hooks": {"request": [print]}}, "event_hooks"),
        ({"cookies": {"a": "b"}}, "cookies"),
        ({"params": {"a": "b"}}, "params"),
        ({"transport": httpx.MockTransport(lambda _: httpx.Response(200))}, "transport"),
    ],
)
def test_a_client_of_httpx_that_does_more_is_refused(mcp2, given, what):
    from fastmcp import FastMCP

    from linkspan_compat.client.http import connects_to

    client = httpx.AsyncClient(base_url="https://a.example", **given)
    with pytest.raises(NotServed, match=f"AsyncClient.{what}="):
        connects_to("https://a.example/mcp", http_client=client)
    with pytest.raises(NotServed, match=f"AsyncClient.{what}="):
        FastMCP.from_openapi({"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "paths": {}}, client)


def test_the_tls_context_of_a_client_of_httpx_is_used(mcp2):
    import ssl

    from linkspan_compat.client.http import connects_to, tls_of

    context = ssl.create_default_context()
    client = httpx.AsyncClient(verify=context, headers={"x-key": "k"})
    assert tls_of(client) is context
    made = connects_to("https://a.example/mcp", factory=lambda **_: client)()
    assert made is not None


def test_clients_refuse_what_they_do_not_read(mcp2):
    from fastmcp import Client, FastMCP
    from fastmcp.client.transports import StdioTransport, UvStdioTransport, UvxStdioTransport
    from mcp import ClientSession

    with pytest.raises(NotServed, match="extensions"):
        ClientSession(None, None, extensions={"a": {}})
    with pytest.raises(TypeError, match="colour"):
        ClientSession(None, None, colour="red")
    with pytest.raises(ValueError, match="auth= is for URLs"):
        Client(FastMCP("x"), auth="token")
    with pytest.raises(NotServed, match="prior_discover"):
        Client(FastMCP("x"), prior_discover=object())
    with pytest.raises(TypeError):
        StdioTransport("python", [], colour="red")
    assert UvStdioTransport("a.py", python_version="3.12", with_packages=["b"]).args == [
        "run", "--python", "3.12", "--with", "b", "a.py",
    ]  # fmt: skip
    assert UvxStdioTransport("a", with_packages=["b"], from_package="c").args == ["--with", "b", "--from", "c", "a"]


def test_verifiers_refuse_what_they_do_not_read(fast):
    from fastmcp.server.auth import JWTVerifier, RemoteAuthProvider, StaticTokenVerifier

    with pytest.raises(NotServed, match="ssrf_safe"):
        JWTVerifier(jwks_uri="https://a.example/keys", issuer="https://a.example", ssrf_safe=True)
    verifier = StaticTokenVerifier({"t": {"client_id": "c"}}, required_scopes=["read"])
    with pytest.raises(NotServed, match="scopes_supported"):
        RemoteAuthProvider(verifier, ["https://a.example"], "https://b.example", scopes_supported=["read", "write"])
    provider = RemoteAuthProvider(verifier, ["https://a.example"], "https://b.example", resource_name="Files")
    assert provider.protection("/mcp", None) is not None
