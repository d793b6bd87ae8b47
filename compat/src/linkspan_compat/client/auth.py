"""Logins of clients: the providers of the SDKs as identities of Linkspan."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import urlencode

import msgspec

from linkspan_compat.errors import NotServed
from linkspan_compat.keywords import check

__all__ = [
    "BearerAuth",
    "ClientCredentialsOAuthProvider",
    "FastOAuth",
    "OAuthClientProvider",
    "OAuthFlowError",
    "OAuthRegistrationError",
    "OAuthTokenError",
    "PrivateKeyJWTOAuthProvider",
    "TokenStorage",
    "as_auth",
    "as_httpx",
    "unwrapped",
]


logger = logging.getLogger("linkspan.compat")


class OAuthFlowError(Exception):
    """A login failed."""


class OAuthTokenError(OAuthFlowError):
    """There is no token."""


class OAuthRegistrationError(OAuthFlowError):
    """The client could not register itself."""


class TokenStorage(Protocol):
    """Where a program keeps its tokens and its registration."""

    async def get_tokens(self) -> Any:
        """Return an `OAuthToken`; None without one."""
        ...

    async def set_tokens(self, tokens: Any) -> None:
        """Keep an `OAuthToken`."""
        ...

    async def get_client_info(self) -> Any:
        """Return an `OAuthClientInformationFull`; None before the client is registered."""
        ...

    async def set_client_info(self, client_info: Any) -> None:
        """Keep an `OAuthClientInformationFull`."""
        ...


class StoredLogins:
    """A `TokenStorage` as what keeps a login of Linkspan: the login travels in a member of the token, as `linkspan`."""

    def __init__(self, storage: Any, metadata: Any) -> None:
        self._storage = storage
        self._metadata = metadata
        self._entries: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stored: str | None = None
        self.client: Any = None
        """The registration that the storage has."""

    async def open(self) -> None:
        """Read what is stored."""
        self._loop = asyncio.get_running_loop()
        self.client = await self._storage.get_client_info()
        found = await self._storage.get_tokens()
        if found is None:
            return
        if getattr(found, "linkspan", None) is None:
            logger.warning("the stored tokens are those of another SDK, and are not used: log in once more")
            return
        self._entries, self._stored = dict(found.linkspan), found.access_token

    def load(self, key: tuple[str, ...]) -> bytes | None:
        """Return what is kept under a key."""
        found = self._entries.get(" ".join(key))
        return found.encode() if found is not None else None

    def save(self, key: tuple[str, ...], value: bytes | None) -> None:
        """Keep a value, and give the storage what it is about; None forgets it."""
        name = " ".join(key)
        if value is None:
            self._entries.pop(name, None)
            return
        if self._entries.get(name) == value.decode():
            return
        self._entries[name] = value.decode()
        members = _members(value)
        if key[0] == "registration":
            self._wait(self._storage.set_client_info(self._registered(members)))
        elif "access_token" in members or key[0] == "server":
            self._keep_tokens()

    def _registered(self, members: dict[str, Any]) -> Any:
        from linkspan_compat.auth import OAuthClientInformationFull

        more = self._metadata.model_dump() if self._metadata is not None else {}
        return OAuthClientInformationFull(
            **{
                **more,
                "client_id": members["client_id"],
                "client_secret": members.get("client_secret"),
                "token_endpoint_auth_method": members.get("method"),
            }
        )

    def _keep_tokens(self) -> None:
        """Give the storage the tokens, when all of the login is known."""
        from linkspan_compat.auth import OAuthToken

        named = [_members(text.encode()) for name, text in self._entries.items() if not name.startswith("server ")]
        tokens = next((each for each in named if "access_token" in each), None)
        is_whole = any(name.startswith("server ") for name in self._entries)
        if tokens is None or not is_whole or tokens["access_token"] == self._stored:
            return
        self._stored = tokens["access_token"]
        expires = tokens.get("expires")
        made = OAuthToken(
            access_token=self._stored,
            token_type="Bearer",
            expires_in=int(expires - time.time()) if expires is not None else None,
            scope=" ".join(tokens.get("scopes", ())) or None,
            refresh_token=tokens.get("refresh_token"),
            linkspan=dict(self._entries),
        )
        self._wait(self._storage.set_tokens(made))

    def _wait(self, awaitable: Any) -> None:
        wait_for(self._loop, awaitable)


def _members(value: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def wait_for(loop: asyncio.AbstractEventLoop | None, awaitable: Any) -> Any:
    """Wait in a worker thread for what runs on the loop of the program."""
    if not inspect.isawaitable(awaitable):
        return awaitable

    async def run() -> Any:
        return await awaitable

    if loop is None:
        return asyncio.run(run())
    return asyncio.run_coroutine_threadsafe(run(), loop).result()


class BearerAuth:
    """A token."""

    def __init__(self, token: Any) -> None:
        self.token = token.get_secret_value() if hasattr(token, "get_secret_value") else str(token)

    def identity(self) -> Any:
        """Return it."""
        return self.token


class OAuthClientProvider:
    """A person who logs in with a browser, or where the handlers of the program lead them."""

    def __init__(
        self,
        server_url: str,
        client_metadata: Any = None,
        storage: Any = None,
        redirect_handler: Callable[[str], Any] | None = None,
        callback_handler: Callable[[], Any] | None = None,
        timeout: float = 300.0,
        client_metadata_url: str | None = None,
        **more: Any,
    ) -> None:
        check("OAuthClientProvider", more, "validate_resource_url")
        self.server_url = server_url
        self.client_metadata = client_metadata
        self.redirect_handler = redirect_handler
        self.callback_handler = callback_handler
        self.client_metadata_url = client_metadata_url
        self.timeout = timeout
        self._logins = StoredLogins(storage, client_metadata) if storage is not None else None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, request: Any) -> Any:
        """Refuse requests of the program's own; httpx takes this object as a login since it can be called."""
        raise NotServed("OAuthClientProvider logs in for clients of MCP, and not for other requests of httpx")

    async def prepare(self) -> None:
        """Read the storage, on the loop that the handlers run on."""
        self._loop = asyncio.get_running_loop()
        if self._logins is not None:
            await self._logins.open()

    def identity(self) -> Any:
        """Return it as an identity of Linkspan."""
        from linkspan.auth import OAuth

        scope = getattr(self.client_metadata, "scope", None)
        more: dict[str, Any] = {"scopes": scope.split()} if scope else {}
        if name := getattr(self.client_metadata, "client_name", None):
            more["client_name"] = name
        if self.client_metadata_url is not None:
            more["client_metadata_url"] = self.client_metadata_url
        if self._logins is not None:
            more["logins"] = self._logins
            if (client := self._logins.client) is not None:
                more |= {"client_id": client.client_id, "client_secret": client.client_secret}
        if self.redirect_handler is not None and self.callback_handler is not None:
            more |= {"open_url": self._lead, "redirect_uri": self._redirect_uri}
        elif self.redirect_handler is not None:
            more["open_url"] = self._show
        return OAuth(**more)

    @property
    def _redirect_uri(self) -> str:
        uris = getattr(self.client_metadata, "redirect_uris", None) or ["http://127.0.0.1/callback"]
        return str(uris[0])

    def _show(self, url: str) -> None:
        """Let the program show the URL; the browser comes back to Linkspan."""
        assert self.redirect_handler is not None
        wait_for(self._loop, self.redirect_handler(url))

    def _lead(self, url: str) -> str:
        """Let the program show the URL, and return where it says that the browser came."""
        self._show(url)
        assert self.callback_handler is not None
        found = wait_for(self._loop, self.callback_handler())
        code, state, *more = (found.code, found.state, found.iss) if hasattr(found, "code") else found
        answer = {"code": code, "state": state, "iss": more[0] if more else None}
        return f"{self._redirect_uri}?{urlencode({name: each for name, each in answer.items() if each is not None})}"


class FastOAuth:
    """A person who logs in with a browser, as FastMCP's client says it."""

    def __init__(
        self,
        mcp_url: str | None = None,
        scopes: str | list[str] | None = None,
        client_name: str = "FastMCP Client",
        token_storage: Any = None,
        additional_client_metadata: Any = None,
        callback_port: int | None = None,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        client_metadata_url: str | None = None,
        **more: Any,
    ) -> None:
        refused = {"token_storage": token_storage, "additional_client_metadata": additional_client_metadata, **more}
        known = "token_storage additional_client_metadata callback_host callback_timeout httpx_client_factory"
        check("OAuth", refused, known)
        wanted = scopes.split() if isinstance(scopes, str) else list(scopes or ())
        self._options: dict[str, Any] = {"scopes": wanted, "client_name": client_name, "redirect_port": callback_port}
        given = {"client_id": client_id, "client_secret": client_secret, "client_metadata_url": client_metadata_url}
        self._options |= given

    def identity(self) -> Any:
        """Return it as an identity of Linkspan."""
        from linkspan.auth import OAuth

        return OAuth(**self._options)


class ClientCredentialsOAuthProvider:
    """A program with a secret of its own."""

    def __init__(
        self,
        server_url: str,
        storage: Any = None,
        client_id: str = "",
        client_secret: str = "",
        token_endpoint_auth_method: str = "client_secret_basic",
        scopes: str | None = None,
        issuer: str | None = None,
        *,
        scope: str | None = None,
    ) -> None:
        given = {"storage": storage, "token_endpoint_auth_method": token_endpoint_auth_method}
        check("ClientCredentialsOAuthProvider", given, "storage token_endpoint_auth_method")
        self.client_id, self.client_secret, self.scopes = client_id, client_secret, scopes or scope
        self.issuer = issuer

    def identity(self) -> Any:
        """Return it as an identity of Linkspan."""
        from linkspan.auth import ClientCredentials

        more: dict[str, Any] = {"scopes": self.scopes.split()} if self.scopes else {}
        if self.issuer is not None:
            more["issuer"] = str(self.issuer)
        return ClientCredentials(self.client_id, secret=self.client_secret, **more)


class PrivateKeyJWTOAuthProvider:
    """A program with a key of its own: refused, since the program signs by itself."""

    def __init__(self, *_: Any, **__: Any) -> None:
        from linkspan_compat.names import line_instead

        name = type(self).__name__
        raise NotServed(f"{name} is not served by linkspan-compat; write for Linkspan: {line_instead(name)}")


def unwrapped(auth: Any) -> Any:
    """Return what a program gave to httpx as its login, where httpx took it for a function."""
    function = getattr(auth, "_func", None)
    return function if hasattr(function, "identity") else auth


def as_httpx(auth: Any) -> Any:
    """Return what a program passes as `auth=` for httpx. Raises: NotServed for a login of a person or a program."""
    if isinstance(auth, BearerAuth) or (isinstance(auth, str) and auth != "oauth"):
        token = auth.token if isinstance(auth, BearerAuth) else auth

        def add(request: Any) -> Any:
            request.headers["authorization"] = f"Bearer {token}"
            return request

        return add
    if isinstance(auth, str) or hasattr(auth, "identity"):
        raise NotServed(
            "a login over the transport of 2024 is not served by linkspan-compat; write for Linkspan: "
            "Client(url, auth=OAuth(...)), with Streamable HTTP"
        )
    return auth


def as_auth(auth: Any) -> Any:
    """Return what a program passes as `auth=` for Linkspan. Raises: NotServed for another class of httpx."""
    if isinstance(auth, str):
        if auth != "oauth":
            return auth
        from linkspan.auth import OAuth

        return OAuth()
    auth = unwrapped(auth)
    if hasattr(auth, "identity"):
        return auth.identity()
    header = getattr(auth, "_auth_header", None)
    if isinstance(header, str):  # httpx.BasicAuth: sent as it is
        return header
    raise NotServed(
        f"auth={type(auth).__name__}(...) is not served by linkspan-compat; write for Linkspan: Client(url, auth='token')"
    )
