"""Standard output belongs to the protocol: nothing else gets on the wire, and what tries is told where it came from."""

from __future__ import annotations

import json
import sys

import pytest
from stdio_process import HERE, ping

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="tests read /proc")


def finish(process) -> tuple[list[dict], str]:
    """Hang up; return the messages on stdout and the text on stderr."""
    process.close_input()
    rest = process.rest()
    assert process.exit_code() == 0, process.errors.decode()
    return [json.loads(line) for line in rest.splitlines()], process.errors.decode()


@pytest.mark.parametrize(
    "env", [{}, {"CLAIM_FIRST": "1"}, {"BEFORE_END": ""}, {"PYTHONUNBUFFERED": "1", "CLAIM_FIRST": "1"}]
)
def test_what_is_printed_before_and_after_serving_goes_to_stderr(serve, env):
    process = serve(env=env)
    process.write(ping(1))
    messages, log = finish(process)
    assert [message["id"] for message in messages] == [1]
    assert "printed before it serves" in log
    assert "printed after it served" in log


def test_a_print_is_told_with_its_file_and_line(serve):
    process = serve(env={"CLAIM_FIRST": "1"})
    assert process.result(1, "print_things", text="two\nlines") == "printed"
    messages, log = finish(process)
    assert messages == []
    lines = (HERE / "tool_server.py").read_text().splitlines()
    place = f"{HERE / 'tool_server.py'}:{lines.index('    print(text)') + 1}"
    assert f"linkspan: stdout: {place}: two\nlinkspan: stdout: {place}: lines\n" in log
    assert ": no newline\n" in log


def test_what_is_written_below_python_is_told_as_such(serve):
    process = serve()
    assert process.result(1, "write_below_python", text="raw\n") == "written"
    messages, log = finish(process)
    assert messages == []
    for text in ("raw", "from C", "from a child", "from the old stdout", "from the buffer"):
        assert f"linkspan: stdout (fd 1): {text}\n" in log


def test_a_line_that_is_never_ended_reaches_stderr_at_exit(serve):
    process = serve()
    process.result(1, "write_below_python", text="no newline")
    _, log = finish(process)
    assert "linkspan: stdout (fd 1): no newline" in log


def test_a_tool_that_reads_stdin_finds_it_empty(serve):
    process = serve()
    assert process.result(1, "read_stdin") == "'' b''"
    process.write(ping(2))
    assert process.read()["id"] == 2


def test_a_child_process_inherits_no_protocol_descriptor(serve):
    process = serve()
    assert process.result(1, "child_descriptors") == "[]\n"


def test_a_forked_child_that_prints_does_not_reach_the_wire(serve):
    process = serve()
    process.result(1, "fork_and_print")
    messages, _ = finish(process)
    assert messages == []


@pytest.mark.parametrize("env", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_linkspan_run_has_claimed_stdout_before_the_file_is_imported(spawn, env):
    process = spawn("-m", "linkspan", "run", str(HERE / "tool_server.py"), env=env)
    assert process.result(1, "print_things", text="hello") == "printed"
    messages, log = finish(process)
    assert messages == []
    lines = (HERE / "tool_server.py").read_text().splitlines()
    place = next(n for n, line in enumerate(lines, 1) if line.startswith("print("))
    assert f"tool_server.py:{place}: printed before it serves\n" in log


CLAIM = """
import io, os, sys
from linkspan.runtime.stdout import claim_stdout
first = claim_stdout()
assert claim_stdout() is first
assert not os.get_inheritable(first.input_fd) and not os.get_inheritable(first.output_fd)
sys.stdout.reconfigure(encoding="utf-8", line_buffering=True)
assert sys.stdout.fileno() == 1 and not sys.stdout.isatty() and sys.stdout.encoding == "utf-8"
print("caf\\u00e9 \\udc80")
print("a", "b", sep="-")
sys.stdout.writelines(["one\\n", "two\\n"])
sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", line_buffering=True)
print("wrapped anew")
try:
    input("a question? ")
except EOFError:
    os.write(first.output_fd, b"the wire\\n")
"""


def test_the_claimed_stdout_is_a_text_stream_like_any_other(spawn):
    process = spawn("-c", CLAIM)
    assert process.rest() == b"the wire\n"
    assert process.exit_code() == 0, process.errors.decode()
    log = process.errors.decode()
    for text in ("caf\u00e9 \\udc80", "a-b", "one", "two"):
        assert f"linkspan: stdout: <string>:{{}}: {text}\n".split("{}")[1] in log
    assert "linkspan: stdout (fd 1): wrapped anew" in log
    assert "a question? " in log


def test_a_log_handler_on_stdout_is_told_by_the_line_that_logs(spawn):
    code = (
        "from linkspan.runtime.stdout import claim_stdout; claim_stdout()\n"
        "import logging, sys; logging.basicConfig(stream=sys.stdout, level='INFO', format='%(message)s')\n"
        "logging.info('hello')\n"
    )
    process = spawn("-c", code)
    assert process.exit_code() == 0
    assert process.errors == b"linkspan: stdout: <string>:3: hello\n"


@pytest.mark.parametrize(("closed", "name"), [("0", "input"), ("1", "output")])
def test_a_process_without_a_standard_stream_is_told_which_one_is_missing(spawn, closed, name):
    code = f"import os; os.close({closed})\nfrom linkspan.runtime.stdout import claim_stdout\nclaim_stdout()"
    process = spawn("-c", code)
    process.exit_code()
    assert f"no standard {name} to speak the protocol on" in process.errors.decode()


def test_a_process_without_stderr_can_serve(spawn):
    code = (
        "import os, runpy, sys; os.close(2); sys.stderr = None\n"
        f"sys.argv = ['tool_server.py']; runpy.run_path({str(HERE / 'tool_server.py')!r}, run_name='__main__')"
    )
    process = spawn("-c", code)
    assert process.result(1, "print_things", text="nobody reads this") == "printed"
    process.close_input()
    assert process.rest() == b""
    assert process.exit_code() == 0
