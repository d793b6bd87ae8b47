"""Tools: as decorated functions, as classes, and defined in place. All become one thing when they are registered.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeGuard, Unpack, cast

import msgspec
from msgspec import Raw

from linkspan.errors import RegistrationError
from linkspan.keywords import Keywords, described_by, refusing
from linkspan.revisions.neutral import EncodedToolResult, InputRequired, Outcome
from linkspan.revisions.stepdown import is_stated
from linkspan.schema.annotations import is_class, parse_docstring, return_hint
from linkspan.schema.refusals import refusals
from linkspan.schema.results import ResultShape, compile_result, encode_json
from linkspan.server.content_blocks import BYTES, blocks_of, changed, content_types, is_content, meta_of
from linkspan.server.handlers import Function, Handler, MountedItem, bound_method, compile_handler, is_function
from linkspan.server.task_settings import Task, task_of
from linkspan.server.visibility import Condition, When, check_scopes, check_tags, compile_condition
from linkspan.types.base import JSON, UNSET, Icon, JSONObject, Meta, TextContent, UnsetType, Wire
from linkspan.types.messages import CallToolResult, StandsForResult, ToolAnnotations
from linkspan.types.messages import Tool as ToolShape
from linkspan.wire.jsonrpc import encode

if TYPE_CHECKING:
    from linkspan.schema.validate import Checked, Validator
    from linkspan.types.messages import PromptArgument

_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_LONGEST_NAME = 128
_SCALARS = frozenset({int, float, bool, str, dict})
_EXACT = (int, bool)


class Description(Keywords, total=False):
    """What describes a tool, a prompt or a resource besides its name."""

    title: str | None
    description: str | None
    icons: Sequence[Icon] | None
    meta: Meta | None
    inline: bool
    tags: Collection[str]
    when: When | None
    scopes: Collection[str]


class ToolDescription(Description, total=False):
    """What describes a tool besides its name and its arguments."""

    annotations: ToolAnnotations | Mapping[str, JSON] | None
    output_schema: Mapping[str, JSON] | UnsetType | None
    structured: bool
    hold: bool
    timeout: float | None
    concurrency: int | None
    max_waiting: int
    isolated: bool
    processes: int
    memory: int | None
    task: bool | Task | None


class _NamedTool(Keywords, total=False):
    name: str | None


class ToolKeywords(_NamedTool, ToolDescription, total=False):
    """What `Server.tool` takes beside the function."""


class ToolDefinition(ToolDescription, total=False):
    """What `Server.define_tool` and `Tool.define` take beside the name and the function."""

    input_schema: Mapping[str, JSON] | str | None


class PromptKeywords(_NamedTool, Description, total=False):
    """What `Server.prompt` takes beside the function."""


class PromptDefinition(Description, total=False):
    """What `Server.define_prompt` and `Prompt.define` take beside the name and the function."""

    arguments: Sequence[PromptArgument] | None


MAX_WAITING: Final = 100
"""How many calls of a tool with `concurrency=` wait for their turn unless it says another number."""


class ToolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """All that describes a tool beside its function, however the tool was written."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    input_schema: Mapping[str, JSON] | str | None = None
    output_schema: Mapping[str, JSON] | UnsetType | None = UNSET
    """Unset: what the hints say. None: no structured content."""
    structured: bool = True
    annotations: ToolAnnotations | Mapping[str, JSON] | None = None
    icons: Sequence[Icon] | None = None
    meta: Meta | None = None
    inline: bool = False
    hold: bool = False
    """Whether it waits at its questions, instead of running again with the answers."""
    tags: Collection[str] = ()
    """What `disable` and `enable` may call it besides its name."""
    when: When | None = None
    """Which callers see it; None for all."""
    scopes: Collection[str] = ()
    """What the token of a call needs, where the server verifies tokens."""
    timeout: float | None = None
    """Seconds that a call may take."""
    concurrency: int | None = None
    """How many calls run at once; None for as many as come."""
    max_waiting: int = MAX_WAITING
    """How many calls wait for their turn; further ones are refused."""
    isolated: bool = False
    """Run it in a process of its own."""
    processes: int = 1
    """How many such processes there are at most."""
    memory: int | None = None
    """Bytes of address space that such a process may have."""
    task: bool | Task | None = None
    """Whether and how it runs as a task for clients that declare the extension."""

    @property
    def has_limits(self) -> bool:
        """Whether any limit is given, one that makes no sense too."""
        return self.isolated or any(getattr(self, name) != default for name, default in _NO_LIMITS.items())


_NO_LIMITS = {"timeout": None, "concurrency": None, "max_waiting": MAX_WAITING, "processes": 1, "memory": None}


class ToolResponse:
    """What a tool answers, said in full: `ToolResponse([{"type": "text", "text": "OK"}])`."""

    __slots__ = ("content", "is_error", "meta", "structured_content")

    def __init__(
        self,
        content: object = (),
        is_error: bool = False,
        *,
        structured_content: JSON | UnsetType = UNSET,
        meta: Meta | None = None,
    ) -> None:
        """Take texts, content objects and mappings in wire form, mixed. Raises: TypeError for other content."""
        if not isinstance(is_error, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"is_error is True or False, not {is_error!r}")
        self.content = blocks_of(content)
        self.is_error = is_error
        self.structured_content = structured_content
        self.meta = meta_of(meta)

    def __repr__(self) -> str:
        return f"ToolResponse({'is_error=True, ' if self.is_error else ''}{self.content!r})"


class Tool:
    """A tool. Subclass it and write `call`, or use `Tool.define`.

    The class itself is the tool; it is never instantiated. Its name is the class's in snake_case unless `name` says
    otherwise. `input_schema` may be left out where the hints of `call` say it all, and so may `output_schema`; as
    `output_schema = None` or `structured = False`, results have no structured content.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str | None] = None
    description: ClassVar[str | None] = None
    input_schema: ClassVar[Mapping[str, JSON] | str | None] = None
    output_schema: ClassVar[Mapping[str, JSON] | None] = None
    structured: ClassVar[bool] = True
    annotations: ClassVar[ToolAnnotations | Mapping[str, JSON] | None] = None
    icons: ClassVar[Sequence[Icon] | None] = None
    meta: ClassVar[Meta | None] = None
    inline: ClassVar[bool] = False
    tags: ClassVar[Collection[str]] = ()
    when: Any = None
    scopes: ClassVar[Collection[str]] = ()
    hold: ClassVar[bool] = False
    timeout: ClassVar[float | None] = None
    concurrency: ClassVar[int | None] = None
    max_waiting: ClassVar[int] = 100
    isolated: ClassVar[bool] = False
    processes: ClassVar[int] = 1
    memory: ClassVar[int | None] = None
    task: ClassVar[bool | Task | None] = None
    call: Any = None

    Response: TypeAlias = ToolResponse
    Annotations: TypeAlias = ToolAnnotations

    @refusing
    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        cls.name = own.get("name") or own.get("tool_name") or snake_case(cls.__name__)
        check_name(cls.name, "tool")
        coerce_annotations(cls.annotations)
        _check_schemas(cls.name, own.get("input_schema"), own.get("output_schema"))

    @classmethod
    @described_by(ToolDefinition)
    def define(
        cls, *, name: str | None = None, handler: Function | None = None, **described: Unpack[ToolDefinition]
    ) -> Any:
        """Define a tool in place: returns it, or without a `handler` a decorator that does.

        The handler takes keywords, one mapping `(args)`, or `(args, server_context)`. Raises: RegistrationError.
        """
        define = partial(defined, cls, "call", name, described)
        return define if handler is None else define(handler)


def defined(kind: type, member: str, name: str | None, described: Mapping[str, Any], function: Function) -> Any:
    """Return a new subclass of `kind` with what describes it, and with `function` under `member`."""
    chosen = name or own_name(function)
    members = {key: value for key, value in described.items() if value is not UNSET}
    return type(chosen, (kind,), members | {"name": chosen, member: staticmethod(function)})


def _check_schemas(name: str, given: Mapping[str, JSON] | str | None, promised: Mapping[str, JSON] | None) -> None:
    """Refuse hand-written schemas that are not valid where they are written (C-3). Raises: RegistrationError."""
    if given is None and promised is None:
        return
    from linkspan.schema.validate import check_schema, input_schema

    try:
        for schema in (input_schema(given) if given is not None else None, promised):
            if schema is not None:
                check_schema(schema)
    except RecursionError:
        raise RegistrationError(f"{name}: the schema is nested too deeply; flatten it") from None
    except RegistrationError as problem:
        raise RegistrationError(f"{name}: {problem}") from None


ToolSource: TypeAlias = type[Tool] | Function


class BoundTool(msgspec.Struct, frozen=True):
    """A registered tool: everything that a call needs, decided before the first one."""

    spec: ToolShape
    handler: Handler
    shape: ResultShape | None = None
    output_check: Validator | None = None
    structured: bool = True
    derived: tuple[str, ...] = ()
    """The members of its shape that follow from hints."""
    exact: type | None = None
    """The return type, if it is one whose values keep the promise by their type alone."""
    is_plain: bool = False
    """The function needs nothing but its arguments, and dependencies without a context; nothing else of the author's runs."""
    tags: frozenset[str] = frozenset()
    when: Condition | None = None
    scopes: tuple[str, ...] = ()
    task: Task | None = None
    """How it runs as a task, if it may."""
    mounted: MountedItem | None = None
    """What serves it, if that is a mounted server."""

    def outcome(self, value: object) -> Outcome:
        """Turn what the function returned into a result.

        Raises: TypeError, ValueError or msgspec errors for a value that cannot be sent: the author's mistake.
        """
        kind, shape = type(value), self.shape
        if kind is self.exact:
            body = encode_json(value)
            return EncodedToolResult(b'"%b"' % body, body, True)
        if kind is str and self.spec.output_schema is None:
            return EncodedToolResult(encode(value))
        if kind is InputRequired:
            return cast("InputRequired", value)
        if isinstance(value, StandsForResult):
            value = value.as_result()
        if isinstance(value, CallToolResult):
            return self._kept(_from_result(value))
        if isinstance(value, ToolResponse):
            return self._kept(_from_response(value))
        more = BYTES if self.spec.output_schema is None else ()
        if shape is not None and shape.json_schema is not None and (kind in _SCALARS or not is_content(value, more)):
            is_text = kind is str
            body = encode(value) if is_text and shape.is_text else shape.encode(value)
            text = body if is_text else encode(body.decode())
            return EncodedToolResult(text, body, shape.wrapped)
        return self._kept(_from_value(value, f"result:{self.spec.name}", structured=self.structured))

    def _kept(self, result: CallToolResult) -> CallToolResult:
        """Hold what a function made by itself to the output schema that its return type promised (TOOL-5).

        Raises: TypeError for an answer that clients would refuse.
        """
        if self.shape is None or self.spec.output_schema is None or result.is_error:
            return result
        structured = result.structured_content
        if structured is UNSET:
            raise TypeError(
                "the return type promises structured content, but the function returned content only: "
                "return a value of that type, or write `-> ToolResponse` or the type of the content"
            )
        self.shape.check(msgspec.json.decode(structured) if isinstance(structured, Raw) else structured)
        return result

    def checked_outcome(self, value: object) -> Outcome:
        """Do the same, and hold a hand-written output schema to its word (TOOL-5). Raises: ValueError too."""
        result = self.outcome(value)
        if self.output_check is None or not isinstance(result, CallToolResult) or result.is_error:
            return result
        structured = result.structured_content
        found: JSON = msgspec.json.decode(structured) if isinstance(structured, Raw) else structured
        problems = self.output_check.check(None if found is UNSET else found)
        if problems:
            listed = "; ".join(f"{each.path} {each.message}".strip() for each in problems)
            raise ValueError(f"the result of tool {self.spec.name!r} does not fit its output schema: {listed}")
        return result


def _from_result(result: CallToolResult) -> CallToolResult:
    """Hold a result that an author made by hand to its shape; clients choke on what does not fit."""
    structured = result.structured_content
    if structured is not UNSET and not isinstance(structured, Raw):
        structured = Raw(encode_json(structured))
    if result.is_error not in (None, True, False):
        raise TypeError(f"is_error is True or False, not {result.is_error!r}")
    return changed(result, content=blocks_of(result.content), structured_content=structured, meta=meta_of(result.meta))


def _from_response(response: ToolResponse) -> CallToolResult:
    structured = response.structured_content
    content = response.content
    if structured is not UNSET:
        encoded = encode_json(structured)
        text = encoded.decode()
        # Older clients read an object as it is; what they cannot read stands in a text, too (TOOL-4).
        is_object = text.startswith("{")
        if not content or not (is_object or is_stated(_texts(content), text)):
            content = [*content, TextContent(text)]
        structured = Raw(encoded)
    return CallToolResult(
        content=content, structured_content=structured, is_error=response.is_error or None, meta=response.meta
    )


def _texts(content: Sequence[Wire]) -> list[str]:
    return [each.text for each in content if isinstance(each, TextContent)]


def _from_value(value: object, uri: str, *, structured: bool) -> CallToolResult:
    """Guess from the value itself, where hints say nothing."""
    if value is None:
        return CallToolResult(content=[])
    if isinstance(value, str):
        return CallToolResult(content=[TextContent(value)])
    if isinstance(value, BYTES) or is_content(value, BYTES):
        if isinstance(value, list | tuple):  # what is neither content nor a text is written as JSON
            kinds = (str, *BYTES, *content_types())
            parts = cast("Sequence[object]", value)
            value = [each if isinstance(each, kinds) else encode_json(each).decode() for each in parts]
        return CallToolResult(content=blocks_of(value, uri))
    encoded = encode_json(value)
    text = TextContent(encoded.decode())
    if structured and encoded.startswith(b"{"):
        return CallToolResult(content=[text], structured_content=Raw(encoded))
    return CallToolResult(content=[text])


def bind_tool(
    source: object,
    info: ToolInfo | None = None,
    *,
    portable: bool = True,
    check_arguments: bool = True,
    structured_text: bool = True,
    coerce: bool = False,
    limit: Callable[[BoundTool, ToolInfo], BoundTool] | None = None,
    provided: Sequence[type] = (),
) -> BoundTool:
    """Turn a tool, however it was written, into a registered one; `info` describes a function, `limit` applies its limits.

    `provided` are the classes of what lifespans yield. Raises: RegistrationError, TypeError.
    """
    if _is_class(source):
        info = _info_of(source)
        checked: Checked = "now" if check_arguments else "later"
        handler = compile_handler(
            _method_of(source),
            schema=info.input_schema,
            loose=True,
            checked=checked,
            portable=portable,
            coerce=coerce,
            inline=info.inline,
            name=source.name,
            provided=provided,
        )
        bound = _bind(handler, info, source.name, portable, structured_text)
        return limit(bound, info) if limit is not None and info.has_limits else bound
    if not is_function(source):
        raise TypeError(f"a tool is a function or a Tool, not {type(source).__name__}")
    info = info or ToolInfo()
    name = function_name(source, info.name, "tool")
    handler = compile_handler(
        source, portable=portable, coerce=coerce, inline=info.inline, name=name, provided=provided
    )
    bound = _bind(handler, info, name, portable, structured_text)
    return limit(bound, info) if limit is not None and info.has_limits else bound


def function_name(function: Function, chosen: str | None, noun: str) -> str:
    """Return the name of a tool or prompt that is a function. Raises: RegistrationError if it cannot be one."""
    name = chosen or own_name(function)
    check_name(name, noun)
    return name


def own_name(function: Function) -> str:
    """Return the name of a function, as it is written; of a class and its objects, which is made to be a name, in snake_case."""
    while isinstance(function, partial):
        function = function.func
    written: str | None = getattr(function, "__name__", None)
    if is_class(function) or written is None:
        return snake_case(written or type(function).__name__)
    return written


def _is_class(source: object) -> TypeGuard[type[Tool]]:
    return isinstance(source, type) and issubclass(source, Tool)


def _method_of(source: type[Tool]) -> Function:
    function = bound_method(source, Tool, "call")
    if function is None:
        raise RegistrationError(f"Tool {source.__name__} has no call: write `def call(...)` in it")
    return function


def _info_of(source: type[Tool]) -> ToolInfo:
    members: dict[str, Any] = {name: getattr(source, name) for name in ToolInfo.__struct_fields__}
    members["description"] = source.description or parse_docstring(vars(source).get("__doc__")).description
    if not any("output_schema" in vars(each) for each in source.__mro__ if each is not Tool):
        members["output_schema"] = UNSET  # only a None that an author wrote rules out structured results
    members["when"] = bound_method(source, Tool, "when") or members["when"]
    return ToolInfo(**members)


def _bind(handler: Handler, info: ToolInfo, name: str, portable: bool, structured_text: bool) -> BoundTool:
    written = info.output_schema
    if written is not UNSET and written is not None and not info.structured:
        raise RegistrationError(f"{name}: an output_schema needs structured content: leave out structured=False")
    shape = validator = None
    declared: Mapping[str, JSON] | None = None
    exact: type | None = None
    if written is UNSET and info.structured:
        hint = return_hint(handler.function)
        exact = next((kind for kind in _EXACT if kind is hint), None)
        shape = compile_result(
            hint,
            passthrough=(*content_types(), CallToolResult, StandsForResult, ToolResponse, InputRequired),
            portable=portable,
            texts=structured_text,
            name=name,
        )
        declared = _declared(shape)
    elif written is not UNSET and written is not None:
        from linkspan.schema.validate import compile_validator

        declared, validator = written, compile_validator(written)
    spec = ToolShape(
        name=name,
        title=info.title,
        description=info.description or handler.parameters.description,
        input_schema=handler.parameters.json_schema,
        output_schema=dict(declared) if declared is not None else None,
        annotations=coerce_annotations(info.annotations),
        icons=list(info.icons) if info.icons is not None else None,
        meta=info.meta,
    )
    for code, words in refusals(name, spec.input_schema):
        from logging import getLogger

        problem = "the tool %s: %s; some providers of models refuse the whole list for that: see linkspan lint [%s]"
        getLogger("linkspan.server").warning(problem, name, words, code)
    derived = ("output_schema",) if shape is not None else ()
    is_plain = handler.context_parameter is None and handler.whole is None and handler.keywords is None
    is_plain = is_plain and not (handler.parameters.asks or handler.parameters.runs_code)
    is_plain = is_plain and (handler.needs is None or not handler.needs.takes_context) and not handler.provided
    structured = info.structured and written is not None
    tags, when, scopes = (
        check_tags(info.tags, name),
        compile_condition(info.when, name),
        check_scopes(info.scopes, name),
    )
    task = task_of(info.task, name)
    if info.hold:
        from linkspan.server.holding import check_hold

        check_hold(handler, name, task=task is not None, isolated=info.isolated)
        handler = msgspec.structs.replace(handler, holds=True)
    if task is not None and info.inline:
        raise RegistrationError(f"{name}: a task runs in a thread or on an event loop: leave out inline=True")
    is_plain = is_plain and not scopes and task is None and not info.hold
    return BoundTool(spec, handler, shape, validator, structured, derived, exact, is_plain, tags, when, scopes, task)


def _declared(shape: ResultShape) -> Mapping[str, JSON] | None:
    """Return the output schema to promise; none for a list of anything, which may turn out to be content blocks."""
    schema = shape.json_schema
    if schema is None or not shape.wrapped:
        return schema
    inner: Mapping[str, JSON] = schema["properties"]["result"]
    return None if inner.get("type") == "array" and not inner.get("items") else schema


def snake_case(name: str) -> str:
    """Return the name of a class in snake_case: `HTTPServerTool2` gives `http_server_tool2`."""
    if name.islower():
        return name
    spaced = re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return spaced.lower()


def check_name(name: str, noun: str) -> None:
    """Raise RegistrationError unless `name` may name a tool."""
    if not (1 <= len(name) <= _LONGEST_NAME and _NAME.issuperset(name)):
        raise RegistrationError(
            f"{name!r} cannot name a {noun}: use 1 to 128 letters, digits, '_', '-' or '.', "
            f"for example {re.sub(r'[^A-Za-z0-9_.-]+', '_', name).strip('_')[:128] or 'my_' + noun!r} [LS-704]"
        )


def coerce_annotations(value: ToolAnnotations | Mapping[str, JSON] | None) -> ToolAnnotations | None:
    """Return annotations for a mapping with snake_case or camelCase keys. Raises: TypeError for an unknown key."""
    if value is None or isinstance(value, ToolAnnotations):
        return value
    known = ToolAnnotations.__struct_fields__
    by_wire_name = dict(zip(ToolAnnotations.__struct_encode_fields__, known, strict=True))
    members: JSONObject = {by_wire_name.get(key, key): each for key, each in value.items()}
    unknown = sorted(set(members) - set(known))
    if unknown:
        raise TypeError(f"unknown tool annotation {unknown[0]!r}; there are {', '.join(known)}")
    return ToolAnnotations(**members)
