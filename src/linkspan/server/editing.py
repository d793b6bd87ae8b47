"""Edits of tools: other names, texts and arguments than its author gave a tool, and a smaller result.

Arguments are mapped as JSON, before the tool checks them; errors of the tool name them as callers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, structs

from linkspan.core.call import Call
from linkspan.errors import RegistrationError
from linkspan.revisions.neutral import Alias, Outcome, Request
from linkspan.schema.parameters import read_arguments
from linkspan.schema.problems import ArgumentsInvalid, UnknownMember, unknown_words
from linkspan.schema.results import encode_json
from linkspan.schema.validate import RawParameters, compile_validator
from linkspan.server.asking import Rounds
from linkspan.server.configuration import Settings
from linkspan.server.context import Context
from linkspan.server.features.tool_calls import CallTool
from linkspan.server.observation import Failures, Observation, tool_error
from linkspan.server.serving_inside import call_around, outcome_inside, readable
from linkspan.server.steps import Step, Steps, driven
from linkspan.server.tools import BoundTool, check_name, coerce_annotations
from linkspan.server.visibility import Condition, check_tags, compile_condition
from linkspan.text import did_you_mean
from linkspan.types.base import JSON, UNSET, JSONObject, TextContent, is_array, is_object
from linkspan.types.messages import CallToolParams, CallToolResult, Tool, ToolAnnotations
from linkspan.wire.values import to_builtins

if TYPE_CHECKING:
    from linkspan.server.ports import System

Fix: TypeAlias = "JSON | Callable[[Context], object] | Callable[[], object]"
"""The value of an argument that callers do not give: JSON, or a function that returns it, or an awaitable of it."""

T = TypeVar("T")

_COMBINED: Final = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "patternProperties")
"""Keywords beside the properties of an input schema that may say something of each of them."""


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """What callers see of a tool, where that differs from what its author wrote.

        server.edit("search", Edit(name="find_tickets", fix={"project": "LINK"}, describe={"query": "As in the mail's subject"}))

    - `name`, `title`, `description`: in their places; `{description}` in a text stands for the author's own.
    - `annotations`, `tags`: besides those of the tool; of an annotation that both have, this one counts.
    - `fix`: values of arguments that callers cannot give; a function gets the `Context`, and may be async.
    - `hide`: optional arguments that callers cannot give.
    - `rename`: other names of arguments, by those that the tool has.
    - `default`, `describe`: values and texts for arguments, by the names that callers see.
    - `keep`: what is sent of a structured result, as JSON pointers (RFC 6901), in which `*` stands for each member or item, and
      the last part may be a list: "/items/*/id,title". The output schema is left out then, unless `output_schema` has another.
    """

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: ToolAnnotations | Mapping[str, JSON] | None = None
    tags: Sequence[str] | set[str] | frozenset[str] = ()
    fix: Mapping[str, Fix] = msgspec.field(default_factory=dict[str, Fix])
    hide: Sequence[str] = ()
    rename: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    default: Mapping[str, JSON] = msgspec.field(default_factory=dict[str, JSON])
    describe: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    keep: str | Sequence[str] = ()
    output_schema: Mapping[str, JSON] | None = None


class EditHost(msgspec.Struct, frozen=True, eq=False):
    """What edits need of the server whose callers they are for."""

    calls: CallTool
    make_context: Callable[[Request], Context]
    system: System


def compile_edit(tool: BoundTool, edit: Edit, host: EditHost) -> BoundTool:
    """Return a tool as an edit shows it. Raises: RegistrationError for an edit that does not fit the tool."""
    if not isinstance(edit, Edit):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RegistrationError(f"{tool.spec.name}: an edit is an Edit(...), not {edit!r}")
    arguments = _Arguments(tool.spec, edit)
    name = edit.name or tool.spec.name
    check_name(name, "tool")
    trim = _compile_trim(edit.keep, tool.spec.name)
    spec = structs.replace(
        tool.spec,
        name=name,
        title=edit.title or tool.spec.title,
        description=_described(edit.description, tool.spec.description),
        annotations=_annotated(tool.spec.annotations, edit.annotations),
        input_schema=arguments.schema,
        output_schema=_output_schema(tool.spec, edit),
    )
    parameters = EditedParameters(arguments.schema, tool)
    return structs.replace(
        tool,
        spec=spec,
        handler=structs.replace(tool.handler, parameters=parameters),
        tags=tool.tags | check_tags(edit.tags, name),
        is_plain=False,
        mounted=EditedItem(tool, arguments, trim, host),
    )


def _described(text: str | None, own: str | None) -> str | None:
    return own if text is None else text.replace("{description}", own or "")


def _annotated(
    own: ToolAnnotations | None, given: ToolAnnotations | Mapping[str, JSON] | None
) -> ToolAnnotations | None:
    added = coerce_annotations(given)
    if own is None or added is None:
        return added or own
    changed = {name: value for name in added.__struct_fields__ if (value := getattr(added, name)) not in (None, UNSET)}
    return structs.replace(own, **changed)


def _output_schema(own: Tool, edit: Edit) -> Any:
    if edit.output_schema is not None:
        return dict(edit.output_schema)
    return None if edit.keep else own.output_schema


class EditedParameters(RawParameters):
    """The arguments of an edited tool: its own schema checks them, once they are mapped."""

    __slots__ = ("runs_code",)

    def __init__(self, schema: JSONObject, tool: BoundTool) -> None:
        """Take what a call needs to know of the tool's own parameters."""
        super().__init__(schema, "later", coerce=False)
        own = tool.handler.parameters
        self.runs_code: bool = own.runs_code
        self.asks = own.asks
        self.context_parameter = own.context_parameter
        self.description = own.description


class _Arguments:
    """The arguments that callers see, and what the tool gets for them."""

    def __init__(self, tool: Tool, edit: Edit) -> None:
        """Hold an edit to the input schema of a tool. Raises: RegistrationError."""
        schema = tool.input_schema
        own: Mapping[str, JSON] = schema.get("properties") or {}
        self._tool = tool.name
        self._own = own
        named = dict(edit.rename)
        gone = {*edit.fix, *edit.hide}
        self._check_names(own, (*edit.fix, *edit.hide, *edit.rename))
        if (gone or named) and (keyword := next((each for each in _COMBINED if each in schema), None)):
            raise self._error(f'its arguments cannot be edited, because its input schema has "{keyword}" beside them')
        shown = {each: named.get(each, each) for each in own if each not in gone}
        if len({*shown.values()}) < len(shown):
            raise self._error("two arguments would have the same name")
        self._check_names(shown.values(), (*edit.default, *edit.describe))
        required: list[str] = schema.get("required") or []
        lost = next((each for each in edit.hide if each in required and each not in edit.fix), None)
        if lost is not None:
            raise self._error(f"the argument {lost!r} is required: give it a value, with fix= in the place of hide=")
        self.renamed = {each: name for each, name in shown.items() if each != name}
        self.schema: JSONObject = dict(schema)
        self.schema["properties"] = {
            shown[each]: _edited(value, shown[each], edit) for each, value in own.items() if each in shown
        }
        if required:
            self.schema["required"] = [
                shown[each] for each in required if each in shown and shown[each] not in edit.default
            ]
        if is_object(depends := schema.get("dependentRequired")):
            self.schema["dependentRequired"] = {
                shown[each]: [shown[name] for name in names if name in shown]
                for each, names in depends.items()
                if each in shown
            }
        self._own_name = {name: each for each, name in shown.items()}
        self._is_closed = schema.get("additionalProperties") is False
        self._unknown = {*own} - {*self._own_name}
        self._defaults = {self._own_name[name]: value for name, value in edit.default.items()}
        self.functions = {
            name: found for name, value in edit.fix.items() if (found := self._function(value, name)) is not None
        }
        self._fixed = {name: value for name, value in edit.fix.items() if name not in self.functions}
        for name, value in (*self._fixed.items(), *self._defaults.items()):
            self._check_value(name, value)

    def _error(self, problem: str) -> RegistrationError:
        return RegistrationError(f"the edit of {self._tool!r}: {problem}")

    def _check_names(self, known: Any, given: Sequence[str]) -> None:
        unknown = next((each for each in given if each not in known), None)
        if unknown is not None:
            raise self._error(f"there is no argument {unknown!r}{did_you_mean(unknown, known)}")

    def _function(self, value: object, name: str) -> Condition | None:
        return compile_condition(value, f"the edit of {self._tool!r}, fix={{{name!r}}}") if callable(value) else None

    def _check_value(self, name: str, value: JSON) -> None:
        schema: JSONObject = {"properties": {name: self._own[name]}, "$defs": self.schema.get("$defs") or {}}
        problems = compile_validator(schema, is_arguments=True).check({name: to_builtins(value)})
        if problems:
            raise self._error(str(problems[0]))

    def mapped(self, raw: Raw | None, fixed: Mapping[str, JSON]) -> Raw:
        """Return the arguments that the tool gets. Raises: ArgumentsInvalid for one that callers cannot give."""
        found = read_arguments(raw)
        given: JSON = {} if found is None else found
        if not is_object(given):
            return Raw(encode_json(given))  # which the tool refuses
        known = self._own_name
        strays = [each for each in given if each not in known and (self._is_closed or each in self._unknown)]
        if strays:
            raise ArgumentsInvalid([UnknownMember("", unknown_words(each, known, root=True)) for each in strays])
        values = {known.get(name, name): value for name, value in given.items()}
        return Raw(encode_json({**self._defaults, **values, **self._fixed, **fixed}))


def _edited(value: JSON, name: str, edit: Edit) -> JSON:
    """Return the schema of an argument with its default and its text."""
    if name not in edit.default and name not in edit.describe:
        return value
    found: JSON = value
    changed: JSONObject = dict(found) if is_object(found) else {}
    if name in edit.default:
        changed["default"] = edit.default[name]
    if name in edit.describe:
        changed["description"] = _described(edit.describe[name], changed.get("description"))
    return changed


_Tree: TypeAlias = "dict[str, _Tree]"
"""What is kept of a value: of which members, or items, what is kept; all of a value where there is no such thing."""


def _compile_trim(keep: str | Sequence[str], tool: str) -> _Tree | None:
    """Return what pointers keep; None for everything. Raises: RegistrationError."""
    tree: _Tree = {}
    for pointer in (keep,) if isinstance(keep, str) else keep:
        if not pointer.startswith("/"):
            raise RegistrationError(
                f"the edit of {tool!r}: keep={pointer!r} is not a JSON pointer, such as '/items/*/id,title'"
            )
        *path, last = pointer[1:].split("/")
        for name in last.split(","):
            place = tree
            for step in (*path, name):
                place = place.setdefault(step.replace("~1", "/").replace("~0", "~"), {})
    return tree or None


def _trimmed(value: JSON, tree: _Tree) -> JSON:
    """Return what is kept of a value."""
    if not tree:
        return value
    every = tree.get("*")
    if is_object(value):
        kept: dict[str, _Tree | None] = {name: tree.get(name, every) for name in value}
        return {name: _trimmed(value[name], below) for name, below in kept.items() if below is not None}
    if is_array(value):
        places = [tree.get(str(place), every) for place in range(len(value))]
        return [_trimmed(each, below) for each, below in zip(value, places, strict=True) if below is not None]
    return value


def _trim(outcome: Any, tree: _Tree) -> Any:
    """Return a result of which only a part is kept: its structured content, and a text that has the same, or other JSON."""
    result = readable(outcome)
    if not isinstance(result, CallToolResult) or result.is_error:
        return outcome
    structured = result.structured_content
    kept = UNSET if structured is UNSET else _trimmed(structured, tree)
    blocks = [
        TextContent(text, each.annotations, each.meta)
        if isinstance(each, TextContent) and (text := _trimmed_text(each.text, structured, tree)) is not None
        else each
        for each in result.content
    ]
    return structs.replace(result, content=blocks, structured_content=kept)


def _trimmed_text(text: str, structured: JSON, tree: _Tree) -> str | None:
    """Return what is kept of a text, if it is JSON: where it repeats the `result` of structured content, of that."""
    try:
        value: JSON = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not is_object(value) and not is_array(value):
        return None
    is_result = is_object(structured) and [*structured] == ["result"] and structured["result"] == value
    kept = _trimmed({"result": value}, tree)["result"] if is_result and "result" in tree else _trimmed(value, tree)
    return encode_json(kept).decode()


class EditedItem:
    """An edited tool, and the tool that it is an edit of: one of this server, or of a mounted one."""

    def __init__(self, tool: BoundTool, arguments: _Arguments, trim: _Tree | None, host: EditHost) -> None:
        """Made by `compile_edit`."""
        self.tool = tool
        self._arguments = arguments
        self._trim = trim
        self._host = host

    @property
    def server(self) -> str | None:
        """The name of the mounted server, if the tool is of one."""
        return self.tool.mounted.server if self.tool.mounted is not None else None

    @property
    def is_on(self) -> bool:
        """Whether the mounted server has not switched it off."""
        return self.tool.mounted is None or self.tool.mounted.is_on

    @property
    def completes(self) -> bool:
        """Whether a mounted server completes its arguments: no tool's are completed."""
        return False

    def plain(self, request: Request) -> None:
        """Return None: arguments have to be mapped."""

    def is_async(self, method: str) -> bool:
        """Return whether the call of a request begins on an event loop."""
        mounted = self.tool.mounted
        awaits = any(each.is_async for each in self._arguments.functions.values())
        return awaits or self.tool.handler.is_async or (mounted is not None and mounted.is_async(method))

    def begin(
        self,
        request: Request,
        settings: Settings,
        observation: Observation | None,
        rounds: Rounds,
        failures: Failures,
        target: str,
    ) -> Outcome | Call:
        """Begin a call. Raises: RemoteProtocolError for a state of questions that is not good."""
        is_async = self.is_async(request.method)
        request.round = current = rounds.open(request, target)
        steps = self._steps(request, settings, observation)
        return call_around(
            driven(steps, self._host.system, is_async=is_async),
            request,
            is_async=is_async,
            inline=self.tool.handler.inline,
            rounds=rounds,
            failures=failures,
            current=current,
            target=target,
            observation=observation,
        )

    def _steps(self, request: Request, settings: Settings, observation: Observation | None) -> Steps:
        """Yield the steps of a call with the arguments that the tool takes, and return its outcome."""
        params, alias = request.params, request.alias
        assert isinstance(params, CallToolParams)
        fixed: dict[str, Any] = {}
        for name, function in self._arguments.functions.items():
            ask = partial(function.holds, partial(self._host.make_context, request), request)
            fixed[name] = yield Step(ask, blocking=not function.is_async)
        try:
            arguments = self._arguments.mapped(params.arguments, fixed)
        except ArgumentsInvalid as problem:
            if observation is not None:
                observation.record_error(problem.kind)
            return tool_error(f"{request.target}: {problem}")
        request.alias = self._alias(params.name, alias)
        request.params = structs.replace(params, arguments=arguments)
        try:
            step = self._host.calls.call(self.tool, request, settings, observation)
            outcome = yield from outcome_inside(step)
        finally:
            request.params, request.alias = params, alias
        return outcome if self._trim is None else _trim(outcome, self._trim)

    def _alias(self, name: str, outer: Alias | None) -> Alias:
        """Return what callers call the tool and its arguments, where edits are made of edits."""
        renamed = self._arguments.renamed
        if outer is None:
            return Alias(name, self.server, renamed)
        return Alias(
            outer.name,
            outer.server,
            {**outer.renamed, **{own: outer.renamed.get(each, each) for own, each in renamed.items()}},
        )
