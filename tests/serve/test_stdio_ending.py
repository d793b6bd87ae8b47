"""How a stdio server ends: in time, with the right exit code, whatever runs, and without a traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from fake_server import Server
from stdio_process import HASTY, HERE, PATIENT, Process, line, ping, said, tool_call

from linkspan.serve.stdio import serve_stdio
from linkspan.serve.stream import StreamServer

IN_TIME = 15.0
"""Two seconds are promised, and set in the code; the rest is for a machine that is busy. What runs would take a minute."""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and descriptors")


def hang_up(process: Process) -> None:
    process.close_input()


def terminate(process: Process) -> None:
    process.popen.send_signal(signal.SIGTERM)


def interrupt(process: Process) -> None:
    process.popen.send_signal(signal.SIGINT)


REQUESTS_TO_END = [(hang_up, 0), (terminate, 0), (interrupt, 130)]


@pytest.mark.parametrize(("ask", "code"), REQUESTS_TO_END)
def test_an_idle_server_ends_when_asked(serve, ask, code):
    process = serve()
    process.write(ping(1))
    process.read()
    ask(process)
    assert process.seconds_to_exit() < IN_TIME
    assert process.exit_code() == code
    assert process.rest() == b""
    assert b"Traceback" not in process.errors


@pytest.mark.parametrize(("ask", "code"), REQUESTS_TO_END)
@pytest.mark.parametrize("tool", ["block", "block_loop", "block_executor", "wait"])
def test_a_server_ends_while_a_tool_runs(serve, tool, ask, code):
    process = serve(env=HASTY)
    process.call(1, tool, seconds=60)
    process.wait_for_error("ing\n")
    ask(process)
    assert process.seconds_to_exit() < IN_TIME
    assert process.exit_code() == code
    assert process.rest() == b""
    assert b"Traceback" not in process.errors


def test_what_was_asked_before_the_end_of_the_input_is_answered(serve):
    process = serve(env=PATIENT)
    process.write(tool_call(1, "block", seconds=0.2) + tool_call(2, "wait", seconds=0.2) + ping(3))
    process.close_input()
    answers = {message["id"] for message in (process.read(), process.read(), process.read())}
    assert answers == {1, 2, 3}
    assert process.exit_code() == 0


def test_a_last_line_without_a_newline_is_a_message(serve):
    process = serve()
    process.write(ping(1).rstrip())
    process.close_input()
    assert process.read()["id"] == 1
    assert process.exit_code() == 0


def test_a_call_that_outlives_the_grace_is_cancelled_and_cleans_up(serve):
    process = serve()
    process.call(1, "wait", seconds=60)
    process.wait_for_error("waiting")
    process.close_input()
    assert process.exit_code() == 0
    assert b"cleaned up" in process.errors


def test_a_second_interrupt_does_not_wait(serve):
    process = serve()
    process.call(1, "block_loop", seconds=60)
    process.wait_for_error("blocking")
    interrupt(process)
    time.sleep(0.05)  # two signals of one kind that are pending together are one
    interrupt(process)
    assert process.seconds_to_exit() < IN_TIME
    assert process.exit_code() == 130


def test_the_place_where_a_blocked_server_stopped_is_told(serve):
    process = serve(env=HASTY)
    process.call(1, "block_loop", seconds=60)
    process.wait_for_error("blocking")
    terminate(process)
    process.exit_code()
    assert b"linkspan: stopped while code was still running at " in process.errors
    assert b"tool_server.py:" in process.errors


def test_an_interrupt_says_goodbye_on_stderr(serve):
    process = serve()
    process.write(ping(1))
    process.read()
    interrupt(process)
    process.exit_code()
    assert b"\nExiting...\n" in process.errors


def test_a_signal_that_was_ignored_stays_ignored(spawn):
    start = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    process = spawn("-c", start, sys.executable, str(HERE / "tool_server.py"))
    process.write(ping(1))
    process.read()
    interrupt(process)
    process.write(ping(2))
    assert process.read()["id"] == 2


def test_a_tool_that_takes_the_interpreters_signal_pipe_does_not_disturb_the_end(serve):
    process = serve()
    assert process.result(1, "take_the_signals") == "taken"
    terminate(process)
    assert process.seconds_to_exit() < IN_TIME
    assert process.exit_code() == 0


def test_a_forked_child_keeps_its_signals_to_itself(serve):
    process = serve()
    assert process.result(1, "fork_and_print") == str(-signal.SIGTERM)
    process.write(ping(2))
    assert process.read()["id"] == 2


def test_a_tool_that_raises_system_exit_does_not_end_the_server(serve):
    process = serve()
    for request_id, tool in enumerate(("leave", "leave_async", "cancel_oneself")):
        process.call(request_id, tool)
        assert process.read()["id"] == request_id
    process.close_input()
    assert process.exit_code() == 0


def test_a_client_that_does_not_read_ends_the_server(serve):
    process = serve()
    process.write(ping(1))
    process.read()
    process.popen.stdout.close()
    process.write(ping(2))
    assert process.seconds_to_exit() < IN_TIME
    assert process.exit_code() == 0
    assert b"Traceback" not in process.errors


def test_output_that_nobody_reads_does_not_delay_the_end(serve):
    process = serve(env=HASTY)
    process.write(tool_call(1, "text", size=1_000_000))
    process.wait_for_error("making text")
    process.close_input()
    assert process.seconds_to_exit() < IN_TIME
    assert process.exit_code() == 0


@pytest.mark.parametrize("tool", [None, "block", "block_loop"])
def test_the_death_of_the_parent_ends_the_server_though_its_input_stays_open(tool):
    (input_reader, input_writer), (output_reader, output_writer) = os.pipe(), os.pipe()
    parent_code = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
    parent = Process(
        "-c", parent_code, sys.executable, str(HERE / "tool_server.py"), stdin=input_reader, stdout=output_writer
    )
    os.close(input_reader)
    os.close(output_writer)
    try:
        os.write(input_writer, ping(1))
        assert os.read(output_reader, 1000)
        if tool is not None:
            os.write(input_writer, tool_call(2, tool, seconds=60))
            parent.wait_for_error("blocking")
        parent.kill()
        reader = threading.Thread(target=os.read, args=(output_reader, 1000), daemon=True)
        reader.start()
        reader.join(IN_TIME)
        assert not reader.is_alive(), "the server still holds its output"
    finally:
        parent.kill()
        os.close(input_writer)
        os.close(output_reader)


def test_a_terminal_can_type_requests_and_interrupt(spawn):
    import pty

    terminal, side = pty.openpty()
    process = spawn(
        str(HERE / "tool_server.py"), stdin=side, stdout=side, stderr=subprocess.PIPE, preexec_fn=_own_terminal
    )
    os.close(side)
    os.write(terminal, b'{"jsonrpc":"2.0","id":"1","method":"ping"}\n')
    seen = b""
    while b'"result":{}' not in seen.replace(b" ", b""):
        seen += os.read(terminal, 1000)
    process.wait_for_error("Serving MCP on standard input and output")
    os.write(terminal, b"\x03")
    assert process.exit_code() == 130
    assert b"Traceback" not in process.errors
    os.close(terminal)


def _own_terminal() -> None:
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


# In this process, on pipes.


def serve_here(requests: bytes, **options: object) -> tuple[int, bytes]:
    """Serve `requests` in this thread; return the exit code and what was answered."""
    (input_reader, input_writer), (output_reader, output_writer) = os.pipe(), os.pipe()
    os.write(input_writer, requests)
    os.close(input_writer)
    try:
        code = serve_stdio(echo().connect, input_fd=input_reader, output_fd=output_writer, **options)
        return code, os.read(output_reader, 65536)
    finally:
        for fd in (input_reader, output_reader, output_writer):
            os.close(fd)


def echo() -> Server:
    server = Server()

    @server.tool
    def back(text: str) -> str:
        return text

    @server.tool
    async def async_back(text: str) -> str:
        return text

    @server.tool
    def back_later(text: str) -> object:
        return async_back(text)

    return server


@pytest.mark.parametrize("tool", ["back", "async_back", "back_later"])
def test_the_signal_handlers_of_before_are_back_in_place_afterwards(tool):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    code, answer = serve_here(tool_call(1, tool, text="hello"))
    assert (code, b"hello" in answer) == (0, True)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("tool", ["back", "async_back"])
def test_serving_works_outside_the_main_thread(tool):
    found = []
    thread = threading.Thread(target=lambda: found.append(serve_here(tool_call(1, tool, text="hello"))))
    thread.start()
    thread.join(60)
    [(code, answer)] = found
    assert (code, b"hello" in answer) == (0, True)


@pytest.mark.alone
def test_nothing_is_left_open_or_running_afterwards():
    serve_here(line({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    serve_here(line({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == threads


def test_a_function_that_ends_after_its_server_reaches_no_descriptor_of_others(monkeypatch):
    server, gate, flushed = Server(), threading.Event(), threading.Event()
    flush = StreamServer.flush

    @server.tool
    def linger() -> str:
        gate.wait(30)
        return "late"

    def noted(stream: StreamServer) -> None:
        flush(stream)
        if gate.is_set():
            flushed.set()

    monkeypatch.setattr(StreamServer, "flush", noted)
    (reader, writer), (output, output_writer) = os.pipe(), os.pipe()
    os.write(writer, tool_call(1, "linger"))
    os.close(writer)
    assert serve_stdio(server.connect, input_fd=reader, output_fd=output_writer, watch_parent=False, grace=0.05) == 0
    for fd in (reader, output, output_writer):
        os.close(fd)
    others = [
        each for _ in range(8) for each in socket.socketpair()
    ]  # they have the numbers now, and can be written to
    gate.set()
    assert flushed.wait(30)
    for each in others:
        each.setblocking(False)
        with pytest.raises(BlockingIOError):
            each.recv(100)
    for each in others:
        each.close()


def test_functions_run_in_the_serving_thread_if_there_are_to_be_no_workers():
    code, answer = serve_here(tool_call(1, "back", text="hello"), max_workers=0)
    assert (code, said_first(answer)) == (0, "hello")


def said_first(answer: bytes) -> str:
    import json

    return said(json.loads(answer), 1)
