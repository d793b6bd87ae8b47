"""The chats that are kept, to be listed and resumed. Each is a file below `sessions` that its owner alone can read.

A chat that cannot be written goes on: `problem` holds the reason, once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from linkspan.cli.options import WrongUse, near
from linkspan.host.conversation import Conversation
from linkspan.host.messages import Message, Text, Usage, UserMessage
from linkspan.runtime.system import open_private
from linkspan.wire.redaction import one_line, redact

_MOST: Final = 200
"""Chats that are kept; of more, the oldest are removed."""
_DIRECTORY: Final = 0o700
_TITLE: Final = 46


class ListedChat(msgspec.Struct, frozen=True, kw_only=True):
    """What a list shows of a chat."""

    name: str = ""
    changed: float = 0.0
    """Seconds since 1970."""
    title: str = ""
    """The beginning of the first question."""
    model: str = ""
    count: int = 0
    """The number of messages."""


class SavedChat(ListedChat, frozen=True, kw_only=True):
    """The contents of a file."""

    messages: list[Message]
    usage: Usage = Usage()


def kept_chats(folder: Path) -> list[ListedChat]:
    """Return the chats of a folder, the newest first. Files that are not chats are left out."""
    found: list[ListedChat] = []
    for path in folder.glob("*.json"):
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            listed = msgspec.json.decode(path.read_bytes(), type=ListedChat)
            found.append(msgspec.structs.replace(listed, name=path.stem, changed=path.stat().st_mtime))
    return sorted(found, key=lambda each: (each.changed, each.name), reverse=True)


def show_chats(chats: Sequence[ListedChat]) -> str:
    """Return a list of chats for people."""
    lines = [
        f"{each.name}  {time.strftime('%d %b %H:%M', time.localtime(each.changed))}  "
        f"{each.count:>3} messages  {one_line(each.title, _TITLE)}"
        for each in chats
    ]
    return "\n".join(lines) or "There are no sessions."


def read_chat(folder: Path, name: str | None) -> SavedChat:
    """Return a chat by its name, or the newest for None. Raises: WrongUse."""
    names = [each.name for each in kept_chats(folder)]
    if name is None and not names:
        raise WrongUse("there is no session to continue")
    if name is not None and name not in names:
        raise WrongUse(f"there is no session {one_line(name, 60)!r}{near(name, names)}")
    wanted = names[0] if name is None else name
    try:
        found = msgspec.json.decode((folder / f"{wanted}.json").read_bytes(), type=SavedChat)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise WrongUse(f"the session {wanted} cannot be read: {problem}") from None
    return msgspec.structs.replace(found, name=wanted)


class KeptChat:
    """Writes one conversation after each turn, under a name that is found when there is something to write."""

    def __init__(self, folder: Path, chat: Conversation, *, private: bool = False) -> None:
        """`private`: keep nothing."""
        self.folder = folder
        self.problem = ""
        self._chat = chat
        self._private = private
        self._name = self._title = ""

    def keep(self) -> None:
        """Write the conversation, if there is any."""
        messages = self._chat.messages
        if self._private or not messages:
            return
        if not self._title:  # of the first question, also after a summary took its place
            parts = [part for each in messages if isinstance(each, UserMessage) for part in each.parts]
            first = next((part.text for part in parts if isinstance(part, Text)), "")
            self._title = redact(one_line(first, _TITLE))
        saved = SavedChat(
            title=self._title,
            model=self._chat.model.name,
            count=len(messages),
            messages=messages,
            usage=self._chat.usage,
        )
        try:
            self._claim_name()
            new = self.folder / f"{self._name}.{os.getpid()}.new"
            with open_private(new, "backslashreplace") as file:  # halves of characters become JSON's own escapes
                json.dump(msgspec.to_builtins(saved), file, ensure_ascii=False)
            new.replace(self.folder / f"{self._name}.json")
        except OSError as error:
            self.problem = str(error.strerror or error)

    def begin(self) -> None:
        """Begin another chat; the one before stays as it was written."""
        self._chat.reset()
        self._name = self._title = ""

    def resume(self, found: SavedChat) -> None:
        """Go on with a chat that was kept."""
        self._chat.messages, self._chat.usage = list(found.messages), found.usage
        self._name, self._title = found.name, found.title

    @property
    def pictures(self) -> str | None:
        """The folder of this chat's pictures, which is made; None if nothing is kept."""
        if self._private:
            return None
        try:
            self._claim_name()
            path = self.folder / self._name
            path.mkdir(mode=_DIRECTORY, exist_ok=True)
        except OSError as error:
            self.problem = str(error.strerror or error)
            return None
        return str(path)

    def _claim_name(self) -> None:
        """Find a name for a new chat, and make room for it. Raises: OSError."""
        if self._name:
            return
        self.folder.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)
        base = time.strftime("%Y%m%d-%H%M%S")
        for number in range(1, 10_000):
            name = base if number == 1 else f"{base}-{number}"
            with suppress(FileExistsError):
                os.close(os.open(self.folder / f"{name}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                self._name = name
                break
        for old in kept_chats(self.folder)[_MOST:]:
            with suppress(OSError):
                (self.folder / f"{old.name}.json").unlink()
                for picture in (self.folder / old.name).glob("*"):
                    picture.unlink()
                (self.folder / old.name).rmdir()
