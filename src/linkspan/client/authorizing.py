"""What stands between the requests of clients and the flows of authorization: who waits for whom, and what a flow wants done.

    request (a flow of its own)  --attempt, refusal-->  Access  --one job at a time-->  thread: effects of a flow
         ^                                                |                                HTTP, browser, vault, supplier
         +----- goes on when the job has ended <----------+

A `LoginAccess` is one identity at one server, shared by all clients of the process that use it. Law: one flow at a time; requests
wait for its outcome and never for each other; `_lock` is held for a moment only, never while something is sent, read or shown. A
flow has a thread of its own, so nothing of it ends with the call that began it.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec

from linkspan.auth.authorizer import Attempt, Authorizer
from linkspan.auth.network import shown, without_credentials
from linkspan.client.callbacks import finished
from linkspan.client.transports.http_connections import Routes
from linkspan.client.transports.http_guarded import GuardedHttp, read_bounded
from linkspan.client.transports.http_requests import HttpFailure, HttpFlow, Open, PersonWaits, Reply, Wait
from linkspan.client.vault import Key, ProgramVault, Vault
from linkspan.core.auth_flow import (
    AuthEffect,
    AuthFlow,
    AwaitRedirect,
    Http,
    HttpResult,
    HttpUnavailable,
    LoadLogin,
    Lock,
    LoginNote,
    OpenUrl,
    SaveLogin,
    ShowCode,
    Supply,
    Unlock,
)
from linkspan.core.flow import Sleep
from linkspan.flows.client_errors import AuthorizationError, ClientError, LoginRequired, LoginTimeout, ServerOrigin
from linkspan.runtime.forks import ForkedLock, renew
from linkspan.wire.redaction import is_secret_name, one_line, redact

if TYPE_CHECKING:
    from ssl import SSLContext

    from linkspan.auth.identities import Identity

T = TypeVar("T")

_MOST_REFUSALS: Final = 8
"""Of one request, none of which ends the matter: the authorizer ends it earlier."""
_REFUSALS: Final[Mapping[str, Collection[int]]] = {"GET": (401,), "POST": (401, 403)}
"""Statuses that are about who asks. More rights are asked for only where there is something to be done with them, and nothing
for the sake of a DELETE, which ends a session."""
_ERROR_BODY: Final = 65536
_REMINDER: Final = 60.0
"""Seconds after which a login shows why it waits."""
_VARIABLE: Final = re.compile(r"[A-Z0-9_]+")


class LoginAccess:
    """One identity at one server: gives requests what identifies them, and begins flows when the server refuses them."""

    def __init__(
        self, origin: ServerOrigin, url: str, identity: Identity, ssl: SSLContext | None, **options: Any
    ) -> None:
        """`options` are those of `Authorizer`."""
        self.url = url
        self.ssl = ssl
        keeper = getattr(identity, "logins", None)
        self.vault: Vault | ProgramVault = ProgramVault(keeper) if keeper is not None else Vault()
        self.show: Callable[[str], object] = _print
        """Shows a line to the person who logs in, where there is no browser."""
        self.follow: Callable[[str], object] | None = None
        """Takes what a login does, step by step, in lines without secrets."""
        self.authorizer = Authorizer(origin, url, identity, now=time.time, token_bytes=secrets.token_bytes, **options)
        self._routes = Routes(ssl, 0.0)
        self._peer = ""
        """The address from which the server has refused a request."""
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without a job; in a forked child it is the parent's."""
        self._lock = threading.Lock()
        self._job: _Job | None = None

    def send(
        self, request: Open, body_of: str, person_waits: PersonWaits | None = None, refused: Reply | None = None
    ) -> HttpFlow[Reply]:
        """Send a request with what identifies it, again after each refusal that could be settled; return what must be given back.

        `body_of` is what to call it. `refused` is the response to it without any identification, if it was sent so before.
        Raises: HttpFailure, ClientError.
        """
        kept: Reply | None = None
        attempt: Attempt | None = None
        for _ in range(_MOST_REFUSALS):
            attempt = yield from self._attempt(request, attempt, person_waits)
            reply, refused = refused, None
            if reply is None or attempt.headers:
                if reply is not None:
                    reply.give_back()
                reply = yield Open(request.method, request.url, {**request.headers, **attempt.headers}, request.body)
            if "dpop-nonce" in reply.headers:
                self.authorizer.answered(request.url, reply.headers)
            if reply.status not in _REFUSALS.get(request.method, ()):
                self.authorizer.accepted(partial(_operation, request.body, body_of))
                return reply
            self._peer = reply.peer or self._peer
            kept = yield from _kept(reply)
            operation = _operation(request.body, body_of)
            begin = partial(self.authorizer.refused, attempt, kept.status, kept.headers, operation)
            try:
                if not (yield from self._run(begin, person_waits)):
                    break
            except AuthorizationError as problem:
                if attempt.token is None and (wrong := self._wrong_key(problem, request, kept)) is not None:
                    raise wrong from problem
                raise
        assert kept is not None
        return kept

    def _wrong_key(self, problem: AuthorizationError, request: Open, refusal: _KeptReply) -> AuthorizationError | None:
        """Return the error for a request that was refused for the API key in its headers; None if it was not for that."""
        name = next((each for each in request.headers if is_secret_name(each) and not each.startswith("mcp-")), None)
        announced = "resource_metadata" in refusal.headers.get("www-authenticate", "")
        if name is None or refusal.status != 401 or isinstance(problem, LoginTimeout):
            return None
        if announced and not isinstance(problem, LoginRequired):
            return None
        return AuthorizationError(
            f"the API key is wrong: the server refuses that in {name}",
            self.authorizer.about,
            phase="authorize",
            hint=f"pass the right one in headers=, or log in with `{self.authorizer.login_command()}` [LS-418]",
        )

    def _attempt(self, request: Open, previous: Attempt | None, person_waits: PersonWaits | None) -> HttpFlow[Attempt]:
        """Return what identifies a request. Without a token it waits for the login that is under way."""
        while True:
            attempt = self.authorizer.headers(request.method, request.url, previous)
            job = self._job
            if request.method == "DELETE":  # at the end of a session: nothing is begun for its sake
                return attempt or Attempt(request.url, 0, None)
            if attempt is None:
                yield from self._run(self.authorizer.prepare, person_waits)
            elif attempt.headers or job is None:
                return attempt
            else:
                yield from job.wait(person_waits)
                if isinstance(job.error, ClientError):
                    raise job.error.again()

    def _run(self, begin: Callable[[], AuthFlow[T]], person_waits: PersonWaits | None) -> HttpFlow[T]:
        """Run a flow when no other runs, and return its value. Most end at once, because another has settled the matter."""
        while True:
            with self._lock:
                job = mine = self._job
                if job is None:
                    flow = begin()
                    try:
                        mine = self._job = _Job(self, flow, next(flow))
                    except StopIteration as stop:
                        return cast("T", stop.value)
            if job is None and mine is not None:
                mine.start()
                yield from mine.wait(person_waits)
                return cast("T", mine.outcome())
            if job is not None:
                yield from job.wait(person_waits)

    def secrets(self) -> list[str]:
        """Return what no text may show."""
        return self.authorizer.secrets()

    def server_addresses(self) -> Collection[str]:
        """Return the address from which the server has answered; before it has, and behind a proxy, those of its name."""
        direct = self._routes.find(self.url)
        if self._peer and direct.place == direct.server:
            return (self._peer,)
        found: list[Any] = []
        with suppress(OSError, UnicodeError):
            found = socket.getaddrinfo(direct.server.host, None, type=socket.SOCK_STREAM)
        return {str(each[4][0]) for each in found}

    def run(self, flow: AuthFlow[T]) -> T:
        """Run a flow in this thread, as the commands do. Raises: ClientError."""
        job = _Job(self, flow, next(flow))
        job.perform()
        return cast("T", job.outcome())

    def ended(self, job: _Job) -> None:
        """Let the next flow begin."""
        with self._lock:
            if self._job is job:
                self._job = None


class _KeptReply(msgspec.Struct):
    """A refusal whose body has been read, so that its connection is free while a person logs in."""

    status: int
    headers: Mapping[str, str]
    peer: str
    _body: bytes

    def take(self) -> bytes:
        body, self._body = self._body, b""
        return body

    def give_back(self) -> None:
        pass


def _kept(reply: Reply) -> HttpFlow[_KeptReply]:
    body = b""
    try:
        with suppress(HttpFailure):
            body = yield from read_bounded(reply, _ERROR_BODY)
    finally:
        reply.give_back()
    return _KeptReply(reply.status, reply.headers, reply.peer, body)


class _NamedSecret(msgspec.Struct, frozen=True):
    name: str = ""
    uri: str = ""


class _JobMessage(msgspec.Struct, frozen=True):
    method: str = ""
    params: _NamedSecret = _NamedSecret()


def _operation(body: bytes, what: str) -> str:
    """Return what a message is about: `tools/call write`."""
    try:
        found = msgspec.json.decode(body, type=_JobMessage)
    except (msgspec.DecodeError, RecursionError):
        return what
    return f"{found.method} {found.params.name or found.params.uri}".strip()


# Flows.


class _WaitingRequest(msgspec.Struct, eq=False):
    """A request that waits for the end of a job."""

    go_on: Callable[[], object]
    waits: PersonWaits | None
    reported: bool = False

    def person(self, waits: bool) -> None:
        """Stop the clock of the request, or let it run again."""
        if waits != self.reported and self.waits is not None:
            self.reported = waits
            self.waits(waits)


class _Job:
    """A flow under way, and the requests that wait for its end."""

    def __init__(self, access: LoginAccess, flow: AuthFlow[Any], effect: AuthEffect) -> None:
        self._access = access
        self._flow = flow
        self._effect = effect
        self._lock = threading.Lock()
        self._waiting: list[_WaitingRequest] = []
        self._person = False
        """Whether a person is waited for."""
        self._done = False
        self._value: object = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Perform the flow in a thread of its own; end it if no thread can be started."""
        try:
            threading.Thread(target=self.perform, name="linkspan-login", daemon=True).start()
        except RuntimeError as error:
            self._flow.close()
            self.error = HttpFailure(f"the login cannot begin: {error}", sent=False)
            self._end()

    def wait(self, person_waits: PersonWaits | None) -> HttpFlow[None]:
        """Wait for the end; `person_waits` receives when a wait for a person begins and ends."""
        waiting: list[_WaitingRequest] = []

        def until(go_on: Callable[[], object]) -> None:
            with self._lock:
                if not self._done:
                    waiting.append(_WaitingRequest(go_on, person_waits))
                    self._waiting += waiting
                    waiting[0].person(self._person)
                    return
            go_on()

        try:
            yield Wait(until)
        finally:
            with self._lock:
                for each in waiting:
                    each.person(False)
                    self._waiting.remove(each)

    def outcome(self) -> object:
        """Return the value of the flow, or raise what it has raised."""
        if self.error is not None:
            raise self.error
        return self._value

    def person(self, waits: bool) -> None:
        """Stop the clocks of all that wait, or let them run again."""
        with self._lock:
            self._person = waits
            for each in self._waiting:
                each.person(waits)

    def perform(self) -> None:
        """Do what the flow wants done, to its end."""
        effect = self._effect
        try:
            with closing(_Performer(self._access, self)) as performer:
                while True:
                    try:
                        outcome = performer.perform(effect)
                    except Exception as error:
                        effect = self._flow.throw(error)
                    else:
                        effect = self._flow.send(outcome)
        except StopIteration as stop:
            self._value = stop.value
        except BaseException as error:
            self.error = error.with_traceback(None)  # whose frames hold secrets
        finally:
            self._end()

    def _end(self) -> None:
        """Let the next flow begin, and all that waited for this one go on."""
        self._access.ended(self)
        with self._lock:
            self._done = True
            waiting = list(self._waiting)
        for each in waiting:
            each.go_on()


class _Performer:
    """Performs the effects of one flow; `close` gives back what they have opened."""

    def __init__(self, access: LoginAccess, job: _Job) -> None:
        self._access = access
        self._job = job
        self._authorizer = access.authorizer
        named = access.authorizer.hosts
        self._http = GuardedHttp(access.url, named.__contains__, access.server_addresses, access.ssl)
        self._receiver: Any = None
        self._locks: dict[Key, Callable[[], None]] = {}

    def perform(self, effect: AuthEffect) -> object:
        """Return the outcome of an effect. Raises: HttpUnavailable, and what the functions of the application raise."""
        match effect:
            case Http():
                return self._fetch(effect)
            case LoginNote():
                self._notify(effect.text)
            case AwaitRedirect():
                return self._listen(effect.port)
            case OpenUrl():
                return self._ask_person(effect)
            case ShowCode():
                self._job.person(True)  # until the flow ends: it asks from time to time whether the code was entered
                complete = f" (or open {effect.complete_url})" if effect.complete_url else ""
                self._access.show(f"Open {effect.url} on any device and enter the code {effect.code}{complete}")
                if getattr(self._authorizer.auth, "open_url", None) is not None:
                    self._open(effect.complete_url or effect.url)
            case LoadLogin():
                return self._access.vault.load(effect.key)
            case SaveLogin():
                self._access.vault.save(effect.key, effect.value)
            case Lock():
                self._lock(effect)
            case Unlock():
                self._locks.pop(effect.key)()
            case Supply():
                return _supplied(effect.source, effect.arguments)
            case Sleep():
                time.sleep(effect.seconds)
        return None

    def _lock(self, effect: Lock) -> None:
        """Take a lock, perhaps after the person has logged in for another process. Raises: TimeoutError."""
        vault, seconds = self._access.vault, effect.seconds
        if seconds is None:
            self._locks[effect.key] = vault.lock(effect.key)
            return
        self._job.person(True)
        self._locks[effect.key] = vault.lock(effect.key, seconds)
        self._job.person(False)

    def close(self) -> None:
        """Unlock what is locked, stop listening, and let the clocks run again."""
        self._job.person(False)
        for unlock in self._locks.values():
            unlock()
        if self._receiver is not None:
            self._receiver.close()
        self._http.close()

    def _fetch(self, effect: Http) -> HttpResult:
        """Return a response, and note its status. Raises: HttpUnavailable."""
        asked = f"{effect.method} {without_credentials(shown(effect.url))}"
        try:
            result = self._http.fetch(effect)
        except HttpUnavailable as problem:
            self._notify(f"{asked} -> {problem}")
            raise
        self._notify(f"{asked} -> {result.status}")
        return result

    def _notify(self, text: str) -> None:
        if self._access.follow is not None:
            self._access.follow(one_line(redact(text, self._access.secrets()), 500))

    # The person.

    def _listen(self, port: int | None) -> str:
        from linkspan.client.callback import CallbackReceiver

        if self._receiver is not None:
            self._receiver.close()
        try:
            self._receiver = CallbackReceiver(port)
        except OSError as error:
            place = f"port {port}" if port is not None else "any port"
            problem = f"cannot listen on {place} of 127.0.0.1: {error.strerror}"
            raise HttpUnavailable(problem) from None
        return str(self._receiver.redirect_uri)

    def _ask_person(self, effect: OpenUrl) -> str | None:
        """Show a URL; return what came back first: at the receiver, or from the application's function."""
        inbox: SimpleQueue[str | BaseException] = SimpleQueue()
        if self._receiver is not None:
            self._receiver.expect(effect.state, inbox.put)
        self._job.person(True)
        try:
            self._open(effect.url, inbox.put)
            if effect.doubt:
                self._remind(effect.doubt)
            try:
                found = inbox.get(timeout=min(_REMINDER, effect.seconds))
            except Empty:
                self._remind(_waiting_for(effect))
                found = inbox.get(timeout=max(0.0, effect.seconds - _REMINDER))
        except Empty:
            return None
        finally:
            self._job.person(False)
            if (done := getattr(self._authorizer.auth, "open_url", None)) and hasattr(done, "done"):
                done.done()  # it may be reading what the person pastes
        if isinstance(found, BaseException):
            raise found
        return found

    def _remind(self, text: str) -> None:
        """Show the person who logs in what the browser cannot tell, since an error page of it ends nothing here."""
        function = getattr(self._authorizer.auth, "open_url", None)
        remind = self._access.show if function is None else getattr(function, "remind", None)
        if remind is not None and text:
            remind(text)

    def _open(self, url: str, came_back: Callable[[str | BaseException], object] | None = None) -> None:
        """Open a URL with the application's function, which may wait and return where it led, or in the browser."""
        function: Callable[[str], Any] | None = getattr(self._authorizer.auth, "open_url", None)
        if function is None:
            from linkspan.client.callback import open_browser

            if not open_browser(url):
                self._access.show(f"Open this URL in a browser to log in:\n{url}")
            return
        call = function

        def run() -> None:
            try:
                found: object = finished(call(url))
            except Exception as error:
                found = error
            if came_back is not None and isinstance(found, str | BaseException):
                came_back(found)

        threading.Thread(target=run, name="linkspan-login", daemon=True).start()


def _waiting_for(effect: OpenUrl) -> str:
    """Return what a login waits for, after a while; empty if it does not wait any longer."""
    left = effect.seconds - _REMINDER
    return (
        f"Still waiting, for {left:g} s at most, until the browser comes back to {effect.redirect_uri}. If it shows an "
        f"error, that page has the reason: correct it and begin anew. The login is at:\n{effect.url}"
        if left > 0
        else ""
    )


def _supplied(source: object, arguments: tuple[object, ...]) -> str:
    """Return a credential from where the application said it is. Raises: what its function raises, OSError, LookupError."""
    if callable(source):
        return str(finished(source(*arguments)))
    text = os.fspath(cast("str | os.PathLike[str]", source))
    if isinstance(source, str) and _VARIABLE.fullmatch(text):
        if text not in os.environ:
            raise LookupError(f"the environment variable {text} is not set")
        return os.environ[text].strip()
    return Path(text).read_text("utf-8").strip()


def _print(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


_accesses: WeakValueDictionary[object, LoginAccess] = WeakValueDictionary()
_accesses_lock = ForkedLock()


def access_to(
    origin: ServerOrigin, url: str, identity: Identity, ssl: SSLContext | None, **options: Any
) -> LoginAccess:
    """Return what an identity uses at a server: one for all clients of the process. `options` are those of `Authorizer`."""
    key = (url, identity, ssl, *sorted(options.items()))
    with _accesses_lock:
        found = _accesses.get(key)
        if found is None:
            found = _accesses[key] = LoginAccess(origin, url, identity, ssl, **options)
        return found
