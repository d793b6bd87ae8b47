"""What authors may put on the wire as an error, and what they may ask."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from linkspan import RemoteProtocolError, Server
from linkspan.revisions import LATEST, REVISIONS
from linkspan.revisions.neutral import InputRequest
from talk import connected, say

PREFIX = "io.modelcontextprotocol/"
A, B, C, D, E = REVISIONS  # by date, the oldest first


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Odd(RemoteProtocolError):
    """A class of an author's, who knows better."""

    def __init__(self, **members: Any) -> None:
        vars(self).update(members)


def answer(error: BaseException, revision: str = E) -> Any:
    def fail(params: Any) -> str:
        raise error

    server = Server(instrumentation_callback=lambda data: None)
    server.define_custom_method("t", fail)
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "t", "params": {}}
    if revision == LATEST.date:
        call["params"]["_meta"] = {f"{PREFIX}protocolVersion": revision, f"{PREFIX}clientCapabilities": {}}
        return server.handle(call)["error"]

    return say(connected(server, revision=revision), "t", 1)[0]["error"]


@pytest.mark.parametrize("given", [("text", "x"), (True, "x"), (1.5, "x"), (None, "x"), (-5, b"x"), (-5, None)])
def test_an_error_has_an_integer_and_a_text(given: Any) -> None:
    with pytest.raises(TypeError, match="takes an integer and a string"):
        RemoteProtocolError(*given)


@pytest.mark.parametrize(
    "error", [Odd(), Odd(code="text", message="x", data=None), Odd(code=[], message="x"), Odd(code=-5, message=5)]
)
def test_whatever_an_error_of_an_authors_holds_the_wire_gets_an_error(error: RemoteProtocolError) -> None:
    found = answer(error)
    assert found["code"] == -32603
    assert found["message"].startswith("Internal error (incident ")


DATA: dict[int, Any] = {
    -32021: {"requiredCapabilities": {"elicitation": {}}},
    -32022: {"supported": ["2026-07-28"], "requested": "1900-01-01"},
    -32042: {"elicitations": [{"mode": "url", "elicitationId": "1", "url": "https://example.com", "message": "m"}]},
}


@pytest.mark.parametrize(
    ("code", "data"),
    [
        (-32021, None),
        (-32021, {}),
        (-32021, {"requiredCapabilities": ["elicitation"]}),
        (-32021, {"requiredCapabilities": {}}),
        (-32021, {"requiredCapabilities": {"elicitation": True}}),
        (-32022, None),
        (-32022, {"supported": []}),
        (-32042, None),
        (-32042, {"elicitations": ["https://example.com"]}),
    ],
)
def test_a_code_whose_meaning_is_in_its_data_is_not_sent_without(code: int, data: Any) -> None:
    """MSG-45, MSG-46."""
    revision = D if code == -32042 else E
    assert answer(RemoteProtocolError(code, "mine", DATA[code]), revision)["data"] == DATA[code]
    assert answer(RemoteProtocolError(code, "mine", data), revision)["code"] == -32603


@pytest.mark.parametrize(
    ("code", "where"),
    [
        (-5, {A, B, C, D, E}),
        (-32602, {A, B, C, D, E}),
        (-32002, {A, B, C, D}),
        (-32042, {D}),
        (-32020, {E}),
        (-32021, {E}),
        (-32050, set()),
        (-32099, set()),
    ],
)
def test_codes_that_a_revision_does_not_define_are_not_sent_in_it(code: int, where: set[str]) -> None:
    error = RemoteProtocolError(code, "mine", DATA.get(code))
    assert {revision for revision in REVISIONS if answer(error, revision)["code"] == code} == where


@pytest.mark.parametrize("method", ["initialize", "tools/call", ""])
def test_a_question_is_one_that_clients_answer(method: str) -> None:
    with pytest.raises(ValueError, match="a client can be asked"):
        InputRequest(method)
