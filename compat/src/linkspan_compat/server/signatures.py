"""The arguments and the results of functions, as the SDK's FastMCP and MCPServer see them: with pydantic models.

Nothing is made before a list or a call needs it. The rules are those of the SDK: a docstring is the whole description, a
parameter without a hint is a string in the schema and anything in a call, and a JSON text stands for what is not a string.
"""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Callable, Sequence
from functools import cached_property
from types import GenericAlias
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    RootModel,
    TypeAdapter,
    WithJsonSchema,
    create_model,
)
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import is_typeddict
from typing_inspection.introspection import AnnotationSource, inspect_annotation, is_union_origin

from linkspan_compat.errors import InvalidSignature
from linkspan_compat.flavours import sdk_version
from linkspan_compat.protocol.current import TYPES

__all__ = ["ArgModelBase", "FuncMetadata", "StrictJsonSchema", "func_metadata"]

_NO_DEFAULT: Final = object()


class StrictJsonSchema(GenerateJsonSchema):
    """Raises ValueError for what JSON Schema cannot say."""

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Refuse it."""
        raise ValueError(f"JSON schema warning: {kind} - {detail}")


class ArgModelBase(BaseModel):
    """Base of the models of arguments."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def model_dump_one_level(self) -> dict[str, Any]:
        """Return the arguments by their names; models inside stay models."""
        fields = type(self).model_fields
        return {field.alias or name: getattr(self, name) for name, field in fields.items()}


class FuncMetadata:
    """What the hints of a function say of its arguments and its result."""

    def __init__(
        self,
        function: Callable[..., Any] | None = None,
        skip_names: Sequence[str] = (),
        structured_output: bool | None = None,
        *,
        arg_model: Any = None,
        output_schema: dict[str, Any] | None = None,
        output_model: Any = None,
        wrap_output: bool = False,
    ) -> None:
        """Read a function when it is needed; or take its models, as programs give them that have no hints."""
        self._function: Any = function
        self._skipped = skip_names
        self._structured = structured_output
        if arg_model is not None:
            self.arg_model = arg_model
            self._output = (output_model, output_schema, wrap_output)

    @cached_property
    def _signature(self) -> inspect.Signature:
        try:
            return inspect.signature(self._function, eval_str=True)
        except NameError as error:
            name = _name(self._function)
            raise InvalidSignature(f"Unable to evaluate type annotations for callable {name!r}") from error

    @cached_property
    def arg_model(self) -> Any:
        """The model of the arguments."""
        fields: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            name = parameter.name
            if name.startswith("_"):
                raise InvalidSignature(f"Parameter {name} of {_name(self._function)} cannot start with '_'")
            if name in self._skipped:
                continue
            hint: Any = parameter.annotation
            metadata: list[Any] = []
            if hint is inspect.Parameter.empty:
                hint = Any
                metadata.append(WithJsonSchema({"title": name, "type": "string"}))
            options: dict[str, Any] = {}
            member = name
            if callable(getattr(BaseModel, name, None)):  # a method of models: the field is called otherwise
                options["alias"] = name
                member = f"field_{name}"
            annotated = Annotated[(hint, *metadata, Field(**options))]
            has_default = parameter.default is not inspect.Parameter.empty
            fields[member] = (annotated, parameter.default) if has_default else annotated  # which may have a default
        return create_model(f"{_name(self._function)}Arguments", __base__=ArgModelBase, **fields)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The schema of the arguments."""
        found: dict[str, Any] = self.arg_model.model_json_schema(by_alias=True)
        return found

    @cached_property
    def _texts(self) -> frozenset[str]:
        """The names that may hold a JSON text in place of a value."""
        return frozenset(
            each
            for name, field in self.arg_model.model_fields.items()
            if field.annotation is not str
            for each in (name, field.alias)
            if each
        )

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return arguments in which a text that is a JSON array, object or null stands for that."""
        found = dict(data)
        for name, value in data.items():
            if isinstance(value, str) and name in self._texts:
                try:
                    read = json.loads(value)
                except (ValueError, RecursionError):
                    continue
                if not isinstance(read, str | int | float):
                    found[name] = read
        return found

    def validate_arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the keywords of a call. Raises: pydantic.ValidationError."""
        found: dict[str, Any] = self.arg_model.model_validate(self.pre_parse_json(given)).model_dump_one_level()
        return found

    async def call_fn(
        self,
        fn: Callable[..., Any],
        fn_is_async: bool,
        arguments: dict[str, Any],
        arguments_to_pass_directly: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function with arguments that are checked, a plain one in a thread."""
        from linkspan_compat.server.components import in_thread

        keywords = arguments | (arguments_to_pass_directly or {})
        return await fn(**keywords) if fn_is_async else await in_thread(functools.partial(fn, **keywords))

    async def call_fn_with_arg_validation(
        self,
        fn: Callable[..., Any],
        fn_is_async: bool,
        arguments_to_validate: dict[str, Any],
        arguments_to_pass_directly: dict[str, Any] | None = None,
    ) -> Any:
        """Check arguments and call a function."""
        keywords = self.validate_arguments(arguments_to_validate) | (arguments_to_pass_directly or {})
        found = fn(**keywords)
        return await found if fn_is_async else found

    # Results.

    @cached_property
    def _output(self) -> tuple[Any, dict[str, Any] | None, bool]:
        """The type of the structured result, its schema, and whether it is wrapped; None, None, False without one."""
        nothing = (None, None, False)
        annotation: Any = self._signature.return_annotation
        name = _name(self._function)
        if self._structured is False:
            return nothing
        if annotation is inspect.Signature.empty:
            if self._structured is True:
                raise InvalidSignature(f"Function {name}: return annotation required for structured output")
            if sdk_version() == "1" or self._structured is None:
                return nothing
        inspected = inspect_annotation(annotation, annotation_source=AnnotationSource.FUNCTION)
        kind: Any = inspected.type
        if sdk_version() == "2":
            annotation, kind, inspected = _without_input_required(annotation, kind, inspected)
            if kind is _NO_DEFAULT:
                return nothing
        result_type = TYPES["CallToolResult"]
        if is_union_origin(get_origin(kind)) and any(_is_subclass(each, result_type) for each in get_args(kind)):
            raise InvalidSignature(
                f"Function {name}: CallToolResult cannot be used in Union or Optional types. "
                "To return empty results, use: CallToolResult(content=[])"
            )
        if _is_subclass(kind, result_type):
            if not inspected.metadata:
                return nothing
            kind, *more = inspected.metadata
            annotation = Annotated[(kind, *more)] if more else kind
        if sdk_version() == "2" and self._structured is None and _is_content(kind):
            return nothing
        try:
            model, wraps = _model_of(annotation, kind, name)
            if model is not None:
                adapter = TypeAdapter(model) if sdk_version() == "2" else None
                schema = (
                    adapter.json_schema(schema_generator=StrictJsonSchema)
                    if adapter is not None
                    else model.model_json_schema(schema_generator=StrictJsonSchema)
                )
                return model, _with_root(schema), wraps
        except (PydanticUserError, NameError, TypeError, ValueError, AttributeError):
            pass
        except Exception as error:  # the schema error of pydantic's core has no public base
            if type(error).__name__ != "SchemaError":
                raise
        if self._structured is True:
            raise InvalidSignature(f"Function {name}: return type {kind} is not serializable for structured output")
        return nothing

    @property
    def output_model(self) -> Any:
        """The type that structured results are checked against."""
        return self._output[0]

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema of structured results."""
        return self._output[1]

    @property
    def wrap_output(self) -> bool:
        """Whether structured results are `{"result": ...}`."""
        return self._output[2]

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.output_model)

    def check(self) -> None:
        """Make the models now. Raises: InvalidSignature."""
        _ = (self.arg_model, self.output_model)

    def check_own_result(self, result: Any) -> None:
        """Check the structured content of a result that the function made itself. Raises: pydantic.ValidationError."""
        if self.output_model is not None and not result.is_error:
            self._adapter.validate_python(result.structured_content)

    def structured(self, value: Any) -> Any:
        """Return a result as structured content. Raises: pydantic.ValidationError."""
        if sdk_version() == "1":
            return self.output_model.model_validate({"result": value} if self.wrap_output else value).model_dump(
                mode="json", by_alias=True
            )
        found = self._adapter.validate_python({"result": value} if self.wrap_output else value, **_BY_BOTH)
        if isinstance(found, BaseModel):
            return found.model_dump(mode="json", by_alias=True)
        return self._adapter.dump_python(found, mode="json", by_alias=True)

    def convert_result(self, result: Any) -> Any:
        """Return a result of the function as the SDK converts it."""
        from linkspan_compat.server.results import content_of, typed

        if isinstance(result, TYPES["CallToolResult"]):
            self.check_own_result(result)
            return result
        content = typed(content_of(result))
        if sdk_version() == "2":
            more = {"structured_content": self.structured(result)} if self.output_schema is not None else {}
            return TYPES["CallToolResult"](content=content, **more)
        return content if self.output_schema is None else (content, self.structured(result))


def _by_both() -> dict[str, Any]:
    import pydantic

    major, minor = map(int, pydantic.VERSION.split(".")[:2])
    return {"by_alias": True, "by_name": True} if (major, minor) >= (2, 11) else {}


_BY_BOTH: Final = _by_both()


def func_metadata(
    func: Callable[..., Any], skip_names: Sequence[str] = (), structured_output: bool | None = None
) -> FuncMetadata:
    """Look at a function. Raises: InvalidSignature."""
    made = FuncMetadata(func, skip_names, structured_output)
    made.check()
    return made


def _name(function: Any) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def _is_subclass(kind: Any, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)


def _without_input_required(annotation: Any, kind: Any, inspected: Any) -> tuple[Any, Any, Any]:
    """Leave a request for input out of a hint: it is no result. `_NO_DEFAULT` where nothing is left."""
    asking = TYPES["InputRequiredResult"]
    if _is_subclass(kind, asking):
        return annotation, _NO_DEFAULT, inspected
    if not is_union_origin(get_origin(kind)):
        return annotation, kind, inspected
    left = [each for each in get_args(kind) if not _is_subclass(each, asking)]
    if len(left) == len(get_args(kind)):
        return annotation, kind, inspected
    if not left:
        return annotation, _NO_DEFAULT, inspected
    annotation = left[0] if len(left) == 1 else Union[tuple(left)]  # noqa: UP007
    inspected = inspect_annotation(annotation, annotation_source=AnnotationSource.FUNCTION)
    return annotation, inspected.type, inspected


def _is_content(kind: Any) -> bool:
    """Return whether a hint is of content blocks, which are no structured content."""
    from linkspan_compat.server.media import Audio, Image

    origin = get_origin(kind)
    if origin is None:
        return isinstance(kind, type) and issubclass(kind, (*get_args(TYPES["ContentBlock"]), Image, Audio))
    if origin is Annotated:
        return _is_content(get_args(kind)[0])
    if is_union_origin(origin) or origin in (list, tuple, Sequence):
        return any(map(_is_content, get_args(kind)))
    return False


def _model_of(annotation: Any, kind: Any, name: str) -> tuple[Any, bool]:
    """Return the model for a hint, and whether it wraps; None for what has none."""
    wrapped: Callable[[], tuple[Any, bool]] = lambda: (create_model(f"{name}Output", result=(annotation, ...)), True)  # noqa: E731
    if kind is None:
        return wrapped()
    if isinstance(kind, GenericAlias):
        if get_origin(kind) is dict and get_args(kind)[0] is str:
            title = f"{name}DictOutput"
            if sdk_version() == "2":
                return Annotated[kind, Field(title=title)], False
            model = create_model(title, __base__=RootModel[kind])
            model.__doc__ = None
            return model, False
        return wrapped()
    if not isinstance(kind, type):
        return wrapped()
    if issubclass(kind, BaseModel):
        return kind, False
    if is_typeddict(kind):
        return (kind, False) if sdk_version() == "2" else (_of_typeddict(kind), False)
    if kind in (str, int, float, bool, bytes, type(None)):
        return wrapped()
    hints = typing.get_type_hints(kind)
    if not hints:
        return None, False
    fields: dict[str, Any] = {
        each: (hint, getattr(kind, each, ...)) for each, hint in hints.items() if not each.startswith("_")
    }
    return create_model(kind.__name__, __config__=ConfigDict(from_attributes=True), **fields), False


def _of_typeddict(kind: Any) -> Any:
    required = getattr(kind, "__required_keys__", None)
    fields: dict[str, Any] = {
        name: (hint, ... if required is None or name in required else None)
        for name, hint in typing.get_type_hints(kind).items()
    }
    return create_model(kind.__name__, **fields)


def _with_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Put the definition that a schema only refers to at its root."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
        return schema
    definition = schema["$defs"][reference.removeprefix("#/$defs/")]
    return {**definition, **{key: value for key, value in schema.items() if key != "$ref"}}
