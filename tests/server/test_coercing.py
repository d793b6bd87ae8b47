"""`Server(coerce=True)`: texts where a tool wants numbers and booleans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from linkspan import Server, Tool


def call(server: Server, **arguments: Any) -> str:
    [tool] = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["result"]["tools"]
    params = {"name": tool["name"], "arguments": arguments}
    reply = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    return str(reply["result"]["content"][0]["text"])


def taking(hint: Any, *, coerce: bool) -> Server:
    def take(it: Any) -> str:
        return repr(it)

    take.__annotations__ = {"it": hint, "return": str}
    server = Server(coerce=coerce)
    server.tool(take)
    return server


@pytest.mark.parametrize(
    ("hint", "given", "taken"),
    [
        (int, "5", "5"),
        (int, " -5 ", "-5"),
        (int, "5.0", "5"),
        (float, "5", "5.0"),
        (float, "1e3", "1000.0"),
        (bool, "true", "True"),
        (bool, "False", "False"),
        (int | None, "5", "5"),
        (list[int], ["1", 2], "[1, 2]"),
        (list[int], '["1", 2]', "[1, 2]"),
        (dict[str, float], {"a": "1.5"}, "{'a': 1.5}"),
        (Annotated[int, msgspec.Meta(ge=5)], "5", "5"),
        (int | str, "5", "'5'"),
        (str, "5", "'5'"),
        (Literal["5", 5], "5", "'5'"),
        (Any, "5", "'5'"),
    ],
)
def test_a_text_is_read_where_a_number_or_a_boolean_is_wanted(hint: Any, given: Any, taken: str) -> None:
    assert call(taking(hint, coerce=True), it=given) == taken


@pytest.mark.parametrize(
    ("hint", "given"),
    [(int, "five"), (int, "5.5"), (int, "true"), (int, ""), (int, "0x5"), (float, "nan"), (bool, "1"), (bool, "yes")],
)
def test_other_texts_are_refused_as_they_were_written(hint: Any, given: str) -> None:
    assert call(taking(hint, coerce=True), it=given).endswith(f'got the string "{given}"')


@pytest.mark.parametrize(("hint", "given"), [(int, "5"), (float, "5"), (bool, "true")])
def test_without_it_texts_are_refused(hint: Any, given: str) -> None:
    assert call(taking(hint, coerce=False), it=given).endswith(f'got the string "{given}"')


class Written(Tool):
    """A tool with a schema written by hand."""

    input_schema = {"properties": {"count": {"type": "integer", "minimum": 2}, "deep": {"type": "array"}}}

    @staticmethod
    def call(count: int = 0, deep: Any = None) -> str:
        return repr((count, deep))


def test_a_schema_that_is_written_by_hand_is_read_likewise() -> None:
    assert call(Server(tools=[Written], coerce=True), count="5", deep=["1"]) == "(5, ['1'])"
    assert call(Server(tools=[Written], coerce=True), count="1").endswith('must be at least 2, got the string "1"')
    assert call(Server(tools=[Written]), count="5").endswith('must be an integer, got the string "5"')


def test_a_pydantic_model_is_read_likewise() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Order", count=(int, ...), gift=(bool, False))
    assert call(taking(model, coerce=True), it={"count": "5", "gift": "true"}) == "Order(count=5, gift=True)"
    assert "it.count must be an integer" in call(taking(model, coerce=False), it={"count": "5"})


def test_an_isolated_tool_reads_them_likewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "coercing_office.py").write_text("def add(a: int, b: int) -> int:\n    return a + b\n")
    monkeypatch.syspath_prepend(tmp_path)
    from coercing_office import add  # type: ignore[import-not-found]

    server = Server(coerce=True)
    server.tool(isolated=True, timeout=60)(add)
    assert call(server, a="5", b=2) == "7"


def test_nothing_is_logged_or_counted_as_a_repair(caplog: pytest.LogCaptureFixture) -> None:
    server = taking(int, coerce=True)
    assert call(server, it="5") == "5"
    assert (server.repaired_arguments, caplog.messages) == (0, [])
