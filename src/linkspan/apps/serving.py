"""Views of a server, and the tools that they belong to.

    apps = Apps()
    server = Server("ferries", extensions=[apps])
    chart = apps.view("ui://ferries/chart.html", path=Path(__file__).with_name("chart.html"))

    @server.tool(meta=chart.tool())
    def passengers(year: int) -> list[int]: ...

Spec: https://github.com/modelcontextprotocol/ext-apps, 2026-01-26.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from os import PathLike, fspath
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from linkspan.apps.policy import (
    EXTENSION_ID,
    FLAT_KEY,
    MIME_TYPE,
    PERMISSIONS,
    Csp,
    Permission,
    Visibility,
    html_problem,
    tool_meta,
    ui_of,
    view_uri,
)
from linkspan.core.extension import Attached, Extension
from linkspan.errors import RegistrationError
from linkspan.server.context import Context
from linkspan.server.handlers import Function, converting
from linkspan.server.observation import warn
from linkspan.server.places import Place
from linkspan.server.resources import Resource
from linkspan.types.base import JSON, JSONObject, Meta, TextResourceContents, is_array, is_mapping
from linkspan.types.messages import ListToolsResult, Tool
from linkspan.types.methods import TOOL_LIST

__all__ = ["AppView", "Apps", "supports_ui"]

F = TypeVar("F", bound=Function)


class AppView(msgspec.Struct, frozen=True):
    """A view that is registered."""

    uri: str

    def tool(self, *, visibility: Sequence[Visibility] | None = None) -> Meta:
        """Return the `meta=` of a tool whose results the view shows; `["app"]` is for one that only the view calls.

        Raises: RegistrationError.
        """
        return tool_meta(self.uri, visibility)


class Apps:
    """The views of a server, as a value of `extensions=`; of a client, it declares that the host shows views."""

    def __init__(self) -> None:
        """Begin without views."""
        self._place: Place | None = None
        self._views: dict[str, Resource] = {}
        self._checked: set[str] = set()
        self.extension = Extension(id=EXTENSION_ID, server={}, client={"mimeTypes": [MIME_TYPE]}, attach=self._attach)

    def __repr__(self) -> str:
        return f"<Apps with {len(self._views)} views>"

    def view(
        self,
        uri: str,
        html: str | Callable[..., Any] | None = None,
        *,
        path: str | PathLike[str] | None = None,
        name: str | None = None,
        description: str | None = None,
        csp: Csp | None = None,
        permissions: Sequence[Permission] = (),
        border: bool | None = None,
        domain: str | None = None,
    ) -> AppView:
        """Register a view: `html` is a document or a function that returns one; the file at `path` is read for each request.

        `csp` names the origins of others that it needs, `permissions` what of the browser it asks for, `border` whether the
        host draws one, and `domain` an origin of its own where a host offers that. Raises: RegistrationError.
        """
        if not uri.startswith("ui://") or len(uri) <= len("ui://"):
            raise RegistrationError(
                f"view({uri!r}): the URI of a view begins with ui://, such as 'ui://ferries/map.html'"
            )
        if (html is None) == (path is None):
            raise RegistrationError(f"view({uri!r}): pass html= or path=")
        unknown = [each for each in permissions if each not in PERMISSIONS]
        if isinstance(permissions, str) or unknown:
            raise RegistrationError(
                f"view({uri!r}): permissions are among {', '.join(PERMISSIONS)}; got {permissions!r}"
            )
        ui: JSONObject = {
            "csp": csp.as_meta() if csp is not None else None,
            "permissions": {each: {} for each in permissions} or None,
            "prefersBorder": border,
            "domain": domain,
        }
        ui = {key: value for key, value in ui.items() if value is not None}
        read = _reader(uri, _html_of(uri, html, path), ui)
        resource = Resource(
            uri, name, description=description, mime_type=MIME_TYPE, meta={"ui": ui} if ui else None, read=read
        )
        if self._place is not None:
            self._place.add([resource])
        self._views[uri] = resource
        return AppView(uri)

    def _attach(self, place: Place) -> Attached | None:
        if self._place is not None:
            raise RegistrationError("these Apps are on a server already: make others for each server")
        self._place = place
        place.add(list(self._views.values()))
        place.server.middleware(only=[TOOL_LIST.method])(self._list_tools)
        return None

    def _list_tools(self, call: Any) -> Generator[None, Any, Any]:
        """Check the tools that are listed for the first time, and name their views as a client with a handshake reads it."""
        result = yield
        if not isinstance(result, ListToolsResult):
            return result
        for tool in result.tools:
            if tool.name not in self._checked:
                self._checked.add(tool.name)
                if problem := self._problem(tool):
                    warn(f"tool {tool.name!r}: {problem}; hosts will not show a view for it")
        if call.context.peer.revision.extends_by_request:
            return result
        return with_flat_keys(result)

    def _problem(self, tool: Tool) -> str | None:
        """Return what is wrong with what a tool says of its view; None if nothing is."""
        ui, meta = ui_of(tool.meta), tool.meta or {}
        visibility: JSON = ui.get("visibility")
        if "ui" in meta and not is_mapping(meta["ui"]):
            return "_meta.ui is not an object"
        if visibility is not None and not (is_array(visibility) and visibility and {*visibility} <= {"model", "app"}):
            return f'visibility is {visibility!r}, and not a list of "model" and "app"'
        if "csp" in ui or "permissions" in ui:
            return "csp and permissions belong to the view, and have no effect here"
        if "resourceUri" not in ui:
            return None
        uri = view_uri(tool)
        if uri is None:
            return f"its view {ui['resourceUri']!r} does not begin with ui://"
        assert self._place is not None
        resource = self._place.resource(uri)
        if resource is None:
            return f"there is no view {uri}: register it with view({uri!r}, ...)"
        if resource.mime_type != MIME_TYPE:
            return f"{uri} is of the type {resource.mime_type!r}, and not {MIME_TYPE!r}"
        return None


def supports_ui(ctx: Context) -> bool:
    """Return whether the client of a request shows views; what a tool returns is to be good without one, too."""
    declared: JSON = ctx.peer.capabilities.get("extensions")
    settings: JSON = declared.get(EXTENSION_ID) if is_mapping(declared) else None
    types: JSON = settings.get("mimeTypes") if is_mapping(settings) else None
    return isinstance(types, list | tuple) and MIME_TYPE in types


def with_flat_keys(result: ListToolsResult) -> ListToolsResult:
    """Return a list whose tools name their views as clients with a handshake read it."""
    return replace(result, tools=[_flat(each) for each in result.tools])


def _flat(tool: Tool) -> Tool:
    uri = view_uri(tool)
    return tool if uri is None else replace(tool, meta={**(tool.meta or {}), FLAT_KEY: uri})


def _html_of(uri: str, html: str | Function | None, path: str | PathLike[str] | None) -> Function:
    """Return what returns the document. Raises: RegistrationError for one that hosts would not show."""
    if path is not None:
        home = fspath(path)

        def read_file() -> str:
            with open(home, encoding="utf-8") as file:
                return file.read()

        try:
            document = read_file()
        except (OSError, UnicodeDecodeError) as error:
            raise RegistrationError(f"view({uri!r}): {home!r} cannot be read as UTF-8: {error}") from None
        function: Function = read_file
    elif isinstance(html, str):
        document = given = html

        def read_text() -> str:
            return given

        function = read_text
    else:
        return cast("Function", html)
    if problem := html_problem(document.encode()):
        raise RegistrationError(f"view({uri!r}): {problem}")
    return function


def _reader(uri: str, function: Function, ui: JSONObject) -> Function:
    """Return a function whose document has the policy of the view with it."""

    def whole(html: object) -> TextResourceContents:
        if not isinstance(html, str):
            raise TypeError(f"a view is a text, not {type(html).__name__}")
        if problem := html_problem(html.encode()):
            raise ValueError(problem)
        return TextResourceContents(uri, html, MIME_TYPE, meta={"ui": ui} if ui else None)

    return converting(function, whole)
