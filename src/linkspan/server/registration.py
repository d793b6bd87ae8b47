"""`BaseServer`: tools, prompts, resources and methods are registered here, and connections are opened from here.

Does no I/O: `linkspan.Server`, above, adds the transports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Never, TypeVar, Unpack, cast, overload

from linkspan.core.call import NO_PORTS, Ports
from linkspan.core.connection import ServerConnection
from linkspan.core.waiting import ServerChange
from linkspan.errors import MethodAlreadyDefinedError, RegistrationError
from linkspan.keywords import bare, closed, described_by, needing, refusing
from linkspan.revisions import served_revisions
from linkspan.revisions.neutral import NO_FACTS, NOTHING, TransportInfo
from linkspan.server.announcing import Announcer
from linkspan.server.catalogue import Catalogue, Listed, check_pinned
from linkspan.server.configuration import (
    SECRET_HEADERS,
    Configuration,
    ExceptionReporter,
    InstrumentationCallback,
    Profile,
    ProposesRevision,
    SecretHeaders,
    ServerContext,
    SettingsSource,
    key_ring,
    with_hooks,
)
from linkspan.server.connection_opening import ConnectionOpening
from linkspan.server.content_blocks import check_shown
from linkspan.server.dispatch import Dispatcher
from linkspan.server.handlers import (
    Function,
    compile_completer,
    compile_handler,
    compile_method,
    decorator,
    is_async_function,
    named,
)
from linkspan.server.offering import Offering, OfferOptions
from linkspan.server.resources import (
    Resource,
    ResourceDefinition,
    ResourceDescription,
    ResourceSource,
    ResourceTemplate,
    TemplateDefinition,
    TemplateSource,
    from_function,
)
from linkspan.server.tools import (
    Description,
    PromptDefinition,
    PromptKeywords,
    Tool,
    ToolDefinition,
    ToolDescription,
    ToolInfo,
    ToolKeywords,
    ToolSource,
    own_name,
)
from linkspan.server.visibility import Kind, When
from linkspan.text import no_attribute
from linkspan.types.base import JSON, Icon, Implementation, JSONObject
from linkspan.types.messages import ServerCapabilities
from linkspan.types.methods import LISTS, RESOURCE_READ
from linkspan.wire.values import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from linkspan.core.extension import Extension, MakesExtension
    from linkspan.core.http_exchange import BrowserPage
    from linkspan.server.editing import Edit
    from linkspan.server.items import Items
    from linkspan.server.lifespan import LifespanFunction
    from linkspan.server.mounting import Mounted, Site
    from linkspan.server.ports import Protection, SharedState, Sharing, System
    from linkspan.server.prompts import Prompt, PromptSource
    from linkspan.server.task_settings import TaskEngine
    from linkspan.server.telemetry import Telemetry

F = TypeVar("F", bound=Callable[..., object])
LifespanF = TypeVar("LifespanF", bound="LifespanFunction")


class BaseServer(metaclass=ProposesRevision):
    """What is offered, and the connections that offer it. `linkspan.Server` is this with its transports and a `system`."""

    MethodAlreadyDefinedError: ClassVar = MethodAlreadyDefinedError

    @closed
    def __init__(
        self,
        # Who it is.
        name: str = "model_context_protocol",
        version: str = "0.1.0",
        *,
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon] | None = None,
        instructions: str | None = None,
        # What it offers.
        tools: Iterable[ToolSource] = (),
        prompts: Iterable[PromptSource] = (),
        resources: Iterable[ResourceSource] = (),
        resource_templates: Iterable[TemplateSource] = (),
        extensions: Iterable[Extension | MakesExtension] = (),
        capabilities: ServerCapabilities | Mapping[str, JSON] | None = None,
        auto_notify: bool = False,
        # What it answers.
        page_size: int | None = None,
        ttl_ms: int = 0,
        cache_scope: str = "private",
        structured_text: bool = True,
        coerce: bool = False,
        max_result: int | None = None,
        # Whom it answers.
        auth: Protection | None = None,
        revisions: str | Collection[str] | None = None,
        require_initialized: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        # What handlers have, and what is reported of them.
        lifespan: LifespanFunction | Sequence[LifespanFunction] | None = None,
        lifespan_timeout: float = 5.0,
        server_context: ServerContext = None,
        secret_headers: Sequence[str] = SECRET_HEADERS,
        configuration: Configuration | None = None,
        exception_reporter: ExceptionReporter | None = None,
        instrumentation_callback: InstrumentationCallback | None = None,
        # What its processes share.
        store: str | SharedState | None = None,
        store_key: bytes | str | None = None,
        request_state_keys: Sequence[bytes | str] | None = None,
        request_state_ttl: float = 3600.0,
        # Tasks.
        tasks: TaskEngine | None = None,
        max_tasks: int = 16,
        max_tasks_per_principal: int = 100,
        max_task_bytes: int = 256 * 1024 * 1024,
        max_task_bytes_per_principal: int = 64 * 1024 * 1024,
    ) -> None:
        """Make a server. It does nothing until it is served.

        What it offers:

        - `extensions`: the extensions of the protocol that are on.
        - `capabilities`: declared instead of (a `ServerCapabilities`) or besides (a mapping) what is registered.
        - `auto_notify`: notify clients of every change of the lists. Otherwise call `notify_*_list_changed`.

        What it answers:

        - `page_size`: how many items a list result has at most; None for all.
        - `ttl_ms`, `cache_scope`: how long clients may keep lists and resources, and whether for one user ("private") or all
          ("public").
        - `structured_text`: tools that return a plain `str` have it as structured content too, `{"result": ...}`.
        - `coerce`: tools take a text such as "5" where a number or a boolean is wanted, and read it.
        - `max_result`: bytes of a tool's result that are sent; of a larger one the client gets a link, for ten minutes.

        Whom it answers:

        - `auth`: `Protected(...)`, whose tokens are good. Over HTTP every request needs one then; stdio has none.
        - `revisions`: those to speak, as a list of dates or as conditions such as ">=DATE"; None for all.
        - `require_initialized`: refuse requests without a handshake or an envelope, instead of serving them as they come, on
          connections that can shake hands.

        What handlers have:

        - `lifespan`: opens what handlers need and closes it at the end, like `@server.lifespan`, in `lifespan_timeout` seconds.
          Several, in a list, are entered in that order.
        - `server_context`: a mapping for handlers, or a function that makes one for each request.
        - `secret_headers`: names of HTTP headers (or `beginning-*`) that handlers do not see. The default list holds what
          carries the caller's credentials; `[]` shows all.

        What its processes share:

        - `store`: what processes that serve the same clients share: a URL, or a `Store`. `store_key` seals what is in it.
        - `request_state_keys`: secrets that seal `requestState`, the first one seals, all open. Several processes behind one
          address need the same ones; without any, they are in the store, or each process makes its own.
        - `request_state_ttl`: seconds that a user may take to answer a question.

        Tasks:

        - `tasks`: the engine that runs tasks. Without one each process that serves runs up to `max_tasks` at a time.
          One principal may have `max_tasks_per_principal` that have not ended. Of those that have ended, `max_task_bytes` are
          kept, and `max_task_bytes_per_principal` of each principal.

        Raises: RegistrationError, TypeError, UnsupportedProtocolVersion.
        """
        self.configuration = with_hooks(configuration, exception_reporter, instrumentation_callback)
        self._settings = SettingsSource(self.configuration)
        shown = list(icons) if icons is not None else None
        implementation = Implementation(name, version, title, description, website_url, shown)
        pinned = type(self).revision_for(self.configuration)
        check_shown(implementation)
        check_pinned(pinned, implementation)
        self._profile = Profile(
            implementation,
            own_instructions=instructions,
            pinned=pinned,
            served=served_revisions(revisions),
            server_context=server_context,
            page_size=page_size,
            ttl_ms=ttl_ms,
            cache_scope=cache_scope,
            require_initialized=require_initialized,
            limits=limits,
            request_state_keys=key_ring(request_state_keys),
            request_state_ttl=request_state_ttl,
            secret_headers=SecretHeaders(secret_headers, auth.secret_headers if auth is not None else ()),
            store=store,
            store_key=store_key,
            tasks=tasks,
            max_tasks=max_tasks,
            max_tasks_per_principal=max_tasks_per_principal,
            max_task_bytes=max_task_bytes,
            max_task_bytes_per_principal=max_task_bytes_per_principal,
        )
        self.auth = auth
        self._catalogue = Catalogue(capabilities)
        self._offer_options = OfferOptions(auto_notify, structured_text, coerce)
        self.lifespan_timeout = lifespan_timeout
        for each in _each_lifespan(lifespan):
            self.lifespan(each)
        if store is not None or store_key is not None:
            self.sharing.check()
        self._offer(tools, prompts, resources, resource_templates, extensions, max_result)

    def _offer(
        self,
        tools: Iterable[ToolSource],
        prompts: Iterable[PromptSource],
        resources: Iterable[ResourceSource],
        templates: Iterable[TemplateSource],
        extensions: Iterable[Extension | MakesExtension],
        max_result: int | None,
    ) -> None:
        """Offer what the constructor was given."""
        if max_result is not None:
            self._offering.link_large_results(max_result)
        self._offering.add_tools(tools)
        self._offering.add_prompts(prompts)
        self._offering.add_resources(resources)
        self._offering.add_templates(templates)
        for extension in extensions:
            attached = self._offering.extend(self, extension)
            if attached is not None and attached.watch is not None:
                self._opening.add_watch(attached.watch)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            from linkspan.habits import SERVER

            raise no_attribute(self, name, SERVER)

    # Facts, live: the next request sees a change.

    @property
    def name(self) -> str:
        """The server's name."""
        return self._profile.implementation.name

    @name.setter
    def name(self, value: str) -> None:
        self._profile.rename(name=value)

    @property
    def version(self) -> str:
        """The server's own version."""
        return self._profile.implementation.version

    @version.setter
    def version(self, value: str) -> None:
        self._profile.rename(version=value)

    @property
    def instructions(self) -> str | None:
        """How a model should use the server."""
        return self._profile.own_instructions

    @instructions.setter
    def instructions(self, value: str | None) -> None:
        self._profile.own_instructions = value

    if TYPE_CHECKING:
        protocol_version: ClassVar[str | None]  # checkers see nothing of the metaclass's, and would refuse to set it
    else:

        @property
        def protocol_version(self) -> str | None:
            """The revision that is proposed in place of the newest, if one was chosen."""
            return self._profile.pinned.date if self._profile.pinned is not None else None

    @property
    def server_context(self) -> ServerContext:
        """What handlers get as their context."""
        return self._profile.server_context

    @server_context.setter
    def server_context(self, value: ServerContext) -> None:
        self._profile.server_context = value

    @property
    def repaired_arguments(self) -> int:
        """How many arguments of models were repaired so far (a JSON text where an array or object was wanted)."""
        return self._dispatcher.repairs

    @property
    def item_scopes(self) -> Mapping[str, tuple[str, ...]]:
        """The `scopes=` of tools, prompts, resources and other items, by the item: `tool 'write'`."""
        return self._catalogue.scopes()

    # Tools.

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, name: str, /, **described: Unpack[ToolDescription]) -> Callable[[F], F]: ...
    @overload
    def tool(self, **described: Unpack[ToolKeywords]) -> Callable[[F], F]: ...
    @described_by(ToolKeywords)
    def tool(self, *function: Any, **described: Any) -> Any:
        """Offer a function as a tool: its name, its docstring and its hints say the rest.

        Use it bare, with a name, or with keywords; it gives the function back unchanged. `inline=True` runs a tiny plain
        function where the transport is, instead of in a thread. Raises: RegistrationError, which names what to write instead.
        """
        name, function = named(function)
        info = ToolInfo(**name, **described)
        register = decorator(lambda made: self._offering.add_tools([made], info))
        return register(*function) if function else register

    @described_by(ToolDefinition)
    def define_tool(
        self,
        name: str | None = None,
        *,
        handler: Function | None = None,
        notify: bool = False,
        **described: Unpack[ToolDefinition],
    ) -> Any:
        """Define a tool in place and register it: returns the tool, or without a `handler` a decorator.

        `notify=True` notifies the clients. Raises: RegistrationError.
        """

        def define(function: Function) -> type[Tool]:
            tool: type[Tool] = Tool.define(name=name, handler=function, **described)
            self._offering.add_tools([tool], notify=notify)
            return tool

        return define if handler is None else define(handler)

    register_tool = define_tool

    def remove_tool(self, name: str) -> bool:
        """Remove a tool; returns whether there was one."""
        return self._offering.remove(name, self._catalogue.tools)

    # Prompts.

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, name: str, /, **described: Unpack[Description]) -> Callable[[F], F]: ...
    @overload
    def prompt(self, **described: Unpack[PromptKeywords]) -> Callable[[F], F]: ...
    @described_by(PromptKeywords)
    def prompt(self, *function: Any, **described: Any) -> Any:
        """Offer a function as a prompt: it returns a text, messages, or a list of them. Raises: RegistrationError."""
        from linkspan.server.prompts import PromptInfo

        name, function = named(function)
        info = PromptInfo(**name, **described)
        register = decorator(lambda made: self._offering.add_prompts([made], info))
        return register(*function) if function else register

    @described_by(PromptDefinition)
    def define_prompt(
        self,
        name: str | None = None,
        *,
        handler: Function | None = None,
        notify: bool = False,
        **described: Unpack[PromptDefinition],
    ) -> Any:
        """Define a prompt in place and register it: returns the prompt, or without a `handler` a decorator."""
        from linkspan.server.prompts import Prompt

        def define(function: Function) -> type[Prompt]:
            prompt: type[Prompt] = Prompt.define(name=name, handler=function, **described)
            self._offering.add_prompts([prompt], notify=notify)
            return prompt

        return define if handler is None else define(handler)

    def remove_prompt(self, name: str) -> bool:
        """Remove a prompt; returns whether there was one."""
        return self._offering.remove(name, self._catalogue.prompts)

    # Resources.

    @overload
    def resource(
        self, uri: str, *, name: str | None = None, **described: Unpack[ResourceDescription]
    ) -> Callable[[F], F]: ...
    @overload
    def resource(
        self,
        uri: str,
        *,
        path: str | PathLike[str],
        name: str | None = None,
        **described: Unpack[ResourceDescription],
    ) -> Resource: ...
    @needing("uri", what="the URI of the resource", line="@server.resource('docs://{}')")
    @described_by(ResourceDescription)
    def resource(
        self,
        uri: str,
        *,
        path: str | PathLike[str] | None = None,
        name: str | None = None,
        **described: Unpack[ResourceDescription],
    ) -> Any:
        """Offer a function as the resource at `uri`, or with `{braces}` in it as a template of resources (RFC 6570).

        The function returns a text, bytes, JSON, or contents. With `path` the file there is the resource, and there is nothing
        to decorate. Raises: RegistrationError.
        """
        if path is not None:
            return self.define_resource(uri, name, path=path, **described)

        def add(function: Function) -> None:
            source = from_function(function, uri, name, described)
            if isinstance(source, ResourceTemplate):
                self._offering.add_templates([source])
            else:
                self._offering.add_resources([source])

        return decorator(add)

    @described_by(ResourceDefinition)
    def define_resource(self, uri: str, name: str | None = None, **described: Unpack[ResourceDefinition]) -> Resource:
        """Register a `Resource`, with the arguments of its constructor, and return it. Raises: RegistrationError."""
        resource = Resource(uri, name, **described)
        self._offering.add_resources([resource])
        return resource

    @described_by(TemplateDefinition)
    def define_resource_template(
        self, uri_template: str, name: str | None = None, **described: Unpack[TemplateDefinition]
    ) -> ResourceTemplate:
        """Register a `ResourceTemplate`, with the arguments of its constructor, and return it. Raises: RegistrationError."""
        template = ResourceTemplate(uri_template, name, **described)
        self._offering.add_templates([template])
        return template

    def remove_resource(self, uri: str) -> bool:
        """Remove a resource or a template; returns whether there was one."""
        return self._offering.remove(uri, self._catalogue.resources, self._catalogue.templates)

    @bare
    def resources_read_handler(self, function: F) -> F:
        """Let one function answer every `resources/read`: it gets the params and returns a list of contents (E3).

        It takes the place of what resources would answer themselves. Usable as a decorator.
        """
        self._catalogue.read_handler = compile_handler(
            function, loose=True, name=RESOURCE_READ.name, members=("uri",), provided=self._dispatcher.provided
        )
        return function

    # Items of extensions.

    def items(self, method: str) -> Items:
        """Return the items of a list that an extension adds, by its method, such as "notes/list". Raises: RegistrationError."""
        registry = self._catalogue.lists.get(method)
        if registry is None or method in LISTS:
            raise RegistrationError(f"no extension of this server has a list {method!r}")
        return self._offering.items(registry)

    # Who sees what.

    @closed
    def disable(self, name_or_tag: str, kind: Kind | str | None = None) -> int:
        """Hide items from all callers, as if they were not registered, and notify the clients; returns how many changed.

        It means the tools, prompts, resources and templates with this name (of a resource its URI, of a template the template),
        and those with this tag; only those of one `kind` if that is given. What is registered under the tag later is hidden
        too. Of several calls that mean an item, the last one decides. Raises: RegistrationError for a name that nothing has.
        """
        return self._offering.switch(name_or_tag, kind, on=False)

    @closed
    def enable(self, name_or_tag: str, kind: Kind | str | None = None) -> int:
        """Show items again that `disable` has hidden, in their old places; otherwise like `disable`."""
        return self._offering.switch(name_or_tag, kind, on=True)

    # Servers inside this one.

    @closed
    def mount(
        self,
        server: BaseServer,
        prefix: str | None = None,
        *,
        only: Sequence[str] = (),
        hide: Sequence[str] = (),
        rename: Mapping[str, str] = NOTHING,
        when: When | None = None,
        scopes: Sequence[str] = (),
        tags: Sequence[str] | set[str] | frozenset[str] = (),
        edits: Mapping[str, Edit] = NOTHING,
        name: str | None = None,
    ) -> Mounted:
        """Offer what another server offers, too: its tools, prompts, resources and templates, now and later.

            weather = shop.mount(forecasts, "weather", hide=["delete_*"])
            weather.remove()

        The other server serves them, with its own middleware, lifespan, context, configuration and completions; the middleware
        of this one is around that. It may be mounted several times, in several servers, and have servers mounted in itself, 8
        levels deep.

        - `prefix`: tools and prompts are called `prefix_name` here. URIs stay as they are.
        - `only`, `hide`: patterns of names, or of URIs, such as "get_*"; "tag:beta"; "readOnly" and "destructive" for tools
          with these annotations. With `only`, nothing else exists here; what `hide` means does not exist.
        - `rename`: other names for tools and prompts; these get no prefix.
        - `when`, `scopes`, `tags`: as for a tool, for all of them; what an item has itself holds besides.
        - `edits`: an `Edit` for each tool that callers see otherwise, by its name in the other server.
        - `name`: what logs and instructions call the server; its own name if left out.

        Custom methods are not offered here, nor is what `resources_read_handler` reads that no resource or template names.
        Raises: RegistrationError for a name that both servers have, and for servers inside each other.
        """
        from linkspan.server.mounting import MountOptions, mount

        if not isinstance(server, BaseServer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RegistrationError(f"mount() takes a Server, not {server!r}")
        options = MountOptions(prefix, name, only, hide, rename, when, scopes, tags, edits)
        mounted = mount(self.site, server.site, options)
        self._opening.include(server._opening)
        return mounted

    @property
    def site(self) -> Site:
        """What mounting needs of a server."""
        from linkspan.server.mounting import Site

        offering, dispatcher = self._offering, self._dispatcher
        auto_notify = self._offer_options.auto_notify
        return Site(
            self._catalogue, dispatcher, self._announcer, offering.register, auto_notify, dispatcher.edit_host()
        )

    @closed
    def as_tools(self, *kinds: str, when: When | None = None) -> None:
        """Offer tools that do what resources and prompts are for, to hosts that show tools only.

            server.as_tools("resources", "prompts")

        They are `list_resources` and `read_resource`, `list_prompts` and `get_prompt`; without `kinds`, all of them. A caller
        reaches what they would reach without them: conditions, scopes and middleware count, also of mounted servers, and
        questions go to the user. With `when` only some callers see these tools. Raises: RegistrationError.
        """
        from linkspan.server.tool_views import views_of

        for function, info in views_of(kinds, when):
            self._offering.add_tools([function], info)

    def edit(self, name: str, edit: Edit) -> None:
        """Let callers see a tool otherwise than its author wrote it, and notify them if the server has `auto_notify`.

            server.edit("search", Edit(name="find_tickets", fix={"project": "LINK"}))

        It may be a tool of a mounted server, by the name that it has here; then it is edited as long as it is registered there.
        An edit of an edited tool is made of what that shows. Raises: RegistrationError for a tool that does not exist, and for
        an edit that does not fit it.
        """
        self._offering.edit(name, edit)

    # Around a call.

    @bare
    def lifespan(self, function: LifespanF) -> LifespanF:
        """Open what handlers need before the first call, and close it at the end. Usable as a decorator.

        A generator function with one `yield`, or one that returns a context manager; plain or async; without parameters, or
        with the server. What it yields is `ctx.lifespan`, and the value of parameters that are annotated with its class:
        register it before what has these. Several are entered in the order in which they were registered, and left in reverse
        order; `ctx.lifespan` is then a tuple. Raises: RegistrationError.
        """
        from linkspan.server.lifespan import check_timeout, compile_lifespan

        check_timeout(self.lifespan_timeout)
        part = compile_lifespan(function, self, [each.function for each in self._catalogue.handlers()])
        self._dispatcher.live(part, self.lifespan_timeout)
        return function

    @bare
    def on_session_end(self, function: F) -> F:
        """Call a function with the name of each session that has ended in this process (`ctx.session_id`). As a decorator.

        A session is a connection over stdio, in memory or over a channel, and over HTTP the session of a handshake client,
        which another process may go on with. The function is plain, and may block. Raises: RegistrationError for an async one.
        """
        if is_async_function(function):
            raise RegistrationError(f"on_session_end takes a plain function, and {own_name(function)} is async")
        self._dispatcher.on_session_end = (*self._dispatcher.on_session_end, function)
        return function

    @overload
    def middleware(self, function: F, /) -> F: ...
    @overload
    def middleware(self, *, only: Collection[str] = (), blocking: bool = False) -> Callable[[F], F]: ...
    @closed
    def middleware(self, *function: Any, only: Collection[str] = (), blocking: bool = False) -> Any:
        """Surround handlers with a function of yours, inside those that were added before.

        A generator function `(call)` runs up to its `yield`, which gives the outcome of what is inside: it may raise to deny,
        yield `call.replace(arguments=...)`, and return another outcome. It runs where the handler runs; `blocking=True` runs
        it in a thread if that is an event loop. A plain function only looks, and may raise. An `async def (call, call_next)`
        may await. `only` are the methods to surround, such as "tools/call"; without it, every method that has a handler and
        the lists. Raises: RegistrationError.
        """
        from linkspan.server.middleware import SharesState, compile_layer

        def add(middleware: Any) -> None:
            waits, given = blocking, cast("object", middleware)
            if isinstance(given, SharesState):
                given.share(self._profile)
                waits = blocking or self._profile.sharing is not None
            self._dispatcher.table.add_layer(compile_layer(middleware, only, blocking=waits))

        return decorator(add)(*function) if function else decorator(add)

    @contextmanager
    def override(self, function: Function, replacement: Function) -> Generator[None]:
        """Let `replacement` stand in for the dependency `function`, for tests: for all callers, until the block ends.

            with server.override(get_pool, FakePool): ...

        It may be of another kind, such as a plain function for an async generator. Raises: RegistrationError if `replacement`
        cannot be a dependency.
        """
        with self._dispatcher.overridden(function, replacement):
            yield

    # Completion and custom methods.

    @needing(
        "ref",
        "argument",
        what="the prompt or template, and its argument",
        line="@server.completion('my_prompt', 'my_argument')",
    )
    def completion(self, ref: str, argument: str) -> Callable[[F], F]:
        """Let a function complete one argument of a prompt (`ref` is its name) or of a resource template (`ref` is the template).

        It takes `value`, what the user has typed, and if it likes `arguments`, what is filled in already; it returns texts.
        A prompt or an argument that does not exist is refused with a RegistrationError when the server first serves.
        """

        def add(function: Function) -> None:
            self._catalogue.completers[ref, argument] = compile_completer(
                function, ref, provided=self._dispatcher.provided
            )
            self._opening.complete_later()

        return decorator(add)

    @bare
    def completion_handler(self, function: F) -> F:
        """Let one function answer every `completion/complete`: it gets the params. Usable as a decorator."""
        self._catalogue.completion_handler = compile_method(
            function,
            "completion/complete",
            ("ref", "argument", "context"),
            provided=self._dispatcher.provided,
            yields=True,
        )
        return function

    @needing("method_name", what="the name of the method", line="@server.custom_method('acme/{}')")
    def custom_method(self, method_name: str) -> Callable[[F], F]:
        """Offer a JSON-RPC method of your own, as a decorator. See `define_custom_method`."""
        return decorator(lambda function: self.define_custom_method(method_name, function))

    @refusing
    def define_custom_method(self, method_name: str, handler: Function) -> None:
        """Offer a JSON-RPC method, or notification, of your own: the function gets the params and returns any JSON (G1).

        A lone parameter takes all params as one mapping, several take a member each, and so does one with the hint of a value.
        It cannot ask the user anything. Raises: RegistrationError; MethodAlreadyDefinedError for a method that exists, in the
        protocol or here.
        """
        self._catalogue.check_method(method_name, handler)
        self._catalogue.custom_methods[method_name] = compile_method(
            handler, method_name, provided=self._dispatcher.provided
        )

    @needing("method", what="the name of the method", line="@server.handler('tools/{}')")
    def handler(self, method: str, *, inline: bool = False, hold: bool = False) -> Callable[[F], F]:
        """Let one function answer a method of the protocol entirely, as a decorator.

            @server.handler("tools/list")
            async def list_tools(params: dict, ctx: Context) -> ListToolsResult: ...

        The function gets the params as a mapping with all that the client sent, `_meta` too, or in their shape if it is
        annotated with that, such as `CallToolParams`; and a `Context` if it takes one. It returns the whole result: the shape,
        or a mapping in wire form, whose `_meta` and unknown members go to the client. Older revisions get what they know of it.
        It may ask where the method may. What is registered is not looked at, but for the scopes of an item with the name that
        is asked for. The capability is announced.

        `logging/setLevel`, `resources/subscribe` and `resources/unsubscribe`: the function runs first, and may refuse; the
        session then keeps what was set. `inline=True` runs a plain function where the transport is, instead of in a thread;
        `hold=True` lets a coroutine function wait at its questions.
        Raises: RegistrationError for a method that cannot be answered so; MethodAlreadyDefinedError for a second function.
        """
        return decorator(lambda function: self._dispatcher.answer(method, function, inline=inline, hold=hold))

    # Notifications.

    def notify_tools_list_changed(self) -> int:
        """Notify every client that listens; returns how many in this process. Never raises, from any thread (F2).

        If there was none, a warning is logged, once for each list. With a store, those of other processes are notified too.
        """
        return self._announcer.list_changed("tools", warn=True)

    def notify_prompts_list_changed(self) -> int:
        """Notify every client that listens; returns how many (F3)."""
        return self._announcer.list_changed("prompts", warn=True)

    def notify_resources_list_changed(self) -> int:
        """Notify every client that listens; returns how many (F4)."""
        return self._announcer.list_changed("resources", warn=True)

    def notify_resource_updated(self, uri: str) -> int:
        """Notify every client that subscribed to `uri` and sees it; returns how many (RES-6, RES-7)."""
        catalogue = self._catalogue
        for_some = catalogue.is_conditional or catalogue.switches.calls
        return self._announcer.send(ServerChange.of_resource(uri), catalogue.audience_of(uri) if for_some else None)

    # Connections.

    def system(self) -> System:
        """Return where time, chance and locks come from. A server that is served has one."""
        raise NotImplementedError(f"{type(self).__name__} has no system(): return an object with the members of System")

    @cached_property
    def sharing(self) -> Sharing:
        """What is shared with other processes. A server that is served has it."""
        raise NotImplementedError(f"{type(self).__name__} has no `sharing`: linkspan.Server has")

    def connect(
        self, *, back_channel: bool = True, one_shot: bool = False, notified: bool = True, ports: Ports = NO_PORTS
    ) -> ServerConnection:
        """Open a sans-IO connection, for a transport of your own; `ports` connect it to its driver.

        `one_shot` serves single messages, such as those of `handle_json`. One that is not `notified` gets no changes of lists
        or resources: it serves a lone request that does not subscribe to them.
        """
        opening, dispatcher = self._opening, self._dispatcher
        if opening.is_unchecked:
            opening.check_completions()
        system = dispatcher.system
        if "opentelemetry" in sys.modules and not (one_shot and opening.has_asked):
            opening.find_telemetry()
        connection = ServerConnection(
            dispatcher,
            clock=system.clock,
            random=system.random,
            back_channel=back_channel,
            one_shot=one_shot,
            ports=ports,
        )
        if notified and not one_shot:
            self._announcer.add(connection)
            opening.watch()
        return connection

    def watch(self, telemetry: Telemetry) -> None:
        """Let `telemetry` see the beginning and the end of each request from now on; twice is as once."""
        self._dispatcher.watch(telemetry)

    def page(self, url: str, facts: TransportInfo = NO_FACTS, login: JSONObject | None = None) -> BrowserPage:
        """Return what people see who open `url` in a browser; see `make_page` for `login`."""
        from linkspan.server.page import make_page

        return make_page(self._dispatcher, url, facts, login)

    @cached_property
    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(self._catalogue, self._profile, self._settings, self.system())

    @cached_property
    def _offering(self) -> Offering:
        return Offering(self._dispatcher, self._announcer, self._settings, self._offer_options, self._prepare)

    def _prepare(self, items: Sequence[Listed]) -> None:
        """Make ready for items that are about to be registered."""

    @cached_property
    def _opening(self) -> ConnectionOpening:
        return ConnectionOpening(self._dispatcher, auto_notify=self._offer_options.auto_notify)

    @cached_property
    def _announcer(self) -> Announcer:
        return Announcer(self._dispatcher)


def _each_lifespan(given: LifespanFunction | Sequence[LifespanFunction] | None) -> Sequence[LifespanFunction]:
    if given is None:
        return ()
    return cast("Sequence[LifespanFunction]", given if isinstance(given, list | tuple) else (given,))
