"""The address of the workbench survives a restart of `linkspan dev`, and its key goes to nobody else."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benches import desk
from http_browser import chromium
from linkspan import Server
from linkspan.workbench.address import BenchAddress, keep_address, proof_of, read_address
from linkspan.workbench.bench import Bench, Setup
from linkspan.workbench.code import Subject
from linkspan.workbench.serving import BenchServer

TOKEN = "k" * 43


def harbour() -> Server:
    server = Server("harbour")

    @server.tool(annotations={"read_only_hint": True})
    def tide(port: str) -> str:
        """Say when the tide is high."""
        return f"high in {port}"

    return server


@contextmanager
def running(kept: BenchAddress | None = None, port: int = 0) -> Generator[BenchServer]:
    """Serve a workbench, at the address of the last run if there was one."""
    bench = Bench(Setup(harbour(), subject=Subject(("server.py",))))
    server = BenchServer(bench, kept.port if kept is not None else port, kept)
    bench.start()
    try:
        yield server
    finally:
        server.close()
        bench.close()


def test_an_address_is_kept_for_its_owner_only_and_for_some_days(tmp_path: Path) -> None:
    path = tmp_path / "dev" / "one.address"
    assert read_address(path) is None
    keep_address(path, BenchAddress(6280, TOKEN))
    assert read_address(path) == BenchAddress(6280, TOKEN)
    if os.name != "nt":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o644)
        assert read_address(path) is None
        path.chmod(0o600)
    os.utime(path, (0, 0))
    assert read_address(path) is None
    for damaged in ('{"port": 6280, "token": "short"}', '{"port": 0, "token": "' + TOKEN + '"}', "{", "[]"):
        path.write_text(damaged)
        assert read_address(path) is None


def test_the_key_stays_with_its_port_only() -> None:
    with running() as first, running(BenchAddress(first.port, TOKEN)) as second:
        assert second.port != first.port
        assert second.token != TOKEN
    with running(BenchAddress(first.port, TOKEN)) as again:
        assert (again.port, again.token) == (first.port, TOKEN)


def test_the_workbench_proves_that_it_knows_the_key_for_its_own_address() -> None:
    with desk(harbour()) as found:
        nonce = "0123456789abcdef" * 2
        host = f"127.0.0.1:{found.server.port}"
        bare: dict[str, str | None] = {"Linkspan-Bench": None}
        status, _, data = found.send("GET", f"/api/alive?nonce={nonce}", None, bare)
        assert (status, json.loads(data)["proof"]) == (200, proof_of(found.server.token, nonce, host))
        assert found.server.token.encode() not in data
        assert found.send("GET", "/api/alive?nonce=short", None, bare)[0] == 403
        foreign: dict[str, str | None] = {**bare, "Origin": "http://evil.example"}
        assert found.send("GET", f"/api/alive?nonce={nonce}", None, foreign)[0] == 403


class TestWindow:
    """A window that is open while `linkspan dev` ends and begins."""

    @pytest.fixture
    def page(self) -> Generator[Any]:
        pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[peers]'")
        with chromium() as browser:
            opened = browser.new_page(viewport={"width": 1300, "height": 800})
            opened.set_default_timeout(60_000)
            yield opened
            opened.close()

    def opened(self, page: Any, server: BenchServer) -> None:
        page.goto(server.url)
        page.locator("#list .row").first.click()
        page.locator("#work li[data-name=port] textarea").fill("Oban")

    def test_it_goes_on_with_what_was_typed_when_the_workbench_is_started_again(self, page: Any) -> None:
        with running() as first:
            self.opened(page, first)
        page.locator(".state.gone").wait_for()
        page.locator("#work article form button[type=submit]").click()
        page.get_by_text("linkspan dev has ended").first.wait_for()
        with running(BenchAddress(first.port, first.token)):
            page.locator(".state.ready").wait_for()
            page.locator("#panel-Log", has_text="was started again").wait_for()
            assert page.locator("#work li[data-name=port] textarea").input_value() == "Oban"
            page.locator("#work article form button[type=submit]").click()
            page.locator("#work .out", has_text="high in Oban").wait_for()

    def test_it_says_that_it_is_over_when_the_workbench_has_another_key(self, page: Any) -> None:
        with running() as first:
            self.opened(page, first)
        page.locator(".state.gone").wait_for()
        with running(port=first.port) as second:
            assert second.port == first.port
            page.locator(".state.lost").wait_for()
            page.get_by_text("open the address that the terminal shows").first.wait_for()

    def test_another_program_at_its_address_does_not_get_the_key(self, page: Any) -> None:
        seen: list[str] = []

        class Thief(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(f"{self.path} {self.headers}")
                body = b'{"proof": "00", "run": "mine"}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        with running() as first:
            self.opened(page, first)
        page.locator(".state.gone").wait_for()
        thief = ThreadingHTTPServer(("127.0.0.1", first.port), Thief)
        threading.Thread(target=thief.serve_forever, args=(0.05,), daemon=True).start()
        try:
            page.locator(".state.lost").wait_for()
            page.locator("#work article form button[type=submit]").click()
            page.get_by_text("This window is over").first.wait_for()
        finally:
            thief.shutdown()
            thief.server_close()
        assert seen
        assert first.token not in "".join(seen)
