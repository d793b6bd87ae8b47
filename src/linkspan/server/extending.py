"""The extensions of one server: what the dispatcher serves besides the protocol, in tables that grow at registration only.

What a request must declare is decided here, once for all extensions (EXT-4, TSK-S8).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import structs

from linkspan.core.call import OWN_ANSWER, Call
from linkspan.core.extension import AroundCall, Extension, ExtensionMethod, ListenMember, missing_extension
from linkspan.errors import INVALID_PARAMS, RegistrationError, RemoteProtocolError
from linkspan.revisions import MESSAGES
from linkspan.revisions.neutral import Outcome, Request
from linkspan.server.catalogue import Catalogue
from linkspan.server.configuration import Settings
from linkspan.server.handlers import Run
from linkspan.server.observation import Failures, Observation
from linkspan.types.base import JSON, is_array
from linkspan.types.messages import ListenParams, SubscriptionFilter, added_members, listen_params

__all__ = ["Extensions"]

Method: TypeAlias = Callable[[Request, Settings, Observation | None], Outcome | Call]

_LISTEN: Final = "subscriptions/listen"
_OWN_MEMBERS: Final = SubscriptionFilter.__struct_encode_fields__


class Extensions:
    """The tables of one server's extensions."""

    def __init__(self, failures: Failures, decoders: dict[str, msgspec.json.Decoder[Any]], most: int) -> None:
        """Begin without any. `decoders` is filled for the connections; up to `most` values of a member are listened for."""
        self.around: tuple[AroundCall, ...] = ()
        """The hooks around `tools/call`, the innermost last."""
        self._methods: dict[str, tuple[Extension, ExtensionMethod]] = {}
        self._failures = failures
        self._decoders = decoders
        self._most = most
        self._listen: dict[str, tuple[Extension, ListenMember]] = {}

    def add(self, extension: Extension, catalogue: Catalogue) -> None:
        """Serve an extension, and announce it. Raises: RegistrationError for what exists already, or is no extension."""
        if not isinstance(extension, Extension):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RegistrationError(
                f"extensions= takes values such as Extension('com.example/notes', ...), not {extension!r}"
            )
        served = {name: method for name, method in extension.methods.items() if method.begin is not None}
        taken = {*MESSAGES, *catalogue.custom_methods, *self._methods, *self._listen, *_OWN_MEMBERS}
        if extension.id in catalogue.extensions or not taken.isdisjoint((*served, *extension.listen)):
            raise RegistrationError(f"extension {extension.id}: it is on already, or defines what exists already")
        catalogue.extensions[extension.id] = extension
        self._methods |= {name: (extension, method) for name, method in served.items()}
        self._decoders |= {name: msgspec.json.Decoder(method.params) for name, method in served.items()}
        self._listen |= {name: (extension, member) for name, member in extension.listen.items()}
        if self._listen:
            self._decoders[_LISTEN] = msgspec.json.Decoder(listen_params(self._listen))
        if extension.around_call is not None:
            self.around = (*self.around, extension.around_call)

    def methods_around(self, call_tool: Method) -> dict[str, Method]:
        """Return what serves the methods of extensions, and `tools/call`, which is `call_tool` without them."""
        for around in reversed(self.around):
            call_tool = partial(self._surround, around, call_tool)
        return dict.fromkeys(self._methods, self._serve) | {"tools/call": call_tool}

    def _serve(self, request: Request, _: Settings, observation: Observation | None) -> Outcome | Call:
        """Serve a method of an extension for a client that declares it. Raises: RemoteProtocolError; what the method raises."""
        extension, method = self._methods[request.method]
        assert method.begin is not None
        if not extension.declared_by(request.peer):
            raise missing_extension(extension.id)
        step = method.begin(request)
        return self._reported(step, request, observation) if isinstance(step, Call) else step

    def _surround(
        self,
        around: AroundCall,
        serve: Method,
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
        return self._reported(step, request, observation) if isinstance(step, Call) else step

    def _reported(self, call: Call, request: Request, observation: Observation | None) -> Call:
        return _Reported(
            request,
            call.run,
            call.is_async,
            call.inline,
            call.hooked or observation is not None,
            inner=call,
            failures=self._failures,
            observation=observation,
        )

    # Listening.

    def before_listening(self, request: Request) -> Call | None:
        """Return the call that must run before a subscription is acknowledged, if it concerns extensions."""
        params = request.params
        if not isinstance(params, ListenParams) or not added_members(params.notifications):
            return None
        return _Listening(request, partial(self._honour, request, params), failures=self._failures)

    def _honour(self, request: Request, params: ListenParams) -> object:
        """Leave in the filter what the extensions acknowledge of it. Raises: RemoteProtocolError; what extensions raise."""
        honoured: dict[str, JSON] = {}
        for name, (field, wanted) in added_members(params.notifications).items():
            extension, member = self._listen[name]
            if not extension.declared_by(request.peer):
                raise missing_extension(extension.id)
            if not _is_listened_for(wanted):
                problem = f"Invalid params: notifications.{name} must be true or an array of strings"
                raise RemoteProtocolError(INVALID_PARAMS, problem)
            if is_array(wanted) and len(wanted) > self._most:
                raise RemoteProtocolError(INVALID_PARAMS, f"More than {self._most} subscriptions")
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


class _Reported(Call, kw_only=True):
    """A call of an extension, whose failure and end are reported as those of a handler are."""

    inner: Call
    failures: Failures
    observation: Observation | None

    def finish(self, value: object) -> Outcome:
        """Conclude from the function's value."""
        self.end()
        try:
            return self._ended(self.inner.finish(value))
        except BaseException as error:
            return self._failed(error)

    def fail(self, error: BaseException) -> Outcome:
        """Conclude from the function's exception."""
        self.end()
        return self._failed(error)

    def _failed(self, error: BaseException) -> Outcome:
        return self._ended(self.failures.outcome(self.request, self.observation, error))

    def _ended(self, outcome: Outcome) -> Outcome:
        if self.observation is not None:
            self.observation.end(self.request, outcome)
        return outcome


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
