"""From an error to what a shell sees: an exit status, a hint in its own terms, and with --json the error's fields."""

from __future__ import annotations

import re
from typing import Final

from linkspan.client.errors import CallStopped, ClientError, ConnectError, InputUnavailable, ServerError
from linkspan.errors import MISSING_CLIENT_CAPABILITY, URL_ELICITATION_REQUIRED
from linkspan.types.base import JSON, JSONObject, is_array, is_object

__all__ = [
    "INTERRUPTED",
    "LOST",
    "NO_INPUT",
    "REFUSED",
    "UNREACHABLE",
    "WRONG_USE",
    "describe",
    "for_the_shell",
    "status_of",
]

REFUSED: Final = 1
WRONG_USE: Final = 2
UNREACHABLE: Final = 3
LOST: Final = 4
NO_INPUT: Final = 5
INTERRUPTED: Final = 130

_IN_A_SHELL: Final = (
    (r"raise timeouts\.\w+|raise the call's timeout", "give it a longer --timeout"),
    (r"pass env=\{\"(\w+)\": \.\.\.\}", r"pass --env \1=..."),
    (r"pass headers=\{'Authorization': \.\.\.\}", "pass --header 'Authorization: Bearer ...'"),
    (r"of headers= text", "of --header text"),
    (r"give another cwd", "give another --cwd"),
    (r"do not pin protocol_version or era", "leave --protocol-version and --era out"),
)


def status_of(error: ClientError) -> int:
    """Return the exit status for what a client raised."""
    match error:
        case ConnectError():
            return UNREACHABLE
        case InputUnavailable():
            return NO_INPUT
        case ServerError() if error.code in (MISSING_CLIENT_CAPABILITY, URL_ELICITATION_REQUIRED):
            return NO_INPUT
        case ServerError():
            return REFUSED
        case CallStopped():
            return INTERRUPTED
        case _:
            return LOST


def for_the_shell(error: ClientError) -> ClientError:
    """Return the error with a hint that speaks of options where the client's speaks of Python."""
    found = error.again()
    if status_of(error) == NO_INPUT:
        found.hint = _how_to_answer(error)
    elif error.hint is not None:
        found.hint = _translated(error.hint)
    return found


def _translated(hint: str) -> str:
    for pattern, words in _IN_A_SHELL:
        hint = re.sub(pattern, words, hint)
    return hint


def _how_to_answer(error: ClientError) -> str:
    """Say what can be done where a server asks, and nobody is there."""
    data: JSON = error.data
    if is_object(data) and is_array(pages := data.get("elicitations")):
        urls = [str(each["url"]) for each in pages if is_object(each) and "url" in each]
        return f"open {', '.join(urls)} and try again"
    wanted: JSON = data.get("requiredCapabilities") if is_object(data) else None
    if is_object(wanted) and "sampling" in wanted:
        return "this command has no model to answer with; a host has"
    if is_object(wanted) and "roots" in wanted:
        return "offer it directories with --root DIR"
    return "run this in a terminal to be asked, or answer with --answer FIELD=VALUE"


def describe(error: ClientError) -> JSONObject:
    """Return an error's fields; those without a value are left out."""
    fields: JSONObject = {
        "type": type(error).__name__,
        "problem": error.problem,
        "server": error.server,
        "phase": error.phase,
        "command": error.command,
        "url": error.url,
        "exit_code": error.exit_code,
        "signal": error.signal,
        "stderr": error.stderr or None,
        "code": error.code,
        "message": error.message,
        "data": error.data,
        "delivery": error.delivery,
        "seconds": error.seconds,
        "hint": error.hint,
    }
    return {name: value for name, value in fields.items() if value is not None}
