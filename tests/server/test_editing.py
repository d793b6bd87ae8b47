"""Edits of tools, own ones and those of mounted servers: what callers see, may give, and get."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest

from linkspan import Client, Context, Edit, Header, RegistrationError, Server, SyncClient, ToolError
from linkspan.errors import DuplicateNameError


def tickets(**options: Any) -> Server:
    server = Server("tickets", **options)

    @server.tool(annotations={"readOnlyHint": True}, tags={"search"})
    def search(query: str, project: str, limit: int = 10, debug: bool = False) -> dict[str, Any]:
        """Search tickets."""
        if query == "fail":
            raise ToolError("no such query")
        return {
            "query": query,
            "project": project,
            "limit": limit,
            "debug": debug,
            "items": [{"id": 1, "title": "a", "x": 2}],
        }

    return server


def edited(edit: Edit, how: str) -> tuple[Server, str]:
    """Return a server with an edited `search`, and the name of that: own, mounted, or of a mounted server that is edited."""
    if how == "own":
        server = tickets()
        server.edit("search", edit)
        return server, edit.name or "search"
    outer = Server("outer")
    if how == "mounted":
        outer.mount(tickets(), edits={"search": edit})
        return outer, edit.name or "search"
    if how == "outside":
        outer.mount(tickets(), "t")
        outer.edit("t_search", edit)
        return outer, edit.name or "t_search"
    inner = tickets()
    inner.edit("search", edit)
    outer.mount(inner)
    return outer, edit.name or "search"


every_way = pytest.mark.parametrize("how", ["own", "mounted", "outside", "inside"])


def shown(server: Server, name: str) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    return next(each for each in server.handle(message)["result"]["tools"] if each["name"] == name)


def call(server: Server, name: str, arguments: Any = None) -> Any:
    params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
    answer = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    return answer["result"] if "result" in answer else answer["error"]


def text(result: Any) -> Any:
    return result["content"][0]["text"]


@every_way
def test_texts_and_annotations_are_what_the_edit_says(how: str) -> None:
    edit = Edit(
        name="find",
        title="Find",
        description="First. {description}",
        annotations={"openWorldHint": False},
        describe={"query": "As in the mail."},
    )
    server, name = edited(edit, how)
    tool = shown(server, name)
    assert (tool["title"], tool["description"]) == ("Find", "First. Search tickets.")
    assert tool["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert tool["inputSchema"]["properties"]["query"]["description"] == "As in the mail."
    assert call(server, name, {"query": "q", "project": "p"})["structuredContent"]["query"] == "q"


@every_way
def test_arguments_are_renamed_fixed_hidden_and_have_other_defaults(how: str) -> None:
    edit = Edit(rename={"query": "text"}, fix={"project": "LINK"}, hide=["debug"], default={"limit": 3})
    server, name = edited(edit, how)
    schema = shown(server, name)["inputSchema"]
    assert list(schema["properties"]) == ["text", "limit"]
    assert schema["required"] == ["text"]
    assert schema["properties"]["limit"]["default"] == 3
    found = call(server, name, {"text": "q"})["structuredContent"]
    assert (found["query"], found["project"], found["limit"], found["debug"]) == ("q", "LINK", 3, False)
    assert call(server, name, {"text": "q", "limit": 5})["structuredContent"]["limit"] == 5


@every_way
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"text": "q", "project": "OTHER"}, "{name}: unknown argument project"),
        ({"text": "q", "debug": True}, "{name}: unknown argument debug"),
        ({"query": "q"}, "{name}: unknown argument query"),
        ({}, "{name}: text is missing"),
        (None, "{name}: text is missing"),
        ({"text": 5}, "{name}: text must be a string, got the number 5"),
        ({"text": "q", "limit": "x"}, '{name}: limit must be an integer, got the string "x"'),
        ({"text": "fail"}, "no such query"),
    ],
)
def test_errors_speak_the_names_that_callers_see(how: str, arguments: Any, words: str) -> None:
    edit = Edit(rename={"query": "text"}, fix={"project": "LINK"}, hide=["debug"])
    server, name = edited(edit, how)
    result = call(server, name, arguments)
    assert result["isError"]
    assert text(result) == words.format(name=name)


@every_way
@pytest.mark.parametrize("arguments", [[], "text", 5])
def test_what_is_no_object_is_refused_as_ever(how: str, arguments: Any) -> None:
    server, name = edited(Edit(rename={"query": "text"}, fix={"project": "LINK"}), how)
    error = call(server, name, arguments)
    assert (error["code"], "arguments must be an object" in error["message"]) == (-32602, True)


@every_way
@pytest.mark.parametrize("awaited", [False, True])
def test_a_function_fixes_an_argument_for_each_caller(how: str, awaited: bool) -> None:
    def project(ctx: Context) -> str:
        return f"of {ctx.protocol_version}"

    async def project_later(ctx: Context) -> str:
        await asyncio.sleep(0)
        return project(ctx)

    server, name = edited(Edit(fix={"project": project_later if awaited else project}), how)

    async def main() -> None:
        async with Client(server) as client:
            found = (await client.call_tool(name, {"query": "q"})).structured
            assert found["project"] == f"of {client.protocol_version}"

    asyncio.run(main())


def test_a_function_that_fails_is_an_incident_and_its_text_stays_here(caplog: Any) -> None:
    server, name = edited(Edit(fix={"project": lambda: 1 // 0}), "own")
    assert "Internal error occurred (incident" in text(call(server, name, {"query": "q"}))
    assert "ZeroDivisionError" in caplog.text


def test_what_a_function_returns_is_checked_as_an_argument() -> None:
    server, name = edited(Edit(fix={"project": lambda: 5}), "own")
    assert text(call(server, name, {"query": "q"})) == "search: project must be a string, got the number 5"


@every_way
def test_a_part_of_the_result_is_kept(how: str) -> None:
    server, name = edited(Edit(keep="/items/*/id,title"), how)
    assert "outputSchema" not in shown(server, name)
    result = call(server, name, {"query": "q", "project": "p"})
    kept = {"items": [{"id": 1, "title": "a"}]}
    assert (result["structuredContent"], json.loads(text(result))) == (kept, kept)
    assert text(call(server, name, {"query": "fail", "project": "p"})) == "no such query"


@pytest.mark.parametrize(
    ("value", "keep", "kept"),
    [
        ([{"a": 1, "b": 2}], "/*/a", [{"a": 1}]),
        ({"a/b": 1, "m~n": 2, "c": 3}, ["/a~1b", "/m~0n"], {"a/b": 1, "m~n": 2}),
        ({"list": [1, 2, 3]}, "/list/0", {"list": [1]}),
        ({"a": {"b": {"c": 1, "d": 2}}, "e": 5}, ["/a/b/c", "/e"], {"a": {"b": {"c": 1}}, "e": 5}),
        ({"a": 5}, "/a/b", {"a": 5}),
        ({"a": 5}, "/other", {}),
    ],
)
def test_pointers_say_what_is_kept(value: Any, keep: Any, kept: Any) -> None:
    server = Server("s")

    @server.tool
    def get() -> Any:
        return json.dumps(value)

    server.edit("get", Edit(keep=keep))
    assert json.loads(text(call(server, "get"))) == kept


def test_a_wrapped_result_and_a_plain_text() -> None:
    server = Server("s")

    @server.tool
    def listed() -> list[dict[str, int]]:
        return [{"a": 1, "b": 2}]

    @server.tool
    def said() -> str:
        return "not JSON"

    server.edit("listed", Edit(keep="/result/*/a"))
    server.edit("said", Edit(keep="/a"))
    result = call(server, "listed")
    assert (result["structuredContent"], json.loads(text(result))) == ({"result": [{"a": 1}]}, [{"a": 1}])
    assert text(call(server, "said")) == "not JSON"


def test_an_edit_of_an_edit_is_made_of_what_that_shows() -> None:
    server = tickets()
    server.edit("search", Edit(name="find", rename={"query": "text"}, fix={"project": "LINK"}))
    server.edit("find", Edit(rename={"text": "words"}, describe={"words": "Some words."}))
    assert list(shown(server, "find")["inputSchema"]["properties"]) == ["words", "limit", "debug"]
    assert call(server, "find", {"words": "q"})["structuredContent"]["query"] == "q"
    assert text(call(server, "find", {"words": 1})) == "find: words must be a string, got the number 1"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (Edit(fix={"projct": "x"}), "there is no argument 'projct'; did you mean 'project'?"),
        (Edit(hide=["project"]), "the argument 'project' is required: give it a value, with fix="),
        (Edit(rename={"query": "limit"}), "two arguments would have the same name"),
        (Edit(rename={"query": "text"}, describe={"query": "x"}), "there is no argument 'query'"),
        (Edit(fix={"limit": "many"}), "limit must be an integer"),
        (Edit(default={"limit": "many"}), "limit must be an integer"),
        (Edit(keep="items"), "is not a JSON pointer"),
        (Edit(name="a b"), "cannot name a tool"),
        (Edit(tags="beta"), "tags= takes a set of strings"),
        ({"name": "x"}, "an edit is an Edit"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(edit: Any, words: str) -> None:
    server = tickets()
    with pytest.raises(RegistrationError, match=words.replace("?", r"\?").replace("(", r"\(")):
        server.edit("search", edit)
    with pytest.raises(RegistrationError, match="there is no such tool; did you mean 'search'"):
        server.edit("serch", Edit())
    assert "query" in shown(server, "search")["inputSchema"]["properties"]


def test_an_edit_of_what_a_mounted_server_does_not_have_is_refused() -> None:
    outer = Server("outer")
    with pytest.raises(RegistrationError, match="there is no tool 'serch' to edit; did you mean 'search'"):
        outer.mount(tickets(), edits={"serch": Edit(name="x")})
    with pytest.raises(RegistrationError, match="there is no argument 'x'"):
        outer.mount(tickets(), edits={"search": Edit(hide=["x"])})


def test_a_tool_whose_edit_no_longer_fits_is_not_shown(caplog: Any) -> None:
    inner, outer = tickets(), Server("outer")
    outer.mount(inner, edits={"search": Edit(fix={"project": "LINK"})})
    inner.remove_tool("search")
    inner.define_tool("search", handler=lambda everything: "all")
    assert "Unknown tool" in call(outer, "search", {})["message"]
    assert "is not shown" in caplog.text
    assert "there is no argument 'project'" in caplog.text


def test_a_name_that_is_taken_is_refused() -> None:
    server = tickets()
    server.define_tool("find", handler=lambda: "x")
    with pytest.raises(DuplicateNameError):
        server.edit("search", Edit(name="find"))
    assert shown(server, "search")


def test_an_edited_tool_keeps_its_place_and_its_edits_tags_count() -> None:
    server = tickets()
    server.define_tool("other", handler=lambda: "x")
    server.edit("search", Edit(name="find", tags={"beta"}))
    names = [
        each["name"] for each in server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["result"]["tools"]
    ]
    assert names == ["find", "other"]
    assert server.disable("beta") == 1
    assert "Unknown tool" in call(server, "find", {})["message"]


def test_a_mount_around_follows_an_edit_inside() -> None:
    inner, outer = tickets(), Server("outer")
    outer.mount(inner, "t")
    inner.edit("search", Edit(name="find", fix={"project": "LINK"}))
    assert call(outer, "t_find", {"query": "q"})["structuredContent"]["project"] == "LINK"
    assert "Unknown tool" in call(outer, "t_search", {})["message"]


@every_way
def test_middleware_sees_what_callers_give(how: str) -> None:
    seen: list[Any] = []
    server, name = edited(Edit(rename={"query": "text"}, fix={"project": "LINK"}), how)

    @server.middleware(only=["tools/call"])
    def layer(call: Any) -> Any:
        seen.append((call.name, dict(call.arguments)))
        yield

    assert call(server, name, {"text": "q"})["structuredContent"]["query"] == "q"
    assert seen == [(name, {"text": "q"})]


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("mounted", [False, True])
def test_a_question_of_an_edited_tool_is_answered(era: Any, mounted: bool) -> None:
    server = Server("s")

    @server.tool
    def order(ctx: Context, pizza: str, count: int) -> str:
        return f"{count} {pizza} {ctx.ask('size', int, 'Which size?')}"

    server.edit("order", Edit(rename={"pizza": "what"}, fix={"count": lambda: 2}))
    if mounted:
        outer = Server("outer")
        outer.mount(server)
        server = outer
    with SyncClient(server, era=era, elicitation=lambda form: {"size": 30}) as client:
        assert client.call_tool("order", {"what": "Margherita"}).text == "2 Margherita 30"


def test_an_argument_that_a_header_repeats_is_repeated_by_its_new_name() -> None:
    server = Server("s")

    @server.tool
    def read(path: Annotated[str, Header("Path")]) -> str:
        return path

    server.edit("read", Edit(rename={"path": "file"}))
    assert dict(server._dispatcher.header_plan("read")) == {("file",): "Path"}
