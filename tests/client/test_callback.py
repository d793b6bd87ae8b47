"""Where a login comes back from the browser, and which URLs a browser is opened with."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest

from linkspan.client import callback
from linkspan.client.callback import CallbackReceiver, open_browser


class Expecting:
    """A receiver that expects the state `right`, and what came."""

    def __init__(self) -> None:
        self.receiver = CallbackReceiver()
        self.came: list[str] = []
        self.receiver.expect("right", self.came.append)

    def get(self, target: str, method: str = "GET", host: str | None = None) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self.receiver.port, timeout=10)
        connection.request(method, target, headers={"Host": host} if host else {})
        return connection.getresponse()


@pytest.fixture
def expecting() -> Iterator[Expecting]:
    found = Expecting()
    yield found
    found.receiver.close()


def test_it_takes_the_query_of_its_login_once(expecting: Expecting) -> None:
    assert expecting.receiver.redirect_uri == f"http://127.0.0.1:{expecting.receiver.port}/callback"
    answer = expecting.get("/callback?code=c%26d&state=right&iss=https%3A%2F%2Fa")
    assert answer.status == 200
    assert expecting.get("/callback?code=again&state=right").status == 400
    assert expecting.came == ["code=c%26d&state=right&iss=https%3A%2F%2Fa"]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/callback?code=c&state=wrong", 400),
        ("/callback?code=c", 400),
        ("/callback?code=c&state=right&state=wrong", 400),
        ("/callback?code=c&state=", 400),
        ("/callback?code=c&state=r%C3%AFght", 400),
        ("/other?code=c&state=right", 404),
        ("/callback/?code=c&state=right", 404),
        ("/favicon.ico", 404),
    ],
)
def test_state_replay_and_code_injection_by_another_page_end_no_login(
    expecting: Expecting, target: str, status: int
) -> None:
    assert expecting.get(target).status == status
    assert expecting.came == []
    assert expecting.get("/callback?code=c&state=right").status == 200, "the login goes on"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example"])
def test_a_rebound_name_is_refused(expecting: Expecting, host: str) -> None:
    assert expecting.get("/callback?code=c&state=right", host=host).status == 400
    assert expecting.came == []


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS"])
def test_it_answers_get_only(expecting: Expecting, method: str) -> None:
    assert expecting.get("/callback?code=c&state=right", method).status == 501
    assert expecting.came == []


def test_the_page_loads_nothing_shows_nothing_and_is_not_kept(expecting: Expecting) -> None:
    answer = expecting.get("/callback?error=access_denied&error_description=%3Cscript%3E&state=right")
    page = answer.read().decode()
    assert "script" not in page
    assert "denied" not in page
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; frame-ancestors 'none'")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "Server" not in answer.headers


def test_connections_that_send_nothing_hold_up_no_login(expecting: Expecting) -> None:
    idle = [socket.create_connection(("127.0.0.1", expecting.receiver.port)) for _ in range(5)]
    assert expecting.get("/callback?code=c&state=right").status == 200
    for each in idle:
        each.close()


def test_it_listens_on_loopback_only_and_a_taken_port_is_an_error(expecting: Expecting) -> None:
    with pytest.raises(OSError, match="in use"):
        CallbackReceiver(expecting.receiver.port)


def test_of_many_requests_at_once_one_is_taken(expecting: Expecting) -> None:
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(expecting.get("/callback?state=right").status))
        for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(statuses) == [200] + [400] * 7
    assert len(expecting.came) == 1


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "vbscript:x",
        "https://a.example/ --flag",
        "https://a.example/\n",
        "https://a.example/`id`",
        'https://a.example/"x',
        "-x",
        "",
    ],
)
def test_a_browser_is_opened_with_http_and_https_only(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(callback, "can_open_browser", lambda: True)
    monkeypatch.setattr("webbrowser.open", lambda url: pytest.fail("it was opened"))
    with pytest.raises(ValueError, match="only http and https"):
        open_browser(url)


def test_without_a_screen_no_browser_takes_over_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("webbrowser.open", lambda url: pytest.fail("it was opened"))
    assert open_browser("https://login.example.com/") is False
