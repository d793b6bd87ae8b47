"""A page that a server wants its user to open: shown whole, with its host, and opened only when the user says so (ELI-10).

Law: nothing here fetches anything, and only http and https are ever handed to a browser.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from linkspan.cli.questions import Dismissed, Terminal, hear
from linkspan.client.answers import Refused
from linkspan.types.messages import ElicitParams
from linkspan.wire.plain import neutral, one_line, revealed, revealed_line

__all__ = ["ask_to_open", "doubts_about"]

_LOOPBACK: Final = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")


def ask_to_open(terminal: Terminal, server: str, params: ElicitParams) -> bool:
    """Ask for consent, and open the page. Raises: Refused if nobody can be asked, Dismissed, EOFError."""
    url = params.url or ""
    if not terminal.interactive:
        raise Refused(f"{one_line(params.message, 200)!r}: the user must open {revealed_line(url)}")
    style = terminal.err
    parts = _split(url)
    terminal.say(f"\n{style.bold(f'{server} asks you to open a page:')}")
    terminal.say("\n".join(f"  {line}" for line in neutral(params.message).split("\n")))
    terminal.say(f"\n  {revealed(url)}")
    terminal.say(f"  host: {style.bold(revealed(parts.hostname or '') if parts is not None else 'none')}")
    for doubt in doubts_about(url):
        terminal.say(style.yellow(f"  warning: {doubt}"))
    if parts is None:
        terminal.say("  It cannot be opened; that was declined.")
        return False
    while True:
        text = hear(terminal, 'Open it in your browser? [y/N, "self" if you open it yourself, "cancel"]: ').casefold()
        if text in ("", "n", "no"):
            raise Dismissed(False)
        if text == "self" or (text in ("y", "yes") and _open(terminal, url)):
            return True


def doubts_about(url: str) -> list[str]:
    """Return what a person should know of a URL before opening it."""
    parts = _split(url)
    if parts is None:
        return ["this is not an http or https URL"]
    host = parts.hostname or ""
    local = _LOOPBACK.fullmatch(host) is not None
    doubts = {
        "the host is written in Punycode: it may look like another one": any(
            each.startswith("xn--") for each in host.split(".")
        ),
        "the host has letters outside ASCII: it may look like another one": not host.isascii(),
        "what stands before the @ is not the host": "@" in parts.netloc,
        "the host is a bare address": not local and re.fullmatch(r"[\d.]+|0x[\da-f]+|.*:.*", host) is not None,
        "the connection is not encrypted": parts.scheme == "http" and not local,
        "it is a page of this very computer": local,
    }
    return [words for words, holds in doubts.items() if holds]


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL that a browser may get, or None."""
    if re.search(r"[\x00-\x20\x7f-\x9f\u202a-\u202e\u2066-\u2069\\]", url):
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return None
    return parts if usable else None


def _open(terminal: Terminal, url: str) -> bool:
    import webbrowser

    try:
        opened = webbrowser.open(url)
    except webbrowser.Error:
        opened = False
    if not opened:
        terminal.say(terminal.err.yellow('  No browser could be started. Open the page yourself, then answer "self".'))
    return opened
