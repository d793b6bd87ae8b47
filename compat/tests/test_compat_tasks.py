"""`task=` of FastMCP: a call becomes a task for clients that can follow one, with the clients of FastMCP themselves."""

import asyncio
import threading
from datetime import timedelta

import pytest
from compat_kit import served, under

from linkspan import Client, ServerError, SyncClient, TaskCancelled, Tasks
from linkspan.types.task_messages import TASKS
from linkspan_compat.errors import NotServed

PATIENCE = 60


def workshop(**more):
    """Return a server with a tool that waits until it may go on, and the event that lets it."""
    from fastmcp import Context, FastMCP
    from fastmcp.dependencies import Progress
    from fastmcp.utilities.tasks import TaskConfig

    server, go_on, seen = FastMCP("workshop", **more), threading.Event(), []

    async def work(n: int, ctx: Context, progress: Progress = Progress()) -> int:  # noqa: B008
        await progress.set_total(3)
        await progress.set_message("half")
        while not go_on.is_set():
            await asyncio.sleep(0.01)
        seen.append((ctx.is_background_task, ctx.task_id))
        if n < 0:
            raise ValueError("too few")
        return n * 2

    work.__annotations__.update(ctx=Context, progress=Progress)
    quick = TaskConfig(mode="optional", poll_interval=timedelta(seconds=0.05))
    server.tool(work, task=quick)
    server.tool(work, name="must", task=TaskConfig("required"))
    return server, go_on, seen


def test_a_tool_of_fastmcp_is_a_task_for_clients_that_can_follow_one(fast):
    server, go_on, seen = workshop()
    with SyncClient(under(server), extensions=[Tasks()]) as client:
        assert TASKS in client.server_capabilities.extensions
        task = client.start_tool("work", {"n": 4})
        messages = {each.status_message for each in [task.status()]}
        go_on.set()
        result = task.result(timeout=PATIENCE)
    assert task.id is not None
    assert messages <= {None, "half"}
    assert result.structured == {"result": 8}
    assert seen == [(True, task.id)]


def test_other_clients_get_the_result_and_are_refused_where_a_task_is_required(fast):
    server, go_on, seen = workshop()
    go_on.set()
    with SyncClient(under(server), era="legacy") as client:
        assert client.call_tool("work", {"n": 4}).structured == {"result": 8}
        assert "runs as a task only" in client.call_tool("must", {"n": 4}).text
    with SyncClient(under(server)) as client, pytest.raises(ServerError) as refused:
        client.call_tool("must", {"n": 4})
    assert refused.value.code == -32021
    assert seen == [(False, None)]


def test_a_task_is_cancelled_and_what_it_raises_is_a_result(fast):
    server, go_on, _ = workshop()
    with SyncClient(under(server), extensions=[Tasks()]) as client:
        task = client.start_tool("work", {"n": 1})
        task.cancel()
        with pytest.raises(TaskCancelled):
            task.result(timeout=PATIENCE)
        go_on.set()
        failed = client.call_tool("work", {"n": -1})
        wrong = client.call_tool("work", {"n": "many"})
    assert (failed.is_error, failed.text) == (True, "Error calling tool 'work': too few")
    assert wrong.is_error


def test_a_tool_of_a_mounted_server_is_a_task_under_its_name_here(fast):
    from fastmcp import FastMCP

    server, go_on, _ = workshop()
    go_on.set()
    outer = FastMCP("outer")
    outer.mount(server, "inner")
    with SyncClient(under(outer), extensions=[Tasks()]) as client:
        task = client.start_tool("inner_work", {"n": 4})
        assert task.id is not None
        assert task.result(timeout=PATIENCE).structured == {"result": 8}


def test_a_server_says_that_its_tools_may_be_tasks(fast):
    from fastmcp import FastMCP

    server = FastMCP("x", tasks=True)

    @server.tool
    async def one() -> str:
        return "1"

    server.tool(lambda: "2", name="two", task=False)
    with SyncClient(under(server), extensions=[Tasks()]) as client:
        assert client.start_tool("one").id is not None
        assert client.start_tool("two").id is None


def test_a_plain_function_is_no_task(fast):
    from fastmcp import FastMCP

    with pytest.raises(ValueError, match="'one' uses a sync function but has task execution enabled"):
        FastMCP("x").tool(lambda: 1, name="one", task=True)
    with pytest.raises(TypeError, match="True, False or a TaskConfig"):
        FastMCP("x").tool(lambda: 1, name="one", task="yes")


@pytest.mark.parametrize("version", ["fastmcp2", "fastmcp3"])
def test_a_client_of_version_3_begins_a_task(version):
    with served(version):
        import fastmcp

        server, go_on, _ = workshop()
        statuses = []

        async def run():
            async with fastmcp.Client(server) as client:
                task = await client.call_tool("work", {"n": 4}, task=True)
                task.on_status_change(lambda status: statuses.append(status.status))
                begun = (await task.status()).status
                same = await client.get_task_status(task.task_id)
                go_on.set()
                found = await asyncio.wait_for(task.result(), PATIENCE)
                done = await task.wait(state="completed", timeout=PATIENCE)
                assert await client.get_task_result(task.task_id) == {
                    "content": [{"type": "text", "text": "8"}],
                    "structuredContent": {"result": 8},
                    "isError": False,
                    "_meta": {"fastmcp": {"wrap_result": True}},
                }
                plain = await client.call_tool("work", {"n": 5})
                return task, begun, same, found, done, plain

        task, begun, same, found, done, plain = asyncio.run(run())
        assert (task.returned_immediately, begun, same.taskId) == (False, "working", task.task_id)
        assert (found.data, done.status, plain.data) == (8, "completed", 10)
        assert statuses[-1] == "completed"


def test_a_client_of_version_3_gets_what_the_server_answers_at_once():
    with served("fastmcp3"):
        import fastmcp
        from fastmcp.exceptions import ToolError

        server = fastmcp.FastMCP("x")

        @server.tool
        def five() -> int:
            return 5

        server.resource("a://b", name="read")(lambda: "text")
        server.prompt(lambda: "written", name="write")

        @server.tool
        def broken() -> None:
            raise ToolError("no")

        async def run():
            async with fastmcp.Client(server) as client:
                task = await client.call_tool("five", task=True, task_id="mine")
                status = await task.status()
                read = await (await client.read_resource("a://b", task=True))
                got = await (await client.get_prompt("write", task=True)).result()
                failing = await client.call_tool("broken", task=True)
                with pytest.raises(ToolError, match="no"):
                    await failing
                kept = await client.call_tool("broken", task=True, raise_on_error=False)
                assert (await kept).is_error
                await task.cancel()
                return task.returned_immediately, status.status, (await task).data, read[0].text, got.messages[0]

        immediately, status, data, text, message = asyncio.run(run())
        assert (immediately, status, data, text) == (True, "completed", 5, "text")
        assert message.content.text == "written"


def test_a_client_of_version_4_follows_tasks_or_drives_them():
    with served("fastmcp4"):
        import fastmcp
        from fastmcp.exceptions import ToolError
        from fastmcp_tasks import TasksExtension, call_tool_task

        server, go_on, seen = workshop()
        server.add_extension(TasksExtension(concurrency=2))
        server.tool(lambda: 5, name="five")

        async def run():
            async with fastmcp.Client(server) as client:
                task = await call_tool_task(client, "work", {"n": 4})
                begun = await task.wait(state="working", timeout=PATIENCE)
                with pytest.raises(TimeoutError, match="did not reach completed within"):
                    await task.wait(state="completed", timeout=0.05)
                go_on.set()
                found = await task
                followed = await client.call_tool("must", {"n": 5})
                with pytest.raises(ToolError, match="did not run as a task"):
                    await call_tool_task(client, "five")
                cancelled = await call_tool_task(client, "work", {"n": 4}, raise_on_error=False)
                await cancelled.result()
                return task, begun, found, followed

        task, begun, found, followed = asyncio.run(run())
        assert (begun.task_id, begun.status) == (task.task_id, "working")
        assert (found.data, followed.data) == (8, 10)
        assert [each for each, _ in seen] == [True, True, True]


def test_a_task_asks_by_its_result_and_not_while_it_runs():
    with served("fastmcp4"):
        import fastmcp
        from fastmcp import Context, FastMCP
        from fastmcp_tasks import TasksExtension
        from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

        server, runs = FastMCP("x"), []
        server.add_extension(TasksExtension())

        async def dinner(ctx: Context):
            runs.append(ctx.input_responses is not None)
            if ctx.input_responses is not None:
                return f"Tonight: {ctx.input_responses['prefs'].content['value']}"
            schema = {"type": "object", "properties": {"value": {"type": "string"}}}
            params = ElicitRequestFormParams(message="What?", requested_schema=schema)
            return InputRequiredResult(
                result_type="input_required", input_requests={"prefs": ElicitRequest(params=params)}
            )

        async def asking(ctx: Context):
            return (await ctx.elicit("What?", str)).data

        dinner.__annotations__["ctx"] = asking.__annotations__["ctx"] = Context
        server.tool(dinner, task=True)
        server.tool(asking, task=True)

        async def handler(message, kind, params, context):
            return {"value": "Thai"}

        async def run():
            async with fastmcp.Client(server, elicitation_handler=handler) as client:
                found = await client.call_tool("dinner")
                asked = await client.call_tool("asking", raise_on_error=False)
                return found.content[0].text, asked

        text, asked = asyncio.run(run())
        assert text == "Tonight: Thai"
        assert runs == [False, True]
        assert asked.is_error
        assert "Return an InputRequiredResult" in asked.content[0].text


def test_tasks_over_http_and_a_store(tmp_path):
    with served("fastmcp4"):
        from fastmcp import FastMCP
        from fastmcp_tasks import TasksExtension

        server = FastMCP("x")
        server.add_extension(TasksExtension(url=f"sqlite:///{tmp_path}/tasks.db"))

        @server.tool(task=True)
        async def one() -> str:
            return "1"

        async def run():
            async with Client(under(server), extensions=[Tasks()]) as client:
                task = await client.start_tool("one")
                return task.id, (await task.result(timeout=PATIENCE)).text

        task_id, text = asyncio.run(run())
        assert task_id is not None
        assert text == "1"
        assert (tmp_path / "tasks.db").exists()


def test_other_extensions_are_refused_with_the_line_to_write():
    with served("fastmcp4"):
        from fastmcp import FastMCP
        from fastmcp_tasks import TasksExtension

        with pytest.raises(NotServed, match=r"extensions=\["):
            FastMCP("x").add_extension(object())
        with pytest.raises(NotServed, match="store='redis"):
            TasksExtension(credential_provider=object())
