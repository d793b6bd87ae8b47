"""Methods of the protocol that one function of the author answers entirely: `server.handler("tools/list")`.

The function gets the params as the client sent them, and returns the whole result: `_meta` and members that no revision names go
in and out. What such a method shares with the others, such as middleware, spans and rounds of questions, is around it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from linkspan.core.call import OWN_ANSWER, Call
from linkspan.errors import INVALID_PARAMS, MethodAlreadyDefinedError, RegistrationError, RemoteProtocolError
from linkspan.revisions.neutral import InputRequired, Outcome, Request
from linkspan.schema.annotations import parameters_of, peel, resolve
from linkspan.schema.results import encode_json
from linkspan.server.asking import cannot_ask, may_ask
from linkspan.server.catalogue import Listed
from linkspan.server.configuration import Settings
from linkspan.server.content_blocks import changed
from linkspan.server.features.method import Method, MethodHost
from linkspan.server.handlers import Function, Handler, compile_handler, describe, is_defined_again
from linkspan.server.observation import Observation
from linkspan.server.visibility import Condition
from linkspan.text import did_you_mean
from linkspan.types.base import JSON, JSONObject, Wire, is_mapping, is_object, keep_unknown, unknown_members
from linkspan.types.messages import LOG_LEVELS, Params, SetLevelParams, StandsForResult
from linkspan.types.methods import LISTS, METHODS, MethodSpec
from linkspan.wire.values import from_builtins, to_builtins

SETTINGS_OF_SESSIONS: Final = ("logging/setLevel", "resources/subscribe", "resources/unsubscribe")
"""What a handshake session keeps for its client: a function runs first, and the session answers."""
_ROUNDS: Final = ("inputResponses", "requestState")
"""Members of params that are in the context, opened."""


def compile_answer(
    function: Function,
    method: str,
    known: Collection[str],
    before: Handler | None,
    *,
    inline: bool = False,
    hold: bool = False,
    provided: Sequence[type] = (),
) -> Answer:
    """Compile the function that answers a method; `known` are those that one may answer, `before` answers it already.

    Raises: RegistrationError, MethodAlreadyDefinedError.
    """
    if method not in known:
        raise RegistrationError(f"handler({method!r}): there is no such method to answer{did_you_mean(method, known)}")
    if before is not None and not is_defined_again(before.function, function):
        raise MethodAlreadyDefinedError(method)
    params = METHODS[method].params if method in METHODS else Params
    members = [each for each in params.__struct_encode_fields__ if each not in _ROUNDS]
    handler = compile_handler(
        function, schema={"type": "object"}, checked="never", name=method, members=members, provided=provided
    )
    shape = _shape_of(handler, members)
    if shape is not None and not issubclass(params, shape):
        raise RegistrationError(
            f"{describe(function)} takes {shape.__name__}, but the params of {method} are {params.__name__}: write that, "
            "or dict"
        )
    if shape is None and (other := (handler.keywords or frozenset()) - {*members}):
        raise RegistrationError(
            f"{describe(function)} takes {', '.join(sorted(other))}: a function for {method} takes all params as one "
            f"mapping, as {params.__name__}, or some of {', '.join(members)}"
        )
    if hold:
        if not may_ask(method):
            raise RegistrationError(cannot_ask(method))
        from linkspan.server.holding import check_hold

        check_hold(handler, method)
    return Answer(msgspec.structs.replace(handler, inline=inline, holds=hold), shape is not None)


class Answer(msgspec.Struct, frozen=True):
    """A function that answers a method."""

    handler: Handler
    takes_shape: bool
    """It takes the params in their shape, and not as JSON."""

    def arguments(self, params: object) -> JSONObject:
        """Return what the function is called with: the params in their shape, all of them as a mapping, or some members.

        Raises: RemoteProtocolError for params that are not an object.
        """
        if not self.takes_shape:
            return members_of(params)
        whole = cast("JSONObject", params)
        return whole if self.handler.whole is not None else dict.fromkeys(self.handler.keywords or (), whole)


def _shape_of(handler: Handler, members: Collection[str]) -> type[Params] | None:
    """Return the shape in which a function takes the params, if it does."""
    names = {handler.whole} if handler.whole is not None else handler.keywords
    if names is None or len(names) != 1 or not names.isdisjoint(members):
        return None
    parameter = next(each for each in parameters_of(handler.function) if each.name in names)
    with suppress(NameError, TypeError, SyntaxError, AttributeError):
        hint = peel(resolve(parameter.annotation, handler.function))[0]
        return hint if isinstance(hint, type) and issubclass(hint, Params) else None
    return None


class AnsweredMethod(Method[Any]):
    """A method that a function answers. Items that are registered under the same names keep their scopes."""

    def __init__(self, spec: MethodSpec, host: MethodHost, answer: Answer, replaced: Method[Any]) -> None:
        """Serve `spec` by `answer`, in the place of the method `replaced`."""
        super().__init__(spec, host)
        self._answer = answer
        self._replaced = replaced.replaced if isinstance(replaced, AnsweredMethod) else replaced
        listed = LISTS.get(spec.name)
        self._result: type[Wire] | None = listed.result if listed is not None else spec.result

    @property
    def replaced(self) -> Method[Any]:
        """The method that would serve without the function."""
        return self._replaced

    def serve(self, request: Request, settings: Settings, observation: Observation | None) -> Outcome | Call:
        """Return the call of the function."""
        handler, arguments = self._answer.handler, self._answer.arguments(request.params)
        target = request.target or request.method
        return self.host.run(request, settings, observation, handler, arguments, self._outcome, target)

    def handler(self, params: Any) -> Handler | None:
        """Return the function."""
        return self._answer.handler

    def item(self, params: Any, shown: Collection[object]) -> Listed | None:
        """Return what is registered under the name that the params have."""
        return self._replaced.item(params, shown)

    def concerned(self, params: Any) -> tuple[Sequence[Condition], Sequence[Condition]]:
        """Return what the method depends on without the function: `item` needs it."""
        return self._replaced.concerned(params)

    def _outcome(self, value: object) -> Outcome:
        """Turn what the function returned into a result, with hints for caches where its kind has some. Raises: TypeError."""
        if isinstance(value, InputRequired):
            return value
        if isinstance(value, StandsForResult):
            value = value.as_result()
        if isinstance(value, Raw):
            value = msgspec.json.decode(value)
        kind = self._result
        if is_mapping(value):
            if kind is None:
                return Raw(encode_json(dict(value)))
            members = cast("JSONObject", to_builtins(value))
            made = from_builtins(members, kind)
            keep_unknown(made, unknown_members(made))  # parts of it may have such members too: it is written with them
            value = made
        if kind is None and isinstance(value, Wire):
            return value
        if kind is None or not isinstance(value, kind):
            expected = kind.__name__ if kind is not None else "a result"
            raise TypeError(
                f"the handler of {self.spec.name} returned {type(value).__name__}: return {expected}, or a mapping"
            )
        return self._with_hints(value)

    def _with_hints(self, value: Wire) -> Wire:
        fields, hints = value.__struct_fields__, {"ttl_ms": self.host.profile.ttl_ms, "cache_scope": "private"}
        missing = {name: hint for name, hint in hints.items() if name in fields and getattr(value, name) is None}
        return changed(value, **missing) if missing else value


class AnsweredSetting:
    """A function that runs before a handshake session keeps what its client has set."""

    def __init__(self, host: MethodHost, answer: Answer) -> None:
        """Run the function of `answer` for `host`."""
        self._host = host
        self._answer = answer

    def begin(self, request: Request, settings: Settings) -> Outcome | Call:
        """Return the call after which the session answers; the session alone refuses what is not valid."""
        params = request.params
        if isinstance(params, SetLevelParams) and params.level not in LOG_LEVELS:
            return OWN_ANSWER
        handler, arguments = self._answer.handler, self._answer.arguments(params)
        target = request.target or request.method
        return self._host.run(request, settings, None, handler, arguments, lambda _: OWN_ANSWER, target)


def members_of(params: object) -> JSONObject:
    """Return params as the client sent them, without the members that rounds of questions need."""
    written = getattr(params, "__dict__", {}).get("written") if isinstance(params, Params) else params
    if isinstance(written, Raw):
        found: JSON = msgspec.json.decode(bytes(written) or b"{}")
        if not is_object(found):
            raise RemoteProtocolError(INVALID_PARAMS, "Invalid params: params must be an object")
    else:
        found = cast("JSONObject", to_builtins(params))
    return {name: value for name, value in found.items() if name not in _ROUNDS}


class WholeDecoder:
    """Reads the params of a method into their shape, and keeps them as they were written."""

    def __init__(self, kind: type[Params]) -> None:
        """Read params of a `kind`."""
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_keeping(kind))

    def decode(self, params: bytes | Raw) -> Params:
        """Return the params. Raises: msgspec.DecodeError, msgspec.ValidationError."""
        found: Params = self._decoder.decode(params)
        vars(found)["written"] = Raw(bytes(params))
        return found


@cache
def _keeping(kind: type[Params]) -> type[Params]:
    made = msgspec.defstruct(kind.__name__, [], bases=(kind,), frozen=True, kw_only=True, dict=True)
    return cast("type[Params]", made)
