"""A protected server in the workbench: the login is shown, and what comes of it stays with the Python process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from benches import PATIENCE, Desk, desk
from linkspan.client import authorizing
from login_site import Site, login_site, visit


@pytest.fixture(scope="module")
def only_site() -> Iterator[Site]:
    with login_site() as found:
        yield found


@pytest.fixture
def site(only_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    only_site.begin_anew()
    authorizing._accesses.clear()
    return only_site


def everything_shown(found: Desk) -> str:
    """Return all that a browser can read."""
    events = b"\n".join(found.bench.events.after(0, 0) or ()).decode()
    return json.dumps(found.ask("state")) + events


def test_the_page_says_where_to_log_in_and_never_gets_the_token(site: Site) -> None:
    opened: SimpleQueue[str] = SimpleQueue()
    with desk(site.url, wait=False, open_url=opened.put) as found:
        url = opened.get(timeout=PATIENCE)
        login = found.until(lambda: found.ask("state")["login"])
        assert login["url"] == url
        assert site.base == f"http://{login['host']}"
        back = visit(url)
        assert back is not None
        visit(back)
        found.until(lambda: found.ask("state")["status"] == "ready")
        assert found.ask("state")["login"] is None
        called = found.call("write", {"text": "x"})
        assert "the-secret-token" not in everything_shown(found) + json.dumps(called)
        assert "$TOKEN" in found.ask(f"code?id={called['id']}")["curl"]
        assert site.tokens


def test_a_restart_gives_a_login_up_that_never_comes(site: Site) -> None:
    opened: SimpleQueue[str] = SimpleQueue()
    with desk(site.url, wait=False, open_url=opened.put) as found:
        first = opened.get(timeout=PATIENCE)
        found.until(lambda: found.ask("state")["login"])
        found.ask("restart")
        second = opened.get(timeout=PATIENCE)
        assert second != first
        back = visit(second)
        assert back is not None
        visit(back)
        found.until(lambda: found.ask("state")["status"] == "ready")


def test_a_person_logs_in_from_the_page(site: Site) -> None:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[peers]'")
    from http_browser import chromium

    with desk(site.url, wait=False, open_url=lambda _: None) as found, chromium() as browser:
        context: Any = browser.new_context()
        context.set_default_timeout(PATIENCE * 1000)
        page = context.new_page()
        page.goto(found.server.url)
        with page.expect_popup() as popup:
            page.get_by_role("link", name="Open the login page").click()
        popup.value.get_by_text("You can close this window").wait_for()
        page.locator("#list .row").first.wait_for()
        assert page.locator(".login").count() == 0
        context.close()
