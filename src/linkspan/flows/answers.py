"""What a client answers to a server's questions: the user's form, the model's text, the folders.

Handlers return what is natural in Python; here it becomes what the protocol says, checked, with the form's defaults.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation (ELI-1 to ELI-14), and the
pages on sampling and roots beside it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import Raw

from linkspan.errors import LinkspanError
from linkspan.flows.client_errors import NO_ORIGIN, InputUnavailable, ServerOrigin
from linkspan.revisions.neutral import ELICIT, LIST_ROOTS, SAMPLE
from linkspan.revisions.record import Revision
from linkspan.revisions.stepdown import step_down
from linkspan.types.base import JSON, JSONObject, TextContent, Wire, is_array, is_mapping, is_object
from linkspan.types.messages import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    ListRootsResult,
    Root,
)
from linkspan.wire.jsonrpc import encode
from linkspan.wire.values import decode_open, to_builtins

ElicitationAnswer: TypeAlias = ElicitResult | Mapping[str, Any] | bool | None
"""A mapping accepts the form with these values, True accepts, False declines, None cancels; or the result itself."""
ElicitationHandler: TypeAlias = Callable[[ElicitParams], ElicitationAnswer | Awaitable[ElicitationAnswer]]
SamplingAnswer: TypeAlias = CreateMessageResult | str
SamplingHandler: TypeAlias = Callable[[CreateMessageParams], SamplingAnswer | Awaitable[SamplingAnswer]]
RootsSource: TypeAlias = Iterable[str | Path | Root] | Callable[[], Iterable[str | Path | Root]]


class Refused(LinkspanError):
    """A handler raises it when the user refuses what the server wants; the text may be shown to the server."""

    def __init__(self, message: str = "The user refused") -> None:
        super().__init__(message)


class InvalidAnswer(InputUnavailable, ValueError):
    """A handler returned something that does not answer the question; the message describes the fault."""

    def __init__(self, problem: str, origin: ServerOrigin = NO_ORIGIN, **more: Any) -> None:
        more.setdefault("delivery", "answered")
        super().__init__(problem, origin, **more)


class Handlers(msgspec.Struct, frozen=True):
    """Who answers the server. What has no handler is not declared, so that no server asks for it."""

    elicitation: ElicitationHandler | None = None
    elicitation_modes: tuple[str, ...] = ("form", "url")
    sampling: SamplingHandler | None = None
    sampling_tools: bool = False
    """Whether the sampling handler understands tools."""
    roots: RootsSource | None = None

    def capabilities(self) -> JSONObject:
        """Return what to declare (CLI-3)."""
        declared: JSONObject = {}
        if self.elicitation is not None:
            declared["elicitation"] = {mode: {} for mode in self.elicitation_modes}
        if self.sampling is not None:
            declared["sampling"] = {"tools": {}} if self.sampling_tools else {}
        if self.roots is not None:
            declared["roots"] = {}
        return declared

    def answerable(self) -> frozenset[str]:
        """Return the methods that have a registered handler."""
        registered = {ELICIT: self.elicitation, SAMPLE: self.sampling, LIST_ROOTS: self.roots}
        return frozenset(method for method, handler in registered.items() if handler is not None)

    def handler(self, method: str, params: Wire | None) -> Callable[[], Any] | None:
        """Return what to call for a question, or None if no handler was registered for it or for this kind of it."""
        if method == ELICIT and self.elicitation is not None and isinstance(params, ElicitParams):
            elicitation, asked = self.elicitation, params
            return (lambda: elicitation(asked)) if (params.mode or "form") in self.elicitation_modes else None
        if method == SAMPLE and self.sampling is not None and isinstance(params, CreateMessageParams):
            sampling, wanted = self.sampling, params
            with_tools = params.tools is not None or params.tool_choice is not None
            return None if with_tools and not self.sampling_tools else lambda: sampling(wanted)
        if method == LIST_ROOTS and self.roots is not None:
            roots = self.roots
            return roots if callable(roots) else lambda: roots
        return None


def unanswerable(method: str, origin: ServerOrigin) -> InputUnavailable:
    """Return the error for a question without a registered handler; the server should not have asked (MRTR-C3)."""
    what = _SPOKEN.get(method, method)
    return InputUnavailable(
        f"the server requests {what}, for which this client has no handler",
        origin,
        delivery="answered",
        hint=f"pass {_OPTION.get(method, 'a handler')} to the client [LS-303]",
    )


def failed(method: str, origin: ServerOrigin, error: BaseException) -> InputUnavailable:
    """Return the error for a question whose handler raised, or returned what does not answer it; to be raised from `error`."""
    if isinstance(error, InvalidAnswer):
        return InvalidAnswer(error.problem, origin)
    shown = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return InputUnavailable(
        f"the server requests {_SPOKEN.get(method, method)}, but the client's handler failed: {shown}",
        origin,
        delivery="answered",
        hint=f"correct the handler that was passed as {_OPTION.get(method, 'a handler')} [LS-304]",
    )


def refused(method: str, origin: ServerOrigin, refusal: Refused) -> InputUnavailable:
    """Return the error for a question that the user refused where the protocol has no word for that (SAM-10)."""
    return InputUnavailable(
        f"the server requests {_SPOKEN.get(method, method)}, which was refused: {refusal}", origin, delivery="answered"
    )


def unanswered(method: str, origin: ServerOrigin, seconds: float) -> InputUnavailable:
    """Return the error for a question that its handler did not answer in time."""
    return InputUnavailable(
        f"the server wants {_SPOKEN.get(method, method)}, which did not come within {seconds:g} seconds (timeouts.input)",
        origin,
        delivery="answered",
        seconds=seconds,
    )


_SPOKEN = {ELICIT: "input from the user", SAMPLE: "a text from the model", LIST_ROOTS: "the list of folders"}
_OPTION = {ELICIT: "elicitation=...", SAMPLE: "sampling=... (and sampling_tools=True)", LIST_ROOTS: "roots=[...]"}
_SHAPES: Mapping[str, type[Wire]] = {ELICIT: ElicitParams, SAMPLE: CreateMessageParams}


def read_question(method: str, params: Raw | bytes) -> Wire | None:
    """Return the params of a question as their shape; None where it has none.

    Raises: msgspec.DecodeError for params of another shape.
    """
    shape = _SHAPES.get(method)
    return decode_open(params or b"{}", shape) if shape is not None else None


def encode_answer(revision: Revision, method: str, params: Wire | None, value: object) -> bytes:
    """Return a handler's value as the result that the server gets. Raises: InvalidAnswer."""
    if isinstance(params, ElicitParams):
        return encode(to_builtins(_elicit_result(params, value)))
    if method == SAMPLE:
        return encode(to_builtins(step_down(revision, _sampling_result(value))))
    return encode(to_builtins(step_down(revision, _roots_result(value))))


# Elicitation.


def _elicit_result(params: ElicitParams, value: object) -> ElicitResult:
    match value:
        case ElicitResult():
            result = value
        case None:
            result = ElicitResult("cancel")
        case bool():
            result = ElicitResult("accept" if value else "decline")
        case Mapping():
            result = ElicitResult("accept", dict(cast("Mapping[str, JSON]", value)))
        case _:
            raise InvalidAnswer(
                f"the elicitation handler returned {type(value).__name__}; return a mapping with the form's values, "
                "True, False, None or an ElicitResult"
            )
    if result.action != "accept" or params.mode == "url":
        return ElicitResult(result.action)  # only an accepted form has content (ELI-6)
    return ElicitResult("accept", _filled(params.requested_schema or {}, result.content or {}))


def _filled(schema: Mapping[str, JSON], content: Mapping[str, JSON]) -> JSONObject:
    """Return the form's values with defaults for what was left out (ELI-5), checked (ELI-9)."""
    properties: JSON = schema.get("properties")
    fields: Mapping[str, JSON] = properties if is_object(properties) else {}
    filled: JSONObject = {
        name: field["default"]
        for name, field in fields.items()
        if is_object(field) and "default" in field and content.get(name) is None
    }
    filled |= {name: value for name, value in content.items() if value is not None}
    required: JSON = schema.get("required")
    missing = [name for name in (required if is_array(required) else []) if name not in filled]
    if missing:
        raise InvalidAnswer(f"the form needs a value for {', '.join(map(repr, missing))}")
    for name, value in content.items():  # a default that does not fit its own field is the server's business
        field: JSON = fields.get(name)
        if value is not None and is_object(field) and (problem := form_problem(field, value)):
            raise InvalidAnswer(f"the form's {name!r} {problem}, got {value!r}")
    return filled


_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "string": (str, "must be a string"),
    "integer": (int, "must be a whole number"),
    "number": ((int, float), "must be a number"),
    "boolean": (bool, "must be true or false"),
    "array": (list, "must be a list"),
}


def form_problem(field: Mapping[str, JSON], value: JSON) -> str | None:
    """Return what is wrong with a value for one field of a form, or None. Forms are flat, so a few rules say it all."""
    kind: JSON = field.get("type")
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is not None and (not isinstance(value, known[0]) or (isinstance(value, bool) and kind != "boolean")):
        return known[1]
    choices = form_choices(field)
    if is_array(value):
        wrong = [each for each in value if choices and each not in choices]
        return f"must be some of {_listed(choices)}" if wrong else _outside(field, len(value), "Items", " items")
    if choices and value not in choices:
        return f"must be one of {_listed(choices)}"
    if isinstance(value, str):
        return _outside(field, len(value), "Length", " characters")
    return _outside(field, value, "imum", "") if isinstance(value, int | float) else None


def form_choices(field: Mapping[str, JSON]) -> dict[JSON, str]:
    """Return the values that a field of a form may have, with their titles; empty if any value will do."""
    inner: JSON = field.get("items")
    source: Mapping[str, JSON] = inner if is_object(inner) else field
    titled: JSON = source.get("oneOf") or source.get("anyOf")
    if is_array(titled):
        found = [each for each in titled if is_mapping(each) and "const" in each]
        return {each["const"]: str(each.get("title", each["const"])) for each in found}
    plain: JSON = source.get("enum")
    names: JSON = source.get("enumNames")
    values = [each for each in plain if isinstance(each, str | int | float)] if is_array(plain) else []
    titles = names if is_array(names) and len(names) == len(values) else values
    return {value: str(title) for value, title in zip(values, titles, strict=True)}


def _outside(field: Mapping[str, JSON], size: float, suffix: str, unit: str) -> str | None:
    least: JSON = field.get(f"min{suffix}")
    most: JSON = field.get(f"max{suffix}")
    if isinstance(least, int | float) and size < least:
        return f"must be at least {least}{unit}"
    if isinstance(most, int | float) and size > most:
        return f"must be at most {most}{unit}"
    return None


def _listed(choices: Iterable[JSON]) -> str:
    return ", ".join(map(repr, choices))


# Sampling and roots.


def _sampling_result(value: object) -> CreateMessageResult:
    if isinstance(value, CreateMessageResult):
        return value
    if isinstance(value, str):
        return CreateMessageResult("assistant", TextContent(value), "unknown", "endTurn")
    raise InvalidAnswer(
        f"the sampling handler returned {type(value).__name__}; return a string or a CreateMessageResult"
    )


def _roots_result(value: object) -> ListRootsResult:
    if isinstance(value, str | Path | Root) or not isinstance(value, Iterable):
        raise InvalidAnswer("roots are a list of paths, file: URIs or Root values")
    return ListRootsResult([_root(each) for each in cast("Iterable[object]", value)])


def _root(value: object) -> Root:
    if isinstance(value, Root):
        return value
    if isinstance(value, str) and value.startswith("file:"):
        return Root(value)
    if isinstance(value, str | Path):
        path = Path(value).absolute()
        return Root(path.as_uri(), path.name or None)
    raise InvalidAnswer(f"a root is a path, a file: URI or a Root, got {type(value).__name__}")
