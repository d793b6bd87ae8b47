"""What runs in a process of an isolated tool: loads its function, and answers one call after the other.

Its descriptors 0 and 1 are not those of the server: input is empty, and what the tool prints goes to stderr.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import msgspec

from linkspan.errors import ToolError
from linkspan.runtime.channels import as_line
from linkspan.runtime.descriptors import write_all
from linkspan.runtime.isolated import OUT_OF_MEMORY, ProcessCall, Start, read_lines
from linkspan.serve.server import Server
from linkspan.server.limits import Isolation, ProcessReply
from linkspan.server.serving_inside import readable
from linkspan.server.tools import BoundTool, ToolInfo, bind_tool
from linkspan.types.base import UNSET
from linkspan.types.messages import CallToolResult


def main() -> None:
    """Serve the calls of one tool, one after the other, until the input ends."""
    incoming, outgoing = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), line_buffering=True)
    lines = read_lines(incoming)
    start = msgspec.json.decode(next(lines), type=Start)
    sys.path[:] = start.path
    try:
        if (memory := start.isolation.memory) is not None and sys.platform != "win32":  # there the job has the bound
            import resource

            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        tool = _load(start.isolation)
    except BaseException as error:
        write_all(outgoing, as_line("".join(traceback.format_exception_only(error)).strip().encode()))
        return
    write_all(outgoing, as_line(b"ready"))
    for line in lines:
        write_all(outgoing, as_line(msgspec.json.encode(_answer(tool, msgspec.json.decode(line, type=ProcessCall)))))


class _LoadedEnough(BaseException):
    """Ends the loading of a file that would serve now: what it defines above that line is there."""


def _load(isolation: Isolation) -> BoundTool:
    def stop(*_: object, **__: object) -> None:
        raise _LoadedEnough

    Server.run = stop  # type: ignore[method-assign]
    if isolation.module is not None:
        module: Any = import_module(isolation.module)
    else:
        assert isolation.path is not None
        spec = spec_from_file_location("__isolated__", isolation.path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["__isolated__"] = module_from_spec(spec)
        with suppress(_LoadedEnough):
            spec.loader.exec_module(module)
    function = getattr(module, isolation.function)
    schema = UNSET if isolation.derives_output_schema else isolation.output_schema
    info = ToolInfo(name=isolation.tool, structured=isolation.structured, output_schema=schema)
    return bind_tool(function, info, structured_text=isolation.structured_text, coerce=isolation.coerce)


_made: dict[object, object] = {}
"""The dependencies of this process."""


def _answer(tool: BoundTool, request: ProcessCall) -> ProcessReply:
    handler = tool.handler
    try:
        arguments, _ = handler.parameters.decode(request.arguments, repair=request.repair)
        if handler.needs is not None:
            arguments |= {name: _dependency(each) for name, each in handler.needs.providers.items()}
        value = handler.function(**arguments)
        if hasattr(type(value), "__await__"):
            import asyncio

            value = asyncio.run(_awaited(value))
        result = readable(tool.outcome(value))
        if not isinstance(result, CallToolResult):
            raise TypeError(
                f"{tool.spec.name} returned a {type(result).__name__}, which a process of its own cannot send"
            )
        return ProcessReply(result=result)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    except ToolError as error:
        return ProcessReply(refused=str(error))
    except BaseException as error:
        from linkspan.runtime.tracebacks import author_frames

        return ProcessReply(failed=author_frames(error))


def _dependency(provider: Any) -> object:
    if provider.function not in _made:
        arguments = {name: _dependency(need) for name, need in provider.needs.items()}
        value = provider.function(**arguments)
        _made[provider.function] = next(value) if provider.is_generator else value
    return _made[provider.function]


async def _awaited(value: Any) -> object:
    return await value


if __name__ == "__main__":
    main()
