"""Decorators without a server: `tool`, `prompt` and `resource` note what `Server.load` is to register.

The notes are kept in the module in which the decorator is written, and so go away with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, Unpack, overload

from linkspan.keywords import described_by, needing
from linkspan.server.handlers import Function, decorator, named
from linkspan.server.resources import ResourceDescription
from linkspan.server.tools import Description, PromptKeywords, ToolDescription, ToolKeywords

if TYPE_CHECKING:
    from types import FrameType

F = TypeVar("F", bound=Callable[..., object])

_NOTED = "__linkspan_offers__"


class Offer(NamedTuple):
    """What a decorator was given: the method of `Server` with its name registers it."""

    kind: Literal["tool", "prompt", "resource"]
    described: Mapping[str, Any]
    function: Function | None
    """None for a resource that is a file."""
    line: int


def offers_in(module: Mapping[str, Any]) -> Iterator[Offer]:
    """Yield what was decorated in a module, by its variables, in the order of its lines."""
    yield from module.get(_NOTED, ())


class _Decorators:
    """The decorators are methods here since `described_by` takes methods."""

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, name: str, /, **described: Unpack[ToolDescription]) -> Callable[[F], F]: ...
    @overload
    def tool(self, **described: Unpack[ToolKeywords]) -> Callable[[F], F]: ...
    @described_by(ToolKeywords)
    def tool(self, *function: Any, **described: Any) -> Any:
        """Mark a function in a file that `Server.load` loads as a tool; the keywords are those of `Server.tool`.

        It gives the function back unchanged. In another file it does nothing: write `@server.tool` there.
        """
        return _noting("tool", function, described)

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, name: str, /, **described: Unpack[Description]) -> Callable[[F], F]: ...
    @overload
    def prompt(self, **described: Unpack[PromptKeywords]) -> Callable[[F], F]: ...
    @described_by(PromptKeywords)
    def prompt(self, *function: Any, **described: Any) -> Any:
        """Mark a function in a file that `Server.load` loads as a prompt; the keywords are those of `Server.prompt`."""
        return _noting("prompt", function, described)

    @overload
    def resource(
        self, uri: str, *, name: str | None = None, **described: Unpack[ResourceDescription]
    ) -> Callable[[F], F]: ...
    @overload
    def resource(
        self,
        uri: str,
        *,
        path: str | PathLike[str],
        name: str | None = None,
        **described: Unpack[ResourceDescription],
    ) -> None: ...
    @needing("uri", what="the URI of the resource", line="@resource('docs://{}')")
    @described_by(ResourceDescription)
    def resource(
        self,
        uri: str,
        *,
        path: str | PathLike[str] | None = None,
        name: str | None = None,
        **described: Unpack[ResourceDescription],
    ) -> Any:
        """Mark a function in a file that `Server.load` loads as the resource at `uri`, or as a template with `{braces}` in it.

        The keywords are those of `Server.resource`. With `path` the file there is the resource, and there is nothing to
        decorate. Raises: RegistrationError without a URI.
        """
        given = {"uri": uri, "name": name, **described}
        if path is not None:
            return _mark("resource", {**given, "path": path}, None)
        return _noting("resource", (), given)


def _noting(kind: Literal["tool", "prompt", "resource"], function: tuple[Any, ...], described: dict[str, Any]) -> Any:
    name, function = named(function)
    note = decorator(lambda made: _mark(kind, {**name, **described}, made))
    return note(*function) if function else note


def _mark(kind: Literal["tool", "prompt", "resource"], described: dict[str, Any], function: Function | None) -> None:
    author = _author()
    author.f_globals.setdefault(_NOTED, []).append(Offer(kind, described, function, author.f_lineno))


def _author() -> FrameType:
    """Return the frame that called this package."""
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "linkspan":
        frame = frame.f_back
    return frame


_DECORATORS = _Decorators()
tool = _DECORATORS.tool
prompt = _DECORATORS.prompt
resource = _DECORATORS.resource
