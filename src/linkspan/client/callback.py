"""Where a login comes back from the browser: one path on 127.0.0.1, which is answered once. And how the browser is opened.

Spec: RFC 8252, sections 7.3 and 8. The page loads nothing and names nothing, not even whether the login has succeeded: what
came is believed only after the flow has checked it (RFC 9207).
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

PATH: Final = "/callback"
_LONGEST_WAIT: Final = 10.0
"""Seconds for the head of one request: browsers open connections in advance, and send nothing on them."""
_URL: Final = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Connection": "close",
}
_DONE: Final = "Response received. You can close this window and return to the program that asked you to log in."
_NOT_ASKED: Final = "No login with this state is waiting for an answer here. Start it again from the program."


class CallbackReceiver:
    """Listens on the loopback interface from the time it is made until `close`."""

    def __init__(self, port: int | None = None) -> None:
        """Listen on `port`, by default any that is free. Raises: OSError if it is taken."""
        self._server = _RedirectServer(("127.0.0.1", port or 0), _RedirectHandler)
        self._server.receiver = self
        self._lock = threading.Lock()
        self._expected: tuple[str, Callable[[str], object]] | None = None
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="linkspan-callback", daemon=True).start()

    @property
    def redirect_uri(self) -> str:
        """Where the browser is to be sent."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    def expect(self, state: str, take: Callable[[str], object]) -> None:
        """Pass the query of the first request that has this `state` to `take`, in a thread; refuse all others."""
        self._expected = state, take

    def close(self) -> None:
        """Stop listening. Any number of times."""
        self._server.shutdown()
        self._server.server_close()

    def receive(self, query: str) -> bool:
        """Take a query if it is expected; return whether it was."""
        states = parse_qs(query, keep_blank_values=True).get("state", [])
        with self._lock:
            if self._expected is None or len(states) != 1:
                return False
            expected, take = self._expected
            if not compare_digest(states[0].encode(), expected.encode()):
                return False
            self._expected = None
        take(query)
        return True


class _RedirectServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # there it would let another program take the port over
    receiver: CallbackReceiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a connection that breaks off is the browser's business."""


class _RedirectHandler(BaseHTTPRequestHandler):
    timeout = _LONGEST_WAIT

    def do_GET(self) -> None:
        """Answer the browser."""
        assert isinstance(self.server, _RedirectServer)
        receiver, (path, _, query) = self.server.receiver, self.path.partition("?")
        if self.headers.get_all("host") not in ([f"127.0.0.1:{receiver.port}"], [f"localhost:{receiver.port}"]):
            self._answer(400, "This address is for a login in progress on this machine.")
        elif path != PATH:
            self._answer(404, "There is nothing here.")
        elif receiver.receive(query):
            self._answer(200, _DONE)
        else:
            self._answer(400, _NOT_ASKED)

    def _answer(self, status: int, text: str) -> None:
        page = f"<!doctype html><html lang=en><meta charset=utf-8><title>Linkspan</title><p>{text}\n".encode()
        self.send_response_only(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the path has the code in it."""


def can_open_browser() -> bool:
    """Return whether this machine has a browser with a window; one that would take over the terminal does not count."""
    import webbrowser

    if sys.platform not in ("win32", "darwin") and not any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    ):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def open_browser(url: str) -> bool:
    """Open a URL in the user's browser, never by a shell; return whether that was possible. Raises: ValueError."""
    import webbrowser

    if urlsplit(url).scheme not in ("http", "https") or not _URL.fullmatch(url):
        raise ValueError("only http and https URLs are opened, and only such as are properly encoded")
    if not can_open_browser():
        return False
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
