"""What flows while a stdio server serves: in any chunks, past slow functions, and to slow clients."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import select
import socket
import subprocess
import sys
import threading

import pytest
from fake_server import Server
from stdio_process import HERE, PATIENT, ping, said, tool_call

import linkspan
from linkspan.runtime import descriptors
from linkspan.runtime.calls import Connectable
from linkspan.serve import stdio
from linkspan.serve.stream import StreamServer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX descriptors")


def test_a_plain_tool_that_blocks_holds_up_neither_ping_nor_its_neighbours(serve):
    process = serve()
    for request_id in range(8):
        process.call(request_id, "block", seconds=60)
    process.write(ping("p") + tool_call("a", "add", a=1, b=2) + tool_call("b", "async_add", a=1, b=2))
    assert {process.read()["id"] for _ in range(3)} == {"p", "a", "b"}


def test_no_more_plain_tools_run_at_once_than_allowed_and_ping_goes_on(serve):
    process = serve(env={"MAX_WORKERS": "2"})
    process.write(
        tool_call(1, "block", seconds=60) + tool_call(2, "block", seconds=0.3) + tool_call(3, "add", a=1, b=2)
    )
    process.write(ping("p"))
    assert [process.read()["id"] for _ in range(3)] == ["p", 2, 3]


def test_a_cancelled_async_tool_stops_and_is_not_answered(serve):
    process = serve()
    process.call(1, "wait", seconds=60)
    process.wait_for_error("waiting")
    process.cancel(1)
    process.wait_for_error("cleaned up")
    process.write(ping(2))
    assert process.read()["id"] == 2


def test_an_async_tool_runs_in_a_task_of_its_own(serve):
    process = serve()
    assert process.result(1, "task_facts") == "timed out in Task, True"


def test_what_a_tool_sets_in_its_context_stays_with_its_call(serve):
    process = serve()
    for request_id, tool in enumerate(["leave_a_mark", "leave_a_mark", "leave_an_async_mark", "leave_an_async_mark"]):
        assert process.result(request_id, tool) == "nothing"


def test_plain_and_inline_tools_do_not_wait_for_asyncio(spawn):
    code = (
        "import sys\n"
        "from linkspan import Server\n"
        "server = Server('lean')\n"
        "@server.tool\n"
        "def plain() -> str: return str('asyncio' in sys.modules)\n"
        "@server.tool(inline=True)\n"
        "def inline() -> str: return str('asyncio' in sys.modules)\n"
        "server.run()\n"
    )
    process = spawn("-c", code)
    assert [process.result(1, "plain"), process.result(2, "inline")] == ["False", "False"]


def test_requests_may_come_in_any_chunks(serve):
    process = serve()
    for byte in tool_call(1, "add", a=1, b=2):
        process.write(bytes([byte]))
    assert said(process.read(), 1) == "3"


def test_a_client_may_write_very_many_requests_before_it_reads(serve):
    process = serve()
    count = 5000
    for start in range(0, count, 100):
        process.write(b"".join(tool_call(n, ("add", "async_add")[n % 2], a=n, b=1) for n in range(start, start + 100)))
    assert {process.read()["id"] for _ in range(count)} == set(range(count))


def test_large_answers_arrive_whole_and_in_their_places(serve):
    process = serve()
    for request_id, size in enumerate((10, 3_000_000, 70_000, 0)):
        assert len(process.result(request_id, "text", size=size)) == size
    process.write(b"".join(tool_call(n, "text", size=200_000) for n in range(20)))
    assert {len(said(message, message["id"])) for message in (process.read() for _ in range(20))} == {200_000}


def test_requests_can_come_from_a_file(tmp_path, serve):
    requests = tmp_path / "requests.jsonl"
    requests.write_bytes(ping(1) + tool_call(2, "add", a=1, b=2) + tool_call(3, "async_add", a=1, b=2))
    with requests.open("rb") as source:
        process = serve(stdin=source, env=PATIENT)
    assert {process.read()["id"] for _ in range(3)} == {1, 2, 3}
    assert process.exit_code() == 0


def test_answers_can_go_to_a_file(tmp_path, serve):
    with (tmp_path / "answers.jsonl").open("wb") as target:
        process = serve(stdout=target, env=PATIENT)
    process.write(ping(1) + tool_call(2, "text", size=100_000) + tool_call(3, "async_add", a=1, b=2))
    process.close_input()
    assert process.exit_code() == 0
    assert (tmp_path / "answers.jsonl").read_bytes().count(b"\n") == 3


def test_an_empty_input_ends_the_server(serve):
    process = serve(stdin=subprocess.DEVNULL)
    assert process.rest() == b""
    assert process.exit_code() == 0


def test_a_pair_of_sockets_does_as_well_as_pipes(serve):
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            serve(stdin=theirs.fileno(), stdout=theirs.fileno())
        ours.settimeout(30)
        ours.sendall(tool_call(1, "text", size=1_000_000) + tool_call(2, "async_add", a=1, b=2))
        received = b""
        while received.count(b"\n") < 2:
            received += ours.recv(65536)
        assert len(received) > 1_000_000


def test_descriptors_that_somebody_made_non_blocking_are_served_all_the_same(serve):
    input_reader, input_writer = os.pipe()
    output_reader, output_writer = os.pipe()
    os.set_blocking(input_reader, False)
    os.set_blocking(output_writer, False)
    serve(stdin=input_reader, stdout=output_writer)
    os.close(input_reader)
    os.close(output_writer)
    os.write(input_writer, ping(1) + tool_call(2, "text", size=1_000_000))
    received = 0
    while received < 1_000_000:
        received += len(os.read(output_reader, 65536))
    os.close(input_writer)
    os.close(output_reader)


HOSTILE_LINES = [
    b"{",
    b"\xff\xfe",
    b'"\\ud800"',
    b"[" * 100_000,
    b'{"jsonrpc":"2.0","id":1,"method":"ping","x":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1}',
    b"null",
    b"x" * (5 * 1024 * 1024),
]


@pytest.mark.parametrize("hostile", HOSTILE_LINES, ids=lambda line: repr(line[:20]))
def test_a_line_that_is_no_message_is_answered_with_an_error_and_the_connection_goes_on(serve, hostile):
    process = serve()
    process.write(hostile + b"\n" + ping("after"))
    assert process.read()["error"]["code"] in (-32700, -32600)
    assert process.read()["id"] == "after"


# In this process, on pipes.


class Served:
    """`serve_stdio` in a thread."""

    def __init__(self, server: Connectable, **options: object) -> None:
        (self.input_reader, self.input), (self.output, self.output_writer) = os.pipe(), os.pipe()
        options = {"input_fd": self.input_reader, "output_fd": self.output_writer, "watch_parent": False, **options}
        self.thread = threading.Thread(target=stdio.serve_stdio, args=(server.connect,), kwargs=options, daemon=True)
        self.thread.start()

    def read_lines(self, count: int) -> list[bytes]:
        data = b""
        while data.count(b"\n") < count:
            data += os.read(self.output, 65536)
        return data.splitlines()

    def end(self) -> None:
        os.close(self.input)
        self.thread.join(60)
        assert not self.thread.is_alive()
        for fd in (self.input_reader, self.output, self.output_writer):
            os.close(fd)


def test_pings_and_cancellations_are_heard_while_as_many_calls_run_as_may_and_all_are_answered_in_the_end():
    server, gate = linkspan.Server("gated", limits=linkspan.Limits(max_running=4)), threading.Event()

    @server.tool
    def wait() -> str:
        gate.wait(30)
        return "done"

    served = Served(server)
    for n in range(50):
        os.write(served.input, tool_call(n, "wait"))
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 49}}
    os.write(served.input, json.dumps(cancel).encode() + b"\n" + ping("p"))
    assert [json.loads(line)["id"] for line in served.read_lines(1)] == ["p"]
    gate.set()
    assert {json.loads(line)["id"] for line in served.read_lines(49)} == set(range(49))
    served.end()


@pytest.fixture
def hasty_threads():
    """Threads take turns after each instruction where they can: what needs a lock and has none shows at once."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("hasty_threads")
def test_workers_wait_while_too_much_is_unsent_and_all_arrives_in_the_end():
    server = Server()

    @server.tool
    def text() -> str:
        return "x" * 50_000

    served = Served(server, max_unsent=100_000)
    writer = threading.Thread(target=lambda: [os.write(served.input, tool_call(n, "text")) for n in range(200)])
    writer.start()
    assert len(served.read_lines(200)) == 200
    writer.join()
    served.end()


def test_of_changes_that_are_not_read_one_of_a_kind_waits():
    server = linkspan.Server("changing")
    server.tool(name="text")(lambda: "x" * 3_000_000)  # more than a pipe takes that has been grown
    server.prompt(name="prompt")(lambda: "text")
    served = Served(server)
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "slow", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
    os.write(served.input, json.dumps(hello).encode() + b"\n")
    served.read_lines(1)
    os.write(served.input, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n' + tool_call(1, "text"))
    select.select([served.output], [], [], 30)  # it writes, and does not get to the end
    for _ in range(500):
        assert server.notify_tools_list_changed()
        assert server.notify_prompts_list_changed()
    first, *changes = [json.loads(line) for line in served.read_lines(3)]
    os.write(served.input, ping("p"))
    (last,) = [json.loads(line) for line in served.read_lines(1)]
    assert (first["id"], last["id"]) == (1, "p")
    assert [each["method"] for each in changes] == [
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
    ]
    assert server.notify_tools_list_changed()  # nothing waits any more
    assert b"list_changed" in served.read_lines(1)[0]
    served.end()


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_question_that_nobody_answers_ends_in_its_time(kind):
    served = asking(kind, linkspan.Limits(input_timeout=1))
    question, *others = [json.loads(line) for line in served.read_lines(3)]
    (answer,) = [each for each in others if each.get("id") == 1]
    assert question["method"] == "elicitation/create"
    assert "No answer from the user within 1 seconds" in str(answer)
    served.end()


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_ping_is_answered_while_a_question_waits_for_its_answer(kind):
    served = asking(kind, linkspan.Limits())
    (question,) = [json.loads(line) for line in served.read_lines(1)]
    assert question["method"] == "elicitation/create"
    os.write(served.input, ping("p"))
    assert [json.loads(line)["id"] for line in served.read_lines(1)] == ["p"]
    served.end()


def asking(kind: str, limits: linkspan.Limits) -> Served:
    """Serve a client with a handshake whose first call has asked it something."""
    server = linkspan.Server("asking", limits=limits)

    def ask(ctx: linkspan.Context) -> str:
        return ctx.ask("name", str, "Who are you?")

    async def ask_async(ctx: linkspan.Context) -> str:
        return ask(ctx)

    server.tool(name="ask")(ask if kind == "plain" else ask_async)
    served = Served(server, grace=0.1)
    about = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "silent", "version": "1"}}
    hello = {"method": "initialize", "params": about | {"capabilities": {"elicitation": {}}}}
    call = {"method": "tools/call", "params": {"name": "ask", "arguments": {}}}
    os.write(served.input, json.dumps({"jsonrpc": "2.0", "id": 0} | hello).encode() + b"\n")
    served.read_lines(1)
    os.write(served.input, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    os.write(served.input, json.dumps({"jsonrpc": "2.0", "id": 1} | call).encode() + b"\n")
    return served


def test_no_task_is_left_when_the_stream_has_ended(caplog):
    server, tasks = linkspan.Server("leaks"), list[asyncio.Task[object]]()

    @server.tool
    async def wait(seconds: float) -> str:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(seconds)
        return "done"

    served = Served(server, grace=0.1)
    os.write(
        served.input, b"".join(tool_call(n, "wait", seconds=60) for n in range(3)) + tool_call(3, "wait", seconds=0)
    )
    served.read_lines(1)
    served.end()
    assert [task.done() for task in tasks] == [True] * 4
    assert {task.get_loop().is_closed() for task in tasks} == {True}
    gc.collect()
    assert caplog.text == ""  # asyncio would report a task that was destroyed while it was pending


def test_serving_inside_a_running_event_loop_is_refused():
    async def main() -> None:
        stdio.serve_stdio(Server().connect)

    with pytest.raises(RuntimeError, match="would block this event loop"):
        asyncio.run(main())


WITHOUT_POLL = f"""
import runpy, sys
sys.path.insert(0, {str(HERE.parent)!r})
import like_windows
runpy.run_path({str(HERE / "tool_server.py")!r}, run_name="__main__")
"""


def test_a_system_that_cannot_poll_pipes_serves_all_the_same(spawn):
    process = spawn("-c", WITHOUT_POLL)
    for request_id, tool in enumerate(("add", "inline_add", "async_add")):
        assert process.result(request_id, tool, a=1, b=2) == "3"
    assert len(process.result(9, "text", size=1_000_000)) == 1_000_000
    process.call(10, "wait", seconds=60)
    process.wait_for_error("waiting")
    process.close_input()
    assert process.exit_code() == 0
    assert b"cleaned up" in process.errors


def test_a_system_that_cannot_poll_pipes_heeds_signals(spawn):
    process = spawn("-c", WITHOUT_POLL)
    assert process.result(1, "add", a=1, b=2) == "3"
    process.popen.terminate()
    assert process.exit_code() == 0


# One stream, whose thread is the one of the test.


@pytest.fixture
def stream():
    """A stream whose client writes and reads nothing, and may have four bytes unsent."""
    (reader, writer), (output_reader, output_writer) = os.pipe(), os.pipe()
    options = {"watch_parent": False, "grace": 0.1, "max_workers": 1, "max_unsent": 4, "owns_process": False}
    with StreamServer(Server().connect, descriptors.Readable(reader), output_writer, **options) as served:
        served.client = output_reader
        yield served
    for fd in (reader, writer, output_reader, output_writer):
        os.close(fd)


def test_requests_wait_while_too_much_is_unsent(stream):
    assert stream.wants_input
    answers = 50_000  # more than a pipe takes that has been grown
    stream.driver.receive_data(ping("p") * answers)
    stream.flush()
    assert not stream.wants_input
    read = 0
    while read < answers:
        read += os.read(stream.client, 65536).count(b"\n")
    stream.writer.wait_empty(30)
    assert stream.wants_input


def test_room_that_is_made_while_the_stream_looks_for_it_wakes_it(stream, monkeypatch):
    def full(writer):
        """Be full at first, and have room before the answer is there."""
        other = threading.Thread(target=stream.flush)
        other.start()
        other.join(60)
        return True

    monkeypatch.setattr(descriptors.Writer, "full", property(full))
    assert not stream.wants_input
    assert descriptors.DescriptorWaiter(stream.wakes.reader).wait(0.0) == [stream.wakes.reader]


# Writes, each of which is a packet here.


@pytest.mark.skipif(sys.platform != "linux", reason="packets between sockets")
@pytest.mark.parametrize("kind", ["async", "plain", "inline"])
def test_progress_is_a_write_of_its_own_before_its_answer(kind, monkeypatch):
    """While nothing else is being written: what comes then is written together."""
    streams = []

    class Kept(stdio.StreamServer):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            streams.append(self)

    monkeypatch.setattr(stdio, "StreamServer", Kept)
    server = linkspan.Server("progress")

    def report(ctx: linkspan.Context) -> str:
        ctx.progress(1)
        return "done"

    async def report_async(ctx: linkspan.Context) -> str:
        return report(ctx)

    server.tool(name="t", inline=kind == "inline")(report_async if kind == "async" else report)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reader, writer = os.pipe()
    options = {"input_fd": reader, "output_fd": theirs.fileno(), "watch_parent": False}
    thread = threading.Thread(target=stdio.serve_stdio, args=(server.connect,), kwargs=options, daemon=True)
    thread.start()
    with ours, theirs:
        ours.settimeout(30)
        for number in range(3):  # the first async call starts the loop
            params = {"name": "t", "arguments": {}, "_meta": {"progressToken": number}}
            call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            os.write(writer, json.dumps(call).encode() + b"\n")
            first, second = json.loads(ours.recv(65536)), json.loads(ours.recv(65536))
            assert first["params"]["progressToken"] == second["id"] == number
            streams[0].writer.wait_empty(30)  # the client may read an answer before its writer knows that it is written
        os.close(writer)
        thread.join(60)
        assert not thread.is_alive()
    os.close(reader)
