"""What a server asks its user, at the prompt. Nothing is sent before the user has seen all of it (ELI-8).

Spec: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation (checklist 4.2).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from linkspan.cli.forms import Field, Unreadable, fields_of, read_value
from linkspan.cli.terminal import Style
from linkspan.client.answers import Refused, form_choices
from linkspan.types.base import JSON, JSONObject
from linkspan.types.messages import ElicitParams
from linkspan.wire.plain import neutral, one_line, revealed_line

__all__ = ["Dismissed", "Terminal", "ask_user", "hear"]


class Terminal(Protocol):
    """Where a user is, or nobody."""

    interactive: bool
    err: Style

    def say(self, text: str) -> None:
        """Write a line."""
        ...

    def read(self, prompt: str) -> str:
        """Ask for a line. Raises: EOFError."""
        ...


class Dismissed(Exception):
    """The user does not want to answer: False declines, None cancels."""

    def __init__(self, answer: bool | None) -> None:
        super().__init__()
        self.answer = answer


def ask_user(
    terminal: Terminal,
    server: str,
    params: ElicitParams,
    answers: Mapping[str, str],
    is_over: Callable[[], bool] = lambda: False,
) -> JSONObject | bool | None:
    """Return a form's values, True, False for declined, or None for cancelled. Raises: Refused if nobody can be asked.

    `answers` are known beforehand; a form that needs nothing else is not shown. `is_over` tells that nobody waits any more.
    """
    try:
        if params.mode == "url":
            from linkspan.cli.pages import ask_to_open

            return ask_to_open(terminal, server, params)
        return _form(terminal, server, params, answers, is_over)
    except Dismissed as dismissal:
        return dismissal.answer
    except EOFError:
        return None


def hear(terminal: Terminal, prompt: str) -> str:
    """Return a line of the user's, without blanks around it. Raises: Dismissed for `decline` and `cancel`; EOFError."""
    text = terminal.read(prompt).strip()
    word = text.casefold()
    if word in ("decline", "cancel"):
        raise Dismissed(False if word == "decline" else None)
    return text


def _form(
    terminal: Terminal, server: str, params: ElicitParams, answers: Mapping[str, str], is_over: Callable[[], bool]
) -> JSONObject:
    fields = fields_of(params.requested_schema)
    known = _known(fields, answers)
    open_fields = [each for each in fields if each.name not in known]
    missing = [each for each in open_fields if each.required and each.default is None]
    if known and not missing:
        return known
    if not terminal.interactive:
        raise Refused(_what_is_missing(params.message, missing or open_fields))
    _introduce(terminal, server, params.message, fields=bool(fields))
    given: JSONObject = {}
    while True:
        for field in open_fields:
            value = _ask_field(terminal, field, given.get(field.name, field.default))
            if is_over():
                raise Dismissed(None)
            given.pop(field.name, None)
            if value is not None:
                given[field.name] = value
        if _review(terminal, server, fields, known | given):
            return known | given


def _known(fields: Sequence[Field], answers: Mapping[str, str]) -> JSONObject:
    """Return what was answered on the command line. Raises: Refused if it does not fit."""
    known: JSONObject = {}
    for field in fields:
        if field.name in answers:
            try:
                known[field.name] = read_value(field, answers[field.name])
            except Unreadable as problem:
                raise Refused(f"--answer {field.name} {problem}") from None
    return known


def _what_is_missing(message: str, fields: Sequence[Field]) -> str:
    asked = one_line(message, 200)
    if not fields:
        return f"{asked!r} (nobody can confirm it here)"
    options = " ".join(f"--answer {field.name}=..." for field in fields)
    return f"{asked!r} (answer it with {options})"


def _introduce(terminal: Terminal, server: str, message: str, *, fields: bool) -> None:
    style = terminal.err
    terminal.say(f"\n{style.bold(f'{server} asks:')}")
    terminal.say("\n".join(f"  {line}" for line in neutral(message).split("\n")))
    if fields:
        terminal.say(style.dim('Enter takes what is in [brackets]; "decline" refuses, "cancel" or Ctrl-D gives up.'))


def _ask_field(terminal: Terminal, field: Field, default: JSON) -> JSON:
    """Ask until there is a value, or an optional field is left out."""
    _describe(terminal, field)
    bracket = f" [{revealed_line(field.shown(default), 200)}]" if default is not None else ""
    while True:
        text = hear(terminal, f"  {revealed_line(field.name)}{bracket}: ")
        if not text and (default is not None or not field.required):
            return default
        try:
            if not text:
                raise Unreadable('needs a value ("decline" refuses, "cancel" gives up)')
            return read_value(field, _unquoted(text))
        except Unreadable as problem:
            terminal.say(terminal.err.yellow(f"  {revealed_line(field.name)} {one_line(str(problem))}"))


def _describe(terminal: Terminal, field: Field) -> None:
    style = terminal.err
    needed = "" if field.required or field.default is not None else ", may be left out"
    terminal.say(f"\n  {style.bold(one_line(field.title))} {style.dim(f'({one_line(field.kind)}{needed})')}")
    if isinstance(description := field.schema.get("description"), str):
        terminal.say(f"  {one_line(description)}")
    if field.secret:
        terminal.say(style.yellow("  No form may ask for passwords and the like: think before you answer."))
    for number, title in enumerate(form_choices(field.schema).values(), 1):
        terminal.say(f"    {number}) {revealed_line(title)}")


def _unquoted(text: str) -> str:
    """`"decline"` in quotes is the word itself."""
    if text.casefold() not in ('"decline"', '"cancel"'):
        return text
    word: str = json.loads(text)
    return word


def _review(terminal: Terminal, server: str, fields: Sequence[Field], values: Mapping[str, JSON]) -> bool:
    """Show what would be sent; True sends it, False asks again. Raises: Dismissed, EOFError."""
    style = terminal.err
    width = max((len(revealed_line(each.name)) for each in fields), default=0)
    terminal.say("")
    for field in fields:
        value = style.dim("(left out)") if field.name not in values else revealed_line(field.shown(values[field.name]))
        terminal.say(f"  {revealed_line(field.name):<{width}}  {value}")
    edit = "e to edit, " if fields else ""
    while True:
        text = hear(terminal, style.bold(f"Send this to {server}?") + f" [Y, {edit}decline, cancel]: ").casefold()
        if text in ("", "y", "yes", "d", "n", "no", "c", "e", "edit"):
            break
    if text in ("d", "n", "no", "c"):
        raise Dismissed(None if text == "c" else False)
    return text in ("", "y", "yes")
