"""One server's login: what a request carries, what a refusal means, and who waits for whom.

Requests ask `headers` before each attempt, which does nothing but sign. Everything that takes time is a flow, and one flow
runs at a time: requests that were refused meanwhile get its outcome. Spec: basic/authorization (AU-C40 to AU-C44).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from linkspan.auth.client_registration import Registered, forget_registration, known_client, said_by
from linkspan.auth.code import LoginTimedOut
from linkspan.auth.discovery import Discovered, discover
from linkspan.auth.dpop import ALGORITHM, ProofKey, is_nonce_request
from linkspan.auth.grants import LoginContext, obtain_tokens, refresh_form
from linkspan.auth.identities import Enterprise, Identity, OAuth
from linkspan.auth.metadata import AuthorizationFailure, ServerMetadata, decode_or_none, fetch, same_issuer
from linkspan.auth.network import hosts_of, origin_of, shown, without_credentials
from linkspan.auth.tokens import Nonces, Tokens
from linkspan.core.auth_flow import AuthFlow, Http, LoadLogin, Lock, SaveLogin, StoreKey, Unlock
from linkspan.flows.client_errors import (
    AuthorizationError,
    ClientError,
    InsufficientScope,
    LoginRequired,
    LoginTimeout,
    ServerOrigin,
)
from linkspan.wire.challenges import Challenge, is_scope, read_challenges, read_scopes
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import one_line

T = TypeVar("T")

_SCHEMES: Final = ("bearer", "dpop")
_PING: Final = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
_PING_HEADERS: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
_LOGINS: Final = 2
"""How often one request may be refused with 401: a token that was stale, and one that was refreshed."""
_NONCES: Final = 3
"""How often one request may be refused for the nonce of its proof."""
_STEP_UPS: Final = 2
"""How often more scopes are asked for, for one operation."""
_LONGEST_SCOPE: Final = 200
_OVER: Final = ("invalid_grant", "invalid_client", "unauthorized_client")
"""What an authorization server answers when a login is over; any other error may pass."""
_REVOKED: Final = (200, 204)
"""Statuses of a revocation endpoint that has forgotten a token."""
_REMEMBERED: Final = 256
_PATIENCE: Final = 30.0
"""Seconds until a token that is still valid is renewed again after that failed."""
_SHORT_PATIENCE: Final = 2.0
"""Seconds in which what has just failed is not tried again: no second browser, no second use of a refused assertion."""


class Attempt:
    """One attempt of a request, and how often the request was refused before."""

    __slots__ = ("headers", "logins", "nonce", "nonces", "number", "token", "url")

    def __init__(self, url: str, number: int, previous: Attempt | None) -> None:
        self.headers: Mapping[str, str] = {}
        """What the request carries; empty while there is no token."""
        self.url = url
        self.number = number
        self.token: str | None = None
        self.nonce: str | None = None
        self.logins: int = previous.logins if previous is not None else 0
        self.nonces: int = previous.nonces if previous is not None else 0


class _KnownServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of a server besides its tokens."""

    server: ServerMetadata
    resource: str | None
    client_id: str
    client: Registered | None = None
    """The client that refreshes the login, whatever else registers there later; a secret that the user gave is not in it."""


class _HeldLogin(msgspec.Struct, frozen=True):
    """A login as requests use it; assigned as a whole, so that another thread never sees parts of two."""

    tokens: Tokens
    known: _KnownServer
    key: ProofKey | None


class LoggedOut(NamedTuple):
    """The end of a login here: whose it was, and why that did not revoke the token (None: it did)."""

    issuer: str
    unrevoked: str | None


class Authorizer:
    """The login of one identity at one server. Its flows run one at a time; its other methods in any thread."""

    def __init__(
        self,
        origin: ServerOrigin,
        url: str,
        auth: Identity,
        *,
        now: Callable[[], float],
        token_bytes: Callable[[int], bytes],
        interactive: bool = True,
        login_seconds: float = 300.0,
        login_flags: Sequence[str] = (),
    ) -> None:
        """Prepare for the server at `url`; `now` gives seconds since 1970, `token_bytes` randomness.

        Unless `interactive`, no person is asked for anything: LoginRequired instead, whose command has `login_flags`. A login may
        take `login_seconds`.
        """
        self.auth = auth
        self.about = origin
        self._url = without_credentials(url)
        self._now = now
        self._token_bytes = token_bytes
        self._nonces = Nonces()
        self._person = isinstance(auth, OAuth)
        self._interactive = interactive or not self._person
        self._login_flags = login_flags
        self._context = LoginContext(self._url, now, token_bytes, self._nonces, login_seconds)
        self._origin = origin_of(self._url)
        self._loaded = not self._person
        self._held: _HeldLogin | None = None
        self._ended = ""
        """Why there is no login any more, if there was one."""
        self._renew_after = 0.0
        """When a token may be renewed again."""
        self._step_ups: dict[str, tuple[frozenset[str], ...]] = {}
        """What was asked for by operation, since that has succeeded; what was not granted, for longer."""
        self._number = 0
        """How many flows have ended."""
        self._failure: ClientError | None = None
        """How the last flow failed, if it did; at what; and until when that is not tried again."""
        self._failed_at: object = None
        self._failed_until = 0.0

    def headers(self, method: str, url: str, previous: Attempt | None = None) -> Attempt | None:
        """Return what a request carries, or None if `prepare` has to run first. A proof is good for one attempt only."""
        if not self._loaded or self._is_due():
            return None
        attempt = Attempt(url, self._number, previous)
        held = self._held
        if held is None or origin_of(url) != self._origin:
            return attempt
        attempt.token = token = held.tokens.access_token
        if held.key is None:
            attempt.headers = {"authorization": f"Bearer {token}"}
            return attempt
        attempt.nonce = self._nonces.get(url)
        jti = self._token_bytes(16).hex()
        target = without_credentials(url)
        proof = held.key.proof(method, target, now=self._now(), jti=jti, token=token, nonce=attempt.nonce)
        attempt.headers = {"authorization": f"DPoP {token}", "dpop": proof}
        return attempt

    def answered(self, url: str, headers: Mapping[str, str]) -> None:
        """Learn from the headers of a response, whatever its status: the nonce for the next proof."""
        self._nonces.learn(url, headers)

    def accepted(self, operation: Callable[[], str]) -> None:
        """Learn that the server has let a request pass, so that its operation may ask for more scopes later."""
        held = self._held
        if not self._step_ups or held is None:
            return
        done = operation()
        refused = tuple(each for each in self._step_ups.pop(done, ()) if not each <= set(held.tokens.scopes))
        if refused:
            self._step_ups[done] = refused

    def prepare(self) -> AuthFlow[None]:
        """Load what is stored, and renew what expires. Raises: ClientError."""
        if self._failure is not None and self._failed_at == "prepare" and self._now() < self._failed_until:
            raise self._failure.again()
        if not self._loaded or self._is_due():
            yield from self._settle(self._prepare(), "prepare")

    def refused(self, attempt: Attempt, status: int, headers: Mapping[str, str], operation: str) -> AuthFlow[bool]:
        """Return whether to send a request again that was refused with 401 or 403; False: it is not about authorization.

        `operation` is what attempts to get more scopes are counted by. Raises: ClientError.
        """
        challenges = _challenges(headers)
        errors = [each.parameters.get("error") for each in challenges]
        nonce = self._nonces.learn(attempt.url, headers)
        if attempt.nonces < _NONCES and any(is_nonce_request(each, nonce, attempt.nonce) for each in errors):
            attempt.nonces += 1
            return True
        if status == 403 and "insufficient_scope" in errors:
            flow, about = self._step_up(challenges, operation), (status, operation, *_scopes_of(challenges))
        elif status == 401 and (challenges or attempt.token is not None or self._interactive):
            flow, about = self._authorize(attempt, challenges), (status,)
            attempt.logins += 1
        else:
            return False
        stale = attempt.number != self._number
        if self._failure is None and stale:
            return True
        if self._failure is not None and self._failed_at == about and (stale or self._now() < self._failed_until):
            raise self._failure.again()
        yield from self._settle(flow, about)
        return True

    def log_in(self, *, register: bool = False) -> AuthFlow[Tokens]:
        """Log in anew, whatever is stored; with `register` as a new client, too. The server has seen the token.

        Raises: ClientError.
        """
        return (yield from self._settle(self._log_in(register=register), "log_in"))

    def log_out(self) -> AuthFlow[LoggedOut | None]:
        """Revoke and forget the login; return None if there was none. Raises: ClientError."""
        return (yield from self._settle(self._log_out(), "log_out"))

    def stored(self) -> AuthFlow[Tokens | None]:
        """Return what is stored of the login."""
        yield from self._settle(self._load(), "stored")
        return self._held.tokens if self._held is not None else None

    def stored_client(self) -> Registered | None:
        """Return the client of the login that `stored` has found; None where that is not known."""
        return self._held.known.client if self._held is not None else None

    def secrets(self) -> list[str]:
        """Return what no text may show."""
        held = self._held
        return [*self.auth.secrets(), *(held.tokens.secrets() if held is not None else ())]

    def login_command(self, scopes: Collection[str] = ()) -> str:
        """Return the command with which a person logs in here."""
        command = ["linkspan", "login", self.about.url or self._url, *self._login_flags]
        for scope in scopes:
            command += ["--scope", scope] if scope not in command else []
        return shlex.join(command)

    @property
    def hosts(self) -> frozenset[str]:
        """The host names that the user named, in lower case."""
        urls = [self._url, self.auth.issuer]
        if isinstance(self.auth, Enterprise):
            urls += [self.auth.idp, self.auth.idp_token_endpoint]
        return hosts_of(urls, self.auth.hosts)

    # What follows are the flows, without their errors made into those of a client.

    def _settle(self, flow: Generator[Any, Any, T], about: object) -> AuthFlow[T]:
        """Run a flow to its end, and keep its outcome for those that were refused meanwhile."""
        failure: ClientError
        try:
            result = yield from flow
        except AuthorizationFailure as problem:
            failure = AuthorizationError(
                problem.problem, self.about, phase="authorize", hint=problem.hint, data=problem.error
            )
            cause: Exception | None = problem.__cause__ if isinstance(problem.__cause__, Exception) else None
        except LoginTimedOut as problem:
            text = f"the login was not finished within {problem.seconds:g} s at {problem.url}"
            data = {"url": problem.url}
            failure = LoginTimeout(text, self.about, phase="authorize", seconds=problem.seconds, data=data)
            cause = None
        except ClientError as problem:
            failure, cause = problem, None
        else:
            self._number, self._failure, self._failed_at = self._number + 1, None, None
            return result
        self._number, self._failure, self._failed_at = self._number + 1, failure, about
        self._failed_until = self._now() + _SHORT_PATIENCE
        raise failure from cause

    def _prepare(self) -> AuthFlow[None]:
        if not self._loaded:
            yield from self._load()
        held = self._held
        if held is None or not self._is_due():
            return
        patience = _SHORT_PATIENCE  # at least, even if a token is not valid for longer: the next request carries it
        try:
            if self._person:
                yield from self._refresh(held.tokens, held.known)
            else:
                found = Discovered(held.known.server, held.known.resource)
                yield from self._obtain(found, _union(held.tokens.requested, self.auth.scopes))
        except AuthorizationFailure as failure:
            if not held.tokens.has_expired(self._now()):
                patience = _PATIENCE
            elif self._person and failure.reached:
                self._held = None  # the server refuses the request, and a person logs in again
            else:
                raise
        self._renew_after = self._now() + patience

    def _authorize(self, attempt: Attempt, challenges: Sequence[Challenge]) -> AuthFlow[None]:
        """Get a token that the server takes instead of the one that it refused, if there was one (AU-C42)."""
        if attempt.logins > _LOGINS:
            raise _disagreement()
        if self._person:
            yield from self._load()
            if self._held is not None and self._held.tokens.access_token != attempt.token:
                return  # another process has logged in
        if not self._interactive and self._held is None:
            raise self._login_required(())
        found = yield from self._discover(challenges)
        before = self._tokens_for(found)
        if before is not None and attempt.logins == 1 and (yield from self._refreshed(before, found)):
            return
        scopes = self._scopes(found, challenges, before)
        if not self._interactive:
            if self._held is None:  # the authorization server has just ended it
                raise self._login_required(scopes)
            reason = one_line(_parameter(challenges, "error"), 60) or "status 401"
            raise self._login_required(
                scopes,
                f"the server refuses the stored login ({reason})",
                "; if it refuses the new login, too, its log has the reason [LS-416]",
            )
        if self._person:
            yield from self._obtain_once(attempt.token, found, scopes, challenges)
        else:
            yield from self._obtain(found, scopes, challenges)

    def _obtain_once(
        self, refused: str | None, found: Discovered, scopes: Collection[str], challenges: Sequence[Challenge]
    ) -> AuthFlow[None]:
        """Let the person log in for one process at a time: the others use that login, and open no page of their own."""
        place = ("login", self._account, self._url)
        try:
            yield Lock(place, self._context.seconds)
        except TimeoutError:
            raise AuthorizationFailure("another process waits for this login, which was not finished") from None
        try:
            yield from self._load()
            if self._held is None or self._held.tokens.access_token == refused:
                yield from self._obtain(found, scopes, challenges)
        except (AuthorizationFailure, LoginTimedOut):
            yield Unlock(place)
            raise
        yield Unlock(place)

    def _step_up(self, challenges: Sequence[Challenge], operation: str) -> AuthFlow[None]:
        """Get a token with more scopes: those that were granted, and those of the challenge (AU-C43)."""
        scopes = _scopes_of(challenges)
        held, wanted, tried = self._held, frozenset(scopes), self._step_ups.get(operation, ())
        if held is None or not scopes or len(tried) >= _STEP_UPS:
            raise self._insufficient(scopes, operation)
        if wanted in tried and not wanted <= set(held.tokens.scopes):
            raise self._insufficient(scopes, operation)  # they were asked for, and not granted
        if not self._interactive:
            raise self._login_required(
                _union(held.tokens.requested, scopes),
                f"{operation} needs {' '.join(scopes)}, which the stored login does not have",
                " [LS-417]",
            )
        if operation not in self._step_ups and len(self._step_ups) >= _REMEMBERED:
            self._step_ups.clear()
        self._step_ups[operation] = (*tried, wanted)
        found = yield from self._discover(challenges)
        yield from self._obtain(found, self._scopes(found, challenges, self._tokens_for(found)), challenges)

    def _log_in(self, *, register: bool) -> AuthFlow[Tokens]:
        result = yield from fetch(Http("POST", self._url, _PING_HEADERS, _PING))
        challenges = _challenges(result.headers) if result.status == 401 else []
        found = yield from self._described(challenges)
        if result.status != 401 and found.resource is None:
            raise AuthorizationFailure(f"{shown(self._url)} does not ask for a login")
        found = self._with_resource(found)
        if register:
            yield from forget_registration(found.server.issuer)
        tokens = yield from self._obtain(found, self._scopes(found, challenges, None), challenges)
        if (yield from self._is_refused()):
            yield from self._log_out()  # so that what is corrected at the authorization server counts for the next one
            raise _disagreement()
        return tokens

    def _is_refused(self) -> AuthFlow[bool]:
        """Return whether the server refuses the token that was just obtained; not if it cannot be asked."""
        attempt: Attempt | None = None
        for _ in range(_NONCES):
            attempt = self.headers("POST", self._url, attempt)
            if attempt is None:  # it lives so short that it must be renewed first
                return False
            try:
                result = yield from fetch(Http("POST", self._url, {**_PING_HEADERS, **attempt.headers}, _PING))
            except AuthorizationFailure:
                return False
            nonce = self._nonces.learn(self._url, result.headers)
            errors = [each.parameters.get("error") for each in _challenges(result.headers)]
            if result.status != 401 or not any(is_nonce_request(each, nonce, attempt.nonce) for each in errors):
                return result.status == 401
        return False

    def _discover(self, challenges: Sequence[Challenge]) -> AuthFlow[Discovered]:
        """Find the authorization server, and what tokens are for."""
        return self._with_resource((yield from self._described(challenges)))

    def _described(self, challenges: Sequence[Challenge]) -> AuthFlow[Discovered]:
        """Find the authorization server; of several, that of the present login, if it is still one of them."""
        announced = _parameter(challenges, "resource_metadata") or None
        preferred = self._held.tokens.issuer if self._held is not None else None
        return (yield from discover(self._url, announced, self.auth.issuer, preferred))

    def _with_resource(self, found: Discovered) -> Discovered:
        """Return what was found with the resource that the user wants tokens for."""
        wanted = self.auth.resource if isinstance(self.auth, OAuth) else True
        if wanted is True:
            return found
        return msgspec.structs.replace(found, resource=wanted or None)

    def _tokens_for(self, found: Discovered) -> Tokens | None:
        """Return the tokens that we have, if they are of the same authorization server for the same resource."""
        tokens = self._held.tokens if self._held is not None else None
        same = tokens is not None and (tokens.issuer, tokens.resource) == (found.server.issuer, found.resource)
        return tokens if same else None

    def _log_out(self) -> AuthFlow[LoggedOut | None]:
        yield from self._load()
        held = self._held
        if held is None:
            return None
        try:
            unrevoked = yield from self._revoke(held)
        except AuthorizationFailure as failure:  # the login is forgotten here in any case
            unrevoked = failure.problem
        yield from self._forget(held.tokens)
        yield from forget_registration(held.tokens.issuer, held.tokens.client_id)
        yield SaveLogin(self._pointer, None)
        return LoggedOut(held.tokens.issuer, unrevoked)

    def _revoke(self, held: _HeldLogin) -> AuthFlow[str | None]:
        """Let the authorization server forget the tokens (RFC 7009); return why it did not. Raises: AuthorizationFailure."""
        tokens, server = held.tokens, held.known.server
        if server.revocation_endpoint is None:
            return "it has no endpoint for that"
        client = yield from self._client_of(tokens, held.known)
        kind = "refresh_token" if tokens.refresh_token is not None else "access_token"
        form = {"token": tokens.refresh_token or tokens.access_token, "token_type_hint": kind}
        at_server = self._context.client(server, client)
        result = yield from at_server.post(server.revocation_endpoint, form)
        if result.status == 400 and client is not None and client.method == "none":
            # The official SDK insists on a secret in the form; an empty one means none (RFC 6749, section 2.3.1).
            again = yield from at_server.post(server.revocation_endpoint, {**form, "client_secret": ""})
            result = again if again.status in _REVOKED else result
        if result.status in _REVOKED:
            return None
        secrets = [form["token"], *([client.client_secret] if client is not None and client.client_secret else ())]
        error, reason = said_by(result.body, result.status, secrets)
        return f"status {result.status}: {reason}" if error else f"status {result.status}"

    def _obtain(
        self, found: Discovered, scopes: Collection[str], challenges: Sequence[Challenge] = ()
    ) -> AuthFlow[Tokens]:
        """Get tokens with a new grant, and a new key if they are to be bound to one."""
        if not self._interactive:
            raise self._login_required(scopes)
        key = ProofKey.generate() if self._wants_dpop(found, challenges) else None
        tokens, client = yield from obtain_tokens(
            self.auth, found, tuple(scopes), key, self._context, _scopes_of(challenges)
        )
        if client is not None and not client.dynamic:
            client = msgspec.structs.replace(client, client_secret=None)
        known = _KnownServer(found.server, found.resource, tokens.client_id, client)
        if not self._person:  # its credentials get the next token
            tokens = msgspec.structs.replace(tokens, refresh_token=None)
        else:
            place, replaced = self._place(tokens), (yield from self._replaced())
            yield SaveLogin(place, encode(tokens))
            yield SaveLogin(self._pointer, encode(known))
            for each in replaced - {place}:
                yield SaveLogin(each, None)
        self._held, self._loaded, self._ended = _HeldLogin(tokens, known, key), True, ""
        return tokens

    def _replaced(self) -> AuthFlow[set[StoreKey]]:
        """Return where the logins are that a new one replaces: the one in use, and the stored one of a client that we registered.

        Nothing else would ever find them. That of a client that the user gave stays.
        """
        found = {self._place(self._held.tokens)} if self._held is not None else set[StoreKey]()
        stored = decode_or_none((yield LoadLogin(self._pointer)), _KnownServer)
        if stored is not None and stored.client is not None and stored.client.dynamic:
            found.add(self._place(_login_of(stored)))
        return found

    def _refreshed(self, tokens: Tokens, found: Discovered) -> AuthFlow[bool]:
        """Return whether a refresh gave a new token; not if the authorization server refused it. Raises: AuthorizationFailure."""
        if tokens.refresh_token is None:
            return False
        try:
            yield from self._refresh(tokens, _KnownServer(found.server, found.resource, tokens.client_id))
        except AuthorizationFailure as failure:
            if failure.error is None or not failure.reached:
                raise
        return self._held is not None and self._held.tokens.access_token != tokens.access_token

    def _refresh(self, tokens: Tokens, known: _KnownServer) -> AuthFlow[None]:
        """Renew tokens, once across processes. Raises: AuthorizationFailure; a login that was refused is forgotten."""
        place = self._place(tokens)
        yield Lock(place)
        try:
            current = decode_or_none((yield LoadLogin(place)), Tokens)
            if current is None or current.refresh_token is None:
                self._held = None  # another process has logged out
            elif current.access_token != tokens.access_token and not current.is_due(self._now()):
                self._held = _hold(current, known)  # another process has renewed them
            else:
                renewed = yield from self._renew(current, current.refresh_token, known)
                # Before it is used: the old refresh token may be invalid by now.
                yield SaveLogin(place, encode(renewed))
                self._held = _hold(renewed, known)
        except AuthorizationFailure as failure:
            if failure.error in _OVER:
                self._ended = f"the stored login has ended ({failure.error})"
                yield from self._forget(tokens)
            if failure.error == "invalid_client":
                yield from forget_registration(tokens.issuer, tokens.client_id)
            yield Unlock(place)
            raise
        yield Unlock(place)

    def _renew(self, current: Tokens, refresh_token: str, known: _KnownServer) -> AuthFlow[Tokens]:
        client = yield from self._client_of(current, known)
        if client is None:
            raise AuthorizationFailure("the client of this login is no longer registered", error="invalid_client")
        if client.method != "none" and client.client_secret is None:
            raise AuthorizationFailure(
                f"the login belongs to the client {client.client_id!r}, whose secret is needed to renew it",
                "pass OAuth(client_id=..., client_secret=...) [LS-412]",
                reached=False,
            )
        at_server = self._context.client(known.server, client, _key_of(current))
        form = refresh_form(refresh_token, current.resource)
        return (
            yield from at_server.obtain(form, resource=current.resource, requested=current.requested, before=current)
        )

    def _client_of(self, tokens: Tokens, known: _KnownServer) -> AuthFlow[Registered | None]:
        """Return the client to which a login belongs."""
        if not isinstance(self.auth, OAuth):
            return None
        return (yield from known_client(self.auth, known.server, tokens.client_id, self._now(), known.client))

    def _load(self) -> AuthFlow[None]:
        """Read what is stored, and use it if it is for this identity."""
        held: _HeldLogin | None = None
        auth = self.auth
        known = decode_or_none((yield LoadLogin(self._pointer)), _KnownServer) if isinstance(auth, OAuth) else None
        if isinstance(auth, OAuth) and known is not None:
            ours = auth.issuer is None or same_issuer(auth.issuer, known.server.issuer)
            ours = ours and auth.client_id in (None, known.client_id)
            place = self._place(_login_of(known))
            tokens = decode_or_none((yield LoadLogin(place)), Tokens) if ours else None
            held = _hold(tokens, known) if tokens is not None else None
        self._held = held
        if held is not None:
            self._ended = ""
        self._loaded = True

    def _forget(self, tokens: Tokens) -> AuthFlow[None]:
        yield SaveLogin(self._place(tokens), None)
        self._held = None

    @property
    def _account(self) -> str:
        return self.auth.account if isinstance(self.auth, OAuth) else ""

    @property
    def _pointer(self) -> StoreKey:
        return ("server", self._account, self._url)

    def _place(self, tokens: Tokens) -> StoreKey:
        resource = tokens.resource
        if resource is None or origin_of(resource) != self._origin:  # the user's own: other servers may have it, too
            resource = self._url
        return ("grant", self._account, tokens.issuer, tokens.client_id, resource)

    def _is_due(self) -> bool:
        """Return whether the token has to be renewed before the next request, and can be."""
        held = self._held
        if held is None or not held.tokens.is_due(self._now()):
            return False
        renewable = held.tokens.refresh_token is not None or not self._person
        return renewable and self._now() >= self._renew_after

    def _scopes(self, found: Discovered, challenges: Sequence[Challenge], before: Tokens | None) -> tuple[str, ...]:
        """Return what to ask for: what was granted before, what the user wants, and what the challenge names (AU-C22).

        Where that is nothing, what the resource lists.
        """
        asked = before.requested if before is not None else ()
        wanted = _union(_union(asked, self.auth.scopes), _scopes_of(challenges)) or _valid(found.scopes or ())
        offered = found.server.scopes_supported or ()
        if wanted and self._person and "offline_access" in offered:
            return _union(wanted, ("offline_access",))
        return wanted

    def _wants_dpop(self, found: Discovered, challenges: Sequence[Challenge]) -> bool:
        """Return whether to bind tokens to a key. Raises: AuthorizationFailure if the servers cannot do what is wanted."""
        if self.auth.dpop is False:
            return False
        offered = {each.scheme for each in challenges}
        wanted = found.requires_dpop or offered == {"dpop"} or (self._held is not None and self._held.key is not None)
        supported = found.server.dpop_signing_alg_values_supported
        if self.auth.dpop is True and not wanted:
            if supported is None:
                raise AuthorizationFailure(
                    f"{found.server.issuer} does not support DPoP", "leave out dpop=True [LS-409]"
                )
            wanted = True
        if wanted and supported is not None and ALGORITHM not in supported:
            raise AuthorizationFailure(f"{found.server.issuer} does not accept DPoP proofs with {ALGORITHM}")
        return wanted

    def _insufficient(self, scopes: Collection[str], operation: str) -> InsufficientScope:
        names = " ".join(scopes) or "unnamed scopes"
        return InsufficientScope(
            f"{operation} needs {names}, which the login does not have",
            self.about,
            phase="authorize",
            hint="the person who logs in, or the authorization server, does not grant them [LS-402]",
            data=scopes,
        )

    def _login_required(
        self, scopes: Collection[str], problem: str = "", advice: str = ", or pass auth= or headers= [LS-401]"
    ) -> LoginRequired:
        """Return the error that names the command to run, and what else there is to do; by default for want of a login."""
        return LoginRequired(
            problem or self._ended or "the server requires a login",
            self.about,
            phase="authorize",
            hint=f"run `{self.login_command(scopes)}`{advice}",
        )


def _disagreement() -> AuthorizationFailure:
    return AuthorizationFailure(
        "the server refuses the token that its authorization server has just issued",
        "the two disagree, for example about the audience; the log of the server has the reason (of a Linkspan server, under "
        "linkspan.http) [LS-403]",
    )


def _hold(tokens: Tokens, known: _KnownServer) -> _HeldLogin:
    return _HeldLogin(tokens, known, _key_of(tokens))


def _login_of(known: _KnownServer) -> Tokens:
    """Return tokens that are stored in the same place as those of a server; their values are not known."""
    return Tokens("", known.server.issuer, known.client_id, known.resource)


def _key_of(tokens: Tokens) -> ProofKey | None:
    return ProofKey.load(tokens.key) if tokens.key is not None else None


def _challenges(headers: Mapping[str, str]) -> list[Challenge]:
    return [each for each in read_challenges(headers.get("www-authenticate", "")) if each.scheme in _SCHEMES]


def _scopes_of(challenges: Sequence[Challenge]) -> tuple[str, ...]:
    return _valid(read_scopes(_parameter(challenges, "scope")))


def _valid(scopes: Collection[str]) -> tuple[str, ...]:
    """Return the scopes that are well-formed, each once (RFC 6749, section 3.3)."""
    return tuple(dict.fromkeys(each for each in scopes if is_scope(each) and len(each) <= _LONGEST_SCOPE))


def _parameter(challenges: Sequence[Challenge], name: str) -> str:
    return next((each.parameters[name] for each in challenges if name in each.parameters), "")


def _union(first: Collection[str], then: Collection[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *then)))
