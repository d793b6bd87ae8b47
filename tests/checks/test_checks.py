"""`linkspan.checks`: nothing is found at a server that is right, and each fault is found by its id and by no other."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from linkspan.checks import lines, pipes
from linkspan.checks import peer as module
from linkspan.checks.lines import LineProcess
from linkspan.checks.peer import CheckedPeer, CommandPeer, PeerAnswer, PeerUnreachable, WebPeer, environment_of
from linkspan.checks.requirement import REQUIREMENTS, CheckOutcome, Requirement
from linkspan.checks.running import look, run, run_one
from linkspan.checks.web import RESPONSE, Web, WebAnswer
from linkspan.revisions import LATEST, LATEST_LEGACY, LEGACY, Revision
from linkspan.types.base import JSON, JSONObject, is_object
from over_http import serving

HERE = Path(__file__).parent
SERVER = HERE / "right_server.py"
Change = Callable[[JSONObject, JSONObject], object]
"""Makes a fault of a response: gets the request and the response, which it changes."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_QUIET", 0.02)


@pytest.fixture(scope="module")
def commands() -> Iterator[Mapping[str, CommandPeer]]:
    """A server that is right, once for each era."""
    found = {each.era: CommandPeer([sys.executable, str(SERVER)], environment_of({}), None, each, {}) for each in BOTH}
    for each in found.values():
        each.open()
    yield found
    for each in found.values():
        each.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The same server over HTTP."""
    from right_server import server

    with serving(server.asgi()) as found:
        yield found


BOTH = (LATEST, LATEST_LEGACY)


class WrongPeer(CheckedPeer):
    """What a server answers, with a fault in it."""

    transport = "stdio"

    def __init__(self, right: CommandPeer, change: Callable[[JSON, PeerAnswer], PeerAnswer]) -> None:
        super().__init__(right.revision, {})
        self.right = right
        self.change = change
        self.stray: list[str] = []

    def exchange(
        self,
        message: JSON | bytes,
        *,
        headers: Mapping[str, str] = {},
        answered: bool = True,
        until: Sequence[bytes] = RESPONSE,
    ) -> PeerAnswer:
        if not self.modern and is_object(message) and message.get("method") == "initialize":
            greeting: JSONObject = {"jsonrpc": "2.0", "id": message["id"], "result": self.right.hello}  # it was greeted
            found = PeerAnswer("initialize", greeting)
        else:
            found = self.right.exchange(message, headers=headers, answered=answered, until=until)
        copy = msgspec.json.decode(msgspec.json.encode(found.message)) if found.message is not None else None
        found = self.change(message, msgspec.structs.replace(found, message=copy))
        for each in (*found.before, found.message):
            if each is not None:
                self.keep(each)
        return found


def named(found: Sequence[CheckOutcome]) -> set[str]:
    return {each.id for each in found if each.level in ("fail", "warn")}


def on(method: str, change: Callable[[Any], object]) -> Change:
    """Change the results of one method."""

    def both(request: JSONObject, response: JSONObject) -> None:
        if request.get("method") == method and "result" in response:
            change(response["result"])

    return both


def every(change: Callable[[Any], object]) -> Change:
    """Change each response."""
    return lambda _, response: change(response)


def error(change: Callable[[Any], object], method: str | None = None) -> Change:
    """Change the errors, of one method or of all."""

    def both(request: JSONObject, response: JSONObject) -> None:
        if "error" in response and method in (None, request.get("method")):
            change(response["error"])

    return both


def served(method: str, result: JSONObject, when: Callable[[Any], bool] = lambda _: True) -> Change:
    """PeerAnswer with a result where the server refuses."""

    def both(request: JSONObject, response: JSONObject) -> None:
        if request.get("method") == method and "error" in response and when(request.get("params", {})):
            del response["error"]
            response["result"] = {"resultType": "complete", **result}

    return both


def refused(method: str, code: int, when: Callable[[Any], bool] = lambda _: True) -> Change:
    """Refuse what the server serves."""

    def both(request: JSONObject, response: JSONObject) -> None:
        if request.get("method") == method and "result" in response and when(request.get("params", {})):
            del response["result"]
            response["error"] = {"code": code, "message": "no"}

    return both


def coded(method: str, code: int, when: Callable[[Any], bool] = lambda _: True) -> Change:
    """Give the errors of a method another code."""

    def both(request: JSONObject, response: JSONObject) -> None:
        if request.get("method") == method and "error" in response and when(request.get("params", {})):
            response["error"]["code"] = code  # type: ignore[index]

    return both


def first(member: str, change: Callable[[Any], object]) -> Callable[[Any], object]:
    """Change the first item of a list."""

    def both(result: Any) -> None:
        if result[member]:
            change(result[member][0])

    return both


def put(name: str, value: Any) -> Callable[[Any], object]:
    return lambda found: found.update({name: value})


def drop(name: str) -> Callable[[Any], object]:
    return lambda found: found.pop(name, None)


MODERN, OLD = LATEST, LATEST_LEGACY
ASKED = "clientCapabilities"


def meta_of(params: Any) -> str:
    return str(params.get("_meta"))


FAULTS: list[tuple[str, Revision, Change]] = [
    ("MSG-1", OLD, every(put("jsonrpc", "1.0"))),
    ("MSG-2", OLD, lambda _, response: response.update(result={}) if "error" in response else None),
    ("MSG-3", OLD, error(put("message", 5))),
    ("MSG-5", OLD, lambda request, response: response.update(id=None) if "error" in response else None),
    ("MSG-41", OLD, coded("tools/call", -32050, lambda params: "name" not in params)),
    ("MSG-52", OLD, coded("linkspan/no_such_method", -32600)),
    ("MSG-50", OLD, refused("tools/list", -32602, lambda params: "linkspanUnknown" in params)),
    ("INI-6", OLD, on("ping", put("pong", True))),
    ("SRV-3", OLD, refused("prompts/list", -32601, lambda params: not params)),
    ("PROG-1", OLD, refused("ping", -32602, lambda params: "progressToken" in meta_of(params))),
    ("DISC-2", MODERN, coded("server/discover", -32602, lambda params: "1900" in meta_of(params))),
    ("DISC-2", MODERN, error(lambda found: found.get("data", {}).pop("requested", None), "server/discover")),
    ("META-3", MODERN, served("server/discover", {}, lambda params: ASKED not in meta_of(params))),
    ("META-5", MODERN, refused("server/discover", -32602, lambda params: "clientInfo" not in meta_of(params))),
    ("META-6", MODERN, on("server/discover", drop("_meta"))),
    ("META-7", MODERN, served("server/discover", {}, lambda params: "'none'" in meta_of(params))),
    ("MSG-20", MODERN, on("prompts/get", drop("resultType"))),
    ("ERA-9", MODERN, served("ping", {})),
    ("PAG-2", OLD, served("tools/list", {"tools": []}, lambda params: "cursor" in params)),
    ("PAG-1", OLD, on("tools/list", lambda found: found.update(nextCursor=5) if "nextCursor" in found else None)),
    ("LIST-5", OLD, on("tools/list", first("tools", put("title", 5)))),
    ("LIST-4", OLD, on("prompts/list", lambda found: found["prompts"].append(found["prompts"][0]))),
    ("TOOL-1", OLD, on("tools/list", first("tools", put("inputSchema", {})))),
    (
        "TOOL-2",
        MODERN,
        on("tools/list", lambda found: [each.update(name="a b") for each in found["tools"] if each["name"] == "write"]),
    ),
    ("TOOL-11", MODERN, on("tools/list", first("tools", drop("description")))),
    ("JS-2", MODERN, on("tools/list", first("tools", put("inputSchema", {"type": "object", "properties": []})))),
    ("JS-3", MODERN, on("tools/list", first("tools", put("outputSchema", {"$ref": "https://example.com/a.json"})))),
    ("JS-5", OLD, on("tools/list", first("tools", put("outputSchema", {"type": ["object", "null"]})))),
    ("XH-2", MODERN, on("tools/list", first("tools", put("inputSchema", {"type": "object", "x-mcp-header": "A"})))),
    ("RES-1", MODERN, on("resources/list", lambda found: found["resources"].append({"uri": "one", "name": "o"}))),
    ("RES-8", MODERN, on("resources/templates/list", first("resourceTemplates", put("uriTemplate", "docs://{a")))),
    ("PR-1", MODERN, on("prompts/list", lambda found: found["prompts"][0].update(arguments=[{"name": "a"}] * 2))),
    ("ICON-3", MODERN, on("tools/list", first("tools", put("icons", [{"src": "javascript:alert(1)"}])))),
    ("ANN-1", MODERN, on("resources/list", first("resources", put("annotations", {"priority": 2})))),
    ("CACHE-S1", MODERN, on("prompts/list", put("ttlMs", -1))),
    ("DISC-1", MODERN, on("server/discover", drop("cacheScope"))),
    ("CACHE-S2", MODERN, on("tools/list", lambda found: "nextCursor" in found and found.update(cacheScope="public"))),
    ("TOOL-4", OLD, on("tools/call", lambda found: found["content"].append({"type": "image", "data": "AA=="}))),
    ("TOOL-5", OLD, on("tools/call", put("structuredContent", {"hour": "seven"}))),
    ("TOOL-5", MODERN, on("tools/call", drop("structuredContent"))),
    ("TOOL-6", MODERN, coded("tools/call", -32603, lambda params: "no-such" in str(params.get("name")))),
    ("TOOL-8", MODERN, served("tools/call", {"content": []}, lambda params: "name" not in params)),
    ("TOOL-12", MODERN, on("tools/call", lambda found: found.update(isError=False))),
    ("RES-2", MODERN, on("resources/read", lambda found: found["contents"][0].pop("text", None))),
    ("RES-3", MODERN, served("resources/read", {"contents": [], "ttlMs": 0, "cacheScope": "private"})),
    ("RES-9", OLD, coded("resources/read", -32602)),
    ("PR-2", MODERN, on("prompts/get", lambda found: found["messages"][0].update(role="system"))),
    ("PR-3", MODERN, coded("prompts/get", -32603)),
    ("CMP-2", MODERN, on("completion/complete", lambda found: found["completion"].update(values=["a"] * 101))),
    ("CMP-4", MODERN, served("completion/complete", {"completion": {"values": []}})),
]


@pytest.mark.parametrize("revision", BOTH, ids=lambda each: each.date)
def test_a_server_that_is_right_over_stdio(revision: Revision) -> None:
    found = [
        *run_one(lambda each: CommandPeer([sys.executable, str(SERVER)], environment_of({}), None, each, {}), revision)
    ]
    assert [(each.id, each.evidence) for each in found if each.level in ("fail", "warn")] == []
    assert sum(each.level == "pass" for each in found) > 45


@pytest.mark.parametrize("revision", BOTH, ids=lambda each: each.date)
def test_a_server_that_is_right_over_http(url: str, revision: Revision) -> None:
    found = [*run_one(lambda each: WebPeer(Web(url), each, {}), revision)]
    assert [(each.id, each.evidence) for each in found if each.level in ("fail", "warn")] == []
    assert sum(each.level == "pass" for each in found) > 50


@pytest.mark.parametrize(
    ("id", "revision", "change"), FAULTS, ids=[f"{number}-{each[0]}" for number, each in enumerate(FAULTS)]
)
def test_a_fault_of_a_message_is_named_alone(
    commands: Mapping[str, CommandPeer], id: str, revision: Revision, change: Change
) -> None:
    def changed(message: JSON, answer: PeerAnswer) -> PeerAnswer:
        if is_object(message) and answer.message is not None:
            change(message, answer.message)
        return answer

    peer = WrongPeer(commands[revision.era], changed)
    peer.open()
    found = [look(each, peer) for each in asked(revision)]
    assert named(found) == {id}


def answering(method: str, message: JSONObject | None, **members: Any) -> Callable[[JSON, PeerAnswer], PeerAnswer]:
    """Give another answer to one kind of message: of a method, or to a batch or what is no JSON."""

    def changed(sent: JSON | bytes, answer: PeerAnswer) -> PeerAnswer:
        kind = str(sent.get("method")) if is_object(sent) else "batch" if isinstance(sent, list) else "no JSON"
        wanted = kind == method and (not members or members.items() <= sent.items())  # type: ignore[union-attr, operator]
        return msgspec.structs.replace(answer, message=message) if wanted else answer

    return changed


def before(message: JSONObject, method: str) -> Callable[[JSON, PeerAnswer], PeerAnswer]:
    """Send a message before the response to a method."""
    return lambda sent, answer: (
        msgspec.structs.replace(answer, before=(message,))
        if is_object(sent) and sent.get("method") == method
        else answer
    )


def with_id(change: Callable[[JSON], JSON]) -> Callable[[JSON, PeerAnswer], PeerAnswer]:
    """PeerAnswer with other ids."""

    def changed(_: JSON, answer: PeerAnswer) -> PeerAnswer:
        if answer.message is not None and "result" in answer.message:
            answer.message["id"] = change(answer.message["id"])
        return answer

    return changed


def after(broken: Callable[[JSON], bool]) -> Callable[[JSON, PeerAnswer], PeerAnswer]:
    """PeerAnswer nothing after a message of a kind, until the next requirement."""
    state = {"deaf": False}

    def changed(sent: JSON, answer: PeerAnswer) -> PeerAnswer:
        deaf, state["deaf"] = state["deaf"], broken(sent)
        return msgspec.structs.replace(answer, message=None) if deaf and is_object(sent) else answer

    return changed


RESULT: JSONObject = {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete"}}
LOG: JSONObject = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "a"}}
ODD: list[tuple[str, Revision, Callable[[JSON, PeerAnswer], PeerAnswer]]] = [
    ("MSG-4", OLD, answering("notifications/linkspan_unknown", RESULT)),
    ("CAN-4", OLD, answering("notifications/cancelled", RESULT)),
    ("MSG-6", MODERN, before({"jsonrpc": "2.0", "id": 5, "method": "roots/list"}, "prompts/get")),
    ("LOG-3", MODERN, before(LOG, "tools/call")),
    ("MSG-10", OLD, answering("ping", {**RESULT, "id": 1.5}, id=1.5)),
    ("MSG-10", OLD, answering("ping", {**RESULT, "id": None}, id=None)),
    ("MSG-11", OLD, with_id(str)),
    ("MSG-33", OLD, answering("batch", RESULT)),
    ("MSG-35", OLD, answering("no JSON", None)),
    ("MSG-36", OLD, after(lambda sent: sent == b"\xff\xfe")),
    ("MSG-57", OLD, answering("tools/list", {**RESULT, "result": {"tools": []}}, params=["a"])),
    ("SUB-2", MODERN, answering("subscriptions/listen", None)),
]


@pytest.mark.parametrize(("id", "revision", "changed"), ODD, ids=[each[0] for each in ODD])
def test_an_odd_answer_is_named_alone(
    commands: Mapping[str, CommandPeer], id: str, revision: Revision, changed: Callable[[JSON, PeerAnswer], PeerAnswer]
) -> None:
    if id == "SUB-2":
        ahead = PeerAnswer("", before=({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},))
        changed = lambda sent, answer: (  # noqa: E731
            ahead if is_object(sent) and sent.get("method") == "subscriptions/listen" else answer
        )
    peer = WrongPeer(commands[revision.era], changed)
    peer.open()
    assert named([look(each, peer) for each in asked(revision)]) == {id}


def test_what_is_not_announced_must_be_refused(commands: Mapping[str, CommandPeer]) -> None:
    def changed(sent: JSON, answer: PeerAnswer) -> PeerAnswer:
        if is_object(sent) and sent.get("method") == "initialize" and not answer.failed:
            del answer.result["capabilities"]["prompts"]  # type: ignore[index, union-attr]
        return answer

    peer = WrongPeer(commands[OLD.era], changed)
    peer.open()
    assert named([look(each, peer) for each in asked(OLD)]) == {"SRV-2"}


def test_another_order_is_named(commands: Mapping[str, CommandPeer]) -> None:
    turn = {"back": False}

    def changed(sent: JSON, answer: PeerAnswer) -> PeerAnswer:
        if is_object(sent) and sent.get("method") == "prompts/list" and answer.message is not None:
            turn["back"] = not turn["back"]
            if turn["back"] and "result" in answer.message:
                answer.result["prompts"].reverse()  # type: ignore[union-attr]
        return answer

    peer = WrongPeer(commands[OLD.era], changed)
    peer.open()
    assert named([look(each, peer) for each in asked(OLD) if each.id in ("LIST-5", "LIST-2", "LIST-4")]) == {"LIST-2"}


class WrongWeb(Web):
    """Answers over HTTP with a fault in them."""

    def __init__(self, url: str, change: Callable[[Sent, Callable[[Sent], WebAnswer]], WebAnswer]) -> None:
        super().__init__(url)
        self.change = change

    def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None, **options: Any
    ) -> WebAnswer:
        def right(sent: Sent) -> WebAnswer:
            return super(WrongWeb, self).ask(sent.method, url, sent.headers, sent.body, **options)

        return self.change(Sent(method, dict(headers), body), right)


class Sent(msgspec.Struct):
    """A request over HTTP."""

    method: str
    headers: dict[str, str]
    body: bytes | None

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), "")


Wrong = Callable[[Sent, Callable[[Sent], WebAnswer]], WebAnswer]


def lenient(name: str, value: str) -> Wrong:
    """Serve a request with a wrong header as if it had the right one."""

    def changed(sent: Sent, right: Callable[[Sent], WebAnswer]) -> WebAnswer:
        if sent.header(name) == value and (value or name in sent.headers):
            body = msgspec.json.decode(sent.body or b"null")
            usual = {
                "Origin": "",
                "Host": "",
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": MODERN.date if "_meta" in str(body) else OLD.date,
                "Mcp-Method": body.get("method", ""),
            }
            sent.headers[name] = usual[name]
        return right(sent)

    return changed


def replied(when: Callable[[Sent], bool], **members: Any) -> Wrong:
    """PeerAnswer some requests in another way."""
    return lambda sent, right: msgspec.structs.replace(right(sent), **members) if when(sent) else right(sent)


def is_notice(sent: Sent) -> bool:
    return b"notifications/" in (sent.body or b"")


def without_session(sent: Sent, right: Callable[[Sent], WebAnswer]) -> WebAnswer:
    found = right(sent)
    return msgspec.structs.replace(found, headers={**found.headers, "mcp-session-id": "s"})


NEGOTIATED = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1900-01-01"}}'
IS_JSON = {"content-type": "application/json"}
WEB_FAULTS: list[tuple[str, Revision, Wrong]] = [
    ("H5-1", OLD, replied(lambda sent: sent.method == "GET", status=200, headers={"content-type": "text/html"})),
    ("H5-2", MODERN, lenient("Origin", "https://attacker.example")),
    ("H5-12", MODERN, lenient("Host", "attacker.example")),
    ("H5-13", OLD, replied(is_notice, status=200)),
    ("H5-4", OLD, replied(lambda sent: sent.body == b"{", status=500)),
    ("H5-14", MODERN, lenient("Content-Type", "text/plain")),
    ("H5-15", MODERN, lenient("Accept", "text/html")),
    ("H5-16", MODERN, replied(lambda sent: "ACCEPT" in sent.headers, status=400, body=b"", headers={})),
    ("H5-8", MODERN, lenient("MCP-Protocol-Version", LEGACY[-2])),
    ("H5-17", MODERN, lenient("Mcp-Method", "tools/LIST")),
    ("H5-18", MODERN, replied(lambda sent: sent.header("Mcp-Name") == "another", status=200)),
    ("H5-9", MODERN, without_session),
    ("HL-15", OLD, lenient("MCP-Protocol-Version", "1900-01-01")),
    ("HL-7", OLD, replied(lambda sent: "no-such" in sent.header("Mcp-Session-Id"), status=400)),
    (
        "HL-17",
        OLD,
        replied(lambda sent: b"ping" in (sent.body or b"") and not sent.header("Mcp-Session-Id"), status=404),
    ),
    ("HL-18", OLD, replied(lambda sent: sent.method == "DELETE", status=500)),
    ("INI-1", OLD, replied(lambda sent: b'"1900-01-01"' in (sent.body or b""), body=NEGOTIATED, headers=IS_JSON)),
]


@pytest.mark.parametrize(
    ("id", "revision", "change"), WEB_FAULTS, ids=[f"{n}-{each[0]}" for n, each in enumerate(WEB_FAULTS)]
)
def test_a_fault_over_http_is_named_alone(url: str, id: str, revision: Revision, change: Wrong) -> None:
    found = [*run_one(lambda each: WebPeer(WrongWeb(url, change), each, {}), revision)]
    assert named(found) == {id}


SCRIPT = "import sys, threading, time\nsys.path.insert(0, {here!r})\nfrom right_server import server\n"
PIPES = [
    ("STDIO-2", "import os\nos.write(1, b'Starting\\n')\nserver.run()"),
    ("STDIO-4", f"import subprocess\nsubprocess.run([sys.executable, {str(SERVER)!r}])\ntime.sleep(60)"),
]


@pytest.mark.parametrize(("id", "code"), PIPES, ids=[each[0] for each in PIPES])
def test_a_fault_of_a_command_is_named_alone(monkeypatch: pytest.MonkeyPatch, id: str, code: str) -> None:
    monkeypatch.setattr(pipes, "_END", 0.3)
    command = [sys.executable, "-c", SCRIPT.format(here=str(HERE)) + code]
    found = [*run_one(lambda each: CommandPeer(command, environment_of({}), None, each, {}), OLD)]
    assert named(found) == {id}


def test_a_server_that_ends_is_started_again_for_the_next_requirement() -> None:
    """One whose process ends at what is no JSON fails what is about that, and the rest is looked at all the same."""
    code = f"""
import subprocess, sys, threading
child = subprocess.Popen([sys.executable, {str(SERVER)!r}], stdin=subprocess.PIPE)
for line in sys.stdin.buffer:
    if not line.strip().startswith((b"{{", b"[")) or not line.strip().endswith((b"}}", b"]")):
        child.kill()
        break
    child.stdin.write(line)
    child.stdin.flush()
child.stdin.close()
"""
    found = [*run_one(lambda each: CommandPeer([sys.executable, "-c", code], environment_of({}), None, each, {}), OLD)]
    assert named(found) == {"MSG-35", "MSG-36"}


DEAF = """
import json, sys, time
line = json.loads(sys.stdin.readline())
result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "deaf", "version": "1"}}
print(json.dumps({"jsonrpc": "2.0", "id": line["id"], "result": result}), flush=True)
time.sleep(600)
"""


def test_a_server_that_reads_nothing_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WRITTEN", 0.2)
    command = [sys.executable, "-c", DEAF]
    found = [*run_one(lambda each: CommandPeer(command, {}, None, each, {}), OLD, ["STDIO-1"])]
    assert [(each.id, each.level) for each in found] == [("STDIO-1", "fail")]


def test_a_process_that_starts_slowly_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT", 0.0)
    monkeypatch.setattr(module, "_LEAST_WAIT", 0.0)
    monkeypatch.setattr(module, "_FIRST_WAIT", 60.0)
    peer = CommandPeer([sys.executable, "-c", DEAF], {}, None, OLD, {})
    try:
        peer.open()
        assert peer.ask("ping").message is None
    finally:
        peer.close()


def test_a_second_handshake_need_not_be_served() -> None:
    again = """
for line in sys.stdin:
    refused = {"jsonrpc": "2.0", "id": json.loads(line).get("id"), "error": {"code": 0, "message": "duplicate"}}
    print(json.dumps(refused), flush=True)
"""
    command = [sys.executable, "-c", DEAF.replace("time.sleep(600)", again)]
    found = [*run_one(lambda each: CommandPeer(command, {}, None, each, {}), OLD, ["INI-1"])]
    assert [(each.id, each.level) for each in found] == [("INI-1", "pass")]


def test_what_holds_the_pipes_of_a_server_that_has_ended_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_LEFT", 0.1)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    child = f"print('x', flush=True); open({str(gate)!r}).read()"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)"
    process = LineProcess([sys.executable, "-c", code], {}, None)
    assert (process.read(60), process.exit_status(60)) == (b"x\n", 0)
    process.close()  # returns, though there is no end of its output
    gate.write_bytes(b"")
    assert process.read(60) is None
    process.close()


def test_a_server_that_does_not_come_back_fails_what_is_left(tmp_path: Path) -> None:
    once = tmp_path / "once"
    code = f"import os, sys\nos.rename({str(once)!r}, {str(once) + '.gone'!r})" + DEAF.replace("time.sleep(600)", "")
    once.touch()
    command = [sys.executable, "-c", code]
    found = [*run_one(lambda each: CommandPeer(command, {}, None, each, {}), OLD, ["INI-6", "STDIO-11", "STDIO-7"])]
    assert [(each.id, each.level) for each in found] == [("INI-6", "fail"), ("STDIO-11", "fail"), ("STDIO-7", "fail")]
    assert "cannot be started again" in found[2].evidence


def test_a_server_that_speaks_nothing_cannot_be_reached() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such thing')"]
    with pytest.raises(PeerUnreachable, match="no such thing"):
        list(run(lambda each: CommandPeer(command, environment_of({}), None, each, {})))
    with pytest.raises(PeerUnreachable, match="no_such_command"):
        list(run(lambda each: CommandPeer(["no_such_command"], {}, None, each, {})))


def test_each_requirement_has_an_id_of_its_own_and_a_fault_in_these_tests() -> None:
    ids = [each.id for each in REQUIREMENTS]
    assert len(set(ids)) == len(ids)
    tried = {each[0] for each in (*FAULTS, *ODD, *WEB_FAULTS, *PIPES)} | {"SRV-2", "LIST-2"}
    assert sorted(set(ids) - tried) == WITHOUT_A_FAULT


WITHOUT_A_FAULT = ["H5-3", "HL-16", "INI-2", "LOG-2", "MSG-13", "STDIO-1", "STDIO-11", "STDIO-7"]
"""What no test breaks alone: without it, other requirements fail as well, or the handshake does."""


def asked(revision: Revision) -> list[Requirement]:
    """The requirements on messages."""
    return [
        each
        for each in REQUIREMENTS
        if revision.era in each.eras and each.transports != ("http",) and not each.id.startswith("STDIO")
    ]
