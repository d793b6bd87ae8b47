"""Typed code for the tools of a server: it is valid whatever the server lists, it type-checks, and it calls."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from linkspan import Server, SyncClient, ToolError
from linkspan.contract.snapshot import Snapshot, collected
from linkspan.contract.stubs import code
from linkspan.contract.taking import take

HOSTILE = '"""\nimport os; os.system("x")\n\\'


def server() -> Server:
    made = Server("port-office")

    @made.tool
    def departures(port: str, limit: int = 5) -> list[str]:
        """List departures."""
        if port == "nowhere":
            raise ToolError("there is no such port")
        return [port] * limit

    @made.tool("import")
    def from_(port: str) -> str:
        """Import."""
        return port

    return made


def made(text: str) -> dict[str, Any]:
    """Return what the code defines."""
    names: dict[str, Any] = {"__name__": "stubs"}
    exec(compile(text, "stubs.py", "exec"), names)
    return names


def test_the_code_calls_the_tools() -> None:
    with SyncClient(server()) as client:
        office = made(code(take(client)))["PortOffice"](client)
        assert office.departures(port="oban", limit=2) == {"result": ["oban", "oban"]}
        assert office.import_(port="oban") == {"result": "oban"}
        with pytest.raises(ToolError, match="there is no such port"):
            office.departures(port="nowhere")
    assert "async def departures" in code(Snapshot("a", items={"tool": {"departures": {}}}), is_async=True)


def of(*tools: dict[str, Any], name: str = "a") -> Snapshot:
    return Snapshot(name, items={"tool": collected("tool", tools)})


def test_nothing_that_a_server_says_is_code() -> None:
    schema = {
        "type": "object",
        "properties": {
            HOSTILE: {"enum": [HOSTILE, None, True, 3]},
            "class": {"type": "string", "description": HOSTILE},
        },
    }
    odd: list[Any] = [
        {"name": HOSTILE, "description": HOSTILE, "inputSchema": schema, "outputSchema": schema},
        {"name": "import", "inputSchema": {"properties": {"self": {"$ref": "#"}}}},
        {"name": "import_", "inputSchema": {"properties": {"\u202ex": 5}, "type": 5}},
        {"name": "__init__", "description": 'ends with "', "inputSchema": {"properties": {"a": {"enum": []}}}},
        {"name": "\u0430", "inputSchema": {"anyOf": 5, "properties": {"x": {"anyOf": [], "type": ["array", "null"]}}}},
        {"name": "9", "inputSchema": None, "outputSchema": {"$ref": "#/$defs/Nix"}},
    ]
    text = code(of(*odd, name=HOSTILE))
    tree = ast.parse(text)
    assert {type(each) for each in tree.body} <= {ast.Expr, ast.ImportFrom, ast.ClassDef, ast.Assign}
    assert "os.system" not in {ast.unparse(each.func) for each in ast.walk(tree) if isinstance(each, ast.Call)}
    methods = [each.name for each in tree.body[-1].body if isinstance(each, ast.FunctionDef)]  # type: ignore[attr-defined]
    assert len(methods) == len(set(methods)) == 7
    made(text)
    with pytest.raises(ValueError, match="is not a name for a class"):
        code(of(), "class")


@given(st.text(st.sampled_from("\\\"'uNx{} \n\r\t\x00\x0c\u2028\ud800a"), max_size=30), st.integers(0, 105))
@example("\\users", 99)
def test_a_description_of_any_length_is_a_docstring(end: str, letters: int) -> None:
    about = "a" * letters + end
    tool = {"name": "t", "description": about, "inputSchema": {"properties": {"x": {"description": about}}}}
    tree = ast.parse(code(of(tool, name=about)))
    (method,) = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == "t"]
    found = ast.get_docstring(method, clean=False) or ""
    assert letters == 0 or found.startswith("a" * min(letters, 100))


@pytest.mark.parametrize("word", ["none", "true", "false"])
def test_no_class_has_the_name_of_a_constant(word: str) -> None:
    shape = {"type": "object", "properties": {"x": {"type": "string"}}}
    tool = {
        "name": "t",
        "inputSchema": {"properties": {"a": {"$ref": f"#/$defs/{word}"}}, "$defs": {word: shape}},
    }
    found = made(code(of(tool, name=word)))
    assert {f"{word.title()}2", f"{word.title()}3"} <= {*found}


def test_a_tool_is_not_covered_by_the_client_that_is_kept() -> None:
    made_server = Server("a")

    @made_server.tool("_client")
    def _client() -> int:
        return 5

    with SyncClient(made_server) as client:
        assert made(code(take(client)))["A"](client)._client_() == {"result": 5}


def test_the_code_is_clean_for_a_strict_checker(tmp_path: Path) -> None:
    tree = {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Node"}, "kind": {"enum": ["a", "b"]}, "any": {}},
        "required": ["root"],
        "$defs": {
            "Node": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}
        },
    }
    tools = [
        {"name": "grow", "description": "Grow a tree.\n\nSlowly.", "inputSchema": tree, "outputSchema": tree},
        {"name": "a-b", "inputSchema": {"properties": {"x-y": {"type": ["integer", "null"]}}}},
        {
            "name": "list",
            "inputSchema": {},
            "outputSchema": {"type": "object", "additionalProperties": {"type": "number"}},
        },
    ]
    (tmp_path / "api.py").write_text(code(of(*tools)))
    (tmp_path / "api_async.py").write_text(code(of(*tools), is_async=True))
    from mypy import api

    out, err, status = api.run(
        ["--strict", "--python-executable", sys.executable, "--cache-dir", str(tmp_path / "c"), str(tmp_path)]
    )
    assert (status, err) == (0, ""), out
