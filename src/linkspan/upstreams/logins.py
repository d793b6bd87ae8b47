"""The login of a person at a server elsewhere: the call that needs it asks for it, by URL, where its client can show one."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec
from msgspec import structs

from linkspan.revisions.neutral import ELICIT, InputRequest
from linkspan.types.base import JSON, is_object
from linkspan.types.messages import ElicitParams
from linkspan.wire.jsonrpc import RequestId


class LoginByUrl:
    """What an identity takes as `open_url`: asks a caller first, and opens the browser of this machine otherwise."""

    def __init__(self, ask: Callable[[str], bool]) -> None:
        """`ask(url)` returns whether a caller was asked to open the URL of the login."""
        self._ask = ask

    def __call__(self, url: str) -> None:
        """Show the page of a login."""
        from linkspan.client.callback import open_browser

        if not self._ask(url) and not open_browser(url):
            self.remind(f"Open this URL in a browser to log in:\n{url}")

    def remind(self, text: str) -> None:
        """Show a line to the person who started this process."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def asking(auth: object, ask: Callable[[str], bool]) -> object:
    """Return an identity that asks a caller for a login, if it is that of a person without a way of its own."""
    from linkspan.auth.identities import OAuth

    if not isinstance(auth, OAuth) or auth.open_url is not None or auth.device:
        return auth
    return structs.replace(auth, open_url=LoginByUrl(ask))


def login_question(server: str, url: str) -> InputRequest:
    """Return what the user is asked."""
    message = f"{server} needs a login: open its page. The call goes on by itself once you have logged in."
    return InputRequest(ELICIT, ElicitParams(message=message, mode="url", url=url))


class LoginReplier:
    """Takes the answer to the question for a login: the login itself ends at the redirect, wherever the page was opened."""

    def __init__(self, refuse: Callable[[], object]) -> None:
        """`refuse()` is called where the user does not want to log in."""
        self._refuse = refuse

    def answer(self, request_id: RequestId, result: bytes) -> None:
        """Receive the answer."""
        answer: JSON = msgspec.json.decode(result)
        if not is_object(answer) or answer.get("action") != "accept":
            self._refuse()
