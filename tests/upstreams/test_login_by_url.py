"""A call that needs a login at a server elsewhere asks its user to open the page, where the client can show one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from linkspan import Server, SyncClient
from linkspan.auth import OAuth
from linkspan.client import callback
from login_site import Site, login_site, visit


class Browser:
    """The browser of this machine, whose user is logged in."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def __call__(self, url: str) -> bool:
        self.opened.append(url)
        threading.Thread(target=follow, args=(url,), daemon=True).start()
        return True


def follow(url: str) -> None:
    """Log in at a page, and go where it leads."""
    place = visit(url)
    assert place is not None
    urlopen(place, timeout=30).close()


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Browser:
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / name))
    found = Browser()
    monkeypatch.setattr(callback, "open_browser", found)
    return found


@pytest.fixture
def site() -> Iterator[Site]:
    with login_site() as found:
        yield found


def mounted(site: Site) -> Server:
    server = Server("here")
    server.mount(site.url, auth=OAuth(), list_timeout=60)
    return server


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_call_asks_for_the_login_that_it_needs_and_goes_on_after_it(site: Site, browser: Browser, era: Any) -> None:
    asked: list[str] = []

    def answer(question: Any) -> dict[str, Any]:
        assert question.mode == "url"
        asked.append(question.message)
        threading.Thread(target=follow, args=(question.url,), daemon=True).start()
        return {}

    with SyncClient(mounted(site), era=era, elicitation=answer) as client:
        assert [each.name for each in client.list_tools()] == ["who", "write"]
        assert len(browser.opened) == 1  # nobody could be asked for the list
        site.tokens.clear()
        site.refresh_tokens.clear()
        assert client.call_tool("write", {"text": "done"}).text == "done"
        assert len(asked) == 1
        assert "needs a login: open its page" in asked[0]
        assert client.call_tool("write", {"text": "again"}).text == "again"
    assert (len(asked), len(browser.opened)) == (1, 1)


def test_a_user_who_does_not_want_to_log_in_ends_the_call(site: Site, browser: Browser) -> None:
    with SyncClient(mounted(site), elicitation=lambda _: None) as client:
        client.list_tools()
        site.tokens.clear()
        site.refresh_tokens.clear()
        result = client.call_tool("write", {"text": "done"})
    assert result.is_error
    assert "the user does not want to log in" in result.text
    assert len(browser.opened) == 1


def test_the_browser_opens_for_a_client_that_shows_no_urls(site: Site, browser: Browser) -> None:
    with SyncClient(mounted(site)) as client:
        client.list_tools()
        site.tokens.clear()
        site.refresh_tokens.clear()
        assert client.call_tool("write", {"text": "done"}).text == "done"
    assert len(browser.opened) == 2
