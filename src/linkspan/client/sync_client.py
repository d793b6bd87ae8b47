"""`SyncClient`: the face for threads. Each operation is one flow, and one line here."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from queue import Empty
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, Unpack, cast

from linkspan.client.base import BaseClient, CallKeywords, ListKeywords, RequestKeywords, call_options, filter_of
from linkspan.client.callbacks import finished
from linkspan.client.subscriptions import READY, Filter, MemberReader, left_behind, unconfirmed
from linkspan.client.transports.base import ClientTransport, ThreadWaiter
from linkspan.core.flow import AskUser, Flow, ListenFor, Receive, RequestSpec, Send, Sleep
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
    from linkspan.client.tasks import SyncClientTask
    from linkspan.client.tool_functions import SyncToolFunctions

T = TypeVar("T")


class SyncClient(BaseClient):
    """A client for threads; any number of them may use it at once. `Client` has the same methods for asyncio.

        with SyncClient(["python", "dice.py"]) as client:
            result = client.call_tool("roll", {"sides": 20})

    Every method raises `ClientError`, and nothing else unless your `on_progress` raised it. Seconds everywhere.
    """

    def connect(self) -> Self:
        """Start the server and agree with it. Calls do that by themselves; this says earlier if it cannot be done."""
        self._supervisor.reopen()
        self._exchange(None)
        return self

    def close(self) -> None:
        """End the server, and every call. Any thread, any number of times; afterwards calls raise `ClientClosed`."""
        self._supervisor.close()

    def __aenter__(self) -> Never:
        """Raise TypeError: this client blocks, which an event loop must not."""
        raise TypeError("SyncClient is opened with `with`; in a coroutine, use `async with Client(...)`")

    def __aexit__(self, *_: object) -> Never:
        """Raise TypeError, as `__aenter__` does."""
        raise TypeError("SyncClient is opened with `with`")

    def __enter__(self) -> Self:
        """Connect."""
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    # Tools.

    @property
    def tools(self) -> SyncToolFunctions:
        """The tools as functions: `client.tools.add(a=1)`."""
        from linkspan.client.tool_functions import SyncToolFunctions

        return SyncToolFunctions(self, self._state.own)

    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """Call a tool; its own failure is a result with `is_error`, not an exception.

        `timeout` is for silence: progress extends it, up to `total`. `on_progress` receives progress, `stopper` ends
        the call from elsewhere, `meta` goes into the request's `_meta`, `headers` into this request only, and `auth` (a
        bearer token, or a function that returns one) identifies the caller (over HTTP).
        Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/tools.
        """
        return self._run(operations.call_tool(self._state, name, arguments, call_options("call_tool", options)))

    def start_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> SyncClientTask:
        """Call a tool that may become a task, and return that task at once. Needs `extensions=[Tasks()]`.

        A server that does not make a task of it answers as ever; `result()` of the task returns that. The options are those
        of `call_tool`. Raises: ValueError for a client without tasks.
        """
        from linkspan.client.tasks import SyncClientTask, check_tasks, settled
        from linkspan.flows.tasks import start_tool

        check_tasks(self._state)
        chosen = call_options("start_tool", options)
        task_id, result = settled(self._run(start_tool(self._state, name, arguments, chosen)))
        return SyncClientTask(self._run, self._state, task_id, name, chosen, result)

    def task(self, task_id: str, **options: Unpack[ListKeywords]) -> SyncClientTask:
        """Return a task by its id, which another process may have begun. Needs `extensions=[Tasks()]`.

        Raises: ValueError for a client without tasks.
        """
        from linkspan.client.tasks import SyncClientTask, check_tasks

        check_tasks(self._state)
        return SyncClientTask(self._run, self._state, task_id, "", call_options("task", options))

    def list_tools(self, **options: Unpack[ListKeywords]) -> list[Tool]:
        """Return all tools, page after page."""
        return self._run(operations.list_all(self._state, TOOL_LIST, call_options("list_tools", options)))

    def list_tools_page(self, cursor: str | None = None, **options: Unpack[ListKeywords]) -> ListToolsResult:
        """Return one page of tools; `next_cursor` leads to the next."""
        return self._run(operations.list_page(self._state, TOOL_LIST, cursor, call_options("list_tools_page", options)))

    def iter_tools(self, **options: Unpack[ListKeywords]) -> Iterator[Tool]:
        """Go through all tools, asking for pages as they are needed."""
        return self._iterate(TOOL_LIST, call_options("iter_tools", options))

    # Resources.

    def read_resource(self, uri: str, **options: Unpack[CallKeywords]) -> ReadResourceResult:
        """Read a resource. Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/resources."""
        return self._run(operations.read_resource(self._state, uri, call_options("read_resource", options)))

    def list_resources(self, **options: Unpack[ListKeywords]) -> list[Resource]:
        """Return all resources, page after page."""
        return self._run(operations.list_all(self._state, RESOURCE_LIST, call_options("list_resources", options)))

    def list_resources_page(self, cursor: str | None = None, **options: Unpack[ListKeywords]) -> ListResourcesResult:
        """Return one page of resources."""
        return self._run(
            operations.list_page(self._state, RESOURCE_LIST, cursor, call_options("list_resources_page", options))
        )

    def iter_resources(self, **options: Unpack[ListKeywords]) -> Iterator[Resource]:
        """Go through all resources, asking for pages as they are needed."""
        return self._iterate(RESOURCE_LIST, call_options("iter_resources", options))

    def list_resource_templates(self, **options: Unpack[ListKeywords]) -> list[ResourceTemplate]:
        """Return all resource templates, page after page."""
        return self._run(
            operations.list_all(self._state, TEMPLATE_LIST, call_options("list_resource_templates", options))
        )

    def list_resource_templates_page(
        self, cursor: str | None = None, **options: Unpack[ListKeywords]
    ) -> ListResourceTemplatesResult:
        """Return one page of resource templates."""
        return self._run(
            operations.list_page(
                self._state, TEMPLATE_LIST, cursor, call_options("list_resource_templates_page", options)
            )
        )

    def iter_resource_templates(self, **options: Unpack[ListKeywords]) -> Iterator[ResourceTemplate]:
        """Go through all resource templates, asking for pages as they are needed."""
        return self._iterate(TEMPLATE_LIST, call_options("iter_resource_templates", options))

    # Prompts and completion.

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallKeywords]
    ) -> GetPromptResult:
        """Get a prompt's messages. Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/prompts."""
        return self._run(operations.get_prompt(self._state, name, arguments, call_options("get_prompt", options)))

    def list_items(self, spec: ListSpec[ItemT, PageT], **options: Unpack[ListKeywords]) -> list[ItemT]:
        """Return all items of a list, page after page: one that an extension adds, or one of the protocol."""
        return self._run(operations.list_all(self._state, spec, call_options("list_items", options)))

    def list_prompts(self, **options: Unpack[ListKeywords]) -> list[Prompt]:
        """Return all prompts, page after page."""
        return self._run(operations.list_all(self._state, PROMPT_LIST, call_options("list_prompts", options)))

    def list_prompts_page(self, cursor: str | None = None, **options: Unpack[ListKeywords]) -> ListPromptsResult:
        """Return one page of prompts."""
        return self._run(
            operations.list_page(self._state, PROMPT_LIST, cursor, call_options("list_prompts_page", options))
        )

    def iter_prompts(self, **options: Unpack[ListKeywords]) -> Iterator[Prompt]:
        """Go through all prompts, asking for pages as they are needed."""
        return self._iterate(PROMPT_LIST, call_options("iter_prompts", options))

    def complete(
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
        return self._run(
            operations.complete(self._state, ref, argument, value, given, call_options("complete", options))
        )

    # The connection.

    def ping(self, **options: Unpack[RequestKeywords]) -> None:
        """Make sure that the server answers."""
        self._exchange(None)
        self._run(operations.ping(self._state, call_options("ping", options)))

    def set_logging_level(self, level: LoggingLevel) -> None:
        """Choose the least level of log messages to get, for this connection and the ones that may follow."""
        self._exchange(None)
        self._supervisor.set_level(level)
        self._run(operations.set_level(self._state, level))

    def request(self, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[RequestKeywords]) -> JSON:
        """Call a method that has no name here, and return its result as it came."""
        return self._run(operations.call_method(self._state, method, params, call_options("request", options)))

    def subscribe(self, uri: str) -> None:
        """Subscribe to a resource: `on_change` is called when it changes. Raises: ValueError without an `on_change`."""
        self._exchange(None)
        self._supervisor.watch(uri, on=True)

    def unsubscribe(self, uri: str) -> None:
        """Take a `subscribe` back."""
        self._exchange(None)
        self._supervisor.watch(uri, on=False)

    def listen(self, *uris: str, tools: bool = False, prompts: bool = False, resources: bool = False) -> SyncChanges:
        """Listen for changes to the selected lists and to the resources `uris`.

            with client.listen("note://today", tools=True) as changes:
                for change in changes: ...

        Outlives the connection: after a reconnect, each selected list and resource is reported once with `missed=True`.
        Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions.
        """
        return SyncChanges(self, filter_of(tools=tools, prompts=prompts, resources=resources, uris=uris))

    # How to wait.

    def _run(self, flow: Flow[T]) -> T:
        try:
            effect = next(flow)
            while True:
                try:
                    if type(effect) is Send:
                        outcome: object = self._exchange(effect.spec)
                    elif isinstance(effect, AskUser):
                        outcome = self._answers(effect)
                    elif isinstance(effect, Receive):
                        outcome = self._received(effect)
                    elif isinstance(effect, ListenFor):
                        listen, listeners = self._supervisor.listen, self._supervisor.listeners
                        outcome = MemberReader(listen, listeners, effect.wanted, ThreadWaiter())
                    else:
                        assert isinstance(effect, Sleep)
                        outcome = None
                        time.sleep(effect.seconds)
                except BaseException as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(outcome)
        except StopIteration as stop:
            return cast("T", stop.value)

    def _exchange(self, spec: RequestSpec | None) -> Response | ErrorResponse | ClientTransport:
        """Send a request and wait for its response; without a request, wait for a connection."""
        waiter = ThreadWaiter()
        transport = self._supervisor.submit(spec, waiter)
        detach = None if spec is None or spec.stopper is None else self._attach(spec.stopper, waiter)
        try:
            if transport is not None:
                transport.flush()
            while True:
                item = transport.wait(waiter) if transport is not None else waiter.get()
                if type(item) is Response:
                    return item
                if isinstance(item, ProgressParams):
                    assert spec is not None
                    assert spec.on_progress is not None
                    finished(spec.on_progress(item))
                elif isinstance(item, ClientError):
                    raise item
                else:
                    return cast("ErrorResponse | ClientTransport", item)
        except BaseException as error:
            if not isinstance(error, ClientError):  # the caller was interrupted, or its callback raised
                self._supervisor.withdraw(waiter, "the caller gave up")
            raise
        finally:
            if detach is not None:
                detach()

    def _received(self, receive: Receive) -> object:
        """Wait for what a reader receives; None when the time is over, or the caller has stopped the call."""
        reader, stopper = cast("MemberReader[ThreadWaiter] | None", receive.reader), receive.stopper
        waiter = reader.waiter if reader is not None else ThreadWaiter()
        stop = partial(waiter.put, None)
        if stopper is not None:
            stopper.attach(stop)
        try:
            with self._supervisor.resting(waiter):
                return waiter.get(timeout=receive.seconds)
        except Empty:
            return None
        finally:
            if stopper is not None:
                stopper.detach(stop)

    def _answers(self, ask: AskUser) -> Mapping[str, bytes]:
        """Ask one after the other. A handler in the caller's thread cannot be cut short, but the next is not begun."""
        give_up = time.monotonic() + ask.seconds
        answers: dict[str, bytes] = {}
        for key, request in ask.requests.items():
            if time.monotonic() >= give_up:
                raise unanswered(request.method, self._state.origin, self._state.options.timeouts.input)
            answers[key] = self._answer(request)
        return answers

    def _answer(self, request: Any) -> bytes:
        """Call the handler for a question, here in the caller's thread."""
        handler = self._application.handlers.handler(request.method, request.params)
        if handler is None:
            raise unanswerable(request.method, self._state.origin)
        try:
            value = finished(handler())
        except Refused as refusal:
            raise refused(request.method, self._state.origin, refusal) from None
        except Exception as error:
            raise failed(request.method, self._state.origin, error) from error
        return self._encoded(request, value)

    def _iterate(self, kind: ListSpec[Any, Any], options: CallOptions) -> Iterator[Any]:
        pages = Pages(self._state, kind)
        while not pages.done:
            yield from self._run(pages.next_page(options))


class SyncChanges:
    """What a server says has changed. Enter it to begin, iterate to hear, leave it to stop."""

    def __init__(self, client: SyncClient, wanted: Filter) -> None:
        self._client = client
        self._wanted = wanted
        self._listener: Any = None
        self._forks = depth()
        self._waiter = ThreadWaiter()

    def __enter__(self) -> Self:
        """Begin to listen; returns when the server has confirmed. Raises: ClientError."""
        self._client._exchange(None)  # pyright: ignore[reportPrivateUsage]
        self._forks = depth()
        self._listener = self._client._supervisor.listen(self._wanted, self._waiter.put)  # pyright: ignore[reportPrivateUsage]
        try:
            seconds = self._client._state.options.timeouts.list  # pyright: ignore[reportPrivateUsage]
            try:
                item = self._waiter.get(timeout=seconds)
            except Empty:
                raise unconfirmed(self._client.origin, seconds) from None
            if isinstance(item, ClientError):
                raise item
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop listening."""
        self._client._supervisor.listeners.remove(self._listener)  # pyright: ignore[reportPrivateUsage]

    def __iter__(self) -> Self:
        """Return itself."""
        return self

    def __next__(self) -> Change:
        """Wait for the next change. Raises: ClientError when there will be no more."""
        if self._forks != depth():
            raise left_behind(self._client.origin)
        while True:
            item = self._waiter.get()
            if isinstance(item, ClientError):
                raise item
            if item is not READY:
                return cast("Change", item)
