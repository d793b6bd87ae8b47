"""What both sides know of apps: the metadata of tools and views, and what a browser may do with a view. Pure.

Spec: https://github.com/modelcontextprotocol/ext-apps, 2026-01-26.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from linkspan.errors import RegistrationError
from linkspan.types.base import (
    JSON,
    BlobResourceContents,
    JSONObject,
    Meta,
    TextResourceContents,
    is_array,
    is_mapping,
    is_object,
)
from linkspan.types.messages import ReadResourceResult, Resource, Tool

__all__ = ["Csp", "Permission", "View", "ViewError", "Visibility", "csp_header", "permissions_header", "read_view"]

EXTENSION_ID: Final = "io.modelcontextprotocol/ui"
MIME_TYPE: Final = "text/html;profile=mcp-app"
FLAT_KEY: Final = "ui/resourceUri"
"""The place of the URI in the `_meta` of a tool before `ui.resourceUri`; it is read, and sent to clients with a handshake."""
MAX_BYTES: Final = 5 * 1024 * 1024

Visibility: TypeAlias = Literal["model", "app"]
Permission: TypeAlias = Literal["camera", "microphone", "geolocation", "clipboardWrite"]

_ORIGIN: Final = re.compile(
    r"(https?|wss?)://(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*(:[0-9]{1,5})?",
    re.IGNORECASE,
)
_DOCTYPE: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<!--.{0,1000}?-->\s*)*<!doctype html\s*>", re.IGNORECASE | re.DOTALL
)
_MOST_ORIGINS: Final = 50
PERMISSIONS: Final[tuple[Permission, ...]] = ("camera", "microphone", "geolocation", "clipboardWrite")
FEATURES: Final = dict(zip(PERMISSIONS, ("camera", "microphone", "geolocation", "clipboard-write"), strict=True))


class ViewError(ValueError):
    """What a server sent for a view cannot be shown; the message has the reason."""


class Csp(msgspec.Struct, frozen=True, kw_only=True):
    """The origins of others that a view needs, such as "https://api.example.com". What is not named is blocked.

    Raises: RegistrationError for what is not an origin.
    """

    connect: Sequence[str] = ()
    """For requests and web sockets."""
    resources: Sequence[str] = ()
    """For scripts, styles, pictures, fonts and media; "https://*.example.com" is for subdomains."""
    frames: Sequence[str] = ()
    """For frames inside the view."""
    base_uris: Sequence[str] = ()
    """For the base of relative URLs."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            given: Sequence[str] = getattr(self, name)
            for each in (given,) if isinstance(given, str) else given:
                if isinstance(given, str) or not is_origin(each):
                    raise RegistrationError(
                        f"Csp({name}={given!r}): write a list of origins, such as ['https://api.example.com']"
                    )

    def as_meta(self) -> JSONObject:
        """Return it as `_meta.ui.csp` has it."""
        return {wire: list(getattr(self, ours)) for wire, ours in _MEMBERS.items() if getattr(self, ours)}


_MEMBERS: Final = {
    "connectDomains": "connect",
    "resourceDomains": "resources",
    "frameDomains": "frames",
    "baseUriDomains": "base_uris",
}


def is_origin(value: object) -> bool:
    """Return whether a value is one origin of the web, perhaps with `*.` before its host, and nothing else."""
    return isinstance(value, str) and _ORIGIN.fullmatch(value) is not None


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A view as a host may show it: checked, and with no more than it declared."""

    uri: str
    html: str
    csp: Csp = Csp()
    wasm: bool = False
    """Whether it may compile WebAssembly (`csp.wasmUnsafeEval`)."""
    permissions: Sequence[Permission] = ()
    prefers_border: bool | None = None
    ignored: Sequence[str] = ()
    """What it declared that is not known or not allowed, for a log."""


# The metadata.


def ui_of(meta: Mapping[str, JSON] | None) -> Mapping[str, JSON]:
    """Return the member `ui` of `_meta`; empty where it is missing, or nothing of the kind."""
    found: JSON = meta.get("ui") if meta is not None else None
    return found if is_mapping(found) else {}


def view_uri(tool: Tool) -> str | None:
    """Return the URI of the view of a tool; None if it has none."""
    found: JSON = ui_of(tool.meta).get("resourceUri", (tool.meta or {}).get(FLAT_KEY))
    return found if isinstance(found, str) and found.startswith("ui://") else None


def is_for_app(tool: Tool) -> bool:
    """Return whether views of its server may call a tool."""
    visibility: JSON = ui_of(tool.meta).get("visibility")
    return visibility is None or (is_array(visibility) and "app" in visibility)


def read_view(uri: str, result: ReadResourceResult, listed: Resource | None = None) -> View:
    """Return the view in the answer to `resources/read`; `listed` is its entry in a list, which counts where that is silent.

    Raises: ViewError.
    """
    contents = list(result.contents)
    if not uri.startswith("ui://"):
        raise ViewError(f"{uri[:200]!r} is not the URI of a view: it begins with ui://")
    if len(contents) != 1 or contents[0].uri != uri:
        raise ViewError("the server sent something else than the view")
    content = contents[0]
    if (content.mime_type or "").replace(" ", "").lower() != MIME_TYPE:
        raise ViewError(f"the view is of the type {str(content.mime_type)[:100]!r}, and not {MIME_TYPE}")
    try:
        if isinstance(content, TextResourceContents):
            data = content.text.encode()
        elif isinstance(content, BlobResourceContents):
            data = content.bytes
        else:
            raise ViewError("the view is neither text nor bytes")
        html = data.decode()
    except ViewError:
        raise
    except ValueError as problem:
        raise ViewError(f"the view is not text: {problem}") from None
    if said := html_problem(data):
        raise ViewError(said)
    ui = {**ui_of(listed.meta if listed is not None else None), **ui_of(content.meta)}
    return _view(uri, html, ui)


def html_problem(data: bytes) -> str | None:
    """Return why bytes are not an HTML document that hosts show; None if they are."""
    if len(data) > MAX_BYTES:
        return f"the view has more than {MAX_BYTES} bytes"
    return None if _DOCTYPE.match(data) else "the view is not an HTML5 document: begin it with <!doctype html>"


def _view(uri: str, html: str, ui: Mapping[str, JSON]) -> View:
    """Return a view with what is known, and allowed, of its metadata."""
    ignored: list[str] = []
    csp: JSON = ui.get("csp")
    given: Mapping[str, JSON] = csp if is_object(csp) else {}
    origins = {ours: _origins(given.get(wire), wire, ignored) for wire, ours in _MEMBERS.items()}
    ignored += [f"csp.{each}"[:100] for each in given if each not in _MEMBERS and each != "wasmUnsafeEval"]
    wanted: JSON = ui.get("permissions")
    permissions: Mapping[str, JSON] = wanted if is_object(wanted) else {}
    ignored += [f"permissions.{each}"[:100] for each in permissions if each not in FEATURES]
    border: JSON = ui.get("prefersBorder")
    return View(
        uri=uri,
        html=html,
        csp=Csp(**origins),
        wasm=given.get("wasmUnsafeEval") is True,
        permissions=[
            each
            for each in ("camera", "microphone", "geolocation", "clipboardWrite")
            if is_object(permissions.get(each))
        ],
        prefers_border=border if isinstance(border, bool) else None,
        ignored=ignored,
    )


def _origins(value: JSON, name: str, ignored: list[str]) -> list[str]:
    if value is None:
        return []
    values = value if is_array(value) else [value]
    good = [each for each in values[:_MOST_ORIGINS] if is_origin(each)]
    ignored += [f"csp.{name}: {str(each)[:100]}" for each in values[:_MOST_ORIGINS] if not is_origin(each)]
    ignored += [f"csp.{name}: all but {_MOST_ORIGINS}"] if len(values) > _MOST_ORIGINS else []
    return good


# Headers for a browser.


def csp_header(view: View, ancestors: Sequence[str] = ()) -> str:
    """Return the `Content-Security-Policy` of a view: what it did not declare is blocked. `ancestors` may frame it."""
    others = " ".join(["", *view.csp.resources])
    wasm = " 'wasm-unsafe-eval'" if view.wasm else ""
    rules = {
        "default-src": "'none'",
        "script-src": f"'self' 'unsafe-inline'{wasm}{others}",
        "style-src": f"'self' 'unsafe-inline'{others}",
        "img-src": f"'self' data:{others}",
        "font-src": f"'self' data:{others}",
        "media-src": f"'self' data:{others}",
        "connect-src": " ".join(view.csp.connect) or "'none'",
        "frame-src": " ".join(view.csp.frames) or "'none'",
        "base-uri": " ".join(view.csp.base_uris) or "'self'",
        "object-src": "'none'",
        "form-action": "'none'",
        "frame-ancestors": " ".join(ancestors) or "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def permissions_header(view: View, granted: Sequence[Permission] = ()) -> str:
    """Return the `Permissions-Policy` of a view: of what it asked for, what a host has granted, and nothing else."""
    own = {each for each in granted if each in view.permissions}
    return ", ".join(f"{feature}=({'self' if name in own else ''})" for name, feature in FEATURES.items())


def sandbox_of(view: View, granted: Sequence[Permission] = ()) -> JSONObject:
    """Return what `hostCapabilities.sandbox` says: what was granted, and not what was asked for."""
    own = {each: dict[str, JSON]() for each in granted if each in view.permissions}
    found: JSONObject = {"csp": view.csp.as_meta()}
    return {**found, "permissions": own} if own else found


def tool_meta(uri: str | None, visibility: Sequence[Visibility] | None) -> Meta:
    """Return the `_meta` of a tool with a view. Raises: RegistrationError."""
    if visibility is not None and (isinstance(visibility, str) or not visibility or {*visibility} - {"model", "app"}):
        raise RegistrationError(f'visibility={visibility!r}: write ["model"], ["app"] or both')
    ui: JSONObject = {"resourceUri": uri} if uri is not None else {}
    return {"ui": ui if visibility is None else {**ui, "visibility": list(visibility)}}
