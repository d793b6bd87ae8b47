"""The login that a server wants: where the person logs in, for the page. The token stays with the client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from linkspan.auth.identities import OAuth
from linkspan.flows.client_errors import ClientError
from linkspan.types.base import JSONObject


class _PersonAtPage:
    """Opens the page of a login, and shows that one is waited for: what an identity takes as `open_url`."""

    def __init__(self, open_url: Callable[[str], str | None], on_change: Callable[[], object]) -> None:
        self._open_url = open_url
        self._on_change = on_change
        self._url = self._reminder = ""
        self._ended = threading.Event()

    def __call__(self, url: str) -> str | None:
        """Open the page where the person logs in, and wait for the end. Raises: ClientError if it is given up."""
        self._ended = ended = threading.Event()
        self._url, self._reminder = url, ""
        self._on_change()
        if (found := self._open_url(url)) is not None:
            return found
        ended.wait()
        if self._url == url:
            raise ClientError("the login was given up")
        return None

    def give_up(self) -> None:
        """Wait for a login no longer, if one is waited for."""
        self._ended.set()

    def remind(self, text: str) -> None:
        """Show what the browser cannot tell the person."""
        self._reminder = text
        self._on_change()

    def done(self) -> None:
        """The login has ended, one way or the other."""
        self._url = ""
        self._ended.set()
        self._on_change()

    def shown(self) -> JSONObject | None:
        """Return `url`, `host` and `reminder` of the login that is waited for, if one is."""
        url = self._url
        return {"url": url, "host": urlsplit(url).netloc, "reminder": self._reminder} if url else None


class BenchLogins:
    """The login of a server at a URL, a new one for each start: clients of the same one remember for a while that it failed."""

    def __init__(self, open_url: Callable[[str], str | None] | None, on_change: Callable[[], object]) -> None:
        """Without `open_url`, there is no login."""
        self._open_url = open_url
        self._on_change = on_change
        self._person: _PersonAtPage | None = None
        self.identity: OAuth | None = None
        """What clients of this start take."""
        self.begin_anew()

    def begin_anew(self) -> None:
        """Take nothing from a login that failed."""
        if self._open_url is not None:
            self._person = _PersonAtPage(self._open_url, self._on_change)
            self.identity = OAuth(open_url=self._person)

    def give_up(self) -> None:
        """Wait for a login no longer, if one is waited for."""
        if self._person is not None:
            self._person.give_up()

    def shown(self) -> JSONObject | None:
        """Return `url`, `host` and `reminder` of the login that is waited for, if one is."""
        return self._person.shown() if self._person is not None else None
