"""A page of a host on 127.0.0.1, and views at their own names, on one port: for Chromium."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from linkspan.apps import Preview, Views

__all__ = ["Pages", "opened", "serving", "until"]

HOST = """<!doctype html><title>host</title><div id="place"></div><script type="module">
import { show } from "/view.js";
const send = async (text) => (await fetch("/messages", { method: "POST", body: text })).json();
window.view = show(document.querySelector("#place"), location.hash.slice(1), "", send);
</script>"""


class Pages(ThreadingHTTPServer):
    """The page of a host on 127.0.0.1, and the views at their own names, on one port."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.views = Views()
        self.received: list[dict[str, Any]] = []
        self.answer: Callable[[str], list[Any]] = lambda text: []

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Pages

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        view = self.server.views.respond(self.headers["host"], "GET", self.path)
        if view is not None:
            self.reply(view.status, dict(view.headers), view.body)
        elif self.path == "/view.js":
            body = files("linkspan.apps").joinpath("view.js").read_bytes()
            self.reply(200, {"Content-Type": "text/javascript"}, body)
        else:
            self.reply(200, {"Content-Type": "text/html"}, HOST.encode())

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        self.server.received.append(json.loads(text))
        self.reply(200, {"Content-Type": "application/json"}, json.dumps(self.server.answer(text)).encode())

    def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name != "Content-Length":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Pages]:
    """Serve until the block ends."""
    pages = Pages()
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    yield pages
    pages.shutdown()
    pages.server_close()


def opened(browser: Any, pages: Pages, preview: Preview, answer: Callable[[str], list[Any]] | None = None) -> Any:
    """Open the host's page with a view, and return the page. `answer` takes what the view posts, else the preview does."""
    name = pages.views.show(preview.view, pages.origin)
    pages.answer = answer or preview.receive
    page = browser.new_page()
    page.goto(f"{pages.origin}/#http://{name}:{pages.server_address[1]}/")
    return page


def until(page: Any, done: Callable[[], object]) -> None:
    for _ in range(600):
        if done():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not happen in 30 s")
