"""Tools in processes of their own: what goes wrong in one ends that call in words, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import isolated_tools
import pytest

from linkspan import Ask, Client, Context, Depends, RegistrationError, Server, SyncClient, TaskCancelled, Tasks
from linkspan.runtime.isolated import ProcessPool

FILE = Path(__file__).with_name("isolated_tools.py")
LONG = 60.0


@pytest.fixture(scope="module")
def client() -> Any:
    with SyncClient(isolated_tools.server) as client:
        yield client


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def ends(process: int) -> bool:
    for _ in range(600):
        if not is_running(process):
            return True
        time.sleep(0.05)
    return False


def test_arguments_and_results_cross(client: Any) -> None:
    assert client.call_tool("add", {"a": 2}).text == "3"
    swapped = client.call_tool("swap", {"point": {"x": 1, "y": 2}})
    assert swapped.structured == {"x": 2, "y": 1}
    [schema] = [tool.input_schema for tool in client.list_tools() if tool.name == "add"]
    assert schema["properties"]["b"] == {"type": "integer", "default": 1}


def test_arguments_are_checked_before_they_cross(client: Any) -> None:
    result = client.call_tool("add", {"a": "many"})
    assert result.is_error
    assert "a" in result.text


def test_the_process_stays_warm(client: Any) -> None:
    first = client.call_tool("process").text
    assert first == client.call_tool("process").text != str(os.getpid())


def test_dependencies_are_made_once_in_the_process(client: Any) -> None:
    assert [client.call_tool("counts").text for _ in range(3)] == ["2", "3", "4"]


def test_a_crash_ends_only_its_call(client: Any) -> None:
    answers: list[str] = []
    neighbours = threading.Thread(
        target=lambda: answers.extend(client.call_tool("add", {"a": number}).text for number in range(20))
    )
    neighbours.start()
    for _ in range(2):
        result = client.call_tool("crash")
        assert result.is_error
        assert result.text == "crash crashed (SIGSEGV)"
    neighbours.join()
    assert answers == [str(number + 1) for number in range(20)]


def test_one_that_never_looks_up_is_killed_at_its_timeout(client: Any) -> None:
    client.call_tool("add", {"a": 1})
    began = time.monotonic()
    result = client.call_tool("spin", timeout=LONG)
    assert result.is_error
    assert result.text == "spin was stopped after 1 s"
    assert time.monotonic() - began < LONG / 2


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS bounds memory on Linux only")
def test_one_that_eats_memory_is_stopped(client: Any) -> None:
    result = client.call_tool("eat")
    assert result.is_error
    assert result.text == f"eat needed more than {1 << 30} bytes of memory, and was stopped"


def test_an_exit_is_a_crash(client: Any) -> None:
    assert client.call_tool("leave").text == "leave crashed (exit status 3)"


def test_a_tool_error_crosses_and_other_exceptions_are_masked(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert client.call_tool("refuse").text == "not like this"
    with caplog.at_level(logging.ERROR, "linkspan.server"):
        result = client.call_tool("fail")
    assert result.text.startswith("Internal error")
    assert "secret" not in result.text
    assert "secret" in caplog.text, "the log has the traceback of the process"


def test_each_process_has_one_call_at_a_time() -> None:
    async def at_once() -> list[str]:
        async with Client(isolated_tools.server) as client:
            calls = [client.call_tool("wait", {"seconds": 0.3}) for _ in range(6)]
            return [each.text for each in await asyncio.gather(*calls)]

    found = asyncio.run(at_once())
    assert len(found) == 6
    assert 1 <= len(set(found)) <= 2


def test_a_cancelled_call_kills_its_process() -> None:
    async def cancel() -> int:
        async with Client(isolated_tools.server) as client:
            [process] = {int((await client.call_tool("wait", {"seconds": 0})).text)}
            for _ in range(2):  # the second process too
                call = asyncio.ensure_future(client.call_tool("wait", {"seconds": LONG}))
                await asyncio.sleep(0.5)
                call.cancel()
                await asyncio.wait([call])
            return process

    assert ends(asyncio.run(cancel()))


@pytest.mark.parametrize("way", ["script", "run"])
def test_a_file_that_is_served_over_stdio(way: str) -> None:
    """As `python server.py`, whose functions are in `__main__`, and as `linkspan run`; `print` stays out of the protocol."""
    command = [sys.executable, str(FILE)] if way == "script" else [sys.executable, "-m", "linkspan", "run", str(FILE)]
    heard: list[str] = []
    with SyncClient(command, on_stderr=heard.append) as client:
        assert client.call_tool("add", {"a": 41}).text == "42"
        assert client.call_tool("prints").text == "''"
        process = int(client.call_tool("process").text)
        assert client.call_tool("crash").text == "crash crashed (SIGSEGV)"
    assert ends(process), "no process outlives the server"
    assert any("printed by the tool" in line for line in heard)


def test_a_server_that_is_killed_leaves_no_process() -> None:
    server = subprocess.Popen([sys.executable, str(FILE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"process","arguments":{}}}\n')
    server.stdin.flush()
    import json

    process = int(json.loads(server.stdout.readline())["result"]["content"][0]["text"])
    server.kill()
    server.wait()
    server.stdin.close()
    server.stdout.close()
    assert ends(process)


def nested_dependency(ctx: Context) -> int:
    return 1


def needs_context(ctx: Context) -> None: ...
def asks(seats: Annotated[int, Ask("How many?")]) -> None: ...
def depends_on_context(one: Annotated[int, Depends(nested_dependency)]) -> None: ...


class TestRefused:
    @pytest.mark.parametrize("function", [needs_context, asks, depends_on_context])
    def test_parameters_of_this_process(self, function: Any) -> None:
        with pytest.raises(RegistrationError, match="process of its own"):
            Server("shop").tool(isolated=True)(function)

    def test_functions_without_a_name(self) -> None:
        def inner() -> None: ...

        for function in (lambda: None, inner, Server("shop").remove_tool):
            with pytest.raises(RegistrationError, match="finds functions by name"):
                Server("shop").tool(name="f", isolated=True)(function)

    def test_functions_typed_into_an_interpreter(self) -> None:
        scope: dict[str, Any] = {"__name__": "typed"}
        exec("def typed() -> int:\n    return 1", scope)
        with pytest.raises(RegistrationError, match="typed into an interpreter"):
            Server("shop").tool(isolated=True)(scope["typed"])

    def test_a_file_that_cannot_be_loaded_is_reported(self, tmp_path: Path) -> None:
        file = tmp_path / "broken.py"
        file.write_text("raise OSError('no such database')")
        call = ProcessPool(isolated_tools_isolation(path=str(file)))
        with pytest.raises(RuntimeError, match="cannot start in a process of its own: OSError: no such database"):
            call(b"{}", repair=True, cancelled=lambda: False)


def isolated_tools_isolation(path: str) -> Any:
    from linkspan.server.limits import Isolation

    return Isolation(
        tool="add",
        function="add",
        module=None,
        path=path,
        structured=True,
        output_schema=None,
        derives_output_schema=True,
        structured_text=True,
        coerce=False,
        processes=1,
        timeout=None,
        memory=None,
    )


@pytest.mark.parametrize("running", [True, False], ids=["while it runs", "while it waits for a process"])
def test_a_task_of_an_isolated_tool_that_is_cancelled_ends_as_cancelled(running: bool) -> None:
    server = Server("workshop")
    server.define_tool("wait", handler=isolated_tools.wait, isolated=True, task=True)
    with SyncClient(server, extensions=[Tasks()]) as client:
        tasks = [client.start_tool("wait", {"seconds": LONG}) for _ in range(1 if running else 2)]
        for each in reversed(tasks):
            each.cancel()
        for each in tasks:
            with pytest.raises(TaskCancelled):
                each.result(timeout=LONG / 2)
