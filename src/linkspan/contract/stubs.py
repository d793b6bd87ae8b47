"""Typed Python code that calls the tools of a server: a class with a method for each tool, and a TypedDict for each object.

Law: whatever a server lists, the code is valid Python, and nothing that the server says is code in it.
"""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Final

from linkspan.contract.snapshot import Snapshot
from linkspan.schema.summary import local_target
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.redaction import revealed

_SIMPLE: Final[Mapping[str, str]] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}
_ANYTHING: Final = "Any"
_RESERVED: Final = frozenset(
    {"Any", "Client", "Literal", "NotRequired", "SyncClient", "ToolError", "ToolResult", "TypedDict", "Unpack"}
    | {*keyword.kwlist}
)
_METHODS: Final = frozenset({"__init__", "_client", "self"})
_MOST_LITERALS: Final = 100
_DEEPEST: Final = 30
_WIDTH: Final = 100


def code(snapshot: Snapshot, name: str | None = None, *, is_async: bool = False) -> str:
    """Return a module for the tools of a server; `name` is that of the class.

    Raises: ValueError if `name` is not the name of a class.
    """
    if name is not None and not _is_name(name):
        raise ValueError(f"{name!r} is not a name for a class: use letters, digits and _")
    return _Module(snapshot, name or _class_name(snapshot.server) or "Server", is_async=is_async).text()


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text) and not text.startswith("__")


def _class_name(text: str) -> str:
    """Return a text as the name of a class; empty if nothing of it can be one."""
    words = re.findall(r"[A-Za-z0-9]+", text)
    found = "".join(each[:1].upper() + each[1:] for each in words)
    return f"_{found}" if found[:1].isdigit() else found


def _method_name(text: str) -> str:
    found = re.sub(r"[^A-Za-z0-9_]", "_", text) or "tool"
    found = f"_{found}" if found[0].isdigit() else found
    return f"{found}_" if keyword.iskeyword(found) or found in _METHODS or found.startswith("__") else found


class _StubNames:
    """Names that are taken; another one like them gets a number."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def new(self, wanted: str) -> str:
        """Return a name that nothing has so far, and take it."""
        found, number = wanted, 2
        while found in self._taken:
            found, number = f"{wanted}{number}", number + 1
        self._taken.add(found)
        return found


class _Module:
    """The code for one server."""

    def __init__(self, snapshot: Snapshot, name: str, *, is_async: bool) -> None:
        self._snapshot = snapshot
        self._is_async = is_async
        self._classes = _StubNames(_RESERVED)
        self._name = self._classes.new(name)
        self._shapes: list[str] = []
        self._used: set[str] = set()

    def text(self) -> str:
        """Return the module."""
        methods = _StubNames()
        tools = self._snapshot.of("tool")
        bodies = [self._method(methods.new(_method_name(name)), name, tool) for name, tool in tools.items()]
        client = "Client" if self._is_async else "SyncClient"
        ours = [client, *sorted(self._used & {"ToolError", "ToolResult"})]
        theirs = sorted(self._used & {"Any", "Literal", "NotRequired", "TypedDict", "Unpack", "cast"})
        server = _docstring(
            f"Typed calls of the tools of the server {self._snapshot.server!r}. Made by `linkspan stubs`."
        )
        parts = [server, "", "from __future__ import annotations", ""]
        parts += [f"from typing import {', '.join(theirs)}", ""] if theirs else []
        parts += [f"from linkspan import {', '.join(ours)}", ""]
        parts += [f"\n{each}\n" for each in self._shapes]
        parts += [
            f"\nclass {self._name}:",
            f'    """The tools of a server, called by a `{client}` that is connected to it."""',
            "",
            f"    def __init__(self, client: {client}) -> None:",
            "        self._client = client",
            *(textwrap.indent(each, "    ") for each in bodies),
        ]
        return "\n".join(parts) + "\n"

    def _method(self, method: str, name: str, tool: Mapping[str, JSON]) -> str:
        schema: JSON = tool.get("inputSchema")
        stem = _class_name(name) or "Tool"
        members: JSON = schema.get("properties") if is_object(schema) else None
        takes = ""
        if is_object(members) and members:
            self._used.add("Unpack")
            takes = f", **arguments: Unpack[{self._shape(f'{stem}Arguments', schema, _Types(self, schema))}]"
        output: JSON = tool.get("outputSchema")
        result, wait = "ToolResult", "await " if self._is_async else ""
        given = "{**arguments}" if takes else "{}"
        call = f"{wait}self._client.call_tool({_text(name)}, {given})"
        lines = [f"{'async ' if self._is_async else ''}def {method}(self{takes}) -> {{result}}:"]
        lines.append(textwrap.indent(_docstring(str(tool.get("description") or f"Call the tool {name}.")), "    "))
        if is_object(output):
            types = _Types(self, output)
            result = types.of(output, f"{stem}Result")
            self._used |= {"ToolError", "cast"}
            lines += [
                f"    result = {call}",
                "    if result.is_error:",
                "        raise ToolError(result.text)",
                f"    return cast({_text(result)}, result.structured)",
            ]
        else:
            self._used.add("ToolResult")
            lines.append(f"    return {call}")
        return "\n" + "\n".join(lines).replace("{result}", result, 1)

    def _shape(self, wanted: str, schema: JSONObject, types: _Types) -> str:
        """Write a TypedDict for an object; return its name."""
        name = self._classes.new(wanted)
        at = len(self._shapes)
        self._shapes.append("")  # those of its members come after it
        types.named[id(schema)] = name
        self._used.add("TypedDict")
        required: JSON = schema.get("required")
        needed = [each for each in required if isinstance(each, str)] if is_array(required) else []
        fields: list[tuple[str, str, str]] = []
        members: Mapping[str, JSON] = schema.get("properties") or {}
        for key, part in members.items():
            hint = types.of(part, f"{name}{_class_name(key) or 'Member'}")
            if key not in needed:
                self._used.add("NotRequired")
                hint = f"NotRequired[{hint}]"
            fields.append((key, hint, str(part.get("description") or "") if is_object(part) else ""))
        self._shapes[at] = _typed_dict(name, fields)
        return name

    def use(self, name: str) -> str:
        """Import a name of `typing`; return it."""
        self._used.add(name)
        return name

    def shape(self, wanted: str, schema: JSONObject, types: _Types) -> str:
        """Return the name of the TypedDict of an object; the same one for the same schema."""
        return types.named.get(id(schema)) or self._shape(wanted, schema, types)


class _Types:
    """The hints for one schema document."""

    def __init__(self, module: _Module, document: JSON) -> None:
        self._module = module
        self._document = document
        self._depth = 0
        self.named: dict[int, str] = {}
        """The names of objects that have one, by their ids: the document is kept."""

    def of(self, schema: JSON, wanted: str) -> str:
        """Return the hint for a schema; an object gets the `wanted` name."""
        if not is_object(schema) or self._depth > _DEEPEST:
            return self._module.use(_ANYTHING)
        self._depth += 1
        try:
            return self._one(schema, wanted)
        finally:
            self._depth -= 1

    def _one(self, schema: JSONObject, wanted: str) -> str:
        if "$ref" in schema:
            target = local_target(schema["$ref"], self._document)
            return self.of(target, _class_name(str(schema["$ref"]).rpartition("/")[2]) or wanted)
        values: JSON = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if is_array(values):
            return self._literal(values)
        for key in ("anyOf", "oneOf"):
            arms: JSON = schema.get(key)
            if is_array(arms) and arms:
                return _union(self.of(each, f"{wanted}{at or ''}") for at, each in enumerate(arms))
        every: JSON = schema.get("allOf")
        if is_array(every) and len(every) == 1:
            return self.of(every[0], wanted)
        kinds: JSON = schema.get("type", "object" if "properties" in schema else None)
        if is_array(kinds):
            return _union(self._of_type(each, schema, wanted) for each in kinds)
        return self._of_type(kinds, schema, wanted)

    def _of_type(self, kind: JSON, schema: JSONObject, wanted: str) -> str:
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if kind == "array":
            return f"list[{self.of(schema.get('items'), f'{wanted}Item')}]"
        if kind != "object":
            return self._module.use(_ANYTHING)
        members: JSON = schema.get("properties")
        if is_object(members) and members:
            return self._module.shape(wanted, schema, self)
        other: JSON = schema.get("additionalProperties")
        return f"dict[str, {self.of(other, f'{wanted}Value')}]"

    def _literal(self, values: list[JSON]) -> str:
        if (
            not values
            or len(values) > _MOST_LITERALS
            or not all(isinstance(each, str | int | bool | None) for each in values)
        ):
            return self._module.use(_ANYTHING)
        self._module.use("Literal")
        return f"Literal[{', '.join(dict.fromkeys(_text(each) if isinstance(each, str) else repr(each) for each in values))}]"


def _union(hints: Iterable[str]) -> str:
    several = list(dict.fromkeys(hints))
    return _ANYTHING if _ANYTHING in several else " | ".join(several) or _ANYTHING


def _typed_dict(name: str, fields: list[tuple[str, str, str]]) -> str:
    """Return the code of a TypedDict; names that are not identifiers need the form of a call."""
    if all(_is_name(key) for key, _, _ in fields):
        lines = [f"class {name}(TypedDict):"]
        for key, hint, about in fields:
            lines.append(f"    {key}: {hint}")
            if about:
                lines.append(textwrap.indent(_docstring(about), "    "))
        return "\n".join(lines if fields else [*lines, "    pass"])
    members = [f"        {_text(key)}: {_text(hint)}," for key, hint, _ in fields]
    return "\n".join([f"{name} = TypedDict(", f"    {_text(name)},", "    {", *members, "    },", ")"])


def _text(text: str) -> str:
    """Return a text as a literal of ASCII with double quotes."""
    inner = "".join(each if " " <= each <= "~" and each not in '"\\' else _escaped(each) for each in text)
    return f'"{inner}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    number = ord(letter)
    return f"\\U{number:08x}" if number > 0xFFFF else f"\\u{number:04x}"


def _docstring(text: str) -> str:
    """Return a text of a server as a docstring, which it cannot leave."""
    lines = revealed(text).strip().splitlines() or [""]
    parts = (part for line in lines for part in (textwrap.wrap(line, _WIDTH) or [""]))
    wrapped = [each.replace("\\", "\\\\").replace('"""', "'''") for each in parts]  # no cut is inside an escape
    if len(wrapped) == 1:
        only = wrapped[0]
        return f'"""{only}{" " if only.endswith(chr(34)) else ""}"""'
    return "\n".join([f'"""{wrapped[0]}', *wrapped[1:], '"""'])
