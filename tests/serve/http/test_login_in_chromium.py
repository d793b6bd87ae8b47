"""The page of a protected server in a headless Chromium: what it shows without a token, and how people get one there."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest

from http_browser import chromium
from linkspan import Grant, Server
from linkspan.auth import ApiKeys, Protected
from over_http import serving

PATIENCE = 45_000
EMPTY = Server("empty").asgi()
"""Takes part in the lifespan of what serves it."""


class Login:
    """An authorization server that approves everything at once, and answers pages of other origins unless it is `closed`."""

    def __init__(self) -> None:
        self.base = ""
        self.closed = False
        self.place = "/.well-known/oauth-authorization-server"
        """Where its metadata are."""
        self.missing: tuple[int, dict[str, str], Any] = (404, {}, None)
        self.asked: list[dict[str, str]] = []
        self.registered: list[dict[str, Any]] = []
        self.metadata: dict[str, Any] = {}
        self.redirect: dict[str, str] = {}
        """Replaces parameters of the redirect."""
        self.tokens: dict[str, str] = {}
        """Scopes by token."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await EMPTY(scope, receive, send)
            return
        body = b""
        while (event := await receive()).get("more_body"):
            body += event["body"]
        body += event.get("body", b"")
        status, headers, answer = self.answer(scope["method"], scope["path"], scope["query_string"].decode(), body)
        if not self.closed:
            headers |= {"access-control-allow-origin": "*", "access-control-allow-headers": "content-type"}
        pairs = [
            (name.encode(), value.encode()) for name, value in {"content-type": "application/json", **headers}.items()
        ]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def answer(self, method: str, path: str, query: str, body: bytes) -> tuple[int, dict[str, str], Any]:
        match method, path:
            case "OPTIONS", _:
                return 204, {}, None
            case "GET", self.place:
                ends = {f"{name}_endpoint": f"{self.base}/{path}" for name, path in ENDPOINTS.items()}
                about = {"issuer": self.base, "code_challenge_methods_supported": ["S256"]}
                return 200, {}, about | ends | self.metadata
            case "POST", "/register":
                self.registered.append(json.loads(body))
                return 201, {}, {"client_id": f"page-{len(self.registered)}"}
            case "GET", "/authorize":
                self.asked.append(asked := fields(query))
                back = {"code": "the-code", "state": asked["state"], "iss": self.base} | self.redirect
                return 302, {"location": f"{asked['redirect_uri']}?{urlencode(back)}"}, None
            case "POST", "/token":
                form, asked = fields(body.decode()), self.asked[-1]
                digest = sha256(form["code_verifier"].encode()).digest()
                assert urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]
                assert {form[each] == asked[each] for each in ("redirect_uri", "client_id", "resource")} == {True}
                token = f"token-{len(self.tokens)}"
                self.tokens[token] = asked.get("scope", "")
                return 200, {}, {"access_token": token, "token_type": "Bearer"}
            case _:
                return self.missing


ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register"}


def fields(text: str) -> dict[str, str]:
    return {name: each[0] for name, each in parse_qs(text).items()}


class Behind:
    """An application that is known only when its address is."""

    app: Any = EMPTY

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app(scope, receive, send)


@contextmanager
def protected(login: Login, **options: Any) -> Iterator[str]:
    """Serve a server whose tokens `login` gives."""

    def check(token: str) -> Grant | None:
        scopes = login.tokens.get(token)
        return Grant(login.base, subject="ann", scopes=frozenset(scopes.split())) if scopes is not None else None

    behind = Behind()
    with serving(behind) as url:
        given = {"verify": check, "authorization_servers": [login.base], "scopes": ["files:read"], **options}
        server = Server("files", "1.0.0", title="Files", instructions="Be careful", auth=Protected(url, **given))

        @server.tool
        def who() -> str:
            """Return who calls."""
            return "ann"

        @server.tool(scopes=["files:write"])
        def write(text: str) -> str:
            """Write a text."""
            return f"wrote {text}"

        behind.app = server.asgi(path="/mcp", page=True)
        yield url


@pytest.fixture
def login() -> Iterator[Login]:
    found = Login()
    with serving(found) as url:
        found.base = url.removesuffix("/mcp")
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@contextmanager
def opened(browser: Any, url: str) -> Iterator[Any]:
    """Open the page. No policy is broken, and no script fails, or the test does."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    yield page
    context.close()
    assert [each for each in complaints if "Failed to load resource" not in each] == []


def call(page: Any, name: str, **values: str) -> str:
    """Call a tool, and return what is shown."""
    item = page.locator(".item", has=page.get_by_role("heading", name=name, exact=True))
    if item.get_attribute("open") is None:
        item.locator("summary").first.click()
    for field, value in values.items():
        item.get_by_label(field).fill(value)
    item.get_by_role("button", name="Call").click()
    out = item.locator(".out")
    out.locator(".good, .bad").first.wait_for()
    return str(out.inner_text())


def notice(page: Any) -> str:
    found = page.locator(".sending .bad")
    found.wait_for()
    return str(found.inner_text())


def test_without_a_token_the_page_says_what_the_server_is_and_nothing_of_what_it_offers(
    browser: Any, login: Login
) -> None:
    with protected(login) as url, opened(browser, url) as page:
        assert page.get_by_role("heading", name="Files").count() == 1
        assert page.locator(".item").count() == 0
        assert not any(each in page.content() for each in ("Return who calls", "1.0.0", "Be careful"))
        assert page.get_by_role("button", name="Log in at").is_visible()


def test_a_login_comes_back_to_the_page_with_all_that_the_token_allows(browser: Any, login: Login) -> None:
    with protected(login) as url, opened(browser, url) as page:
        page.get_by_role("button", name="Log in at").click()
        page.get_by_role("heading", name="Tools").wait_for()
        assert page.url == url
        assert page.evaluate("document.activeElement.textContent") == "Tools"
        assert "ann" in call(page, "who")
        assert page.evaluate("sessionStorage.length") == 0
        (asked,), (registered,) = login.asked, login.registered
        assert (asked["scope"], asked["resource"], asked["client_id"]) == ("files:read", url, "page-1")
        assert (registered["redirect_uris"], registered["token_endpoint_auth_method"]) == ([url], "none")
        assert "token-0" not in page.locator("#history").inner_text()


def test_a_page_for_people_in_place_of_the_metadata_is_passed_over(browser: Any, login: Login) -> None:
    login.place, login.missing = "/.well-known/openid-configuration", (200, {}, "<!doctype html>")
    with protected(login) as url, opened(browser, url) as page:
        page.get_by_role("button", name="Log in at").click()
        page.get_by_role("heading", name="Tools").wait_for()
        assert "ann" in call(page, "who")


def test_scopes_that_a_tool_lacks_are_asked_for_with_the_next_login(browser: Any, login: Login) -> None:
    with protected(login) as url, opened(browser, url) as page:
        page.get_by_role("button", name="Log in at").click()
        page.get_by_role("heading", name="Tools").wait_for()
        assert "files:write" in call(page, "write", text="a")
        page.get_by_text("Log in, token and headers").click()
        with page.expect_event("load"):  # the page that is left has the same URL and headings
            page.get_by_role("button", name="Log in at").click()
        page.wait_for_url(url)
        page.get_by_role("heading", name="Tools").wait_for()
        assert "wrote a" in call(page, "write", text="a")
        assert set(login.asked[-1]["scope"].split()) == {"files:read", "files:write"}
        page.get_by_text("Log in, token and headers").click()
        with page.expect_event("load"):
            page.get_by_role("button", name="Log in at").click()
        page.get_by_text("Log in, token and headers").wait_for()
        page.wait_for_function("sessionStorage.length === 0")
        assert set(login.asked[-1]["scope"].split()) == {"files:read", "files:write"}


def test_a_pasted_token_shows_what_it_allows_and_another_one_is_refused_in_words(browser: Any, login: Login) -> None:
    login.tokens["pasted"] = "files:read"
    with protected(login) as url, opened(browser, url) as page:
        page.get_by_role("button", name="Use them").click()
        assert notice(page) == "Give a token or a header first"
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Use them").click()
        page.get_by_text("The token is not valid").wait_for()
        page.get_by_label("Token").fill("pasted")
        page.get_by_role("button", name="Use them").click()
        assert "ann" in call(page, "who")


def test_keys_of_ones_own_go_into_a_header(browser: Any, login: Login) -> None:
    keys = ApiKeys({sha256(b"hunter2").hexdigest(): Grant("keys", subject="ann")}, header="x-key")
    with protected(login, verify=keys, authorization_servers=[], scopes=[]) as url, opened(browser, url) as page:
        assert page.get_by_role("button", name="Log in at").count() == 0
        page.get_by_label("Headers, one on each line").fill("X-Key: hunter2")
        page.get_by_role("button", name="Use them").click()
        assert "ann" in call(page, "who")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"metadata": {"code_challenge_methods_supported": ["plain"]}}, "does not support PKCE with S256"),
        ({"metadata": {"issuer": "https://evil.example"}}, "name another issuer"),
        ({"metadata": {"authorization_endpoint": "javascript:alert(1)"}}, "is not safe to open"),
        ({"metadata": {"registration_endpoint": None}}, "Register a public client"),
        ({"metadata": {"token_endpoint": "http://127.0.0.2:9/token"}}, "does not answer pages of"),
        ({"redirect": {"iss": "https://evil.example"}}, "does not come from"),
        ({"redirect": {"code": "", "error": "access_denied"}}, "The login failed: access_denied"),
        ({"closed": True}, "does not answer pages of"),
    ],
)
def test_a_login_that_is_not_safe_or_fails_ends_with_the_reason(
    browser: Any, login: Login, change: dict[str, Any], problem: str
) -> None:
    for name, value in change.items():
        setattr(login, name, value)
    with protected(login) as url:
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        page.get_by_role("button", name="Log in at").click()
        assert problem in notice(page)
        assert page.locator(".item").count() == 0
        context.close()


def test_a_state_of_another_login_is_not_taken(browser: Any, login: Login) -> None:
    login.redirect = {"state": "another"}
    with protected(login) as url, opened(browser, url) as page:
        page.get_by_role("button", name="Log in at").click()
        page.wait_for_url("**state=another**")
        assert page.locator(".item").count() == 0
        assert login.tokens == {}
