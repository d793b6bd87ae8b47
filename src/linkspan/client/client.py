"""`Client`: the asyncio face. Each operation is one flow, and one line here."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, Unpack, cast

from linkspan.client.base import BaseClient, CallKeywords, ListKeywords, RequestKeywords, call_options, filter_of
from linkspan.client.callbacks import PendingQuestion, is_awaitable
from linkspan.client.subscriptions import READY, Filter, MemberReader, left_behind, unconfirmed
from linkspan.client.transports.base import ClientTransport, LoopWaiter, deliver
from linkspan.core.flow import AskUser, Await, Flow, ListenFor, Receive, RequestSpec, Send, Sleep
from linkspan.flows import operations
from linkspan.flows.answers import Refused, failed, refused, unanswerable, unanswered
from linkspan.flows.client_errors import Change, ClientError
from linkspan.flows.operations import CallOptions, Pages
from linkspan.flows.tool_results import ToolResult
from linkspan.runtime.forks import depth
from linkspan.types.base import JSON
from linkspan.types.messages import (
    Completion,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    LoggingLevel,
    ProgressParams,
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    Tool,
)
from linkspan.types.methods import PROMPT_LIST, RESOURCE_LIST, TEMPLATE_LIST, TOOL_LIST, ItemT, ListSpec, PageT
from linkspan.wire.jsonrpc import ErrorResponse, Response

if TYPE_CHECKING:
    from linkspan.client.tasks import ClientTask
    from linkspan.client.tool_functions import ToolFunctions

T = TypeVar("T")


class Client(BaseClient):
    """A client for asyncio; any task, and any loop, may use it. `SyncClient` has the same methods without `await`.

        async with Client(["python", "dice.py"]) as client:
            result = await client.call_tool("roll", {"sides": 20})

    Every method raises `ClientError`, and nothing else unless your `on_progress` raised it. Seconds everywhere.
    """

    _awaits = True

    async def connect(self) -> Self:
        """Start the server and agree with it. Calls do that by themselves; this says earlier if it cannot be done."""
        self._supervisor.reopen()
        await self._exchange(None)
        return self

    async def close(self) -> None:
        """End the server, and every call. Any task, any number of times; afterwards calls raise `ClientClosed`."""
        waiter = LoopWaiter(asyncio.get_running_loop())

        def close() -> None:
            self._supervisor.close()
            deliver([(waiter, None)])

        # In our context, which identifies a callback that closes its own client.
        threading.Thread(
            target=contextvars.copy_context().run, args=(close,), name="linkspan-close", daemon=True
        ).start()
        await waiter.get()

    def __enter__(self) -> Never:
        """Raise TypeError: this client needs an event loop."""
        raise TypeError("Client is opened with `async with`; where there is no event loop, use `with SyncClient(...)`")

    def __exit__(self, *_: object) -> Never:
        """Raise TypeError, as `__enter__` does."""
        raise TypeError("Client is opened with `async with`")

    async def __aenter__(self) -> Self:
        """Connect."""
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    # Tools.

    @property
    def tools(self) -> ToolFunctions:
        """The tools as functions: `await client.tools.add(a=1)`. `await client.tools` lists them."""
        from linkspan.client.tool_functions import ToolFunctions

        return ToolFunctions(self, self._state.own)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """Call a tool; its own failure is a result with `is_error`, not an exception.

        `timeout` is for silence: progress extends it, up to `total`. `on_progress` receives progress, `stopper` ends
        the call from elsewhere, `meta` goes into the request's `_meta`, `headers` into this request only, and `auth` (a
        bearer token, or a function that returns one) identifies the caller (over HTTP).
        Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/tools.
        """
        return await self._run(operations.call_tool(self._state, name, arguments, call_options("call_tool", options)))

    async def start_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ClientTask:
        """Call a tool that may become a task, and return that task at once. Needs `extensions=[Tasks()]`.

        A server that does not make a task of it answers as ever; `result()` of the task returns that. The options are those
        of `call_tool`. Raises: ValueError for a client without tasks.
        """
        from linkspan.client.tasks import ClientTask, check_tasks, settled
        from linkspan.flows.tasks import start_tool

        check_tasks(self._state)
        chosen = call_options("start_tool", options)
        task_id, result = settled(await self._run(start_tool(self._state, name, arguments, chosen)))
        return ClientTask(self._run, self._state, task_id, name, chosen, result)

    def task(self, task_id: str, **options: Unpack[ListKeywords]) -> ClientTask:
        """Return a task by its id, which another process may have begun. Needs `extensions=[Tasks()]`.

        Raises: ValueError for a client without tasks.
        """
        from linkspan.client.tasks import ClientTask, check_tasks

        check_tasks(self._state)
        return ClientTask(self._run, self._state, task_id, "", call_options("task", options))

    async def list_tools(self, **options: Unpack[ListKeywords]) -> list[Tool]:
        """Return all tools, page after page."""
        return await self._run(operations.list_all(self._state, TOOL_LIST, call_options("list_tools", options)))

    async def list_tools_page(self, cursor: str | None = None, **options: Unpack[ListKeywords]) -> ListToolsResult:
        """Return one page of tools; `next_cursor` leads to the next."""
        return await self._run(
            operations.list_page(self._state, TOOL_LIST, cursor, call_options("list_tools_page", options))
        )

    def iter_tools(self, **options: Unpack[ListKeywords]) -> AsyncIterator[Tool]:
        """Go through all tools, asking for pages as they are needed."""
        return self._iterate(TOOL_LIST, call_options("iter_tools", options))

    # Resources.

    async def read_resource(self, uri: str, **options: Unpack[CallKeywords]) -> ReadResourceResult:
        """Read a resource. Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/resources."""
        return await self._run(operations.read_resource(self._state, uri, call_options("read_resource", options)))

    async def list_resources(self, **options: Unpack[ListKeywords]) -> list[Resource]:
        """Return all resources, page after page."""
        return await self._run(operations.list_all(self._state, RESOURCE_LIST, call_options("list_resources", options)))

    async def list_resources_page(
        self, cursor: str | None = None, **options: Unpack[ListKeywords]
    ) -> ListResourcesResult:
        """Return one page of resources."""
        return await self._run(
            operations.list_page(self._state, RESOURCE_LIST, cursor, call_options("list_resources_page", options))
        )

    def iter_resources(self, **options: Unpack[ListKeywords]) -> AsyncIterator[Resource]:
        """Go through all resources, asking for pages as they are needed."""
        return self._iterate(RESOURCE_LIST, call_options("iter_resources", options))

    async def list_resource_templates(self, **options: Unpack[ListKeywords]) -> list[ResourceTemplate]:
        """Return all resource templates, page after page."""
        return await self._run(
            operations.list_all(self._state, TEMPLATE_LIST, call_options("list_resource_templates", options))
        )

    async def list_resource_templates_page(
        self, cursor: str | None = None, **options: Unpack[ListKeywords]
    ) -> ListResourceTemplatesResult:
        """Return one page of resource templates."""
        return await self._run(
            operations.list_page(
                self._state, TEMPLATE_LIST, cursor, call_options("list_resource_templates_page", options)
            )
        )

    def iter_resource_templates(self, **options: Unpack[ListKeywords]) -> AsyncIterator[ResourceTemplate]:
        """Go through all resource templates, asking for pages as they are needed."""
        return self._iterate(TEMPLATE_LIST, call_options("iter_resource_templates", options))

    # Prompts and completion.

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallKeywords]
    ) -> GetPromptResult:
        """Get a prompt's messages. Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/prompts."""
        return await self._run(operations.get_prompt(self._state, name, arguments, call_options("get_prompt", options)))

    async def list_items(self, spec: ListSpec[ItemT, PageT], **options: Unpack[ListKeywords]) -> list[ItemT]:
        """Return all items of a list, page after page: one that an extension adds, or one of the protocol."""
        return await self._run(operations.list_all(self._state, spec, call_options("list_items", options)))

    async def list_prompts(self, **options: Unpack[ListKeywords]) -> list[Prompt]:
        """Return all prompts, page after page."""
        return await self._run(operations.list_all(self._state, PROMPT_LIST, call_options("list_prompts", options)))

    async def list_prompts_page(self, cursor: str | None = None, **options: Unpack[ListKeywords]) -> ListPromptsResult:
        """Return one page of prompts."""
        return await self._run(
            operations.list_page(self._state, PROMPT_LIST, cursor, call_options("list_prompts_page", options))
        )

    def iter_prompts(self, **options: Unpack[ListKeywords]) -> AsyncIterator[Prompt]:
        """Go through all prompts, asking for pages as they are needed."""
        return self._iterate(PROMPT_LIST, call_options("iter_prompts", options))

    async def complete(
        self,
        ref: str | PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        given: Mapping[str, str] | None = None,
        **options: Unpack[ListKeywords],
    ) -> Completion:
        """Complete what the user has typed of an argument; `given` are the other arguments so far.

        `ref` is the name of a prompt, or a resource template.
        """
        return await self._run(
            operations.complete(self._state, ref, argument, value, given, call_options("complete", options))
        )

    # The connection.

    async def ping(self, **options: Unpack[RequestKeywords]) -> None:
        """Make sure that the server answers."""
        await self._exchange(None)
        await self._run(operations.ping(self._state, call_options("ping", options)))

    async def set_logging_level(self, level: LoggingLevel) -> None:
        """Choose the least level of log messages to get, for this connection and the ones that may follow."""
        await self._exchange(None)
        self._supervisor.set_level(level)
        await self._run(operations.set_level(self._state, level))

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[RequestKeywords]
    ) -> JSON:
        """Call a method that has no name here, and return its result as it came."""
        return await self._run(operations.call_method(self._state, method, params, call_options("request", options)))

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource: `on_change` is called when it changes. Raises: ValueError without an `on_change`."""
        await self._exchange(None)
        self._supervisor.watch(uri, on=True)

    async def unsubscribe(self, uri: str) -> None:
        """Take a `subscribe` back."""
        await self._exchange(None)
        self._supervisor.watch(uri, on=False)

    def listen(self, *uris: str, tools: bool = False, prompts: bool = False, resources: bool = False) -> Changes:
        """Listen for changes to the selected lists and to the resources `uris`.

            async with client.listen("note://today", tools=True) as changes:
                async for change in changes: ...

        Outlives the connection: after a reconnect, each selected list and resource is reported once with `missed=True`.
        Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions.
        """
        return Changes(self, filter_of(tools=tools, prompts=prompts, resources=resources, uris=uris))

    # How to wait.

    async def _run(self, flow: Flow[T]) -> T:
        try:
            effect = next(flow)
            while True:
                try:
                    if type(effect) is Send:
                        outcome: object = await self._exchange(effect.spec)
                    elif isinstance(effect, AskUser):
                        outcome = await self._answers(effect)
                    elif isinstance(effect, Await):
                        outcome = await effect.start(self._run)
                    elif isinstance(effect, Receive):
                        outcome = await self._received(effect)
                    elif isinstance(effect, ListenFor):
                        waiter = LoopWaiter(asyncio.get_running_loop())
                        outcome = MemberReader(
                            self._supervisor.listen, self._supervisor.listeners, effect.wanted, waiter
                        )
                    else:
                        assert isinstance(effect, Sleep)
                        outcome = None
                        await asyncio.sleep(effect.seconds)
                except BaseException as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(outcome)
        except StopIteration as stop:
            return cast("T", stop.value)

    async def _exchange(self, spec: RequestSpec | None) -> Response | ErrorResponse | ClientTransport:
        """Send a request and wait for its response; without a request, wait for a connection."""
        loop = asyncio.get_running_loop()
        if loop is not self._application.queue.loop:
            # Callbacks and handlers run on the loop that used this client last.
            self._application.queue.loop = loop
            self._application.queue.answer = partial(_answer_on, loop, self._answering)
        waiter = LoopWaiter(loop)
        transport = self._supervisor.submit(spec, waiter)
        detach = None if spec is None or spec.stopper is None else self._attach(spec.stopper, waiter)
        try:
            if transport is not None:
                if transport.machine.pending == 1:
                    transport.flush(loop)
                elif self._flushing != (transport, loop):
                    # Send at the end of this turn of the loop, together with what other tasks ask in it.
                    self._flushing = (transport, loop)
                    loop.call_soon(self._flush, transport, loop)
            while True:
                while not waiter.items:
                    await waiter.arrival()
                item = waiter.items.pop(0)
                if type(item) is Response:
                    return item
                if isinstance(item, ProgressParams):
                    assert spec is not None
                    assert spec.on_progress is not None
                    if is_awaitable(returned := spec.on_progress(item)):
                        await returned
                elif isinstance(item, ClientError):
                    raise item
                else:
                    return cast("ErrorResponse | ClientTransport", item)
        except BaseException as error:
            if not isinstance(error, ClientError):  # the caller was cancelled, or its callback raised
                self._supervisor.withdraw(waiter, "the caller gave up")
            raise
        finally:
            if detach is not None:
                detach()

    async def _received(self, receive: Receive) -> object:
        """Wait for what a reader receives; None when the time is over, or the caller has stopped the call."""
        reader, stopper = cast("MemberReader[LoopWaiter] | None", receive.reader), receive.stopper
        waiter = reader.waiter if reader is not None else LoopWaiter(asyncio.get_running_loop())
        stop = partial(deliver, [(waiter, None)])
        if stopper is not None:
            stopper.attach(stop)
        try:
            with self._supervisor.resting(waiter):
                async with asyncio.timeout(receive.seconds):
                    return await waiter.get()
        except TimeoutError:
            return None
        finally:
            if stopper is not None:
                stopper.detach(stop)

    def _flush(self, transport: ClientTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._flushing = None
        transport.flush(loop)

    _flushing: tuple[ClientTransport, asyncio.AbstractEventLoop] | None = None

    # Answers to the server.

    async def _answers(self, ask: AskUser) -> Mapping[str, bytes]:
        answering = [asyncio.create_task(self._answer(request, ask.seconds)) for request in ask.requests.values()]
        try:
            return dict(zip(ask.requests, await asyncio.gather(*answering), strict=True))
        finally:
            for task in answering:  # one that failed ends the call: the others are no longer needed
                task.cancel()

    async def _answer(self, request: Any, seconds: float) -> bytes:
        handler = self._application.handlers.handler(request.method, request.params)
        if handler is None:
            raise unanswerable(request.method, self._state.origin)
        patience = asyncio.timeout(seconds)
        try:
            async with patience:
                value = await _called(handler)
        except Refused as refusal:
            raise refused(request.method, self._state.origin, refusal) from None
        except Exception as error:
            if patience.expired() and isinstance(error, TimeoutError):
                raise unanswered(request.method, self._state.origin, self._state.options.timeouts.input) from None
            raise failed(request.method, self._state.origin, error) from error
        return self._encoded(request, value)

    async def _iterate(self, kind: ListSpec[Any, Any], options: CallOptions) -> AsyncIterator[Any]:
        pages = Pages(self._state, kind)
        while not pages.done:
            for item in await self._run(pages.next_page(options)):
                yield item


class Changes:
    """What a server says has changed. Enter it to begin, iterate to hear, leave it to stop."""

    def __init__(self, client: Client, wanted: Filter) -> None:
        self._client = client
        self._wanted = wanted
        self._listener: Any = None
        self._forks = depth()
        self._waiter: LoopWaiter | None = None

    async def __aenter__(self) -> Self:
        """Begin to listen; returns when the server has confirmed. Raises: ClientError."""
        await self._client._exchange(None)  # pyright: ignore[reportPrivateUsage]
        self._forks = depth()
        waiter = self._waiter = LoopWaiter(asyncio.get_running_loop())
        self._listener = self._client._supervisor.listen(self._wanted, lambda item: deliver([(waiter, item)]))  # pyright: ignore[reportPrivateUsage]
        try:
            seconds = self._client._state.options.timeouts.list  # pyright: ignore[reportPrivateUsage]
            try:
                async with asyncio.timeout(seconds):
                    item = await waiter.get()
            except TimeoutError:
                raise unconfirmed(self._client.origin, seconds) from None
            if isinstance(item, ClientError):
                raise item
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop listening."""
        self._client._supervisor.listeners.remove(self._listener)  # pyright: ignore[reportPrivateUsage]

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Change:
        """Wait for the next change. Raises: ClientError when there will be no more."""
        assert self._waiter is not None
        if self._forks != depth():
            raise left_behind(self._client.origin)
        while True:
            item = await self._waiter.get()
            if isinstance(item, ClientError):
                raise item
            if item is not READY:
                return cast("Change", item)


async def _called(handler: Callable[[], Any]) -> Any:
    """Call a handler in a thread, since it may wait for a person; what a coroutine function returns is awaited here."""
    waiter = LoopWaiter(asyncio.get_running_loop())

    def call() -> None:
        try:
            outcome: tuple[Any, BaseException | None] = handler(), None
        except BaseException as error:
            outcome = None, error
        deliver([(waiter, outcome)])

    threading.Thread(target=contextvars.copy_context().run, args=(call,), name="linkspan-answer", daemon=True).start()
    value, error = await waiter.get()
    if error is not None:
        raise error
    return await value if is_awaitable(value) else value


def _answer_on(loop: asyncio.AbstractEventLoop, answering: set[object], question: PendingQuestion) -> None:
    """Answer a question of the server on `loop`. Knows no client, so that one can be dropped."""
    try:
        loop.call_soon_threadsafe(_start_answering, answering, question)
    except RuntimeError as closed:
        question.fail(closed)


def _start_answering(answering: set[object], question: PendingQuestion) -> None:
    task = asyncio.get_running_loop().create_task(_answer_server(question))
    answering.add(task)
    task.add_done_callback(answering.discard)


async def _answer_server(question: PendingQuestion) -> None:
    try:
        value = await _called(question.handler)
    except Exception as error:
        question.fail(error)
    except BaseException as error:
        question.fail(error)
        raise
    else:
        question.answer(value)
