"""What the log says of failures: whose request it was, and what a client or a host did about it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.faces import wait_until
from linkspan import Audit, ClientError, Configuration, Server, SyncClient
from over_http import serving

FACTS = ("method", "tool", "server", "request_id", "incident")


def facts(record: logging.LogRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in FACTS}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def test_a_record_about_a_failure_names_the_request_and_the_incident(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()

    @server.tool
    def breaks() -> None:
        raise ValueError("secret")

    text = server.handle(call("breaks"))["result"]["content"][0]["text"]
    (record,) = caplog.records
    assert facts(record) | {"incident": None} == {
        "method": "tools/call",
        "tool": "breaks",
        "server": None,
        "request_id": 7,
        "incident": None,
    }
    assert f"incident {record.__dict__['incident']}" in text


def raising(*_: object) -> None:
    raise RuntimeError("hook")


@pytest.mark.parametrize(
    "options",
    [
        {"configuration": Configuration(instrumentation_callback=raising)},
        {"configuration": Configuration(exception_reporter=raising)},
        {},
    ],
    ids=["instrumentation", "reporter", "repair"],
)
def test_every_record_about_a_request_names_it(options: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = Server(**options)

    @server.tool
    def breaks(items: list[int]) -> None:
        raise ValueError(len(items))

    server.handle(call("breaks", items="[1]"))
    assert len(caplog.records) >= 2
    for record in caplog.records:
        assert (record.__dict__["method"], record.__dict__["tool"], record.__dict__["request_id"]) == (
            "tools/call",
            "breaks",
            7,
        )


def test_records_about_no_request_have_the_same_members(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.notify_tools_list_changed()
    server.middleware(Audit())
    with caplog.at_level(logging.INFO, "linkspan.audit"):
        server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    with serving(server.asgi()) as url, pytest.raises(ClientError):
        SyncClient(url, headers={"Host": "attacker.example"}).connect()
    found = [each for each in caplog.records if each.name != "linkspan.client"]
    assert {each.name for each in found} == {"linkspan.server", "linkspan.http", "linkspan.audit"}
    assert all(set(FACTS) <= set(each.__dict__) for each in found)


def logged(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], bool]:
    return lambda: any(each.levelno == logging.INFO and text in each.getMessage() for each in caplog.records)


def test_a_client_logs_that_it_restarts_and_repeats(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    script = tmp_path / "once.py"
    script.write_text(
        "import os, pathlib, linkspan\n"
        "server = linkspan.Server()\n"
        "mark = pathlib.Path(__file__).with_suffix('.died')\n"
        "@server.tool(annotations={'readOnlyHint': True})\n"
        "def fragile() -> str:\n"
        "    if not mark.exists():\n"
        "        mark.write_text('')\n"
        "        os._exit(3)\n"
        "    return 'alive'\n"
        "server.run()\n"
    )
    with (
        caplog.at_level(logging.INFO, "linkspan.client"),
        SyncClient([sys.executable, str(script)], name="frail") as client,
    ):
        assert client.call_tool("fragile").text == "alive"
        for text in (
            "frail: the connection was lost, the next call opens another: ",
            "frail: tools/call of 'fragile' is sent again in 0.",
            "frail: a new connection took the place of a lost one",
        ):
            wait_until(logged(caplog, text))
    assert {each.__dict__["server"] for each in caplog.records if each.name == "linkspan.client"} == {"frail"}
