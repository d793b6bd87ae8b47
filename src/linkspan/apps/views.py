"""Serves views to a browser on this machine, each at an origin of its own: `http://RANDOM.localhost:PORT`.

Law: a host name that is made here serves one view and nothing else, and no other host name serves a view. A page of the host, at
`http://127.0.0.1:PORT`, has a frame (`view.js`) with the sandbox proxy that the specification asks for, and that has the view in
a frame without an origin. The policy of the view is an HTTP header, which no document can loosen.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from linkspan.apps.policy import FEATURES, Permission, View, csp_header, permissions_header
from linkspan.errors import LinkspanError

__all__ = ["ViewResponse", "Views"]

MAX_VIEWS: Final = 16
_DOMAIN: Final = ".localhost"
_PROXY: Final = """
const view = document.querySelector("iframe");
const host = "HOST";
addEventListener("message", (event) => {
  const method = event.data && event.data.method;
  if (typeof method === "string" && method.startsWith("ui/notifications/sandbox-")) return;
  if (event.source === parent && event.origin === host) view.contentWindow.postMessage(event.data, "*");
  else if (event.source === view.contentWindow) parent.postMessage(event.data, host);
});
parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} }, host);
view.src = "/view";
"""
"""The view has no origin (`null`), so its messages are recognized by their source."""


class ViewResponse(msgspec.Struct, frozen=True):
    """What to answer a browser."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _ShownView(msgspec.Struct, frozen=True):
    view: View
    granted: Sequence[Permission]
    host: str


class Views:
    """The views that are shown now. The oldest of more than 16 is forgotten."""

    def __init__(self) -> None:
        """Begin without views."""
        self._shown: dict[str, _ShownView] = {}

    def show(self, view: View, host_origin: str, granted: Sequence[Permission] = ()) -> str:
        """Serve a view from now on, framed by pages of `host_origin`, such as "http://127.0.0.1:6280"; return its host name.

        Put a frame with `src="http://NAME:PORT/"` into the page, with `allow` as `allow_of` returns it.
        """
        scheme, _, authority = host_origin.partition("://")
        if scheme not in ("http", "https") or not authority or "/" in authority or '"' in host_origin:
            raise LinkspanError(f"{host_origin!r} is not the origin of a page, such as 'http://127.0.0.1:6280'")
        name = f"v{secrets.token_hex(16)}{_DOMAIN}"
        while len(self._shown) >= MAX_VIEWS:
            self._shown.pop(next(iter(self._shown)))
        self._shown[name] = _ShownView(view, granted, host_origin)
        return name

    def forget(self, name: str) -> None:
        """Serve a view no more."""
        self._shown.pop(name, None)

    def allow_of(self, name: str) -> str:
        """Return the attribute `allow` of the frame: the features that were granted."""
        shown = self._shown[name]
        return "; ".join(FEATURES[each] for each in shown.granted if each in shown.view.permissions)

    def respond(self, host: str | None, method: str, path: str) -> ViewResponse | None:
        """Answer a request by its header `Host`; None where the host name is not that of a view."""
        name = (host or "").lower().rpartition(":")[0] or (host or "").lower()
        if not name.endswith(_DOMAIN):
            return None
        shown = self._shown.get(name)
        if shown is None or method not in ("GET", "HEAD") or path not in ("/", "/view"):
            return _response(404, b"", "default-src 'none'", "text/plain")
        if path == "/":
            return self._proxy(shown)
        own = f"http://{(host or '').lower()}"  # the frame around it
        document = shown.view.html.encode()
        response = _response(200, document, csp_header(shown.view, [own, shown.host]), "text/html; charset=utf-8")
        policy = {"Permissions-Policy": permissions_header(shown.view, shown.granted)}
        return msgspec.structs.replace(response, headers={**response.headers, **policy})

    def _proxy(self, shown: _ShownView) -> ViewResponse:
        script = _PROXY.replace("HOST", shown.host)
        allow = "; ".join(f"{FEATURES[each]} *" for each in shown.granted if each in shown.view.permissions)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        page = (
            '<!doctype html><meta charset="utf-8"><title>view</title>'
            "<style>html,body,iframe{margin:0;border:0;width:100%;height:100%;display:block}</style>"
            f'<iframe title="view" sandbox="allow-scripts allow-forms" allow="{allow}"></iframe><script>{script}</script>'
        )
        policy = (
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; frame-src 'self'; "
            f"base-uri 'none'; form-action 'none'; frame-ancestors {shown.host}"
        )
        return _response(200, page.encode(), policy, "text/html; charset=utf-8")


def _response(status: int, body: bytes, policy: str, kind: str) -> ViewResponse:
    headers = {
        "Content-Type": kind,
        "Content-Length": str(len(body)),
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    return ViewResponse(status, headers, body)
