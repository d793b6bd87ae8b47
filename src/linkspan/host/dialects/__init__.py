"""How each provider writes what `host.messages` says. Pure functions and machines: no I/O, no clock, no keys of anybody.

A dialect encodes a request, and reads what comes back; whoever carries the bytes (`HttpModel`, `SdkModel`) is no concern of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from linkspan.host.messages import ModelEvent, ModelRequest, ToolAnswer, ToolSpec, ToolUse
from linkspan.types.base import JSON, JSONObject

__all__ = ["Dialect", "StreamDecoder"]


class StreamDecoder(Protocol):
    """Reads one message as it comes."""

    @property
    def complete(self) -> bool:
        """Tell whether the provider said that nothing more comes."""
        ...

    def feed(self, event: JSON) -> list[ModelEvent]:
        """Take one event of the stream, or a whole answer; return what it adds. Raises: ModelError."""
        ...

    def end(self, *, done: bool = False) -> list[ModelEvent]:
        """Return the last events: tool uses and what is opaque, in their order, then `Finished`.

        `done`: whoever carries the stream knows that it was not cut off. Raises: ModelError if it was.
        """
        ...


class Dialect(Protocol):
    """One wire format."""

    @property
    def provider(self) -> str:
        """Whose opaque parts go back to it."""
        ...

    def path(self, model: str) -> str:
        """Return where to POST, below the base URL."""
        ...

    def headers(self, key: str | None) -> Mapping[str, str]:
        """Return the headers that carry the key, and those that the provider demands."""
        ...

    def encode_request(self, request: ModelRequest, model: str) -> JSONObject:
        """Return the whole body, for an answer that streams."""
        ...

    def encode_tools(self, tools: Sequence[ToolSpec]) -> tuple[list[JSONObject], list[str]]:
        """Return tools as the provider wants them, and in words what their schemas lost."""
        ...

    def encode_answer(self, answer: ToolAnswer) -> JSONObject:
        """Return what came of one call as the provider wants it."""
        ...

    def read_tool_use(self, value: object, tools: Sequence[ToolSpec] = ()) -> ToolUse:
        """Read a tool use from the provider's JSON or its SDK's object. `tools` are those that the model was shown.

        Raises: ValueError for something else.
        """
        ...

    def decoder(self, request: ModelRequest) -> StreamDecoder:
        """Return what reads the answer to this request."""
        ...
