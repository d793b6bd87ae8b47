"""What a tool answered, as the caller sees it, checked against the schema that the tool promised."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Never, TypeVar, overload

import msgspec
from msgspec import Raw, UnsetType

from linkspan.errors import RegistrationError
from linkspan.flows.client_errors import InvalidResponse, ServerOrigin, ToolFailed, hint_for_refusal
from linkspan.flows.state import ClientState, OutputCheck, ShownTools
from linkspan.text import clip, no_attribute
from linkspan.types.base import (
    JSON,
    META_PREFIX,
    UNSET,
    AudioContent,
    EmbeddedResource,
    ImageContent,
    JSONObject,
    Meta,
    ResourceLink,
    TextContent,
    UnknownContent,
    Wire,
)
from linkspan.types.messages import CallToolResult, StandsForResult, Tool
from linkspan.wire.values import decode_content

T = TypeVar("T")

NOT_LISTED: Final = "not checked: the tools were not listed, so the output schema is not known; call list_tools() first"
"""The problem of structured content whose tool is not known."""


class Head(msgspec.Struct, frozen=True, rename="camel"):
    """A tool's result as far as every caller needs it; content blocks are converted to their types on access."""

    content: list[JSONObject] = msgspec.field(default_factory=list[JSONObject])
    structured_content: JSON | UnsetType = UNSET
    is_error: bool | None = None
    result_type: str = "complete"
    meta: Meta | None = msgspec.field(default=None, name="_meta")


read_head = msgspec.json.Decoder(Head).decode


class ToolResult(StandsForResult):
    """What a tool answered.

    Attributes: `is_error`, `structured` (the JSON value beside the content, None if there is none), `meta`, `problems` (what
    does not fit the tool's output schema, or was not checked), `raw` (all of it, as it came).
    """

    __slots__ = ("_blocks", "_head", "_origin", "_tool", "problems", "raw")

    def __init__(
        self, head: Head, raw: bytes | Raw, origin: ServerOrigin, tool: str, problems: Sequence[str] = ()
    ) -> None:
        self._head = head
        self._origin = origin
        self._tool = tool
        self._blocks: list[Wire] | None = None
        self.raw = raw
        self.problems = problems

    def __repr__(self) -> str:
        """Show what matters in a debugger."""
        whole = repr(self.structured) if self.has_structured else ", ".join(map(_brief, self.content))
        shown = clip(whole, 200, "...")
        return f"ToolResult({'is_error=True' + ', ' * bool(shown) if self.is_error else ''}{shown})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            from linkspan.habits import RESULT

            raise no_attribute(self, name, RESULT)

    def _repr_html_(self) -> str | None:  # what notebooks look for, as the next one
        from linkspan.types.display import html

        return html(self._shown())

    def _repr_markdown_(self) -> str | None:
        from linkspan.types.display import markdown

        return markdown(self._shown())

    def _shown(self) -> list[object]:
        from linkspan.types.display import result_parts

        return result_parts(self.content, self.structured, has_structured=self.has_structured, is_error=self.is_error)

    @property
    def is_error(self) -> bool:
        """Whether the tool failed; then `text` gives the reason, in words for the model."""
        return bool(self._head.is_error)

    @property
    def structured(self) -> JSON:
        """The structured content, as it came; None if there is none (`has_structured` tells null from nothing)."""
        found = self._head.structured_content
        return None if found is UNSET else found

    @property
    def has_structured(self) -> bool:
        """Whether the tool sent structured content."""
        return self._head.structured_content is not UNSET

    @property
    def meta(self) -> Mapping[str, JSON]:
        """The result's `_meta`."""
        return self._head.meta or {}

    @property
    def content(self) -> list[Wire]:
        """The content blocks, by type; a block of an unknown type, or a broken one, is an `UnknownContent`."""
        if self._blocks is None:
            self._blocks = [_block(each) for each in self._head.content]
        return self._blocks

    @property
    def text(self) -> str:
        """All the texts in the content, one after the other, with a newline between them."""
        texts = [each.get("text") for each in self._head.content if each.get("type") == "text"]
        return "\n".join(each for each in texts if isinstance(each, str))

    @overload
    def decode(self, kind: type[T]) -> T: ...
    @overload
    def decode(self, kind: object) -> Any: ...
    def decode(self, kind: object) -> Any:
        """Return the answer as a value of `kind`: a class, or any type hint that a tool may have.

        Taken from the structured content, else from the text if it is JSON, else the text itself. A value that its server
        wrapped as `{"result": ...}` is unwrapped. Raises: ToolFailed for an error result, InvalidResponse if it does not fit.
        """
        self.raise_for_error()
        from linkspan.flows.decoding import Misfit, decode_as

        values = [self.structured] if self.has_structured else [*_json_in(self.text), self.text]
        try:
            return decode_as(kind, values)
        except Misfit as problem:
            raise InvalidResponse(
                f"the result of tool {self._tool!r} is not a valid {getattr(kind, '__name__', kind)}: {problem}",
                self._origin,
                delivery="answered",
            ) from None

    def as_result(self) -> CallToolResult:
        """Return what a server of your own sends, when a tool of it returns this: all but what concerns the connection.

        Keys of the protocol in `_meta` are left out, for they describe the server that answered.
        """
        meta = {key: value for key, value in self.meta.items() if not key.startswith(META_PREFIX)}
        return CallToolResult(
            content=list(self.content),
            structured_content=self._head.structured_content,
            is_error=self._head.is_error,
            meta=meta or None,
        )

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the pictures, sounds and embedded files into new files of `folder`; return their paths, in order.

        The files are called `result-1.png` and so on: the end by the media type, the number the next that is free. Raises:
        OSError; ValueError for data that is not valid base64.
        """
        from linkspan.flows.saving import save_blocks

        return save_blocks(self.content, folder)

    def raise_for_error(self) -> ToolResult:
        """Return this result, or raise. Raises: ToolFailed if the tool answered with an error."""
        if not self.is_error:
            return self
        raise ToolFailed(
            f"tool {self._tool!r} failed: {self.text or 'it gave no reason'}",
            self._origin,
            delivery="answered",
            message=self.text,
            data=self.structured,
            hint=hint_for_refusal(self.text),
        )


def _brief(block: Wire) -> str:
    """Return a block as the repr of a result shows it: a text as it is, anything else by its type and size."""
    match block:
        case TextContent(text):
            return repr(text)
        case ImageContent(data, kind) | AudioContent(data, kind):
            return f"<{kind}, {len(data) * 3 // 4 - data[-2:].count('=')} bytes>"
        case EmbeddedResource(resource):
            return f"<resource {resource.uri}>"
        case ResourceLink(uri):
            return f"<resource_link {uri}>"
        case _:
            return f"<{getattr(block, 'type', 'block')}>"


def _json_in(text: str) -> list[JSON]:
    try:
        return [msgspec.json.decode(text)]
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return []


def _block(members: JSONObject) -> Wire:
    try:
        return decode_content(members)
    except msgspec.ValidationError:
        return UnknownContent(members)


def unlisted(state: ClientState, catalogue: ShownTools, head: Head) -> Sequence[str]:
    """Return the problems of a result whose tool is not in the catalogue: what was promised for it is not known."""
    promised = head.structured_content is not UNSET and not head.is_error and not catalogue.tools_are_complete
    return (NOT_LISTED,) if promised and state.options.check_output != "off" else ()


def check_output(state: ClientState, catalogue: ShownTools, tool: Tool, head: Head) -> Sequence[str]:
    """Return what is wrong with a result's structured content; nothing if it fits, is an error, or is not to be checked.

    What could not be checked here is listed too. Raises: InvalidResponse if the client is strict and anything is listed.
    """
    wanted = state.options.check_output
    if wanted == "off" or head.is_error or tool.output_schema is None:
        return ()
    if head.structured_content is UNSET:
        problems: Sequence[str] = ("the tool has an output schema, but sent no structured content",)
    else:
        check = catalogue.output_checks.get(tool.name) or _compiled(catalogue, tool)
        problems = [str(each) for each in check(head.structured_content)]
    if problems and wanted == "strict":
        raise InvalidResponse(
            f"the structured output of tool {tool.name!r} does not fit its schema: {'; '.join(problems)}",
            state.origin,
            delivery="answered",
            hint="report it to the server's author, or pass check_output='lenient' [LS-302]",
        )
    return problems


def _compiled(catalogue: ShownTools, tool: Tool) -> OutputCheck:
    assert tool.output_schema is not None
    check = _check(tool.output_schema)
    if catalogue.tools.get(tool.name) is tool:
        catalogue.output_checks[tool.name] = check
    return check


def _check(schema: JSONObject) -> OutputCheck:
    """Return what checks a value, and names the parts of the schema that it does not check."""
    from linkspan.schema.validate import compile_foreign

    try:
        validator = compile_foreign(schema)
    except RegistrationError as problem:
        unusable = f"not checked: {problem}"
        return lambda _: (unusable,)
    if not validator.left_out:
        return validator.check
    names = ", ".join(f'"{each}"' for each in validator.left_out)
    note = f"not checked: {names} in the tool's output schema{validator.advice}"
    return lambda value: (*validator.check(value), note)
