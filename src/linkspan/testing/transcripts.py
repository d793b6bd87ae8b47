"""The transcript file: a conversation as text, one message a line, to be read, compared and played.

    # A comment.
    C: {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    S: {"jsonrpc": "2.0", "id": 1, "result": {}}

`C:` went from the client to the server, `S:` from the server to the client. Members stand in the order in which they
were sent; `"jsonrpc"` may be left out. Secrets are hidden before a line is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from linkspan.io.private import open_private
from linkspan.types.base import JSON, is_object
from linkspan.wire.messages import encode
from linkspan.wire.redaction import Redactor, redact_json

__all__ = ["Entry", "Side", "format_entry", "parse_transcript", "read_transcript", "write_transcript"]

Side: TypeAlias = Literal["client", "server"]

_MARKS: dict[Side, str] = {"client": "C", "server": "S"}
_SIDES: dict[str, Side] = {"C": "client", "S": "server"}


class Entry(msgspec.Struct, frozen=True):
    """One line: who sent it, and the message (an array if it was a batch), as JSON builtins."""

    side: Side
    message: JSON


def format_entry(entry: Entry, secrets: Iterable[str] = (), *, redacted: bool = True) -> str:
    """Return the line of an entry, newline included, without its secrets unless `redacted` is False.

    Raises: TypeError if the message is no JSON.
    """
    message = redact_json(entry.message, secrets) if redacted else entry.message
    return f"{_MARKS[entry.side]}: {msgspec.json.format(encode(message), indent=0).decode()}\n"


def parse_transcript(text: str, name: str = "transcript") -> list[Entry]:
    """Read the lines of a transcript. Raises: ValueError that names the line, with `name` as its file."""
    entries: list[Entry] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        mark, colon, body = line.partition(":")
        if not colon or mark not in _SIDES:
            raise ValueError(f"{name}:{number}: a line begins with `C:`, `S:` or `#`")
        entries.append(Entry(_SIDES[mark], _message(body, f"{name}:{number}")))
    return entries


def _message(body: str, place: str) -> JSON:
    try:
        message: JSON = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{place}: {error}") from None
    return {"jsonrpc": "2.0", **message} if is_object(message) else message


def read_transcript(path: str | os.PathLike[str]) -> list[Entry]:
    """Read a transcript file. Raises: OSError; ValueError that names the line."""
    return parse_transcript(Path(path).read_text(encoding="utf-8"), os.fspath(path))


def write_transcript(path: str | os.PathLike[str], entries: Iterable[Entry], secrets: Iterable[str] = ()) -> None:
    """Write a transcript file, without secrets, for its owner only. Raises: OSError."""
    redactor = Redactor(secrets)
    lines = [format_entry(Entry(each.side, redactor.message(each.message)), redacted=False) for each in entries]
    with open_private(path) as file:
        file.write("".join(lines))
