"""What a configuration leaves to the person (`${input:ID}`), asked at the terminal before the servers start.

Law: what is marked as a password is not shown while it is typed, and kept nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from linkspan.cli.chat_terminal import ChatTerminal
from linkspan.io.entries import InputWanted, UnusableTarget, variable_of
from linkspan.wire.plain import one_line

__all__ = ["inputs_from"]

_LONGEST: Final = 200


def inputs_from(terminal: ChatTerminal) -> Callable[[InputWanted], str] | None:
    """Return what asks for inputs, or None where nobody can be asked."""
    if not terminal.interactive:
        return None

    def ask(wanted: InputWanted) -> str:
        known = os.environ.get(variable_of(wanted.id))
        return known if known is not None else _ask(terminal, wanted)

    return ask


def _ask(terminal: ChatTerminal, wanted: InputWanted) -> str:
    """Ask until there is a value. Raises: UnusableTarget if the person gives none, so that only this server fails."""
    terminal.say(f"The configuration wants {one_line(wanted.description or wanted.id, _LONGEST)}")
    for number, option in enumerate(wanted.options, 1):
        terminal.say(f"  {number}) {one_line(option, _LONGEST)}")
    default = wanted.default if wanted.default is not None and not wanted.secret else None
    bracket = f" [{one_line(default, _LONGEST)}]" if default else ""
    prompt = f"{one_line(wanted.id, _LONGEST)}{bracket}: "
    read = terminal.read_secret if wanted.secret else terminal.read
    while True:
        try:
            typed = read(prompt).strip()
        except EOFError:
            raise UnusableTarget(f"no value was given for the input {wanted.id!r}") from None
        value = _chosen(typed, wanted) if typed else wanted.default
        if value is not None:
            return value


def _chosen(typed: str, wanted: InputWanted) -> str | None:
    """Return what was typed, or the option that it is the number of; None if there are options and it is none of them."""
    if not wanted.options or typed in wanted.options:
        return typed
    number = int(typed) if typed.isdecimal() and len(typed) < 4 else 0
    return wanted.options[number - 1] if 0 < number <= len(wanted.options) else None
