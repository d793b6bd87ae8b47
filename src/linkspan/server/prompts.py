"""Prompts, and completions for the arguments of prompts and resource templates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, TypeAlias, TypeGuard, Unpack, cast

import msgspec

from linkspan.errors import INVALID_PARAMS, RegistrationError, RemoteProtocolError
from linkspan.keywords import described_by, refusing
from linkspan.revisions.neutral import InputRequired, Outcome
from linkspan.schema.annotations import parse_docstring
from linkspan.server.content_blocks import blocks_of, changed, checked, is_block, meta_of
from linkspan.server.handlers import (
    Function,
    Handler,
    MountedItem,
    bound_method,
    compile_handler,
    from_text,
    is_function,
)
from linkspan.server.tools import PromptDefinition, check_name, defined, function_name, snake_case
from linkspan.server.visibility import Condition, When, check_scopes, check_tags, compile_condition
from linkspan.types.base import JSON, Icon, JSONObject, Meta, Role, is_mapping
from linkspan.types.messages import GetPromptResult, PromptArgument, PromptMessage
from linkspan.types.messages import Prompt as PromptShape

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}


def Message(role: str, content: object) -> PromptMessage:
    """Return a message of a prompt; a plain text becomes a text block. Raises: ValueError for another role."""
    known = _ROLES.get(role)
    if known is None:
        raise ValueError(f"role must be 'user' or 'assistant', got {role!r}")
    (block,) = blocks_of(content)
    return PromptMessage(role=known, content=block)


class PromptResult:
    """What a prompt gives: its messages, in order."""

    __slots__ = ("description", "messages", "meta")

    def __init__(self, messages: object = (), *, description: str | None = None, meta: Meta | None = None) -> None:
        """Take messages, texts (the user's) and content blocks, one or several. Raises: TypeError for anything else."""
        if not isinstance(description, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"description must be a string, not {type(description).__name__}")
        self.messages = messages_of(messages)
        self.description = description
        self.meta = meta_of(meta)

    def __repr__(self) -> str:
        return f"PromptResult({self.messages!r})"


class PromptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """All that describes a prompt beside its function, however the prompt was written."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    arguments: Sequence[PromptArgument] | None = None
    icons: Sequence[Icon] | None = None
    meta: Meta | None = None
    inline: bool = False
    tags: Collection[str] = ()
    when: When | None = None
    scopes: Collection[str] = ()


class Prompt:
    """A prompt. Subclass it and write `template`, or use `Prompt.define`.

    The class itself is the prompt. Its name is the class's in snake_case unless `name` (or `prompt_name`) says otherwise.
    `template(args, server_context)` gets all arguments as one mapping of texts.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str | None] = None
    description: ClassVar[str | None] = None
    arguments: ClassVar[Sequence[PromptArgument]] = ()
    icons: ClassVar[Sequence[Icon] | None] = None
    meta: ClassVar[Meta | None] = None
    inline: ClassVar[bool] = False
    tags: ClassVar[Collection[str]] = ()
    when: Any = None
    scopes: ClassVar[Collection[str]] = ()
    template: Any = None

    Argument: TypeAlias = PromptArgument
    Result: TypeAlias = PromptResult
    Message = staticmethod(Message)

    @refusing
    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        cls.name = own.get("name") or own.get("prompt_name") or snake_case(cls.__name__)
        check_name(cls.name, "prompt")

    @classmethod
    @described_by(PromptDefinition)
    def define(
        cls, *, name: str | None = None, handler: Function | None = None, **described: Unpack[PromptDefinition]
    ) -> Any:
        """Define a prompt in place: returns it, or without a `handler` a decorator that does. Raises: RegistrationError."""
        define = partial(defined, cls, "template", name, described)
        return define if handler is None else define(handler)


PromptSource: TypeAlias = type[Prompt] | Function


class BoundPrompt(msgspec.Struct, frozen=True):
    """A registered prompt."""

    spec: PromptShape
    handler: Handler
    derived: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    when: Condition | None = None
    scopes: tuple[str, ...] = ()
    mounted: MountedItem | None = None
    """What serves it, if that is a mounted server."""

    def decode(self, given: Mapping[str, str]) -> JSONObject:
        """Check the arguments: texts on the wire, what the hints say in the function.

        Raises: RemoteProtocolError (-32602) that names what is missing (PR-3), or ArgumentsInvalid.
        """
        missing = [each.name for each in self.spec.arguments or () if each.required and each.name not in given]
        if missing:
            raise RemoteProtocolError(INVALID_PARAMS, f"Missing required arguments: {', '.join(missing)}")
        properties: Mapping[str, JSON] = self.handler.parameters.json_schema.get("properties") or {}
        values = {name: from_text(text, properties.get(name)) for name, text in given.items()}
        return self.handler.parameters.decode_values(values).arguments

    def choices(self, argument: str) -> list[str]:
        """Return the values that the hint of an argument allows."""
        properties: Mapping[str, JSONObject] = self.handler.parameters.json_schema.get("properties") or {}
        return [str(value) for value in properties.get(argument, {}).get("enum", ())]

    def outcome(self, value: object) -> Outcome:
        """Turn what the template returned into a result. Raises: TypeError for what is no message."""
        if isinstance(value, InputRequired):
            return value
        if isinstance(value, GetPromptResult):
            return checked(changed(value, messages=messages_of(value.messages)))
        result = value if isinstance(value, PromptResult) else PromptResult(value)
        return GetPromptResult(
            messages=result.messages, description=result.description or self.spec.description, meta=result.meta
        )


def messages_of(value: object) -> list[PromptMessage]:
    """Return messages for a text, a content block, a message, a mapping in wire form, or several of them."""
    if isinstance(value, PromptMessage):
        return [Message(value.role, value.content)]
    if isinstance(value, str) or is_block(value):
        return [Message("user", value)]
    if is_mapping(value):
        return [Message(value.get("role", "user"), value.get("content"))]
    if isinstance(value, Iterable):
        return [message for each in cast("Iterable[object]", value) for message in messages_of(each)]
    raise TypeError(f"a prompt must return strings, content or messages, not {type(value).__name__}")


def bind_prompt(source: object, info: PromptInfo | None = None, *, provided: Sequence[type] = ()) -> BoundPrompt:
    """Turn a prompt, however it was written, into a registered one; `info` describes a function.

    `provided` are the classes of what lifespans yield. Raises: RegistrationError, TypeError.
    """
    if _is_class(source):
        template = bound_method(source, Prompt, "template")
        if template is None:
            raise RegistrationError(f"Prompt {source.__name__} has no template: write `def template(args)` in it")
        name, description = source.name, parse_docstring(vars(source).get("__doc__")).description
        members: dict[str, Any] = {each: getattr(source, each) for each in PromptInfo.__struct_fields__}
        members["when"] = bound_method(source, Prompt, "when") or members["when"]
        info = PromptInfo(**members)
        handler = compile_handler(
            template,
            schema=_schema_of(info.arguments),
            loose=True,
            checked="never",
            inline=info.inline,
            name=name,
            provided=provided,
            yields=True,
        )
    else:
        if not is_function(source):
            raise TypeError(f"a prompt is a function or a Prompt, not {type(source).__name__}")
        info = info or PromptInfo()
        name = function_name(source, info.name, "prompt")
        handler = compile_handler(source, inline=info.inline, name=name, provided=provided, yields=True)
        description = handler.parameters.description
    spec = PromptShape(
        name=name,
        title=info.title,
        description=info.description or description,
        arguments=list(info.arguments or _arguments_of(handler)) or None,
        icons=list(info.icons) if info.icons is not None else None,
        meta=info.meta,
    )
    tags, when, scopes = (
        check_tags(info.tags, name),
        compile_condition(info.when, name),
        check_scopes(info.scopes, name),
    )
    return BoundPrompt(spec, handler, tags=tags, when=when, scopes=scopes)


def _is_class(source: object) -> TypeGuard[type[Prompt]]:
    return isinstance(source, type) and issubclass(source, Prompt)


def _schema_of(arguments: Sequence[PromptArgument] | None) -> JSONObject | None:
    if not arguments:
        return None
    return {
        "type": "object",
        "properties": {each.name: {"type": "string"} for each in arguments},
        "required": [each.name for each in arguments if each.required],
    }


def _arguments_of(handler: Handler) -> list[PromptArgument]:
    """Describe a function's parameters as prompt arguments: texts, with or without a default."""
    schema = handler.parameters.json_schema
    required: Sequence[str] = schema.get("required") or ()
    properties: Mapping[str, JSONObject] = schema.get("properties") or {}
    return [
        PromptArgument(name, each.get("description"), True if name in required else None)
        for name, each in properties.items()
    ]
