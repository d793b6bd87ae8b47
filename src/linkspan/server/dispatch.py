"""From a request to the author's function and back to an outcome. Era-neutral: what differs is in revisions/."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Raw

from linkspan.core.call import OWN_ANSWER, Background, Call, Lifespan
from linkspan.errors import (
    INTERNAL_ERROR,
    LocalProtocolError,
    RegistrationError,
    RemoteProtocolError,
)
from linkspan.revisions import LATEST
from linkspan.revisions.modern import discover
from linkspan.revisions.neutral import InputRequired, Outcome, Request
from linkspan.revisions.record import Revision
from linkspan.schema.results import encode_json
from linkspan.server import observation as observing
from linkspan.server.asking import NO_QUESTIONS, InputNeeded, Round, Rounds, cannot_ask, collect
from linkspan.server.catalogue import Catalogue
from linkspan.server.configuration import Profile, Settings, SettingsSource, System
from linkspan.server.context import Context
from linkspan.server.features.completions import Complete
from linkspan.server.features.method import ListMethod, Method, Serve, Shortcut, method_not_found
from linkspan.server.features.prompt_gets import GetPrompt
from linkspan.server.features.resource_reads import ReadResource
from linkspan.server.features.tool_calls import CallTool
from linkspan.server.handlers import (
    Function,
    Handler,
    Later,
    Preparation,
    Run,
    custom_arguments,
    is_context,
    is_defined_again,
    once_listening,
    postpone,
    target_of,
)
from linkspan.server.observation import Around, Failures, Observation
from linkspan.types.base import JSONObject, Wire
from linkspan.types.messages import (
    CallToolParams,
    DiscoverResult,
    ServerCapabilities,
)
from linkspan.types.methods import METHODS, OFFERED_WITH, TOOL_CALL

if TYPE_CHECKING:
    from linkspan.core.extension import Extension
    from linkspan.server.dependencies import Overrides
    from linkspan.server.editing import EditHost
    from linkspan.server.extending import Extensions
    from linkspan.server.judging import Judges
    from linkspan.server.lifespan import LifespanPlan, OpenedPart
    from linkspan.server.middleware import Layer
    from linkspan.server.telemetry import Telemetry

__all__ = ["Dispatcher"]


class Dispatcher:
    """Serves the requests of one server. Never raises; what the author's code raises ends one request."""

    def __init__(self, catalogue: Catalogue, profile: Profile, settings: SettingsSource, system: System) -> None:
        """Serve `catalogue` as `profile` says."""
        self.catalogue = catalogue
        self.profile = profile
        self.settings = settings
        self.system = system
        self.repairs = 0
        self.lifespan: Lifespan | None = None
        self.background: Background | None = None
        """What the server does besides answering, such as running tasks."""
        self.lifespan_plan: LifespanPlan | None = None
        self._has_own_lifespan = False
        self.on_lifespan: tuple[Callable[[], object], ...] = ()
        """Called when the lifespan has got a part: servers that this one is mounted in open it with theirs."""
        self._overrides: Overrides = {}
        self.decoders: dict[str, msgspec.json.Decoder[Any]] = {}
        """What reads the params that extensions add."""
        self._extensions: Extensions | None = None
        self.rounds = Rounds(profile, system)
        self.failures = Failures(profile, settings, system)
        self._layers: tuple[Layer, ...] = ()
        self._surrounded: set[str] = set()
        self._watchers: tuple[Telemetry, ...] = ()
        self.begin: Callable[[Request], Outcome | Call] = self._begin
        """Serves a request, or returns the function that must run for it; another one while requests are watched."""
        lists = (ListMethod(METHODS[name], self, registry) for name, registry in catalogue.lists.items())
        methods: tuple[Method[Any], ...] = (CallTool(self), ReadResource(self), GetPrompt(self), Complete(self), *lists)
        self.methods: dict[str, Method[Any]] = {each.spec.name: each for each in methods}
        """What the server does for each method that has a spec."""
        self._custom: Serve = self._call_custom
        """Serves methods that are not among `_serving`."""
        self._serving: dict[str, Serve] = {}
        """What serves each method, inside what surrounds it."""
        self._inside: dict[str, Serve] = {}
        """The same without the hooks of extensions: another server that this one is mounted in has its own."""
        self._shortcuts: dict[str, Shortcut] = {}
        self._arrange_methods()

    # What connections ask (core.call.ConnectionServer).

    def capabilities(self, revision: Revision = LATEST) -> ServerCapabilities:
        """Return what the server offers now to clients of a revision."""
        return self.catalogue.capabilities(revision)

    def knows_resource(self, uri: str, shown: frozenset[object]) -> bool:
        """Return whether a read of `uri` could be answered for a caller; see `Request.shown`."""
        return self.catalogue.knows_resource(uri, shown)

    def custom_methods(self) -> Mapping[str, object]:
        """Return the methods that the author added."""
        return self.catalogue.custom_methods

    def adds(self, method: str, revision: Revision) -> bool:
        """Return whether a method that a revision does not define is served: the author's, or an extension's."""
        if method in self.catalogue.custom_methods:
            return True
        return self._extensions is not None and self._extensions.adds(method, revision)

    def added_lists(self, revision: Revision) -> Sequence[str]:
        """Return the lists of extensions whose changes a client of a revision receives without asking for them."""
        return self._extensions.lists(revision) if self._extensions is not None else ()

    def discover(self) -> DiscoverResult:
        """Describe the server to a modern client."""
        profile = self.profile
        return discover(
            self.capabilities(),
            profile.instructions,
            ttl_ms=profile.ttl_ms,
            cache_scope=profile.cache_scope,
            served=profile.served,
        )

    def header_plan(self, tool: str) -> Mapping[tuple[str, ...], str]:
        """Return which arguments of a tool must be repeated in HTTP headers; nothing for a tool that may not exist."""
        found = self.catalogue.tools.get(tool)
        return found.handler.parameters.headers if found is not None else {}

    def edit_host(self) -> EditHost:
        """Return what edits of tools need, whose callers are those of this server."""
        from linkspan.server.editing import EditHost

        calls = cast("CallTool", self.methods[TOOL_CALL.name])
        return EditHost(calls, lambda request: self.make_context(request, self.rounds.closed("fix=")), self.system)

    def add_layer(self, layer: Layer) -> None:
        """Surround the requests that `layer` is for, inside the layers that were added before.

        One whose function was defined again at a prompt takes the place of the one before.
        """
        kept = (each for each in self._layers if not is_defined_again(each.function, layer.function))
        self._layers = (*kept, layer)
        self._arrange_methods()

    def extend(self, extension: Extension, background: Background | None = None) -> None:
        """Serve an extension from now on. Raises: RegistrationError for an id, a method or a member that exists already."""
        from linkspan.server.extending import Extensions

        if self._extensions is None:
            self._extensions = Extensions(self, self.decoders)
        self.methods |= {each.spec.name: each for each in self._extensions.add(extension)}
        self.background = background or self.background
        self._arrange_methods()

    def _arrange_methods(self) -> None:
        """Decide once what serves each method: itself, inside the middleware, inside the hooks of extensions."""
        serving: dict[str, Serve] = {name: method.serve for name, method in self.methods.items()}
        self._surrounded = {name for name in serving if any(each.surrounds(name) for each in self._layers)}
        if self._layers:
            from linkspan.server.middleware import surrounded

            surround = partial(self._surround, surrounded)
            for name in self._surrounded:
                method, layers = self.methods[name], [each for each in self._layers if each.surrounds(name)]
                serve = method.serve_result if isinstance(method, ListMethod) else method.serve
                serving[name] = partial(surround, layers, serve)
            self._custom = partial(surround, None, self._call_custom)
        changed, self._inside = self._surrounded, serving
        if self._extensions is not None:
            around = self._extensions.around(serving)
            serving, changed = serving | around, self._surrounded | around.keys()
        self._serving = serving
        begins = {name: method.shortcut() for name, method in self.methods.items() if name not in changed}
        is_plain = self.catalogue.declared is None
        self._shortcuts = {name: begin for name, begin in begins.items() if is_plain and begin is not None}

    @contextmanager
    def overridden(self, function: Function, replacement: Function) -> Generator[None]:
        """Replace a dependency until the block ends. Raises: RegistrationError."""
        from linkspan.server.dependencies import compile_provider

        provider = compile_provider(replacement, is_context, self.provided)
        before = self._overrides
        self._overrides = {**before, function: provider}
        try:
            yield
        finally:
            self._overrides = before

    def watch(self, telemetry: Telemetry) -> None:
        """Let `telemetry` see each request from now on."""
        if telemetry in self._watchers:
            return
        self._watchers = (*self._watchers, telemetry)
        self._arrange()

    @property
    def provided(self) -> Sequence[type]:
        """The classes of what the lifespan yields, for which handlers can ask."""
        return () if self.lifespan_plan is None else self.lifespan_plan.provides

    def live(self, part: OpenedPart, timeout: float) -> None:
        """Enter a part of the lifespan before the first call, after those that there are, and leave it at the end.

        Each may take `timeout` seconds to close. Raises: RegistrationError if it cannot join those that there are.
        """
        from linkspan.server.lifespan import LifespanPlan

        if self.lifespan is not None and self.lifespan.closes_within:
            raise RegistrationError(f"the lifespan {part.name} comes too late: register it before the first call")
        if part.is_own:
            self._has_own_lifespan = True
        before = self.lifespan_plan or LifespanPlan((), timeout, self.failures.refusal)
        self.lifespan_plan = plan = before.followed_by(part)
        self.lifespan = self.system.lifespan(plan)
        self._arrange()
        for joined in self.on_lifespan:
            joined()

    def _arrange(self) -> None:
        """Decide once what a request passes through before it is served."""
        begin: Callable[[Request], Outcome | Call] = self._begin
        if self._watchers:
            from linkspan.server.telemetry import begin_watched

            begin = partial(begin_watched, begin, self.catalogue, self._watchers)
        if self.lifespan is not None:
            begin = partial(self._begin_entered, begin, self.lifespan)
        self.begin = begin

    def _begin_entered(
        self, begin: Callable[[Request], Outcome | Call], lifespan: Lifespan, request: Request
    ) -> Outcome | Call:
        """Serve a request now, or once the lifespan is entered. Lists run the author's code in middleware and conditions only."""
        listed = self.catalogue.lists.get(request.method)
        runs_no_code = listed is not None and not listed.conditions and request.method not in self._surrounded
        if lifespan.entered or runs_no_code:
            return begin(request)
        return postpone(request, lifespan, partial(begin, request))

    def _begin(self, request: Request) -> Outcome | Call:
        """Serve a request, or return the function that must run for it."""
        settings, name = self.settings.current, request.method
        observed = settings.observed or request.observer is not None
        if (
            not observed
            and (shortcut := self._shortcuts.get(name))
            and (call := shortcut(request, settings)) is not None
        ):
            return call
        if observed or self._runs_code_before(request):
            begin = partial(self._begin_observed, request, settings, self.system.clock(), observed)
            return _later(request, begin, hooked=observed)
        method = self._serving.get(name, self._custom)
        if self.catalogue.declared is not None or self.catalogue.is_conditional or self.catalogue.is_scoped:
            method = self._guarded(request, method)
        try:
            return method(request, settings, None)
        except KeyboardInterrupt:
            raise
        except RemoteProtocolError as error:
            return self.failures.outcome(request, None, error)
        except BaseException as error:  # the author's reporter must not run here
            return _later(request, partial(self.failures.outcome, request, None, error), hooked=False)

    # For a server that this one is mounted in.

    def serves_plainly(self, method: str) -> bool:
        """Return whether nothing surrounds the functions of a method, and nothing has to come before them."""
        is_ready = self.lifespan is None or self.lifespan.entered
        return is_ready and method in self._shortcuts and not self.settings.current.observed

    def serves_directly(self, method: str) -> bool:
        """Return whether the author's code does nothing about a method before a handler runs, nor around it."""
        is_ready = self.lifespan is None or self.lifespan.entered
        is_alone = method not in self._surrounded and not self.settings.current.observed
        return is_ready and is_alone and not callable(self.profile.server_context)

    def begin_directly(self, request: Request, observation: Observation | None) -> Outcome | Call:
        """Begin a request that the other server has received, at once. Raises: RemoteProtocolError; what its checks raise."""
        return self._inside[request.method](request, self.settings.current, observation)

    def awaits_around(self, method: str) -> bool:
        """Return whether a middleware of a method is a coroutine function."""
        return any(each.kind == "async" and each.surrounds(method) for each in self._layers)

    def begin_inside(self, request: Request, *, noted: bool) -> tuple[Outcome | Call, Observation | None]:
        """Begin a request that the other server has received, where the author's code may run; it is `noted` why it fails."""
        settings, clock = self.settings.current, self.system.clock
        observation: Observation | None = None
        if settings.observed or noted:
            try:
                observation = observing.observe(request, settings, self.profile, clock, clock())
            except BaseException as error:
                return self._failed(request, None, error), None
        return self._serve(self._inside[request.method], request, settings, observation), observation

    def _runs_code_before(self, request: Request) -> bool:
        """Whether the author's code has to run before the handler of a request does: validators, or the server context."""
        if request.method in self.catalogue.lists and self.catalogue.sources_of(request.method):
            return True
        handler = self._handler_of(request)
        if handler is None:
            return False
        return handler.parameters.runs_code or (
            (handler.context_parameter is not None or handler.needs is not None or Context.ambient is not None)
            and callable(self.profile.server_context)
        )

    def _handler_of(self, request: Request) -> Handler | None:
        """Return the function that will serve a request, if there is one."""
        method = self.methods.get(request.method)
        return self.catalogue.custom_methods.get(request.method) if method is None else method.handler(request.params)

    def _begin_observed(self, request: Request, settings: Settings, started: float, observed: bool) -> Outcome | Call:
        """Begin a request where the author's code may run; `started` is when the request came."""
        method = self._guarded(request, self._serving.get(request.method, self._custom))
        try:
            clock = self.system.clock
            observation = observing.observe(request, settings, self.profile, clock, started) if observed else None
        except BaseException as error:
            return self._failed(request, None, error)
        return self._serve(method, request, settings, observation)

    def _serve(
        self, method: Serve, request: Request, settings: Settings, observation: Observation | None
    ) -> Outcome | Call:
        """Serve a request where the author's code may run, and report its end unless more has to run for it."""
        try:
            for bring_up_to_date in self.catalogue.sources_of(request.method):
                bring_up_to_date()
            step = method(request, settings, observation)
        except BaseException as error:  # a server context that exits, too, ends only its request
            step = self._failed(request, observation, error)
        if observation is not None and not isinstance(step, Call):
            observation.end(request, step)
        return step

    def _failed(self, request: Request, observation: Observation | None, error: BaseException) -> Outcome:
        if isinstance(error, KeyboardInterrupt):
            return RemoteProtocolError(INTERNAL_ERROR, "Internal error")
        return self.failures.outcome(request, observation, error)

    def _guarded(self, request: Request, method: Serve) -> Serve:
        """Return what serves a request where the author chose what to declare (SRV-2), who sees what, or who may do what."""
        if self.catalogue.is_scoped:
            from linkspan.server.judging import serve_permitted

            method = partial(serve_permitted, self.methods.get(request.method), method)
        if self.catalogue.is_conditional:
            method = partial(self._judge, method)
        if self.catalogue.declared is None:
            return method
        if not self.catalogue.offers("logging"):
            request.log_level = None
        kind = OFFERED_WITH.get(request.method)
        return method if kind is None or self.catalogue.offers(kind) else _not_there

    def count_repairs(self, request: Request, repairs: Sequence[str]) -> None:
        """Count, and log, what was repaired in the arguments of a call of a tool."""
        self.repairs += len(repairs)
        for span in request.spans or ():
            span.repaired(len(repairs))
        observing.warn(f"repaired arguments of tool {request.target!r}: {'; '.join(repairs)}", request=request)

    def _call_custom(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome | Call:
        handler = self.catalogue.custom_methods.get(request.method)
        if handler is None:
            if observation is not None:
                observation.data["method"] = "unsupported_method"
            return method_not_found(request)
        assert isinstance(request.params, Raw)
        arguments = custom_arguments(handler, request.params)
        return self.run(
            request, settings, observation, handler, arguments, partial(_custom_result, request.method), request.method
        )

    # Running.

    def run(
        self,
        request: Request,
        settings: Settings,
        observation: Observation | None,
        handler: Handler,
        arguments: JSONObject,
        conclude: Callable[[object], Outcome],
        target: str,
    ) -> Outcome | Call:
        """Bind a handler to its arguments; ask first what only the user can say."""
        asks = handler.parameters.asks
        ambient = Context.ambient
        with_context = handler.context_parameter is not None or handler.needs is not None or ambient is not None
        can_ask = asks or with_context
        current = self.rounds.open(request, target) if can_ask else NO_QUESTIONS
        if asks:
            try:
                arguments |= collect(asks, current, can_ask=request.peer.supports("elicitation", "form"))
            except InputNeeded:
                asked = InputRequired(current.questions)
                if request.alias is not None and request.round is current:  # the server around closes its round
                    return asked
                return self.rounds.close(request, current, asked, target)
        context: Context | None = None
        if with_context:
            context = self.make_context(request, current)
        run = handler.bind(arguments, context)
        if handler.provided and self.lifespan is not None:
            run = partial(run, **{name: self.lifespan.provided(kind) for name, kind in handler.provided.items()})
        if handler.needs is not None and context is not None:
            report = partial(self.failures.report, request)
            request.held = []
            run = handler.bind_with(handler.needs, run, context, request.held, self._overrides, self.system, report)
        if ambient is not None and context is not None:
            run = partial(ambient, context, run)
        if handler.limited is not None:
            run = partial(handler.limited, run, request.stop)
        around: Around | None = None
        if settings.around_request is not None and observation is not None:
            run = around = Around(run, settings.around_request, observation.data)
        return Run(
            request,
            run,
            handler.is_async,
            handler.inline,
            rounds=self.rounds,
            failures=self.failures,
            current=current,
            conclude=conclude,
            target=target,
            observation=observation,
            around=around,
        )

    def make_context(self, request: Request, round: Round) -> Context:
        """Return what the author's code sees of a request. Raises: what the server context raises."""
        lifespan = self.lifespan if self._has_own_lifespan else None
        return Context(request, round, self.profile.context_of(request), lifespan, self._serve_own)

    def _serve_own(self, outer: Request, round: Round, method: str, params: object, as_server: bool) -> object:
        """Serve a request that a handler makes of its own server; an awaitable of its result where an event loop runs."""
        from linkspan.server.own_requests import own_request, pages_of, steps_of

        serve, settings = self._serving[method], self.settings.current
        if self.catalogue.is_scoped and not as_server:
            from linkspan.server.judging import serve_permitted

            serve = partial(serve_permitted, self.methods.get(method), serve)
        judges = self.judges if self.catalogue.is_conditional else None
        listed = self.methods.get(method)
        if isinstance(listed, ListMethod):
            page = serve if method in self._surrounded else listed.serve_result
            pages = pages_of(outer, round, listed.registry.spec, lambda request: page(request, settings, None), judges)
            return self.system.drive(pages)
        request = own_request(outer, round, method, params)
        steps = steps_of(request, round, lambda request: serve(request, settings, None), judges, as_server=as_server)
        return self.system.drive(steps)

    def unsendable(self, request: Request, error: Exception) -> RemoteProtocolError:
        """Report that an outcome could not be encoded; return the error that the client receives instead."""
        return self.failures.unsendable(request, error)

    def observe(
        self, request: Request, error: RemoteProtocolError | None, duration: float
    ) -> Callable[[], object] | None:
        """Return the instrumentation of a request that a connection answered by itself, if there is any."""
        callback = self.settings.current.instrumentation_callback
        if callback is None and not self._watchers:
            return None
        return partial(observing.report_answered, callback, self._watchers, self.catalogue, request, error, duration)

    # Who sees what.

    @cached_property
    def judges(self) -> Judges:
        """What asks the conditions of items; made for the first one."""
        from linkspan.server.judging import Judges

        return Judges(
            self.methods, self.catalogue, self.profile, self.rounds, self.failures, self.system, self.make_context
        )

    def _judge(
        self, serve: Serve, request: Request, settings: Settings, observation: Observation | None
    ) -> Outcome | Call:
        """Serve a request once it is known which of the items that it concerns exist for its caller."""
        begin = partial(self._serve, serve, request, settings, observation)
        call = self.judges.before(request, begin, self._handler_of(request))
        return call if call is not None else serve(request, settings, observation)

    def before(self, request: Request) -> Call | None:
        """Return what must run before a connection answers a request itself: it finds out what can be subscribed to."""
        call = self._extensions.before_listening(request) if self._extensions is not None else None
        if self.catalogue.is_conditional:
            after = OWN_ANSWER if call is None else call
            call = self.judges.before(request, lambda: after) or call
        if (sharing := self.profile.sharing) is not None:
            call = once_listening(sharing, request, OWN_ANSWER if call is None else call) or call
        if call is None or self.lifespan is None or self.lifespan.entered:
            return call
        return postpone(request, self.lifespan, lambda: call)

    # Middleware.

    def _surround(
        self,
        surrounded: Callable[..., Call],
        layers: Sequence[Layer] | None,
        serve: Serve,
        request: Request,
        settings: Settings,
        observation: Observation | None,
    ) -> Outcome | Call:
        """Serve a request through its middleware, where its handler runs; that of a custom method is found by its name."""
        if layers is None:
            layers = [each for each in self._layers if each.surrounds(request.method)]
        if not layers:
            return serve(request, settings, observation)
        params = request.params
        target = target_of(params) or request.method
        request.round = current = self.rounds.open(request, target)
        tool = self.catalogue.tools.get(target, request.shown) if type(params) is CallToolParams else None
        return surrounded(
            layers,
            request,
            partial(serve, request, settings, observation),
            self._handler_of(request),
            tool,
            current,
            partial(self.make_context, request, current),
            self.system,
            target=target,
            rounds=self.rounds,
            failures=self.failures,
            observation=observation,
        )


def _later(request: Request, begin: Callable[[], Outcome | Call], *, hooked: bool) -> Call:
    preparation = Preparation(begin)
    return Later(request, preparation.run, hooked=hooked, preparation=preparation)


def _not_there(request: Request, _: Settings, __: Observation | None) -> Outcome:
    return method_not_found(request)


def _custom_result(method: str, value: object) -> Outcome:
    if isinstance(value, InputRequired):
        raise LocalProtocolError(cannot_ask(method))
    return value if isinstance(value, Wire) else Raw(encode_json(value))
