"""Attacks of a web page on a server that listens on this machine, by a real browser: the page may send, and nothing runs.

SEC-1, H5-11. The name evil.example leads to 127.0.0.1 in this browser, as after DNS rebinding.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_talk import body, mirror

from http_browser import chromium
from ports import reserve_port

SERVER = """
import sys
from linkspan import Server

server = Server("target")

@server.tool
def touch() -> str:
    open("touched", "a").write("x")
    return "touched"

app = server.asgi()
if __name__ == "__main__":
    if sys.argv[1] == "asgi":
        import uvicorn
        uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
    else:
        server.run("http", host="0.0.0.0", port=int(sys.argv[2]), path="/", workers=2)
"""
CALL = body("tools/call", {"name": "touch", "arguments": {}})
OLD_CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "touch", "arguments": {}}}
SEND = """async ([url, options, text]) => {
    options.body = options.blob ? new Blob([text]) : text;
    try { const answer = await fetch(url, options); return answer.type + " " + answer.status; }
    catch (error) { return String(error); }
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser in which the attacker's name leads here, and that leaves it to servers to protect themselves, as most do."""
    unprotected = "--disable-features=LocalNetworkAccessChecks"
    with chromium("--host-resolver-rules=MAP evil.example 127.0.0.1", unprotected) as found:
        yield found


class Target:
    """A server process, and what it was made to do."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._touched = folder / "touched"
        (folder / "target.py").write_text(SERVER)
        self.port = reserve_port()
        command = [sys.executable, "target.py", kind, str(self.port)]
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < give_up
                time.sleep(0.02)

    @property
    def calls(self) -> int:
        """How often the tool has run."""
        return len(self._touched.read_text()) if self._touched.exists() else 0


@pytest.fixture(scope="module", params=["asgi", "run"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """`asgi()` under uvicorn on loopback, and `run("http")` on every address, each with its defaults."""
    found = Target(request.param, tmp_path_factory.mktemp("target"))
    yield found
    found.process.terminate()
    found.process.wait(60)


def send(browser: Any, page_at: str, url: str, options: dict[str, Any], message: Any) -> str:
    """Open a page of the attacker's, and let its script send a message; return what the script sees."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.route(page_at, lambda route: route.fulfill(body="<title>kittens</title>", content_type="text/html"))
        page.goto(page_at)
        seen: str = page.evaluate(SEND, [url, options, json.dumps(message)])
        return seen
    finally:
        context.close()


def test_a_page_whose_name_was_bound_anew_runs_nothing(browser: Any, target: Target) -> None:
    """DNS rebinding: to the browser, the server is the page's own origin."""
    origin = f"http://evil.example:{target.port}"
    headers = mirror(CALL) | {"content-type": "application/json"}
    seen = send(browser, f"{origin}/page", f"{origin}/", {"method": "POST", "headers": headers}, CALL)
    assert seen == "basic 421"
    assert target.calls == 0


@pytest.mark.parametrize("message", [CALL, OLD_CALL], ids=["modern", "handshake"])
def test_a_page_that_sends_without_a_content_type_runs_nothing(browser: Any, target: Target, message: Any) -> None:
    """Browsers send this to anybody without asking first, because a form could; a Blob without a type names none."""
    options = {"method": "POST", "mode": "no-cors", "blob": True}
    seen = send(browser, "http://kittens.example/", f"http://127.0.0.1:{target.port}/", options, message)
    assert seen == "opaque 0"  # it was sent, and answered
    assert target.calls == 0


def test_the_same_message_from_this_machine_runs(target: Target) -> None:
    """Without this, the tests above could pass because nothing works."""
    content = json.dumps(CALL).encode()
    head = {"host": f"127.0.0.1:{target.port}", "content-type": "application/json", "content-length": str(len(content))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (head | mirror(CALL)).items())
    before = target.calls
    with socket.create_connection(("127.0.0.1", target.port), timeout=60) as connection:
        connection.sendall(f"POST / HTTP/1.1\r\n{lines}connection: close\r\n\r\n".encode() + content)
        assert connection.makefile("rb").readline().split()[1] == b"200"
    assert target.calls == before + 1
