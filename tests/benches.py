"""A workbench for tests: a server of this process or a command, and a browser's requests without a browser."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from linkspan.workbench.bench import Bench, Setup
from linkspan.workbench.code import Subject
from linkspan.workbench.serving import BenchServer

PATIENCE = 30.0


class Desk:
    """A workbench, what it says on the terminal, and a person's requests."""

    def __init__(self, bench: Bench, server: BenchServer, said: list[tuple[str, str]]) -> None:
        self.bench = bench
        self.server = server
        self.said = said

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str | None] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request as our page does, with other headers where they are given; None leaves one out."""
        own: dict[str, str | None] = {"Host": f"127.0.0.1:{self.server.port}", "Linkspan-Bench": self.server.token}
        own |= {"Content-Type": "application/json"} if body is not None else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {
            **own,
            "Content-Length": str(len(body)) if body is not None else None,
            **(headers or {}),
        }.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders()
        if body is not None:
            connection.send(body)
        answer = connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        connection.close()
        return found

    def ask(self, path: str, **body: Any) -> Any:
        """Ask for something; return the answer."""
        if body or path in ("restart", "forget"):
            status, _, data = self.send("POST", f"/api/{path}", json.dumps(body).encode())
        else:
            status, _, data = self.send("GET", f"/api/{path}")
        assert status == 200, data
        return json.loads(data)

    def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until something holds; return it."""
        end = time.monotonic() + PATIENCE
        while not (found := holds()):
            assert time.monotonic() < end, f"it does not come about: {self.said}"
            time.sleep(0.01)
        return found

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return what has happened, of one kind."""
        found = [json.loads(line) for line in self.bench.events.after(0, 0) or ()]
        return [each for each in found if each["type"] == kind]

    def ready(self) -> None:
        """Wait until the server is connected, or cannot be."""
        self.until(lambda: any(kind in ("ready", "broken") for kind, _ in self.said))

    def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, kind: str = "tool", **more: Any
    ) -> dict[str, Any]:
        """Make a call and wait for its end."""
        number = self.ask("call", kind=kind, name=name, arguments=dict(arguments or {}), **more)["id"]
        return self.ended(number)

    def ended(self, number: int) -> dict[str, Any]:
        """Wait for the end of a call."""

        def end() -> dict[str, Any] | None:
            exchange = self.bench.exchanges.get(number)
            return exchange.shown() if exchange is not None and exchange.state != "running" else None

        found: dict[str, Any] = self.until(end)
        return found


@contextmanager
def desk(target: Any, *, wait: bool = True, **setup: Any) -> Iterator[Desk]:
    """Serve a workbench for a target, connected or broken; with `wait=False`, at once."""
    said: list[tuple[str, str]] = []
    words = (target,) if isinstance(target, str) else ("server.py",)
    setup.setdefault("subject", Subject(words, target if isinstance(target, str) and "://" in target else ""))
    bench = Bench(Setup(target, **setup), lambda kind, text: said.append((kind, text)))
    server = BenchServer(bench, 0)
    found = Desk(bench, server, said)
    try:
        bench.start()
        if wait:
            found.ready()
        yield found
    finally:
        server.close()
        bench.close()
