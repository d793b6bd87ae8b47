"""Who asks at one URL: what each identity uses there, or the login that is stored for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from linkspan.client.login_options import LoginOptions
from linkspan.client.transports.http_requests import RequestAccess
from linkspan.client.vault import Vault, home
from linkspan.flows.state import Auth, ClientState

if TYPE_CHECKING:
    from ssl import SSLContext

    from linkspan.auth.identities import Identity


class HttpAccesses:
    """The identities of one connection, each with what it uses at the URL."""

    def __init__(self, state: ClientState, url: str, ssl: SSLContext | None, login: LoginOptions) -> None:
        """Keep as many as the limit allows; `login` is for a person who logs in."""
        self._state = state
        self._url = url
        self._ssl = ssl
        self._login = login
        self._known: dict[object, RequestAccess] = {}

    @property
    def identities(self) -> list[object]:
        """Those that are kept, the oldest first."""
        return list(self._known)

    def initial(self, auth: Auth | Identity | None, headers: Mapping[str, str]) -> RequestAccess | None:
        """Return what identifies requests from the beginning: an identity, or the login that is stored for this URL."""
        if auth is not None:
            return None if isinstance(auth, str) or callable(auth) else self.of(auth)
        if not self._state.options.stored_login:
            return None
        if "authorization" in headers or not home().is_dir() or not Vault().has(("server", "", self._url)):
            return None
        return self.of(None)

    def of(self, identity: object) -> RequestAccess:
        """Return what an identity uses here; None is that of the login that is stored, which opens no browser."""
        if (found := self._known.get(identity)) is None:
            from linkspan.auth.identities import OAuth
            from linkspan.client.authorizing import access_to
            from linkspan.client.kept_options import completed

            while len(self._known) >= self._state.options.limits.max_principals:
                del self._known[next(iter(self._known))]
            who = cast("Identity", identity) if identity is not None else OAuth()
            flags: tuple[str, ...] = ()
            if isinstance(who, OAuth):
                who, flags = completed(who, self._url, self._login)
            found = self._known[identity] = access_to(
                self._state.origin,
                self._url,
                who,
                self._ssl,
                interactive=identity is not None,
                login_seconds=self._state.options.timeouts.login,
                login_flags=flags,
            )
        return found
