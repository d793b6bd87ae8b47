"""What a person can do about a server that does not work, read from what it left behind. Pure, and never certain.

Each rule is a pattern over what the server printed, and a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from linkspan.client.errors import Ending

__all__ = ["hint_for_ending", "hint_for_missing_command", "hint_for_silence"]

_MODULE: Final = r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?"
_RULES: Final[tuple[tuple[str, str], ...]] = (
    (
        _MODULE,
        "module `{0}` is missing in that environment: install it there, or start the server with a Python that has it",
    ),
    (
        r"ImportError: cannot import name '(\w+)' from '([\w.]+)'",
        "`{1}` in that environment has no `{0}`: its version does not fit",
    ),
    (
        r"Cannot find (?:module|package) '([^']+)'",
        "the Node package `{0}` is missing: run npm install where the server is",
    ),
    (r"npm (?:ERR!|error) (?:code )?E404", "npm does not know that package: check its name"),
    (r"No solution found|was not found in the package registry", "that package was not found: check its name"),
    (r"can't open file '([^']+)'", "there is no file `{0}`: the path is taken from the directory the server starts in"),
    (r"(?:SyntaxError|IndentationError|TabError): (.+)", "the server's code has a syntax error: {0}"),
    (
        r"(?:EADDRINUSE|[Aa]ddress already in use)",
        "its port is taken: another copy is running, or it is meant for HTTP",
    ),
    (
        r"(?:Uvicorn running on|Running on|[Ll]istening (?:on|at)) (https?://\S+)",
        "that server speaks HTTP, at {0}: connect to the URL, or tell it to use stdio",
    ),
    (r"KeyError: '([A-Z][A-Z0-9_]+)'", 'it wants the environment variable {0}: pass env={{"{0}": ...}}'),
    (
        r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|URL))\b[^\n]{0,80}(?:not set|missing|required|undefined)",
        'it wants the environment variable {0}: pass env={{"{0}": ...}}',
    ),
    (r"[Pp]ermission denied", "it was not permitted to do something it needs: look at the last lines of its stderr"),
)


def _match(text: str) -> str | None:
    for pattern, sentence in _RULES:
        found = re.search(pattern, text)
        if found is not None:
            return sentence.format(*found.groups())
    return None


def hint_for_ending(ending: Ending) -> str | None:
    """Say what may have ended a server process."""
    if found := _match(ending.stderr):
        return found
    if ending.stray:
        return _about_stray(ending.stray[0])
    if ending.exit_code == 127:
        return "a shell did not find the command that starts the server"
    if ending.exit_code == 0:
        return "it ended by itself without an error: is it a stdio server, and was it given the right arguments?"
    if ending.signal == "SIGKILL":
        return "something killed it: perhaps the system was out of memory"
    return None


def hint_for_silence(ending: Ending, *, starting: bool, at_url: bool = False) -> str | None:
    """Say why a server that runs may not answer."""
    if found := _match(ending.stderr):
        return found
    if ending.stray:
        return _about_stray(ending.stray[0])
    if starting and at_url:
        return "something listens there but does not answer: is it an MCP endpoint? If it is only slow, raise timeouts.connect"
    if starting:
        return "it runs but says nothing: is it a stdio server? If it is only slow to start, raise timeouts.connect"
    return "if the server is only slow, raise the call's timeout, or let the tool report progress"


def _about_stray(line: str) -> str:
    return (
        f"the server printed `{_short(line)}` on stdout, where only messages belong: let it print to stderr "
        "(a Linkspan server does so by itself)"
    )


def _short(text: str) -> str:
    text = "".join(each if each.isprintable() else " " for each in text).strip()
    return text if len(text) <= 80 else f"{text[:77]}..."


_INSTALLERS: Final = {
    "uvx": "install uv (https://docs.astral.sh/uv)",
    "uv": "install uv (https://docs.astral.sh/uv)",
    "npx": "install Node.js (https://nodejs.org)",
    "node": "install Node.js (https://nodejs.org)",
    "npm": "install Node.js (https://nodejs.org)",
    "docker": "install Docker, and start it",
    "deno": "install Deno (https://deno.com)",
    "bunx": "install Bun (https://bun.sh)",
}


def hint_for_missing_command(command: str, find: Callable[[str], str | None]) -> str:
    """Say what to do about a command that is not there; `find` looks a name up on the path."""
    if "/" in command or "\\" in command:
        return f"there is no file {command!r}: is the path right, seen from the directory the server starts in?"
    if " " in command:
        return 'a command with arguments is a list, as in ["python", "server.py"], or one text for the whole line'
    if installer := _INSTALLERS.get(command):
        return f"{command!r} is not on the PATH that the server gets: {installer}"
    others = {"python": "python3", "python3": "python", "pip": "pip3"}
    if (other := others.get(command)) and find(other):
        return f"{command!r} is not on the PATH, but {other!r} is"
    return f"{command!r} is not on the PATH that the server gets: install it, or give its whole path"
