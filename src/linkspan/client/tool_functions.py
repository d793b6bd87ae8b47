"""The tools of a client as functions: `client.tools.add(a=1, b=2)`, with completion and a signature, for notebooks and REPLs."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Awaitable, Generator, Mapping
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from linkspan.flows.tool_results import ToolResult
from linkspan.text import did_you_mean
from linkspan.types.base import JSON, is_array, is_object
from linkspan.types.messages import Tool

if TYPE_CHECKING:
    from inspect import Signature

    from linkspan.flows.state import ShownTools

ResultT = TypeVar("ResultT", covariant=True)
ListedT = TypeVar("ListedT", covariant=True)

_TYPES: Final[Mapping[str, type]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}


class _CallsTools(Protocol[ResultT, ListedT]):
    """What is used of a client."""

    @property
    def name(self) -> str: ...

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> ResultT: ...

    def list_tools(self) -> ListedT: ...


class ToolFunction(Generic[ResultT]):
    """A tool as a function of keyword arguments; options of a call, such as a deadline, are those of `call_tool`."""

    def __init__(self, client: _CallsTools[ResultT, object], name: str, tool: Tool | None) -> None:
        """`tool` is None if the tools are not listed yet."""
        self.__name__ = name
        self.__doc__ = (tool.description or tool.title) if tool is not None else None
        self._client = client
        self._tool = tool

    def __call__(self, /, **arguments: Any) -> ResultT:
        """Call the tool; of an async client, await the result. Raises: ClientError."""
        return self._client.call_tool(self.__name__, arguments)

    @property
    def __signature__(self) -> Signature:
        """The arguments, from the tool's schema."""
        from inspect import Parameter, Signature

        schema: JSON = self._tool.input_schema if self._tool is not None else {}
        properties: JSON = schema.get("properties")
        required: JSON = schema.get("required")
        needed = required if is_array(required) else []
        found: list[Parameter] = []
        for name, each in properties.items() if is_object(properties) else ():
            facts: JSON = each if is_object(each) else {}
            kind: JSON = facts.get("type")
            hint = _TYPES.get(kind, Any) if isinstance(kind, str) else Any
            default: Any = Parameter.empty if name in needed else facts.get("default")
            if name.isidentifier() and not iskeyword(name):
                found.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint))
        if self._tool is None or len(found) < len(properties or ()):
            found.append(Parameter("arguments", Parameter.VAR_KEYWORD))
        return Signature(found)

    def __repr__(self) -> str:
        """Show the signature."""
        return f"<tool {self.__name__}{self.__signature__} of {self._client.name}>"


class _Functions(Generic[ResultT, ListedT]):
    """The tools by their names; a character that Python does not take in a name is `_`."""

    def __init__(self, client: _CallsTools[ResultT, ListedT], known: ShownTools) -> None:
        """`known` holds what the client has listed."""
        self._client = client
        self._known = known

    @abstractmethod
    def _listed(self, *, anew: bool = False) -> Mapping[str, Tool]:
        """Return the tools, by name."""

    def __getattr__(self, name: str) -> ToolFunction[ResultT]:
        if name.startswith("_"):  # what notebooks look for in every object
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as problem:
            raise AttributeError(problem.args[0]) from None

    def __getitem__(self, name: str) -> ToolFunction[ResultT]:
        """Return a tool by its own name, or by the one that it has as an attribute. Raises: KeyError."""
        for anew in (False, True):
            tools = self._listed(anew=anew)
            found = tools.get(name) or next((tool for own, tool in tools.items() if _attribute(own) == name), None)
            if found is not None:
                return ToolFunction(self._client, found.name, found)
        if not self._known.tools_are_complete:
            return ToolFunction(self._client, name, None)
        raise KeyError(f"{self._client.name} has no tool {name!r}{did_you_mean(name, self._known.tools)}")

    def __dir__(self) -> list[str]:
        """Return the names for completion."""
        return [_attribute(name) for name in self._listed()]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._listed())

    def __repr__(self) -> str:
        """Show the names."""
        return f"<tools of {self._client.name}: {', '.join(self._listed()) or 'none listed yet'}>"

    def _repr_html_(self) -> str | None:
        from linkspan.types.display import html

        return html(list(self._listed().values()))


class ToolFunctions(_Functions[Awaitable[ToolResult], Awaitable[object]]):
    """The tools of an async client. `await client.tools` lists them, for completion and signatures; calls need no list."""

    def __await__(self) -> Generator[Any, Any, ToolFunctions]:
        """List the tools. Raises: ClientError."""
        yield from self._client.list_tools().__await__()
        return self

    def _listed(self, *, anew: bool = False) -> Mapping[str, Tool]:
        return self._known.tools


class SyncToolFunctions(_Functions[ToolResult, object]):
    """The tools of a sync client, which are listed when they are first looked at."""

    def _listed(self, *, anew: bool = False) -> Mapping[str, Tool]:
        if anew or not self._known.tools_are_complete:
            self._client.list_tools()
        return self._known.tools


def _attribute(name: str) -> str:
    """Return the name of a tool as that of an attribute."""
    found = re.sub(r"\W", "_", name)
    return f"{found}_" if iskeyword(found) else found if found[:1].isidentifier() else f"tool_{found}"
