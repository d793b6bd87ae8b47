"""The door of a protected server: who may come in, found out before the body of a request is read.

A token that was verified lately is known, and costs no wait. Any other is verified by a flow (`auth/verifying.py`), which the
ASGI face awaits and the WSGI face runs; what it asks of an authorization server is fetched in a few threads of our own.
Law: nothing that a client receives, and nothing in a log, holds a token.
"""

from __future__ import annotations

import asyncio
import math
import operator
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from hashlib import sha256
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import quote, quote_plus
from weakref import WeakSet, WeakValueDictionary

import msgspec

from linkspan.auth.jwks import RETRY, IssuerUnavailable, TokenRefused, VerifyFlow
from linkspan.auth.metadata import METADATA_PATH
from linkspan.auth.proofs import USED_BEFORE, NonceNeeded, NonceSource, Proof, Replays, UsedProof, check_proof
from linkspan.auth.protection import (
    BadCredentials,
    Credentials,
    Protected,
    metadata_answer,
    metadata_places,
    metadata_url,
)
from linkspan.auth.verifying import CheckToken, Verified, verify
from linkspan.core.auth_flow import Http
from linkspan.core.http_checks import Gate
from linkspan.core.http_exchange import BrowserPage, Header, HttpResponse
from linkspan.core.http_sessions import SESSION_HEADER
from linkspan.errors import INTERNAL_ERROR, ExchangeError, LinkspanError
from linkspan.revisions.neutral import Grant, TransportInfo
from linkspan.runtime.forks import ForkedLock, renew
from linkspan.runtime.system import SYSTEM
from linkspan.runtime.workers import Workers
from linkspan.serve.fetching import Fetcher
from linkspan.server.handlers import is_async_function
from linkspan.stores.port import ABSENT
from linkspan.types.base import JSONObject
from linkspan.wire.headers import wants_page
from linkspan.wire.redaction import REDACTED, one_line
from linkspan.wire.values import key_of

if TYPE_CHECKING:
    from linkspan.serve.sharing import SharedStore
    from linkspan.server.registration import BaseServer
    from linkspan.stores.port import Store

T = TypeVar("T")
_KNOWN: Final = 4096
"""Tokens that are remembered."""
_MOST_WAITING: Final = 1000
"""Requests whose tokens are being verified."""
_LOOK_AGAIN: Final = 45.0
"""Seconds after which the token of a stream is verified again, so that a revoked one is noticed within a minute."""
_UNAVAILABLE: Final = RETRY
"""Seconds after which that is tried again where the issuer could not be reached."""
_LOOKS: Final = 8
"""Tokens that are verified again at the same time."""
_LINES: Final = 20
"""Lines in the log in a minute, since untrusted clients cause them."""
_CLOCKS: Final = 30.0
"""Seconds by which the clock of another process may be behind, which still takes a proof that is too old here."""
_SHORTEST: Final = 6
"""Characters of a token that is looked for in errors: a shorter one would be found in innocent words."""
_EARLY: Final = 60.0
"""Seconds before its end at which an exchanged token is exchanged anew."""


_WARNED: Final[WeakSet[Protected]] = WeakSet()
"""Those about whose scopes the log has said something: `asgi()` and `run` may be called several times."""


class _Asked(msgspec.Struct, frozen=True):
    """What the door needs to know of a request besides its headers."""

    method: str
    query: str
    below: bool


class _Token(msgspec.Struct, eq=False, weakref=True):
    """A token that was good, for as long as a request or a stream has it, and what has become of it."""

    credentials: Credentials
    digest: bytes
    owner: str
    ends: float | None = None
    """By the wall clock, as `checked_at`."""
    checked_at: float = 0.0
    """When it was verified last."""
    is_good: bool = True
    is_being_checked: bool = False


class _VerifiedToken(msgspec.Struct, frozen=True):
    """A token that was verified."""

    grant: Grant
    owner: str
    until: float
    """By the wall clock."""
    is_plain: bool
    """Whether each request with it is let in: it needs no proof, and has the scopes that all need."""
    access: Mapping[bool, _VerifiedAccess]
    """For requests that came from below another application, and for others."""


class _RecordProof(msgspec.Struct, frozen=True):
    """Note a proof in the store that processes share; the outcome is whether it is the first to be noted."""

    store: Store
    key: str
    seconds: float

    def run(self) -> bool:
        """Wait for the store. Raises: StoreError."""
        return self.store.put(self.key, b"", expect=ABSENT, ttl=self.seconds) is not None


class Verification(msgspec.Struct, frozen=True):
    """A request that waits until its token is verified. Either method gives what is known of it then, or its refusal."""

    guard: Guard
    flow: VerifyFlow[TransportInfo | HttpResponse]

    def run(self) -> TransportInfo | HttpResponse:
        """Wait in this thread."""
        with self.guard.waiting():
            return _run(self.flow, self.guard.fetcher)

    async def awaited(self) -> TransportInfo | HttpResponse:
        """Wait on this event loop."""
        with self.guard.waiting():
            return await _await(self.flow, self.guard.fetcher)


class Guard:
    """Lets requests in by their tokens."""

    def __init__(
        self,
        protected: Protected,
        resource: str,
        gate: Gate,
        fetcher: Fetcher | None = None,
        page: Callable[[str, TransportInfo, JSONObject], BrowserPage] | None = None,
        shared: Callable[[], Store | None] = lambda: None,
    ) -> None:
        """Guard the server at `resource`; `gate` knows which pages may read a refusal.

        `page` makes what a browser shows instead of the refusal: where people log in. `shared` returns the store that other
        processes of the server see, if there is one.
        """
        self._shared = shared
        self._page = page
        self.protected = protected
        self.resource = resource
        self.metadata = protected.metadata(resource)
        self._gate = gate
        self.fetcher = fetcher or Fetcher(protected.named_urls)
        self._nonces = NonceSource(protected.nonce_key or os.urandom(32)) if protected.dpop_required else None
        self._may_be_plain = set(protected.secret_headers) <= {"authorization", "dpop"}
        self._urls = {below: metadata_url(resource, below=below) if self.metadata else None for below in (False, True)}
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Know no token. The key of the nonces stays: forked workers answer for one another."""
        self._known: dict[bytes, _VerifiedToken] = {}
        self._tokens: WeakValueDictionary[bytes, _Token] = WeakValueDictionary()
        self._checks: Workers[Callable[[], object]] = Workers(operator.call, _LOOKS)
        self._exchanged: dict[tuple[bytes, str, tuple[str, ...]], tuple[str, float]] = {}
        self._replays = Replays(ForkedLock())
        self._lock = threading.Lock()
        self._waiting = 0
        self._lines: deque[float] = deque(maxlen=_LINES)

    def answer(self, fixed: HttpResponse, method: str) -> HttpResponse:
        """Return the answer at a path with a fixed response: our metadata have one for each method."""
        return metadata_answer(fixed, method) if fixed is self.metadata else fixed

    def places(self, path: str) -> frozenset[str]:
        """Return the paths of the metadata, for an application that is served at `path`."""
        return frozenset((*metadata_places(self.resource), path + METADATA_PATH))

    def admit(
        self, facts: TransportInfo | HttpResponse, method: str, query: str, *, below: bool
    ) -> TransportInfo | HttpResponse | Verification:
        """Return what is known of a request with its grant, or its refusal, or what must be waited for.

        `below`: it came through another application, below which this one is mounted, so that the root of the origin is not ours.
        """
        if isinstance(facts, HttpResponse):
            return facts
        value = facts.headers.get("authorization")
        if value is not None and not query and self._may_be_plain:
            known = self._known.get(sha256(value.encode()).digest())
            if known is not None and known.is_plain and known.until > time.time() and facts.principal is None:
                grant = known.grant
                return TransportInfo(facts.headers, known.owner, facts.address, grant, known.access[below])
        if facts.principal is not None:
            self.log("both auth= and the application in front identified the caller: remove one of them")
            return self._gate.unidentified(facts.headers)
        headers, asked = facts.headers, _Asked(method, query, below)
        try:
            credentials = self.protected.credentials(headers, asked.query)
        except BadCredentials as problem:
            return self._refused(400, str(problem), headers, asked, error="invalid_request")
        if credentials is None:
            refusal = self._refused(401, "This server needs a token", headers, asked)
            return self._for_people(refusal, facts) if method == "GET" else refusal
        digest = sha256((value or f"key {credentials.token}").encode()).digest()
        known = self._known.get(digest)
        if known is not None and known.until > time.time():
            return self._enter(known, facts, asked, credentials)
        if self._waiting >= _MOST_WAITING:
            return self._unavailable(headers)
        return Verification(self, self._verify(facts, asked, credentials, digest))

    def good_until(self, facts: TransportInfo) -> float:
        """Return until when the same head need not be looked at again; 0.0 where each request is looked at."""
        if facts.grant is None or facts.grant.thumbprint is not None or not isinstance(facts.access, _VerifiedAccess):
            return 0.0
        known = self._known.get(facts.access.digest)
        return known.until if known is not None else 0.0

    def waiting(self) -> _Counted:
        """Return what counts a request as waiting."""
        return _Counted(self)

    def count(self, change: int) -> None:
        """Count requests that wait."""
        with self._lock:
            self._waiting += change

    # Streams, which go on after their token was looked at.

    def holds(self, token: _Token) -> bool:
        """Return whether a token is still good, as far as that is known. In a thread it is found out again now and then."""
        now = time.time()
        if not token.is_good or (token.ends is not None and token.ends <= now):
            return False
        if now - token.checked_at >= _LOOK_AGAIN and not token.is_being_checked:
            token.is_being_checked = True
            try:
                self._checks.submit(partial(self._check_again, token, _loop_here()))
            except RuntimeError:  # the system has no more threads now
                token.is_being_checked = False
        return True

    def _check_again(self, token: _Token, loop: asyncio.AbstractEventLoop | None) -> None:
        """Verify a token again. While that cannot be done, it stays as it is."""
        token.checked_at = now = time.time()
        credentials = token.credentials
        try:
            verifiers = self.protected.verifiers_for(credentials)
            found = _run(verify(verifiers, credentials.token, self.resource, now), self.fetcher, loop)
            known = self._remember(found, credentials, token.digest, now)
            token.is_good = known.owner == token.owner and known.grant.scopes.issuperset(self.protected.scopes)
        except TokenRefused as problem:
            token.is_good = False
            self._known.pop(token.digest, None)
            self.log(f"a stream ends: {problem}")
        except IssuerUnavailable as problem:
            token.checked_at = now - _LOOK_AGAIN + _UNAVAILABLE
            self.log(str(problem), problem.__cause__, credentials.token)
        except Exception as problem:
            self.log(f"verifying a token raised {type(problem).__name__}", problem, credentials.token)
        finally:
            token.is_being_checked = False

    # Verifying.

    def _verify(
        self, facts: TransportInfo, asked: _Asked, credentials: Credentials, digest: bytes
    ) -> VerifyFlow[TransportInfo | HttpResponse]:
        now = time.time()
        try:
            verifiers = self.protected.verifiers_for(credentials)
            found = yield from verify(verifiers, credentials.token, self.resource, now)
            outcome = self._enter(self._remember(found, credentials, digest, now), facts, asked, credentials)
            return (yield from outcome.flow) if isinstance(outcome, Verification) else outcome
        except TokenRefused as problem:
            if (token := self._tokens.get(digest)) is not None:
                token.is_good = False
            return self._not_good(problem, facts.headers, asked, credentials)
        except IssuerUnavailable as problem:
            self.log(str(problem), problem.__cause__, credentials.token)
            return self._unavailable(facts.headers, problem.seconds)
        except Exception as problem:
            self.log(f"verifying a token raised {type(problem).__name__}", problem, credentials.token)
            return self._gate.refuse(500, "Internal error", facts.headers, code=INTERNAL_ERROR)

    def _remember(self, found: Verified, credentials: Credentials, digest: bytes, now: float) -> _VerifiedToken:
        grant = msgspec.structs.replace(found.grant, scopes=self.protected.implied(found.grant.scopes))
        until = now + found.seconds if grant.expires is None else min(now + found.seconds, grant.expires)
        is_bearer = credentials.scheme != "dpop" and grant.thumbprint is None and self._nonces is None
        is_plain = is_bearer and grant.scopes.issuperset(self.protected.scopes)
        with self._lock:
            token = self._tokens.get(digest)
            if token is None or token.owner != found.owner:
                token = self._tokens[digest] = _Token(credentials, digest, found.owner)
            token.is_good, token.ends, token.checked_at = True, grant.expires, now
            access = {below: _VerifiedAccess(self, token, below) for below in (False, True)}
            known = _VerifiedToken(grant, found.owner, until, is_plain, access)
            if len(self._known) >= _KNOWN:
                del self._known[next(iter(self._known))]
            self._known[digest] = known
        return known

    def _enter(
        self, known: _VerifiedToken, facts: TransportInfo, asked: _Asked, credentials: Credentials
    ) -> TransportInfo | HttpResponse | Verification:
        """Let a request with a good token in, if it may use the token, and the token allows anything here."""
        grant, used = known.grant, None
        try:
            if grant.thumbprint is not None or credentials.scheme == "dpop" or self._nonces is not None:
                used = self._check_possession(grant, asked, credentials)
        except TokenRefused as problem:
            return self._not_good(problem, facts.headers, asked, credentials)
        if not grant.scopes.issuperset(self.protected.scopes):
            text = f"This server needs the scope {' '.join(self.protected.scopes)}"
            return self._refused(403, text, facts.headers, asked, error="insufficient_scope", scheme=credentials.scheme)
        admitted = TransportInfo(facts.headers, known.owner, facts.address, grant, known.access[asked.below])
        if used is None:
            return admitted
        try:
            store = self._shared()
        except LinkspanError as problem:
            self.log(str(problem))
            return self._unavailable(facts.headers)
        return (
            admitted if store is None else Verification(self, self._record(store, used, admitted, asked, credentials))
        )

    def _record(
        self, store: Store, used: UsedProof, admitted: TransportInfo, asked: _Asked, credentials: Credentials
    ) -> VerifyFlow[TransportInfo | HttpResponse]:
        """Let a request in whose proof no other process has seen."""
        key, left = f"proof/{key_of(self.resource)}/{used.name}", used.until - time.time()
        try:
            is_first = yield _RecordProof(store, key, max(left, 0.0) + _CLOCKS)
        except LinkspanError as problem:
            self.log(f"proofs that other processes have seen cannot be looked up: {problem}")
            return self._unavailable(admitted.headers)
        except Exception as problem:
            self.log(f"noting a proof raised {type(problem).__name__}", problem)
            return self._gate.refuse(500, "Internal error", admitted.headers, code=INTERNAL_ERROR)
        if is_first:
            return admitted
        return self._not_good(TokenRefused(USED_BEFORE, "invalid_dpop_proof"), admitted.headers, asked, credentials)

    def _check_possession(self, grant: Grant, asked: _Asked, credentials: Credentials) -> UsedProof:
        """Raise TokenRefused unless the sender has shown the key that the token is bound to."""
        if grant.thumbprint is None:
            raise TokenRefused("the token is not bound to a key (DPoP)")
        if credentials.proof is None:
            raise TokenRefused("the token is bound to a key, and was sent as a bearer token")
        proof = Proof(credentials.proof, asked.method, self.resource, credentials.token, grant.thumbprint)
        return check_proof(proof, now=time.time(), replays=self._replays, nonces=self._nonces)

    # Refusals. The client learns the kind of the problem, and the log its reason.

    def _not_good(
        self, problem: TokenRefused, headers: Mapping[str, str], asked: _Asked, credentials: Credentials
    ) -> HttpResponse:
        extra: tuple[Header, ...] = ()
        if isinstance(problem, NonceNeeded) and self._nonces is not None:
            extra = (("dpop-nonce", self._nonces.new(time.time())),)
        else:
            self.log(str(problem))
        text = "The token is not valid" if problem.error == "invalid_token" else "The DPoP proof is not valid"
        return self._refused(401, text, headers, asked, error=problem.error, scheme=credentials.scheme, extra=extra)

    def _refused(
        self,
        status: int,
        text: str,
        headers: Mapping[str, str],
        asked: _Asked,
        *,
        error: str | None = None,
        scheme: str = "bearer",
        extra: tuple[Header, ...] = (),
    ) -> HttpResponse:
        challenge = self.protected.challenge(
            self._urls[asked.below], error=error, description=text if error else None, scheme=scheme
        )
        return self._gate.refuse(status, text, headers, (("www-authenticate", challenge), *extra))

    def _for_people(self, refusal: HttpResponse, facts: TransportInfo) -> HttpResponse:
        """Return a refusal with the page at which people log in, if it is for a browser."""
        headers = facts.headers
        for_a_browser = wants_page(headers.get("accept", "")) and SESSION_HEADER not in headers
        if self._page is None or not for_a_browser or not self._gate.shows_page(headers):
            return refusal
        issuer = next(iter(self.protected.issuers), None)
        login = {"issuer": issuer, "resource": self.resource, "scopes": self.protected.asked(self.protected.scopes)}
        page = self._page(self.resource, facts, login)
        kept = [(name, value) for name, value in refusal.headers if name != "content-type"]
        return HttpResponse(refusal.status, (*page.headers, *kept), page.body)

    def _unavailable(self, headers: Mapping[str, str], seconds: float = RETRY) -> HttpResponse:
        text, after = "Tokens cannot be verified now; try again later", str(max(math.ceil(seconds), 1))
        return self._gate.refuse(503, text, headers, (("retry-after", after),), code=INTERNAL_ERROR)

    def log(self, problem: str, error: BaseException | None = None, token: str = "") -> None:
        """Log a reason, unless there were many in the last minute; an `error` that quotes the `token` without it."""
        now = time.monotonic()
        if len(self._lines) == _LINES and self._lines[0] > now - 60:
            return
        from logging import getLogger

        self._lines.append(now)
        line, logger = one_line(problem), getLogger("linkspan.http")
        if error is not None and (quoted := _quoting(error, token)) is not None:
            logger.warning("a request was refused: %s\n%s", line, quoted)
        else:
            logger.warning("a request was refused: %s", line, exc_info=error)

    # For handlers.

    def challenge(self, below: bool, scopes: Collection[str], description: str) -> str:
        """Return the challenge to a request whose token lacks scopes."""
        return self.protected.challenge(
            self._urls[below], error="insufficient_scope", description=description, scopes=scopes
        )

    def exchange(self, token: str, digest: bytes, audience: str, scopes: tuple[str, ...]) -> VerifyFlow[str]:
        """Exchange a token, unless that was done lately. Raises: ExchangeError."""
        if self.protected.exchange is None:
            raise ExchangeError(
                "ctx.token_for needs a token exchange: pass Protected(..., exchange=TokenExchange(...))"
            )
        now, key = time.time(), (digest, audience, scopes)
        found = self._exchanged.get(key)
        if found is not None and found[1] > now:
            return found[0]
        exchanged, seconds = yield from self.protected.exchange.token(token, audience, scopes, now)
        with self._lock:
            if len(self._exchanged) >= _KNOWN:
                del self._exchanged[next(iter(self._exchanged))]
            self._exchanged[key] = exchanged, now + seconds - _EARLY
        return exchanged


class _VerifiedAccess:
    """What a handler may do with the token of its request. The token itself cannot be read."""

    __slots__ = ("_below", "_guard", "_token")

    def __init__(self, guard: Guard, token: _Token, below: bool) -> None:
        self._guard = guard
        self._token = token
        self._below = below

    @property
    def digest(self) -> bytes:
        return self._token.digest

    def holds(self) -> bool:
        return self._guard.holds(self._token)

    def challenge(self, scopes: Collection[str], description: str) -> str:
        return self._guard.challenge(self._below, scopes, description)

    def token_for(self, audience: str, scopes: Collection[str]) -> str | Awaitable[str]:
        token, fetcher = self._token, self._guard.fetcher
        flow = self._guard.exchange(token.credentials.token, token.digest, audience, tuple(scopes))
        return _run(flow, fetcher) if _loop_here() is None else _await(flow, fetcher)


class _Counted:
    """Counts a request for the time of a `with` block."""

    __slots__ = ("_guard",)

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        self._guard.count(1)

    def __exit__(self, *_: object) -> None:
        self._guard.count(-1)


def guard_of(server: BaseServer, gate: Gate, url: str | None = None) -> Guard:
    """Return the door of a server with `auth=`; `url` is where it is served, if that is on loopback.

    Raises: LinkspanError where the URL of the server is not known.
    """
    protected = server.auth
    if not isinstance(protected, Protected):
        from linkspan.habits import instead_of_auth

        kind = type(protected).__name__
        raise LinkspanError(f"auth= takes Protected(...), not {kind}: {instead_of_auth(protected)}")
    resource = protected.resource or url
    if resource is None:
        raise LinkspanError(
            "auth=Protected(...) needs the URL that clients use: Protected('https://api.example.com/mcp', ...). Only "
            'run("http") on loopback knows it by itself [LS-603]'
        )
    if protected not in _WARNED and (problem := protected.unnamed(server.item_scopes)) is not None:
        from logging import getLogger

        _WARNED.add(protected)
        getLogger("linkspan.http").warning("%s", problem)
    sharing = cast("SharedStore", server.sharing)
    return Guard(
        protected, resource, gate, page=server.page, shared=lambda: sharing.store if sharing.is_shared else None
    )


def _quoting(error: BaseException, token: str) -> str | None:
    """Return the traceback of an error without the token that is in it; None if it is not in it.

    Errors of HTTP clients have the URL that was asked, and some providers want the token there.
    """
    from traceback import format_exception

    if len(token) < _SHORTEST:
        return None
    hidden = text = "".join(format_exception(error))
    for each in (quote(token, safe=""), quote_plus(token), token):
        hidden = hidden.replace(each, REDACTED)
    return hidden if hidden != text else None


# Driving flows.


def _loop_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _run(flow: VerifyFlow[T], fetcher: Fetcher, loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Run a flow in this thread; what must be awaited is awaited on `loop`, or on the background loop."""

    def perform(effect: Http | CheckToken | _RecordProof) -> object:
        if isinstance(effect, Http):
            return fetcher.submit(effect).result()
        if isinstance(effect, _RecordProof):
            return effect.run()
        value = effect.function(effect.token)
        if not isawaitable(value):
            return value
        if loop is not None:
            return asyncio.run_coroutine_threadsafe(_awaited(value), loop).result()
        from linkspan.runtime.background import run_awaitable

        return run_awaitable(value)

    outcome: object = None
    try:
        effect: Http | CheckToken | _RecordProof = next(flow)
        while True:
            try:
                outcome = perform(effect)
            except Exception as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(outcome)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def _awaited(value: Awaitable[T]) -> T:
    return await value


async def _await(flow: VerifyFlow[T], fetcher: Fetcher) -> T:
    """Run a flow on this event loop: what may block runs in a thread."""

    async def perform(effect: Http | CheckToken | _RecordProof) -> object:
        if isinstance(effect, Http):
            return await asyncio.wrap_future(fetcher.submit(effect))
        if isinstance(effect, _RecordProof):
            return effect.run() if effect.store.quick else await SYSTEM.in_thread(effect.run, "sessions")
        call = partial(effect.function, effect.token)
        value: Any = call() if is_async_function(effect.function) else await SYSTEM.in_thread(call)
        return await value if isawaitable(value) else value

    outcome: object = None
    try:
        effect: Http | CheckToken | _RecordProof = next(flow)
        while True:
            try:
                outcome = await perform(effect)
            except Exception as error:
                effect = flow.throw(error)
            else:
                effect = flow.send(outcome)
    except StopIteration as stop:
        result: T = stop.value
        return result
