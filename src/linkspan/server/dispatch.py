"""From a request to the author's function and back to an outcome. Era-neutral: what differs is in revisions/."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, cast

from msgspec import Raw

from linkspan.core.call import NO_REQUEST, OWN_ANSWER, Background, Backgrounds, Call, Lifespan
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
from linkspan.schema.annotations import name_of
from linkspan.schema.results import encode_json
from linkspan.server import observation as observing
from linkspan.server.asking import NO_QUESTIONS, InputNeeded, Round, Rounds, cannot_ask, collect
from linkspan.server.catalogue import Catalogue, ItemSource
from linkspan.server.configuration import Profile, Settings, SettingsSource
from linkspan.server.context import Context
from linkspan.server.features.method import ListMethod, Serve, method_not_found
from linkspan.server.handlers import (
    LISTENING,
    Function,
    Handler,
    Later,
    Preparation,
    Run,
    custom_arguments,
    is_context,
    once_listening,
    postpone,
)
from linkspan.server.item_views import ItemViews
from linkspan.server.method_table import MethodTable
from linkspan.server.observation import Around, Failures, Observation
from linkspan.server.visibility import Condition
from linkspan.types.base import JSONObject, Wire
from linkspan.types.messages import (
    DiscoverResult,
    ServerCapabilities,
)
from linkspan.types.methods import OFFERED_WITH

if TYPE_CHECKING:
    from linkspan.core.extension import Extension
    from linkspan.server.dependencies import Needs, Overrides
    from linkspan.server.editing import EditHost
    from linkspan.server.features.whole_methods import AnsweredSetting
    from linkspan.server.holding import HeldCalls
    from linkspan.server.judging import Judges
    from linkspan.server.lifespan import LifespanPlan, OpenedPart
    from linkspan.server.ports import System
    from linkspan.server.telemetry import Telemetry


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
        self.on_session_end: tuple[Callable[[str], object], ...] = ()
        """Called, where code of the author may run, with the name of each session that has ended here."""
        self._overrides: Overrides = {}
        self.rounds = Rounds(profile, system)
        self.failures = Failures(profile, settings, system)
        self._watchers: tuple[Telemetry, ...] = ()
        self.begin: Callable[[Request], Outcome | Call] = self._begin
        """Serves a request, or returns the function that must run for it; another one while requests are watched."""
        self.table = MethodTable(self, self._call_custom)
        self.handler_of = self.table.handler_of
        self.decoders = self.table.decoders
        """What reads the params that extensions add."""
        self._views = ItemViews(catalogue, self.table.methods)

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
        return self.table.adds(method, revision)

    def added_lists(self, revision: Revision) -> Sequence[str]:
        """Return the lists of extensions whose changes a client of a revision receives without asking for them."""
        extensions = self.table.extensions
        return extensions.lists(revision) if extensions is not None else ()

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

        return EditHost(
            self.table.call_tool, lambda request: self.make_context(request, self.rounds.closed("fix=")), self.system
        )

    @cached_property
    def held_calls(self) -> HeldCalls:
        """The calls of functions with `hold=True` that wait for answers; made for the first such function."""
        from linkspan.server.holding import HeldCalls

        held = HeldCalls(self.profile, self.system, self.failures)
        self._do_besides(held)
        self.on_session_end = (*self.on_session_end, held.end_session)
        return held

    def _do_besides(self, background: Background) -> None:
        self.background = background if self.background is None else Backgrounds((self.background, background))

    def extend(self, extension: Extension, background: Background | None = None) -> None:
        """Serve an extension from now on. Raises: RegistrationError for an id, a method or a member that exists already."""
        self.table.extend(extension)
        if background is not None:
            self._do_besides(background)

    def answer(self, name: str, function: Function, *, inline: bool, hold: bool) -> None:
        """Let a function answer a method entirely. Raises: RegistrationError, MethodAlreadyDefinedError."""
        self.table.answer(name, function, self.provided, inline=inline, hold=hold)
        if hold:
            self.held_calls  # noqa: B018  drivers that begin from now on see it

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
        if self.catalogue.item_sources:
            begin = partial(self._views.begin, begin)
        if self.lifespan is not None:
            begin = partial(self._begin_entered, begin, self.lifespan)
        self.begin = begin

    def add_source(self, source: ItemSource, when: Condition | None, scopes: Sequence[str]) -> None:
        """Offer the items of a source from now on; all of them have this condition and these scopes."""
        catalogue = self.catalogue
        catalogue.item_sources = (*catalogue.item_sources, source)
        catalogue.is_conditional = catalogue.is_conditional or when is not None
        catalogue.is_scoped = catalogue.is_scoped or bool(scopes)
        self._arrange()

    def remove_source(self, source: ItemSource) -> None:
        """Offer the items of a source no more."""
        catalogue = self.catalogue
        catalogue.item_sources = tuple(each for each in catalogue.item_sources if each is not source)
        self._arrange()

    def _begin_entered(
        self, begin: Callable[[Request], Outcome | Call], lifespan: Lifespan, request: Request
    ) -> Outcome | Call:
        """Serve a request now, or once the lifespan is entered. Lists run the author's code in middleware and conditions only."""
        listed = self.table.plain_lists.get(request.method)
        runs_no_code = listed is not None and not listed.conditions
        if lifespan.entered or runs_no_code:
            return begin(request)
        return postpone(request, lifespan, partial(begin, request))

    def _begin(self, request: Request) -> Outcome | Call:
        """Serve a request, or return the function that must run for it."""
        settings, name = self.settings.current, request.method
        observed = settings.observed or request.observer is not None
        if (
            not observed
            and (shortcut := self.table.shortcuts.get(name))
            and (call := shortcut(request, settings)) is not None
        ):
            return call
        if observed or self._runs_code_before(request):
            begin = partial(self._begin_with_code, request, settings, self.system.clock(), observed)
            return _later(request, begin, hooked=observed)
        method = self.table.serving.get(name, self.table.custom)
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

    def _runs_code_before(self, request: Request) -> bool:
        """Whether the author's code, or a look at a disk, comes before the handler of a request.

        That is what brings lists up to date, validators, or the server context.
        """
        catalogue, name = self.catalogue, request.method
        if (name in catalogue.lists or name in catalogue.sourced) and catalogue.sources_of(name):
            return True
        handler = self.handler_of(request)
        if handler is None:
            return False
        return handler.parameters.runs_code or (
            (handler.context_parameter is not None or handler.needs is not None or Context.ambient is not None)
            and callable(self.profile.server_context)
        )

    def _begin_with_code(self, request: Request, settings: Settings, started: float, observed: bool) -> Outcome | Call:
        """Begin a request where the author's code may run; `started` is when the request came."""
        try:
            for bring_up_to_date in self.catalogue.sources_of(request.method):
                bring_up_to_date()
            method = self._guarded(request, self.table.serving.get(request.method, self.table.custom))
            clock = self.system.clock
            observation = observing.observe(request, settings, self.profile, clock, started) if observed else None
        except BaseException as error:
            return self.failed(request, None, error)
        return self.serve(method, request, settings, observation)

    def serve(
        self, method: Serve, request: Request, settings: Settings, observation: Observation | None
    ) -> Outcome | Call:
        """Serve a request where the author's code may run, and report its end unless more has to run for it."""
        try:
            step = method(request, settings, observation)
        except BaseException as error:  # a server context that exits, too, ends only its request
            step = self.failed(request, observation, error)
        if observation is not None and not isinstance(step, Call):
            observation.end(request, step)
        return step

    def failed(self, request: Request, observation: Observation | None, error: BaseException) -> Outcome:
        """Return the outcome of a request that raised, which is reported."""
        if isinstance(error, KeyboardInterrupt):
            return RemoteProtocolError(INTERNAL_ERROR, "Internal error")
        return self.failures.outcome(request, observation, error)

    def _guarded(self, request: Request, method: Serve) -> Serve:
        """Return what serves a request where the author chose what to declare (SRV-2), who sees what, or who may do what."""
        if self.catalogue.is_scoped:
            from linkspan.server.judging import serve_permitted

            method = partial(serve_permitted, self.table.methods.get(request.method), method)
        if self.catalogue.is_conditional:
            method = partial(self._judge, method)
        if self.catalogue.declared is None:
            return method
        if not self.catalogue.offers("logging") and not self.settings.current.logs_undeclared:
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
        holds = handler.holds and not request.is_run  # the answers of a task may come in another process
        with_context = with_context or handler.holds
        can_ask = asks or with_context
        current = self.rounds.open(request, target) if can_ask else NO_QUESTIONS
        goes_on = holds and current.held is not None
        if asks and not goes_on:
            try:
                arguments |= collect(asks, current, can_ask=request.peer.supports("elicitation", "form"))
            except InputNeeded:
                asked = InputRequired(current.questions)
                if request.alias is not None and request.round is current:  # the server around closes its round
                    return asked
                return self.rounds.close(request, current, asked, target)
        context: Context | None = None
        run: Callable[[], object]
        if goes_on:
            run = self.held_calls.resume(request, current)
        else:
            if with_context:
                context = self.make_context(request, current)
            run = handler.bind(arguments, context)
        if handler.provided and self.lifespan is not None and not goes_on:
            run = partial(run, **{name: self.lifespan.provided(kind) for name, kind in handler.provided.items()})
        if context is not None:
            if handler.needs is not None:
                run = self.bind_needs(handler, handler.needs, run, request, context)
            if ambient is not None:
                run = partial(ambient, context, run)
            if holds:
                run = self.held_calls.begin(request, current).bind(run, context)
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

    @property
    def makes_values_plainly(self) -> bool:
        """Whether dependencies without a context make their values as they were registered, and nothing comes before."""
        return not (self._overrides or callable(self.profile.server_context))

    def bind_needs(
        self, handler: Handler, needs: Needs, run: Callable[..., object], request: Request, context: Context | None
    ) -> Callable[[], object]:
        """Return a function, bound to its arguments, that is called with what its dependencies make."""
        if needs.is_plain and not self._overrides:
            return partial(needs.call, run, request, self.system)
        report = partial(self.failures.report, request)
        return handler.bind_with(needs, run, request, context, self._overrides, self.system, report)

    def make_context(self, request: Request, round: Round) -> Context:
        """Return what the author's code sees of a request. Raises: what the server context raises."""
        lifespan = self.lifespan if self._has_own_lifespan else None
        return Context(request, round, self.profile.context_of(request), lifespan, self._serve_own)

    def _serve_own(self, outer: Request, round: Round, method: str, params: object, as_server: bool) -> object:
        """Serve a request that a handler makes of its own server; an awaitable of its result where an event loop runs."""
        from linkspan.server.own_requests import own_request, pages_of, steps_of

        serve, settings = self.table.serving[method], self.settings.current
        if self.catalogue.is_scoped and not as_server:
            from linkspan.server.judging import serve_permitted

            serve = partial(serve_permitted, self.table.methods.get(method), serve)
        judges = self.judges if self.catalogue.is_conditional else None
        views = frozenset(each for each in self.catalogue.views_for(outer)[0] if each.before is None)
        if (registry := self.catalogue.lists.get(method)) is not None:
            page = (
                cast("ListMethod", self.table.methods[method]).serve_result
                if method in self.table.plain_lists
                else serve
            )
            spec = registry.spec
            pages = pages_of(outer, round, spec, lambda request: page(request, settings, None), judges, views)
            return self.system.drive(pages)
        request = own_request(outer, round, method, params, views)
        steps = steps_of(request, round, lambda request: serve(request, settings, None), judges, as_server=as_server)
        return self.system.drive(steps)

    def session_ended(self, session: str) -> Callable[[], object] | None:
        """Return what clears up after a session that has ended here, if there is anything."""
        return partial(self.end_session, session) if self.on_session_end else None

    def end_session(self, session: str) -> None:
        """Clear up after a session. What a function of the author raises is logged and reported."""
        for function in self.on_session_end:
            try:
                function(session)
            except BaseException as error:
                self.failures.report(NO_REQUEST, error, f"on_session_end {name_of(function)}")

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
            self.table.methods, self.catalogue, self.profile, self.rounds, self.failures, self.system, self.make_context
        )

    def _judge(
        self, serve: Serve, request: Request, settings: Settings, observation: Observation | None
    ) -> Outcome | Call:
        """Serve a request once it is known which of the items that it concerns exist for its caller."""
        begin = partial(self.serve, serve, request, settings, observation)
        call = self.judges.before(request, begin, self.handler_of(request))
        return call if call is not None else serve(request, settings, observation)

    def before(self, request: Request) -> Call | None:
        """Return what must run before a connection answers a request itself.

        It finds out what can be subscribed to, or is the author's function for a setting of the session.
        """
        return self._views.before(request, self._before) if self.catalogue.item_sources else self._before(request)

    def _before(self, request: Request) -> Call | None:
        sources = self.catalogue.sources_of(request.method) if request.method in LISTENING else ()
        if not sources:
            return self._before_known(request)
        return _later(request, partial(self._begin_listening, request, sources), hooked=False)

    def _begin_listening(self, request: Request, sources: Sequence[Callable[[], object]]) -> Outcome | Call:
        """Find out what there is to listen for, before it is decided what of it a client can subscribe to."""
        try:
            for bring_up_to_date in sources:
                bring_up_to_date()
        except BaseException as error:
            return self.failed(request, None, error)
        return self._before_known(request) or OWN_ANSWER

    def _before_known(self, request: Request) -> Call | None:
        extensions = self.table.extensions
        call = extensions.before_listening(request) if extensions is not None else None
        if (setting := self.table.settings_of_sessions.get(request.method)) is not None:
            call = _later(request, partial(self._begin_setting, setting, request), hooked=False)
        if self.catalogue.is_conditional:
            after = OWN_ANSWER if call is None else call
            call = self.judges.before(request, lambda: after) or call
        if (sharing := self.profile.sharing) is not None:
            call = once_listening(sharing, request, OWN_ANSWER if call is None else call) or call
        if call is None or self.lifespan is None or self.lifespan.entered:
            return call
        return postpone(request, self.lifespan, lambda: call)

    def _begin_setting(self, setting: AnsweredSetting, request: Request) -> Outcome | Call:
        try:
            return setting.begin(request, self.settings.current)
        except BaseException as error:
            return self.failed(request, None, error)


def _later(request: Request, begin: Callable[[], Outcome | Call], *, hooked: bool) -> Call:
    preparation = Preparation(begin)
    return Later(request, preparation.run, hooked=hooked, preparation=preparation)


def _not_there(request: Request, _: Settings, __: Observation | None) -> Outcome:
    return method_not_found(request)


def _custom_result(method: str, value: object) -> Outcome:
    if isinstance(value, InputRequired):
        raise LocalProtocolError(cannot_ask(method))
    return value if isinstance(value, Wire) else Raw(encode_json(value))
