"""`ScriptedModel`: a model that replies from a script, for tests and for work without a network.

A script is a file of lines, each a JSON object: one message of the model. `docs/models.md` has an example.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from linkspan.host.dialects.shared import Ids, Reason
from linkspan.host.messages import (
    AssistantMessage,
    Finished,
    ModelError,
    ModelEvent,
    ModelRequest,
    Opaque,
    Text,
    TextDelta,
    ThoughtDelta,
    ToolMessage,
    ToolUse,
    Usage,
    UserMessage,
)
from linkspan.types.base import JSON, JSONObject, is_object

_PIECE: Final = re.compile(r"\S+\s*|\s+")


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call in a script."""

    name: str
    arguments: JSONObject = msgspec.field(default_factory=dict[str, Any])


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of a script: one message of the model."""

    say: str = ""
    """The words; `{last}` stands for the text of the last message."""
    think: str = ""
    call: Sequence[ScriptedCall] = ()
    when: str | None = None
    """Wait until the last message contains this text, in upper or lower case."""
    again: bool = False
    """Stay, to be used whenever it fits."""


Reply: TypeAlias = str | ToolUse | Line | ModelError | Sequence[str | ToolUse | Opaque]
"""Words, a call, several of them in their order, a line of a script, or an error to raise."""


def use(name: str, /, **arguments: Any) -> ToolUse:
    """Return a tool use for a script; it gets an id when the model says it."""
    return ToolUse("", name, arguments)


class ScriptedModel:
    """A model that gives these replies, one after the other; `requests` is what it was asked.

    model = ScriptedModel([use("roll", sides=6), "You rolled a four."])
    """

    def __init__(
        self, replies: Iterable[Reply | Callable[[ModelRequest], Reply]], *, name: str = "scripted:replies"
    ) -> None:
        """Give `replies`; a function is called with the request, and returns one."""
        self.name = name
        self.requests: list[ModelRequest] = []
        self._replies = list(replies)
        self._given = 0

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Return the next message, word by word. Raises: ModelError when the script is at its end."""
        self.requests.append(request)
        last = last_words(request)
        reply = self._choose(last)
        if callable(reply):
            reply = reply(request)
        if isinstance(reply, ModelError):
            raise reply
        if isinstance(reply, Line):
            for piece in _PIECE.findall(reply.think):
                yield ThoughtDelta(piece)
            calls = (ToolUse("", call.name, call.arguments) for call in reply.call)
            parts: Sequence[str | ToolUse | Opaque] = [reply.say.replace("{last}", last), *calls]
        else:
            parts = [reply] if isinstance(reply, str | ToolUse) else reply
        ids = Ids(request)
        said = "".join(part for part in parts if isinstance(part, str))
        for piece in _PIECE.findall(said):
            yield TextDelta(piece)
        for part in parts:
            if not isinstance(part, str):
                yield msgspec.structs.replace(part, id=ids.take(part.id)) if isinstance(part, ToolUse) else part
        reason: Reason = "tool_use" if any(isinstance(part, ToolUse) for part in parts) else "end"
        yield Finished(reason, Usage(output_tokens=len(said.split())))

    def _choose(self, last: str) -> Reply | Callable[[ModelRequest], Reply]:
        """Take the first reply that fits."""
        for place, reply in enumerate(self._replies):
            if isinstance(reply, Line) and reply.when is not None and reply.when.lower() not in last.lower():
                continue
            self._given += 1
            return reply if isinstance(reply, Line) and reply.again else self._replies.pop(place)
        rest = f", and none of the {len(self._replies)} left fits" if self._replies else ""
        raise ModelError(f"{self.name}: the script has no further reply: it gave {self._given}{rest}")


def read_script(path: str | Path) -> list[Line]:
    """Read a script; empty lines, and lines that begin with #, are passed over. Raises: OSError; ValueError."""
    lines: list[Line] = []
    for number, text in enumerate(Path(path).read_text("utf-8", "replace").splitlines(), 1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        try:
            value: JSON = msgspec.json.decode(text)
            if is_object(value) and is_object(value.get("call")):  # a single call need not stand in a list
                value = value | {"call": [value["call"]]}
            lines.append(msgspec.convert(value, Line))
        except msgspec.DecodeError as error:
            raise ValueError(f"line {number} of {str(path)!r} is not a valid message: {error}") from None
    return lines


def last_words(request: ModelRequest) -> str:
    """Return the text of the last message: what the person said, or what the tools answered."""
    last = request.messages[-1] if request.messages else UserMessage(())
    if isinstance(last, ToolMessage):
        return "\n".join(answer.text for answer in last.answers)
    if isinstance(last, AssistantMessage):
        return last.text
    return "\n".join(part.text for part in last.parts if isinstance(part, Text))
