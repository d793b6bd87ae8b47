"""Completion: suggested values for an argument of a prompt or a resource template.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, cast

from linkspan.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RegistrationError, RemoteProtocolError, clipped
from linkspan.revisions.neutral import Request
from linkspan.revisions.stepdown import knows_field
from linkspan.schema.problems import describe_value
from linkspan.server.catalogue import Catalogue
from linkspan.server.content_blocks import changed, checked
from linkspan.server.handlers import Handler
from linkspan.text import did_you_mean
from linkspan.types.base import JSONObject, is_mapping
from linkspan.types.messages import CompleteParams, CompleteResult, Completion, PromptReference, ServerCapabilities
from linkspan.wire.values import from_builtins, to_builtins

Found: TypeAlias = tuple[Handler, JSONObject] | CompleteResult | RemoteProtocolError


def find_completer(catalogue: Catalogue, request: Request, params: CompleteParams) -> Found:
    """Return the function that completes an argument, and its arguments; or the answer where none must run."""
    # In a revision without that capability there is nothing to declare (SRV-1).
    can_be_declared = knows_field(request.peer.revision, ServerCapabilities, "completions")
    if can_be_declared and not catalogue.offers("completions"):
        return RemoteProtocolError(METHOD_NOT_FOUND, f"Method not found: {request.method}", request.method)
    ref, argument = params.ref, params.argument
    name = ref.name if isinstance(ref, PromptReference) else ref.uri
    if not catalogue.has_reference(ref, request.shown):
        return RemoteProtocolError(INVALID_PARAMS, f"Unknown completion reference: {clipped(name)}")
    if catalogue.completion_handler is not None:
        return catalogue.completion_handler, to_builtins(params)
    completer = catalogue.completers.get((name, argument.name))
    if completer is None:
        prompt = catalogue.prompts.get(name, request.shown)
        return completion_of(prompt.choices(argument.name) if prompt is not None else None, argument.value)
    known = params.context.arguments if params.context is not None else None
    return completer, {"value": argument.value, "arguments": known or {}}


def check_completers(catalogue: Catalogue, *, may_come: bool) -> None:
    """Refuse functions that complete what does not exist; warn of them where it `may_come`. Raises: RegistrationError."""
    for ref, argument in catalogue.completers:
        problem = _dead(catalogue, ref, argument)
        if problem is not None and not may_come:
            raise RegistrationError(problem)
        if problem is not None:
            from logging import getLogger

            getLogger("linkspan.server").warning("%s", problem)


def _dead(catalogue: Catalogue, ref: str, argument: str) -> str | None:
    """Return why a function would never complete anything."""
    prompt, template = catalogue.prompts.registered(ref), catalogue.templates.registered(ref)
    line = f"@server.completion({ref!r}, {argument!r})"
    if template is not None:
        noun, names = "resource template", list(template.template.variables)
    elif prompt is not None:
        noun, names = "prompt", [each.name for each in prompt.spec.arguments or ()]
        if not names and prompt.handler.whole is not None:
            return None  # it takes whatever is sent
    else:
        known = sorted(catalogue.prompts.names() | catalogue.templates.names())
        return f"{line}: there is no prompt and no resource template {ref!r}{did_you_mean(ref, known)}"
    if argument in names:
        return None
    there = f"it has {', '.join(names)}" if names else "it has none"
    return f"{line}: the {noun} {ref!r} has no argument {argument!r}{did_you_mean(argument, names)}; {there}"


MAX_VALUES = 100


def completion_of(value: object, typed: str) -> CompleteResult:
    """Turn what a completer returned into a result of at most 100 values (CMP-2).

    A list of texts, numbers or Enum members is filtered by what the user has typed already; a `Completion` or a mapping in
    wire form is taken as it is. None means nothing to suggest (CMP-3). Raises: TypeError, ValueError for anything else.
    """
    if isinstance(value, CompleteResult):
        return checked(changed(value, completion=_capped(value.completion)))
    if is_mapping(value):
        value = from_builtins(value.get("completion", value), Completion)
    if isinstance(value, Completion):
        return checked(CompleteResult(completion=_capped(value)))
    if value is None:
        return CompleteResult(completion=Completion(values=[]))
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"a completer must return a list of strings, not {type(value).__name__}")
    texts = [_text(each) for each in cast("Iterable[object]", value)]
    fitting = [text for text in texts if text.lower().startswith(typed.lower())]
    return CompleteResult(completion=_capped(Completion(values=fitting)))


def _text(value: object) -> str:
    """Return a suggestion as a text. Raises: TypeError for a bool and for what is not a text, a number or an enum of these."""
    if not isinstance(value, str | int | float):
        value = getattr(value, "value", value)  # a member of an Enum
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"a completer must suggest strings, not {describe_value(value)}")
    return str.__str__(value) if isinstance(value, str) else str(value)


def _capped(found: Completion) -> Completion:
    if len(found.values) <= MAX_VALUES:
        return found
    return changed(found, values=list(found.values[:MAX_VALUES]), total=found.total or len(found.values), has_more=True)
