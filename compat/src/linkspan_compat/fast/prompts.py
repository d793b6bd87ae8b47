"""Prompts of FastMCP."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from linkspan_compat.errors import FastMCPError, MCPError, PromptError
from linkspan_compat.fast.tools import Component, as_text, check_parameters, mark, name_of, run_function
from linkspan_compat.flavours import fast_version
from linkspan_compat.protocol.current import TYPES
from linkspan_compat.server.components import PromptArgument, present
from linkspan_compat.server.requests import plain

if TYPE_CHECKING:
    from linkspan_compat.fast.signatures import Signature

__all__ = ["FunctionPrompt", "Message", "Prompt", "PromptArgument", "PromptResult", "prompt"]

logger = logging.getLogger("fastmcp.prompts")


class Message:
    """A message of a prompt: texts and blocks as they are, anything else as JSON."""

    def __init__(self, content: Any, role: str = "user") -> None:
        from linkspan_compat.server.results import is_block

        if isinstance(content, str):
            content = {"type": "text", "text": content}
        elif not is_block(content):
            content = {"type": "text", "text": as_text(content)}
        self._content: Any = content
        self.role = role

    @property
    def content(self) -> Any:
        """The content, as a model."""
        if isinstance(self._content, dict):
            self._content = TYPES["TextContent"].model_validate(self._content)
        return self._content

    def __eq__(self, other: object) -> bool:
        """Return whether another message has the same role and content."""
        if not isinstance(other, Message):
            return NotImplemented
        return (self.role, self.content) == (other.role, other.content)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Show what it says."""
        return f"Message(content={self.content!r}, role={self.role!r})"

    def to_mcp_prompt_message(self) -> Any:
        """Return it as a model."""
        return TYPES["PromptMessage"](role=self.role, content=self.content)

    def sent(self) -> dict[str, Any]:
        """Return it as it is sent."""
        return {"role": self.role, "content": self._content}


class PromptResult:
    """The messages of a prompt, with a description and `_meta`."""

    def __init__(self, messages: Any, description: str | None = None, meta: dict[str, Any] | None = None) -> None:
        self.messages: list[Any] = (
            [Message(messages)] if isinstance(messages, str) else [_message(each) for each in messages]
        )
        self.description = description
        self.meta = meta

    def sent(self) -> dict[str, Any]:
        """Return it as it is sent."""
        messages = [each.sent() if isinstance(each, Message) else each for each in self.messages]
        return present({"messages": messages, "description": self.description, "_meta": self.meta})

    def to_mcp_prompt_result(self) -> Any:
        """Return it as a model."""
        return TYPES["GetPromptResult"].model_validate(plain(self.sent()))


class _AskingPromptResult(PromptResult):
    """A prompt asks for input as its result."""

    def __init__(self, input_required: Any) -> None:
        super().__init__([])
        self.input_required = input_required

    def sent(self) -> Any:
        """Return the request for input."""
        return self.input_required


def _message(found: Any) -> Any:
    if isinstance(found, Message):
        return found
    if hasattr(found, "role") and hasattr(found, "content"):
        return found if hasattr(found, "model_dump") else Message(found.content, found.role)
    if isinstance(found, str):
        return Message(found)
    if fast_version() == "2":
        if isinstance(found, dict) and "role" in found:
            return Message(TYPES["PromptMessage"].model_validate(found).content, found["role"])
        return Message(found)
    raise TypeError(
        f"messages[...] must be Message or str, got {type(found).__name__}. Use Message({found!r}) to wrap the value."
    )


class Prompt(Component):
    """A prompt: `render` gives its messages."""

    noun = "prompt"
    arguments: list[PromptArgument]

    def __init__(self, name: str | None = None, arguments: Any = None, **described: Any) -> None:
        self._describe(name or type(self).__name__, described)
        if arguments is not None:
            self.arguments = list(arguments)

    @classmethod
    def from_function(cls, fn: Callable[..., Any], **described: Any) -> FunctionPrompt:
        """Make a prompt of a function."""
        return FunctionPrompt(fn, **described)

    def listed(self) -> dict[str, Any]:
        """Return the prompt as it is listed."""
        found = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "arguments": [present(dict(vars(each))) for each in self.arguments],
            "icons": self.icons,
            "_meta": self.get_meta(),
        }
        return present(found)

    def to_mcp_prompt(self, **overrides: Any) -> Any:
        """Return it as a model."""
        return TYPES["Prompt"].model_validate({**plain(self.listed()), **overrides})

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Return the messages."""
        raise NotImplementedError("Subclasses must implement render()")

    def convert_result(self, value: Any) -> PromptResult:
        """Return what the function gave as messages. Raises: TypeError."""
        if isinstance(value, PromptResult):
            return value
        if type(value).__name__ == "InputRequiredResult":
            return _AskingPromptResult(value)
        if isinstance(value, str):
            return PromptResult(value, self.description, self._result_meta())
        if isinstance(value, Message) or (fast_version() == "2" and not isinstance(value, list | tuple)):
            value = [value]
        if isinstance(value, list | tuple):
            return PromptResult(value, self.description, self._result_meta())
        if hasattr(value, "role") and hasattr(value, "content"):
            return PromptResult([value], self.description, self._result_meta())
        raise TypeError(f"Prompt must return str, list[Message | str], or PromptResult, got {type(value).__name__}")

    def _result_meta(self) -> dict[str, Any] | None:
        return self.meta


class FunctionPrompt(Prompt):
    """A function as a prompt."""

    def __init__(self, fn: Callable[..., Any], name: str | None = None, **described: Any) -> None:
        self.fn = fn
        self._describe(name_of(fn, name), described)
        if self.description is None:
            del self.description
        check_parameters(fn, "prompt")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call the function."""
        return self.fn(*args, **keywords)

    @cached_property
    def signature(self) -> Signature:
        """What is known of the function."""
        from linkspan_compat.fast.signatures import Signature

        return Signature(self.fn)

    @cached_property
    def description(self) -> str | None:  # type: ignore[override]
        """What the docstring says."""
        return self.signature.docstring.description

    @cached_property
    def arguments(self) -> list[PromptArgument]:  # type: ignore[override]
        """The arguments, whose descriptions say how to write what is no text."""
        schema = self.signature.parameters
        required = schema.get("required", ())
        return [
            PromptArgument(name, self._described(name, each.get("description")), name in required)
            for name, each in schema.get("properties", {}).items()
        ]

    def _described(self, name: str, text: str | None) -> str | None:
        parameter = inspect.signature(self.signature.fn).parameters.get(name)
        if parameter is None or parameter.annotation is inspect.Parameter.empty or parameter.annotation is str:
            return text
        from pydantic import TypeAdapter

        try:
            schema = json.dumps(TypeAdapter(parameter.annotation).json_schema(), separators=(",", ":"))
        except Exception:
            return text
        note = (
            f"Provide a value matching the following JSON schema: {schema}. Encode non-string values as JSON."
            if fast_version() == "4"
            else f"Provide as a JSON string matching the following schema: {schema}"
        )
        return f"{text}\n\n{note}" if text else note

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        """Call the function with texts read as what it takes. Raises: PromptError."""
        given = dict(arguments or {})
        missing = {each.name for each in self.arguments if each.required} - given.keys()
        if missing:
            raise ValueError(f"Missing required arguments: {missing}")
        try:
            kept = {each.name: each for each in self.signature.kept}
            read = {name: self._read(kept[name], value) for name, value in given.items() if name in kept}
            keywords = self.signature.arguments(read)
            if not self.signature.injected:
                return self.convert_result(await run_function(self.signature.fn, keywords))
            from linkspan_compat.fast.dependencies import supplied

            async with supplied(self.signature.injected) as values:
                return self.convert_result(await run_function(self.signature.fn, {**keywords, **values}))
        except (FastMCPError, MCPError):
            raise
        except Exception as error:
            logger.exception("Error rendering prompt %s", self.name)
            raise PromptError(f"Error rendering prompt {self.name!r}: {error}") from error

    def _read(self, parameter: inspect.Parameter, value: Any) -> Any:
        if parameter.annotation is inspect.Parameter.empty or not isinstance(value, str):
            return value
        from pydantic import TypeAdapter, ValidationError

        adapter: TypeAdapter[Any] = TypeAdapter(parameter.annotation)
        try:
            try:
                found = adapter.validate_python(value)
            except ValidationError:
                return adapter.validate_json(value)
            if isinstance(found, str):
                return found
            try:
                return adapter.validate_json(value)
            except ValueError:
                return found
        except (ValueError, TypeError) as error:
            raise PromptError(
                f"Could not convert argument '{parameter.name}' with value '{value}' "
                f"to expected type {parameter.annotation}. Error: {error}"
            ) from error


def prompt(name_or_fn: Any = None, *, name: str | None = None, **described: Any) -> Any:
    """Mark a function as a prompt, to be added with `mcp.add_prompt`."""
    if callable(name_or_fn):
        return mark("prompt", name_or_fn, {"name": name, **described})
    chosen = name_or_fn or name
    return lambda function: mark("prompt", function, {"name": chosen, **described})
