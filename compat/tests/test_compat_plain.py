"""Plain hints give the schemas and the values that pydantic gives."""

import subprocess
import sys
from typing import Any

import pytest

TEXTS = ["", "a", "1", "[1]", "{}", "null", " nothing", "true"]
VALUES = [*TEXTS, 0, 1, -3, True, None, 1.0, 2.5, 2**60, [], ["a"], [1, 2], [1.5], {}, {"a": 1}]


def one(a: str, b_c: int = 5, *, d: float = 1, e: bool = False) -> str: ...
def two(a: str | None = None, b: int | None = None, c: list[str] | None = None): ...
def three(a: list, b: list[int], c: dict, d: dict[str, Any], e: Any) -> list[float]: ...
def four() -> bool: ...
def five(a: list[list[float]]) -> int: ...
def six(a: float) -> float: ...


PLAIN = [one, two, three, four, five, six]


@pytest.mark.parametrize("flavour", ["mcp1", "mcp2"])
@pytest.mark.parametrize("function", PLAIN, ids=lambda each: each.__name__)
def test_schemas_and_values_are_those_of_pydantic(flavour, function, request):
    request.getfixturevalue(flavour)
    from linkspan_compat.server.plain_signatures import Misfit, PlainSignature
    from linkspan_compat.server.signatures import FuncMetadata

    ours, theirs = PlainSignature.of(function, [], None), FuncMetadata(function, [], None)
    assert ours is not None
    assert (ours.parameters, ours.output_schema) == (theirs.parameters, theirs.output_schema)
    names, needed = list(ours.parameters["properties"]), ours.parameters.get("required", [])
    fitted = 0
    for name in names:
        for value in VALUES:
            usual = {"str": "x", "int": 1, "float": 1.0, "bool": True}
            given = {each: usual.get(getattr(function.__annotations__[each], "__name__", ""), []) for each in needed}
            given |= {each: {} for each in needed if "dict" in str(function.__annotations__[each])}
            given[name] = value
            try:
                found = ours.arguments(given)
            except Misfit:
                continue
            fitted += 1
            assert repr(found) == repr(theirs.validate_arguments(given))
    assert fitted or not names
    for value in VALUES if ours.output_schema is not None else ():
        try:
            found = ours.structured(value)
        except Misfit:
            continue
        assert repr(found) == repr(theirs.structured(value))


def test_other_hints_are_left_to_pydantic(mcp1):
    from linkspan_compat.server.plain_signatures import PlainSignature

    def model(a: tuple[int, int]): ...
    def default(a: list[int] = [1]): ...  # noqa: B006
    def named(json: str): ...
    def bare(a): ...
    def rest(*a: int): ...
    def mapping(a: int) -> dict: ...

    for function in (model, default, named, bare, rest, mapping):
        assert PlainSignature.of(function, [], None) is None


def test_a_server_with_plain_hints_does_not_load_pydantic():
    code = """
import sys
import linkspan_compat.install
from mcp.server.fastmcp import FastMCP
from linkspan import SyncClient
from linkspan_compat.server.serving import Served
server = FastMCP("x")
@server.tool()
def double(number: int, name: str = "") -> int:
    return 2 * number
with SyncClient(Served(server._mcp_server, lifespan=True).under, era="legacy") as client:
    assert client.list_tools()[0].output_schema["title"] == "doubleOutput"
    assert client.call_tool("double", {"number": 2}).structured == {"result": 4}
    assert "pydantic" not in sys.modules
    assert client.call_tool("double", {"number": "2"}).structured == {"result": 4}
    assert "pydantic" in sys.modules
    assert "valid integer" in client.call_tool("double", {"number": "x"}).text
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
