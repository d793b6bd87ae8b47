"""The extensions of one server: what the dispatcher serves besides the protocol, in tables that grow at registration only.

What a request must declare is decided here, once for all extensions (EXT-4, TSK-S8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import structs

from linkspan.core.call import OWN_ANSWER, Call
from linkspan.core.extension import AroundCall, Begin, Extension, ExtensionMethod, ListenMember, missing_extension
from linkspan.core.params import Decoder
from linkspan.core.waiting import list_changed_member
from linkspan.errors import INVALID_PARAMS, RegistrationError, RemoteProtocolError
from linkspan.revisions import MESSAGES
from linkspan.revisions.neutral import Outcome, Request
from linkspan.revisions.record import Revision
from linkspan.server.asking import NO_QUESTIONS
from linkspan.server.catalogue import Listed, Registry
from linkspan.server.configuration import Settings
from linkspan.server.features.method import ItemMethod, ListMethod, Method, MethodHost, Serve, method_not_found
from linkspan.server.handlers import Run, target_of
from linkspan.server.observation import Failures, Observation
from linkspan.server.visibility import Condition
from linkspan.types.base import JSON, Wire, is_array
from linkspan.types.messages import ListenParams, ListParams, SubscriptionFilter, added_members, listen_params
from linkspan.types.methods import LISTED, TOOL_CALL, ListSpec, MethodSpec

_LISTEN: Final = "subscriptions/listen"
_LIST_CHANGED: Final = ListenMember(honoured=lambda _, wanted: wanted is True)
_OWN_MEMBERS: Final = SubscriptionFilter.__struct_encode_fields__


class Extensions:
    """The tables of one server's extensions."""

    def __init__(self, host: MethodHost, decoders: dict[str, Decoder]) -> None:
        """Begin without any. `decoders` is filled for the connections."""
        self._host = host
        self._decoders = decoders
        self._around: tuple[AroundCall, ...] = ()
        """The hooks around calls of tools, the innermost last."""
        self._methods: dict[str, Extension] = {}
        self._listen: dict[str, tuple[Extension, ListenMember]] = {}

    def add(self, extension: Extension) -> Sequence[Method[Any]]:
        """Announce an extension, and return its methods.

        Raises: RegistrationError for what exists already.
        """
        catalogue = self._host.catalogue
        begun = {name: method for name, method in extension.methods.items() if method.begin is not None}
        specs = [MethodSpec(name, method.params) for name, method in begun.items()]
        lists = [each.method for each in extension.lists]
        own = [each.capability for each in extension.lists if each.capability not in LISTED]
        added = {list_changed_member(each): _LIST_CHANGED for each in own}
        listen = {**extension.listen, **added}
        names = [*(each.name for each in specs), *lists]
        taken = {*MESSAGES, *catalogue.custom_methods, *self._methods, *self._listen, *_OWN_MEMBERS}
        if extension.id in catalogue.extensions or not taken.isdisjoint((*names, *listen)):
            raise RegistrationError(f"extension {extension.id}: it is on already, or defines what exists already")
        catalogue.extensions[extension.id] = extension
        self._methods |= dict.fromkeys(names, extension)
        self._listen |= {name: (extension, member) for name, member in listen.items()}
        if self._listen:
            self._decoders[_LISTEN] = msgspec.json.Decoder(listen_params(self._listen))
        if extension.around_call is not None:
            self._around = (*self._around, extension.around_call)
        if not extension.passes_on:
            catalogue.promise({each.capability for each in extension.lists} - {*own})
        pages = [self._list(each) for each in extension.lists]
        methods: list[Method[Any]] = [*pages, *(self._method(each, begun[each.name]) for each in specs)]
        self._decoders |= {each.spec.name: msgspec.json.Decoder(each.spec.params) for each in methods}
        return methods

    def adds(self, method: str, revision: Revision) -> bool:
        """Return whether a method exists for clients of a revision."""
        extension = self._methods.get(method)
        if extension is None or not (revision.extends_by_request or extension.in_handshakes):
            return False
        return not extension.passes_on or self._host.catalogue.settings_of(extension) is not None

    def lists(self, revision: Revision) -> list[str]:
        """Return the lists whose changes are announced to clients of a revision without being asked for."""
        extensions = {each.id: each for each in self._methods.values() if each.in_handshakes}
        return (
            []
            if revision.extends_by_request
            else [
                spec.capability for each in extensions.values() for spec in each.lists if spec.capability not in LISTED
            ]
        )

    def _list(self, spec: ListSpec[Any, Any]) -> ListMethod:
        registry = self._host.catalogue.add_list(spec)
        return ListMethod(MethodSpec(spec.method, ListParams), self._host, registry)

    def _method(self, spec: MethodSpec, method: ExtensionMethod) -> Method[Any]:
        assert method.begin is not None
        lists = self._host.catalogue.lists
        if method.about is not None:
            return ExtensionItemCall(spec, self._host, lists[method.about.method], method.begin, method.cached)
        among = lists[method.among.method] if method.among is not None else None
        return ExtensionCall(spec, self._host, method.begin, method.cached, among)

    def around(self, serving: Mapping[str, Serve]) -> dict[str, Serve]:
        """Return the entries of `serving`, a handler for each method with its middleware, that extensions replace.

        Methods of extensions exist for clients that declare them; their hooks are around calls of tools.
        """
        checked: dict[str, Serve] = {
            name: partial(_serve_declared, extension, serving[name]) for name, extension in self._methods.items()
        }
        call_tool = serving[TOOL_CALL.name]
        for around in reversed(self._around):
            call_tool = partial(self._surround, around, call_tool)
        return checked | ({TOOL_CALL.name: call_tool} if self._around else {})

    def _surround(
        self,
        around: AroundCall,
        serve: Serve,
        request: Request,
        settings: Settings,
        observation: Observation | None,
    ) -> Outcome | Call:
        """Serve a call of a tool inside the hook of an extension. Raises: what the hook raises."""
        begun: list[Outcome | Call] = []

        def begin() -> Outcome | Call:
            begun.append(serve(request, settings, observation))
            return begun[-1]

        step = around(request, begin)
        if any(each is step for each in begun):
            return step
        for each in begun:
            if isinstance(each, Run):
                each.observation = None  # it ends with what the hook made of it
        return as_run(step, self._host, observation) if isinstance(step, Call) else step

    # Listening.

    def before_listening(self, request: Request) -> Call | None:
        """Return the call that must run before a subscription is acknowledged, if it concerns extensions."""
        params = request.params
        if not isinstance(params, ListenParams) or not added_members(params.notifications):
            return None
        return _Listening(request, partial(self._honour, request, params), failures=self._host.failures)

    def _honour(self, request: Request, params: ListenParams) -> object:
        """Leave in the filter what the extensions acknowledge of it. Raises: RemoteProtocolError; what extensions raise."""
        honoured: dict[str, JSON] = {}
        most = self._host.profile.limits.max_subscriptions
        for name, (field, wanted) in added_members(params.notifications).items():
            extension, member = self._listen[name]
            _check_declared(extension, request)
            if not _is_listened_for(wanted):
                problem = f"Invalid params: notifications.{name} must be true or an array of strings"
                raise RemoteProtocolError(INVALID_PARAMS, problem)
            if is_array(wanted) and len(wanted) > most:
                raise RemoteProtocolError(INVALID_PARAMS, f"More than {most} subscriptions")
            found = member.honoured(request, wanted)
            if found and not _is_listened_for(found):
                raise TypeError(
                    f"honoured() of {name} returned {type(found).__name__}: return true or a list of strings"
                )
            honoured[field] = found or None
        request.params = structs.replace(params, notifications=structs.replace(params.notifications, **honoured))
        return None


def _is_listened_for(value: JSON) -> bool:
    return value is True or (is_array(value) and all(isinstance(each, str) for each in value))


class ExtensionCall(Method[Any]):
    """A method of an extension."""

    def __init__(
        self, spec: MethodSpec, host: MethodHost, begin: Begin, cached: bool, among: Registry[Any] | None = None
    ) -> None:
        """Serve `spec` by `begin`, of the items of a list if there is one."""
        super().__init__(spec, host)
        self._begin = begin
        self._cached = cached
        self._among = among

    def serve(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome | Call:
        """Begin a request. Raises: what the extension raises."""
        step = self._begin(request)
        if isinstance(step, Call):
            return as_run(step, self.host, observation)
        return with_hints(step, self.host, self._among, request) if self._cached else step

    def concerned(self, params: Any) -> tuple[Sequence[Condition], Sequence[Condition]]:
        """Return the conditions of all items that its answer may be made of."""
        return (tuple(self._among.conditions.values()) if self._among is not None else ()), ()


class ExtensionItemCall(ItemMethod[Any]):
    """A method of an extension about an item of a list."""

    def __init__(self, spec: MethodSpec, host: MethodHost, registry: Registry[Any], begin: Begin, cached: bool) -> None:
        """Serve `spec` by `begin`, for the items of `registry`."""
        super().__init__(spec, host, registry)
        self._begin = begin
        self._cached = cached

    def serve(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome | Call:
        """Begin a request about an item that exists for its caller. Raises: what the extension raises."""
        key = target_of(request.params) or ""
        item: Listed | None = self.registry.get(key, request.shown)
        if item is None:
            return self.unknown(request, key, observation)
        if item.mounted is not None:
            return item.mounted.begin(request, settings, observation, self.host.rounds, self.host.failures, key)
        step = self._begin(request)
        if isinstance(step, Call):
            return as_run(step, self.host, observation)
        return with_hints(step, self.host, self.registry, request) if self._cached else step


def with_hints(outcome: Outcome, host: MethodHost, registry: Registry[Any] | None, request: Request) -> Outcome:
    """Return a result with how long, and for whom, clients may keep it, in revisions in which results have that."""
    if not request.peer.revision.caches_results or not isinstance(outcome, Wire):
        return outcome
    scope = host.profile.cache_scope
    hints = {"ttl_ms": host.profile.ttl_ms, "cache_scope": registry.scope(scope) if registry is not None else scope}
    missing = {name: hint for name, hint in hints.items() if getattr(outcome, name, hint) is None}
    return structs.replace(outcome, **missing) if missing else outcome


def as_run(call: Call, host: MethodHost, observation: Observation | None) -> Run:
    """Return a call of an extension as one whose failure and end are reported as those of a handler are."""
    return Run(
        call.request,
        call.run,
        call.is_async,
        call.inline,
        call.hooked or observation is not None,
        rounds=host.rounds,
        failures=host.failures,
        current=NO_QUESTIONS,
        conclude=call.finish,
        target=target_of(call.request.params) or call.request.method,
        observation=observation,
    )


def _serve_declared(
    extension: Extension, serve: Serve, request: Request, settings: Settings, observation: Observation | None
) -> Outcome | Call:
    """Serve a method for a client that declares its extension. Raises: RemoteProtocolError for others."""
    _check_declared(extension, request)
    return serve(request, settings, observation)


def _check_declared(extension: Extension, request: Request) -> None:
    if not extension.needs_declaration or extension.declared_by(request.peer):
        return
    raise missing_extension(extension.id) if request.peer.revision.extends_by_request else method_not_found(request)


class _Listening(Call, kw_only=True):
    """Asks extensions what they acknowledge; the connection then answers."""

    failures: Failures

    def finish(self, value: object) -> Outcome:
        """Let the connection answer."""
        self.end()
        return OWN_ANSWER

    def fail(self, error: BaseException) -> Outcome:
        """Refuse the subscription."""
        self.end()
        return self.failures.outcome(self.request, None, error)
