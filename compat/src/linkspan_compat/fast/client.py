"""`fastmcp.Client`: a client of any target."""

from __future__ import annotations

import asyncio
import inspect
import keyword
import sys
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Literal, Self

from linkspan_compat.client.client2 import era_of
from linkspan_compat.client.ends import End
from linkspan_compat.client.session import ClientSession, seconds
from linkspan_compat.errors import MCPError, ToolError
from linkspan_compat.fast.client_tasks import PromptTask, ResourceTask, ToolTask, shown
from linkspan_compat.fast.transports import infer_transport
from linkspan_compat.flavours import fast_version
from linkspan_compat.keywords import check
from linkspan_compat.protocol.current import TYPES
from linkspan_compat.server.requests import plain

__all__ = ["CallToolResult", "Client", "ElicitResult", "LogMessage"]


@dataclass
class CallToolResult:
    """What a tool gave: `content`, `structured_content`, `data`, `is_error`, `meta`."""

    content: list[Any]
    structured_content: dict[str, Any] | None
    meta: dict[str, Any] | None
    data: Any = None
    is_error: bool = False


@dataclass
class LogMessage:
    """A log message of a server."""

    level: str
    data: Any
    logger: str | None = None


@dataclass
class ElicitResult:
    """What the user answers."""

    action: str
    content: Any = field(default=None)


class Client:
    """A client: `async with Client(target) as client`, any number of times, and one inside the other."""

    def __class_getitem__(cls, _: object) -> type[Client]:
        return cls

    def __init__(
        self,
        transport: Any,
        name: str | None = None,
        *,
        roots: Any = None,
        sampling_handler: Any = None,
        elicitation_handler: Any = None,
        log_handler: Any = None,
        message_handler: Any = None,
        progress_handler: Any = None,
        timeout: Any = None,
        init_timeout: Any = None,
        client_info: Any = None,
        auth: Any = None,
        mode: str | None = None,
        verify: Any = None,
        sampling_capabilities: Any = None,
        **more: Any,
    ) -> None:
        check("Client", more, "auto_initialize prior_discover input_required_max_rounds cache extensions result_claims")
        self._era: Literal["modern", "legacy"] | None = era_of(mode or ("auto" if fast_version() == "4" else "legacy"))
        self.transport = infer_transport(transport)
        for what, value in (("auth", auth), ("verify", verify)):
            if value is not None and not hasattr(self.transport, what):
                raise ValueError(f"{what}= is for URLs, and not for {type(self.transport).__name__}")
            if value is not None:
                setattr(self.transport, what, value)
        self._init_timeout, self._sampling_capabilities = seconds(init_timeout), sampling_capabilities
        self.name = name or "Client"
        self._roots, self._sampling, self._elicitation = roots, sampling_handler, elicitation_handler
        self._logs, self._messages, self._progress = log_handler, message_handler, progress_handler
        self._timeout, self._info = timeout, client_info
        self._session: ClientSession | None = None
        self._second: ClientSession | None = None
        self._may_have_tasks = True
        self._depth = 0
        self._schemas: dict[str, Any] = {}

    # The connection.

    async def __aenter__(self) -> Self:
        self._depth += 1
        if self._session is None:
            session = self._new_session(self.transport.connect, self._era)
            if (prepare := getattr(getattr(self.transport, "auth", None), "prepare", None)) is not None:
                await prepare()
            await session.__aenter__()
            try:
                await asyncio.wait_for(session.initialize(), self._init_timeout or None)
            except BaseException as error:
                self._depth -= 1
                await session.__aexit__(None, None, None)
                if isinstance(error, Exception):
                    raise RuntimeError(f"Client failed to connect: {error}") from error
                raise
            self._session = session
        return self

    def _new_session(self, connect: Any, era: Literal["modern", "legacy"] | None) -> ClientSession:
        end = End(connect, type(self.transport).__name__)
        session = ClientSession(
            end,
            end,
            read_timeout_seconds=self._timeout,
            sampling_callback=self._sample if self._sampling is not None else None,
            elicitation_callback=self._elicit if self._elicitation is not None else None,
            list_roots_callback=self._list_roots if self._roots is not None else None,
            logging_callback=self._log if self._logs is not None else None,
            message_handler=self._messages,
            client_info=self._info,
            sampling_capabilities=self._sampling_capabilities,
        )
        session.era = era
        session.follows_tasks = era == "modern" or (era is None and "fastmcp_tasks" in sys.modules)
        return session

    async def _task_session(self) -> ClientSession | None:
        """Return the session that tasks are begun in; None where the server has none, or would be another process.

        Tasks need a connection without a handshake: where this client has a handshake, that is a second one.
        """
        if self.session.follows_tasks:
            return self._session
        if self._second is None and self._may_have_tasks and self.transport.can_connect_again:
            session = self._new_session(self.transport.connect_again, "modern")
            await session.__aenter__()
            try:
                await session.initialize()
            except MCPError:  # the server has handshakes only
                await session.__aexit__(None, None, None)
                self._may_have_tasks = False
            else:
                self._second = session
        return self._second

    async def __aexit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth <= 0:
            await self.close()

    async def close(self) -> None:
        """Close the connection."""
        sessions = (self._second, self._session)
        self._session, self._second, self._depth, self._may_have_tasks = None, None, 0, True
        for each in sessions:
            if each is not None:
                await each.__aexit__(None, None, None)

    def new(self) -> Client:
        """Return a client of the same target with a connection of its own."""
        import copy

        made = copy.copy(self)
        made._session, made._second, made._depth = None, None, 0
        return made

    @property
    def session(self) -> ClientSession:
        """The session. Raises: RuntimeError without a connection."""
        if self._session is None:
            raise RuntimeError("Client is not connected. Use the 'async with client:' context manager first.")
        return self._session

    @property
    def initialize_result(self) -> Any:
        """What the server says of itself."""
        return self.session.initialize_result

    def is_connected(self) -> bool:
        """Return whether there is a connection."""
        return self._session is not None

    async def initialize(self, timeout: Any = None) -> Any:
        """Return what the server says of itself."""
        return self.initialize_result

    # What the server asks.

    async def _sample(self, context: Any, params: Any) -> Any:
        answer = self._sampling(params.messages, params, context)
        answer = await answer if inspect.isawaitable(answer) else answer
        if not isinstance(answer, str):
            return answer
        content = {"type": "text", "text": answer}
        return TYPES["CreateMessageResult"].model_validate(
            {"role": "assistant", "model": "fastmcp-client", "content": content}
        )

    async def _elicit(self, context: Any, params: Any) -> Any:
        schema = getattr(params, "requested_schema", None)
        kind = _type_of(schema, "Elicited") if schema and schema.get("properties") else None
        answer = self._elicitation(params.message, kind, params, context)
        answer = await answer if inspect.isawaitable(answer) else answer
        if not hasattr(answer, "action"):
            answer = ElicitResult("accept", answer)
        content = answer.content
        if content is not None and not isinstance(content, dict):
            content = vars(content)
        return TYPES["ElicitResult"](action=answer.action, content=content)

    async def _list_roots(self, context: Any) -> Any:
        found = self._roots(context) if callable(self._roots) else self._roots
        found = await found if inspect.isawaitable(found) else found
        listed = [{"uri": each} if isinstance(each, str) else each for each in found]
        return TYPES["ListRootsResult"].model_validate({"roots": listed})

    async def _log(self, params: Any) -> None:
        found = self._logs(LogMessage(params.level, params.data, params.logger))
        if inspect.isawaitable(found):
            await found

    # Requests.

    async def ping(self) -> bool:
        """Ask whether the server is there."""
        await self.session.send_ping()
        return True

    async def set_logging_level(self, level: str) -> None:
        """Choose which log messages the server sends."""
        await self.session.set_logging_level(level)

    async def _all(self, ask: Any, member: str) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(250):
            page = await ask(cursor)
            found += getattr(page, member)
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def list_tools(self) -> list[Any]:
        """Return all tools."""
        found = await self._all(self.session.list_tools, "tools")
        self._schemas = {each.name: each.output_schema for each in found}
        return found

    async def list_tools_mcp(self, *, cursor: str | None = None) -> Any:
        """Return a page of tools."""
        return await self.session.list_tools(cursor)

    async def list_resources(self) -> list[Any]:
        """Return all resources."""
        return await self._all(self.session.list_resources, "resources")

    async def list_resources_mcp(self, *, cursor: str | None = None) -> Any:
        """Return a page of resources."""
        return await self.session.list_resources(cursor)

    async def list_resource_templates(self) -> list[Any]:
        """Return all templates."""
        return await self._all(self.session.list_resource_templates, "resource_templates")

    async def list_resource_templates_mcp(self, *, cursor: str | None = None) -> Any:
        """Return a page of templates."""
        return await self.session.list_resource_templates(cursor)

    async def list_prompts(self) -> list[Any]:
        """Return all prompts."""
        return await self._all(self.session.list_prompts, "prompts")

    async def list_prompts_mcp(self, *, cursor: str | None = None) -> Any:
        """Return a page of prompts."""
        return await self.session.list_prompts(cursor)

    async def read_resource(self, uri: Any, **more: Any) -> Any:
        """Return the contents of a resource; with `task=True`, as a `ResourceTask` that is at its end."""
        is_task = _takes_task("read_resource", more)
        found = list((await self.session.read_resource(uri)).contents)
        return ResourceTask(immediate_result=found) if is_task else found

    async def read_resource_mcp(self, uri: Any, **more: Any) -> Any:
        """Return the whole result of a read."""
        check("read_resource_mcp", more, _UNREAD)
        return await self.session.read_resource(uri)

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
        """Get a prompt; arguments that are no texts are written as JSON. With `task=True`, as a task that is at its end."""
        is_task = _takes_task("get_prompt", more)
        from linkspan_compat.fast.tools import as_text

        given = {key: value if isinstance(value, str) else as_text(value) for key, value in (arguments or {}).items()}
        found = await self.session.get_prompt(name, given or None)
        return PromptTask(immediate_result=found) if is_task else found

    get_prompt_mcp = get_prompt

    async def complete(
        self, ref: Any, argument: dict[str, str], context_arguments: dict[str, Any] | None = None
    ) -> Any:
        """Complete an argument."""
        return (await self.session.complete(ref, argument, context_arguments)).completion

    complete_mcp = complete

    async def call_tool_mcp(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        progress_handler: Any = None,
        timeout: Any = None,
        meta: dict[str, Any] | None = None,
    ) -> Any:
        """Return the whole result of a call."""
        progress = progress_handler or self._progress
        return await self.session.call_tool(name, arguments, seconds(timeout), progress, meta=meta)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: Any = None,
        progress_handler: Any = None,
        raise_on_error: bool = True,
        meta: dict[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        """Call a tool; with `task=True`, return a `ToolTask` at once. Raises: ToolError where it fails, unless not wanted."""
        if more.pop("task", False):
            check("call_tool", {**more, "task_id": None, "ttl": None}, _UNREAD)
            return await self.started(
                name,
                arguments,
                timeout=timeout,
                progress=progress_handler,
                raise_on_error=raise_on_error,
                meta=meta,
            )
        check("call_tool", more, _UNREAD)
        found = await self.call_tool_mcp(name, arguments, progress_handler, timeout, meta)
        result = await self.result_of(name, found)
        if result.is_error and raise_on_error:
            raise ToolError(found.content[0].text if found.content and hasattr(found.content[0], "text") else "")
        return result

    async def result_of(self, name: str, found: Any) -> CallToolResult:
        """Return what a call of a tool gave, with `data` as its output schema says."""
        structured = found.structured_content
        result = CallToolResult(found.content, structured, found.meta, is_error=bool(found.is_error))
        if result.is_error or structured is None:
            return result
        if name not in self._schemas:
            await self.list_tools()
        schema = self._schemas.get(name)
        if schema is None:
            result.data = structured
        elif schema.get("x-fastmcp-wrap-result") or list(schema.get("properties", ())) == ["result"]:
            inner = {**schema["properties"]["result"], "$defs": schema.get("$defs", {})}
            result.data = _typed(inner, structured.get("result"), inner)
        else:
            result.data = _typed(schema, structured, schema)
        return result

    # Tasks.

    async def started(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: Any = None,
        progress: Any = None,
        raise_on_error: bool = True,
        meta: dict[str, Any] | None = None,
    ) -> ToolTask:
        """Call a tool, as a task if its server makes one of the call."""
        progress = progress or self._progress
        session = await self._task_session()
        if session is None:
            found = await self.call_tool_mcp(name, arguments, progress, timeout, meta)
        else:
            task = await session.start_tool(name, arguments, timeout, progress, meta)
            if task.id is not None:
                return ToolTask(self, name, task, raise_on_error=raise_on_error)
            found = TYPES["CallToolResult"].model_validate_json(bytes((await task.result()).raw))
        return ToolTask(self, name, immediate_result=await self.result_of(name, found), raise_on_error=raise_on_error)

    async def _task(self, task_id: str) -> Any:
        session = await self._task_session()
        if session is None:
            raise MCPError(-32602, f"Unknown task: {task_id}")
        return session.task(task_id)

    async def get_task_status(self, task_id: str) -> Any:
        """Return the state of a task. Raises: ClientError."""
        return shown(await (await self._task(task_id)).status())

    async def get_task_result(self, task_id: str) -> Any:
        """Wait for the end of a task, and return the result of its tool as JSON. Raises: ClientError."""
        found = await (await self._task(task_id)).result()
        result: dict[str, Any] = plain(TYPES["CallToolResult"].model_validate_json(bytes(found.raw)))
        result.pop("resultType", None)  # of a revision that these versions do not speak
        return result

    async def cancel_task(self, task_id: str) -> Any:
        """Ask the server to end a task, and return its state. Raises: ClientError."""
        task = await self._task(task_id)
        await task.cancel()
        return await self.get_task_status(task_id)


_UNREAD = "version task_id ttl meta"
"""Keywords of requests that are refused; those of a task are not read, for the server decides on both."""


def _takes_task(owner: str, given: dict[str, Any]) -> bool:
    """Return whether a request may be a task, and check its other keywords."""
    is_task = bool(given.pop("task", False))
    check(owner, {**given, "task_id": None, "ttl": None} if is_task else given, _UNREAD)
    return is_task


def _type_of(schema: dict[str, Any], name: str) -> Any:
    """Return a class whose members are the properties of a schema."""
    names = [each for each in schema.get("properties", {}) if each.isidentifier() and not keyword.iskeyword(each)]
    return make_dataclass(schema.get("title") or name, [(each, Any, field(default=None)) for each in names])


def _typed(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> Any:
    """Return structured content with objects as values with attributes, where the schema names their members."""
    if "$ref" in schema:
        schema = root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {})
    if isinstance(value, list):
        return [_typed(schema.get("items") or {}, each, root) for each in value]
    if not isinstance(value, dict):
        return value
    for form in schema.get("anyOf", ()):
        if form.get("type") != "null":
            return _typed(form, value, root)
    properties = schema.get("properties")
    if not properties:
        return {key: _typed({}, each, root) for key, each in value.items()}
    made = _type_of(schema, "Root")()
    for key, each in value.items():
        setattr(made, key, _typed(properties.get(key, {}), each, root))
    return made
