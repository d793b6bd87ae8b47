"""A person at the login page of any authorization server here: fills in each form until the client's own page comes."""

from __future__ import annotations

import re
from html import unescape
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener

PAGES = 8
ANSWERS = {
    'name="accept"': {"accept": "Yes"},  # Keycloak's consent
    'name="allow"': {"allow": "Authorize"},  # that of django-oauth-toolkit
    'value="approve"': {"action": "approve"},  # that of FastMCP's proxy
    'name="password"': {"login": "ada", "username": "ada", "password": "ada"},
}


class _AsBrowsersDo(DefaultCookiePolicy):
    """Loopback is a secure context, also over http."""

    def return_ok_secure(self, cookie: Cookie, request: Request) -> bool:
        return True


def sign_in(url: str) -> str:
    """Log in as the user `ada` and allow what is asked; return the text of the last page, also of an error page."""
    opener = build_opener(HTTPCookieProcessor(CookieJar(_AsBrowsersDo())))
    redirect_uri = parse_qs(urlsplit(url).query).get("redirect_uri", ["nowhere"])[0]
    page, body, text = url, b"", ""
    for _ in range(PAGES):
        try:
            with opener.open(page, body or None, timeout=60) as answer:
                text, at = answer.read().decode(), answer.url
        except HTTPError as refused:
            with refused:
                return refused.read().decode(errors="replace")
        except URLError:
            return "the client does not wait for a redirect"
        form = re.search(r"<form[^>]*>", text)
        if form is None or at.startswith(redirect_uri):
            break
        action = re.search(r'action="([^"]*)"', form[0])
        hidden = re.findall(r'<input[^>]*type="hidden"[^>]*?name="([^"]+)"[^>]*?value="([^"]*)"', text)
        fields = {name: unescape(value) for name, value in hidden}
        fields |= next((answer for mark, answer in ANSWERS.items() if mark in text), {})
        page, body = urljoin(at, unescape(action[1])) if action else at, urlencode(fields).encode()
    return text


def words_of(page: str) -> str:
    """Return what a page says, without its markup."""
    text = re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(text).split())[:200]
