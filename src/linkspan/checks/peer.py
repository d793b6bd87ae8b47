"""A server as the checks speak to it: one message at a time, well-formed or not, with all that came for it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

from linkspan.checks.findings import Unmet, expect, not_applicable
from linkspan.checks.handshake import handshake
from linkspan.checks.lines import LineProcess
from linkspan.checks.web import RESPONSE, Web, WebAnswer, read_json
from linkspan.revisions import Revision
from linkspan.revisions.modern import CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.methods import NAMED
from linkspan.wire.headers import encode_value

Transport: TypeAlias = Literal["stdio", "http"]
_WAIT: Final = 10.0
"""Seconds for a response."""
_FIRST_WAIT: Final = 30.0
"""Seconds for the first response of a process: it may load much before it answers, and hosts wait as long."""
_LEAST_WAIT: Final = 2.0
"""Seconds for a response of a server that has left some out in a row: for each, half as long."""
_WRITTEN: Final = 10.0
"""Seconds in which a server reads a line."""
_QUIET: Final = 0.4
"""Seconds after which a message that must not be answered was not."""
_LATE: Final = 1.0
"""Seconds in which a response may still follow one without an id, which may be for an earlier message."""
_MOST_PAGES: Final = 50
_MOST_KEPT: Final = 5_000
"""Messages and stray lines that are kept of one server."""
_NAME: Final = "linkspan-check"
_ME: Final[JSONObject] = {"name": _NAME, "version": "1"}
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
LISTS: Final[Mapping[str, tuple[str, str]]] = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resources", "resourceTemplates"),
}
"""For each method its capability, and the member of its result."""


class PeerUnreachable(Exception):
    """The server cannot be reached, or does not speak this revision. Its text gives the reason."""


class PeerAnswer(msgspec.Struct, frozen=True):
    """What came for one message."""

    asked: str
    """The message in a few words."""
    message: JSONObject | None = None
    """The response; None if there was none."""
    before: tuple[JSONObject, ...] = ()
    """What came before it."""
    web: WebAnswer = WebAnswer()
    """The answer over HTTP."""

    @property
    def words(self) -> str:
        """The answer in a few words."""
        if self.message is not None:
            shown = clip(json.dumps({k: v for k, v in self.message.items() if k != "jsonrpc"}), 160)
            return f"{self.web.status} {shown}" if self.web.status else shown
        return self.web.words if self.web.status or self.web.problem else "no answer"

    @property
    def result(self) -> JSONObject:
        """Its result. Raises: Unmet if it has none."""
        found = self.message.get("result") if self.message is not None else None
        if not is_object(found):
            raise Unmet(f"{self.asked}: {self.words}")
        return found

    @property
    def error(self) -> JSONObject:
        """Its error. Raises: Unmet if it has none."""
        found = self.message.get("error") if self.message is not None else None
        if not is_object(found):
            raise Unmet(f"{self.asked}: {self.words}")
        return found

    @property
    def failed(self) -> bool:
        """Whether it is an error."""
        return self.message is not None and "error" in self.message

    def expect_served(self) -> None:
        """Expect a result. Raises: Unmet."""
        expect(self.message is not None and not self.failed, f"{self.asked}: {self.words}")

    def expect_refused(self, *codes: int, status: int = 0) -> None:
        """Expect an error with one of some codes and, over HTTP, a status. Raises: Unmet."""
        wanted = " or ".join(map(str, codes))
        expect(self.error.get("code") in codes, f"{self.asked}: {self.words}; must be {wanted}")
        if status and self.web.status:
            expect(self.web.status == status, f"{self.asked}: {self.words}; must be {status}")


class _SentMessage(msgspec.Struct, frozen=True):
    """A message as it is sent, and what is waited for."""

    message: JSON | bytes
    body: bytes
    words: str
    """What findings call it."""
    headers: Mapping[str, str]
    answered: bool
    until: Sequence[bytes]


class CheckedPeer:
    """A server in one revision. Its subclasses are the transports."""

    transport: ClassVar[Transport]

    def __init__(self, revision: Revision, calls: Mapping[str, JSONObject]) -> None:
        """`calls` are the arguments of tools that may be called though they have no readOnlyHint."""
        self.revision = revision
        self.calls = calls
        self.seen: list[JSONObject] = []
        """Every message that came, the first 5,000."""
        self.stray: list[str] = []
        """What came on stdout that is no message."""
        self.capabilities: JSONObject = {}
        self.hello: JSONObject = {}
        """The result of the handshake, or of `server/discover`."""
        self._next = 0
        self._pages: dict[str, list[JSONObject]] = {}

    @property
    def modern(self) -> bool:
        """Whether each request says the revision itself."""
        return "server/discover" in self.revision.requests

    def open(self) -> None:
        """Begin to speak. Raises: PeerUnreachable if the server does not speak this revision."""
        answer = self.ask("server/discover") if self.modern else self.initialize(self.revision.date)
        found = answer.message.get("result") if answer.message is not None else None
        if not is_object(found):
            raise PeerUnreachable(f"{answer.asked}: {answer.words}")
        spoken = found.get("supportedVersions") if self.modern else [found.get("protocolVersion")]
        if not is_array(spoken) or self.revision.date not in spoken:
            raise PeerUnreachable(f"it speaks {', '.join(map(str, spoken)) if is_array(spoken) else 'no version'}")
        self.hello = found
        capabilities = found.get("capabilities")
        self.capabilities = capabilities if is_object(capabilities) else {}
        self.begin(answer)

    def begin(self, answer: PeerAnswer) -> None:
        """Go on after the first response."""
        if not self.modern:
            self.notify("notifications/initialized")

    def initialize(self, date: str, headers: Mapping[str, str] = _NONE) -> PeerAnswer:
        """Send a handshake for a revision."""
        return self.exchange(handshake(_NAME, date, id=self._new_id()), headers=headers)

    def message(
        self, method: str, params: JSONObject | None = None, *, id: JSON = None, meta: bool = True
    ) -> JSONObject:
        """Return a request; of the stateless revisions with its envelope, unless `meta` is False."""
        found: JSONObject = {"jsonrpc": "2.0", "id": self._new_id() if id is None else id, "method": method}
        filled = dict(params or {})
        if meta and self.modern:
            given = filled.get("_meta")
            filled["_meta"] = {**self.envelope(), **(given if is_object(given) else {})}
        if filled:
            found["params"] = filled
        return found

    def _new_id(self) -> int:
        self._next += 1
        return self._next

    def envelope(self) -> JSONObject:
        """Return the `_meta` of a request of the stateless revisions."""
        return {PROTOCOL_VERSION: self.revision.date, CAPABILITIES: {}, CLIENT_INFO: _ME}

    def ask(self, method: str, params: JSONObject | None = None, *, id: JSON = None) -> PeerAnswer:
        """Send a request as a client does, and return the answer."""
        return self.exchange(self.message(method, params, id=id))

    def notify(self, method: str, params: JSONObject | None = None) -> PeerAnswer:
        """Send a notification, and return what came for it, which should be nothing."""
        message: JSONObject = {"jsonrpc": "2.0", "method": method}
        if params:
            message["params"] = params
        return self.exchange(message, answered=False)

    def exchange(
        self,
        message: JSON | bytes,
        *,
        headers: Mapping[str, str] = _NONE,
        answered: bool = True,
        until: Sequence[bytes] = RESPONSE,
    ) -> PeerAnswer:
        """Send a message, or bytes as they are, and return what came.

        `headers` replace the usual ones of HTTP; an empty value leaves one out. `until` are texts of the last message to
        wait for.
        """
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self._exchange(_SentMessage(message, body, _words(message), headers, answered, until))

    def _exchange(self, sent: _SentMessage) -> PeerAnswer:
        raise NotImplementedError

    def afresh(self) -> CheckedPeer:
        """Return the same server, which was not greeted. The caller closes it."""
        return self

    def alive(self) -> bool:
        """Return whether the server still runs, as far as that can be seen."""
        return True

    def close(self) -> None:
        """End."""

    def keep(self, found: JSONObject) -> None:
        """Keep a message that came."""
        if len(self.seen) < _MOST_KEPT:
            self.seen.append(found)

    def offers(self, capability: str) -> None:
        """Leave the requirement out if the server does not announce a capability. Raises: NotApplicable."""
        if not is_object(self.capabilities.get(capability)):
            not_applicable(f"it announces no {capability}")

    def pages(self, method: str) -> list[JSONObject]:
        """Return all pages of a list, as they came. Raises: NotApplicable if there are none, or not all can be read."""
        if method not in self._pages:
            try:
                self._pages[method] = self.read_pages(method)
            except Unmet:
                self._pages[method] = []
        return self._pages[method] or not_applicable(f"not all of {method} can be read")

    def read_pages(self, method: str) -> list[JSONObject]:
        """Read all pages of a list. Raises: Unmet if one cannot be read, or NotApplicable without a first one."""
        self.offers(LISTS[method][0])
        found: list[JSONObject] = []
        cursor: JSON = None
        cursors: list[JSON] = []
        while not found or cursor is not None:
            answer = self.ask(method, {} if cursor is None else {"cursor": cursor})
            if answer.failed and not found:
                not_applicable(f"{method} is refused")
            found.append(answer.result)
            cursor = answer.result.get("nextCursor")
            expect(cursor not in cursors, f"{method}: the cursor {clip(repr(cursor), 80)} comes twice")
            expect(len(found) <= _MOST_PAGES or cursor is None, f"{method} has more than {_MOST_PAGES} pages")
            cursors.append(cursor)
        return found

    def items(self, method: str) -> list[JSONObject]:
        """Return what a list has. Raises: NotApplicable if there is none, or it cannot be read."""
        _, member = LISTS[method]
        found: list[JSONObject] = []
        for page in self.pages(method):
            listed = page.get(member)
            if is_array(listed):
                found += (each for each in listed if is_object(each))
        return found


class WebPeer(CheckedPeer):
    """A server at a URL."""

    transport = "http"

    def __init__(self, web: Web, revision: Revision, calls: Mapping[str, JSONObject]) -> None:
        super().__init__(revision, calls)
        self.web = web
        self.session: str | None = None

    def begin(self, answer: PeerAnswer) -> None:
        """Keep the session."""
        if not self.modern:
            self.session = answer.web.headers.get("mcp-session-id")
        super().begin(answer)

    def afresh(self) -> CheckedPeer:
        """Forget the session."""
        return WebPeer(self.web, self.revision, self.calls)

    def usual(self, message: JSON | bytes) -> dict[str, str]:
        """Return the headers that a client sends with a message."""
        found = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.session is not None:
            found["Mcp-Session-Id"] = self.session
        method = message.get("method") if is_object(message) else None
        if isinstance(method, str) and (self.modern or method != "initialize"):
            found["MCP-Protocol-Version"] = self.revision.date
        if self.revision.repeats_in_headers and is_object(message) and isinstance(method, str):
            found["Mcp-Method"] = method
            params = message.get("params")
            name = params.get(NAMED[method]) if method in NAMED and is_object(params) else None
            if isinstance(name, str):
                found["Mcp-Name"] = encode_value(name)
        return found

    def _exchange(self, sent: _SentMessage) -> PeerAnswer:
        """Post a message."""
        asked, head = sent.words, {**self.usual(sent.message), **sent.headers}
        web = self.web.ask("POST", self.web.url, head, sent.body, until=sent.until)
        messages = [each for each in map(read_json, web.texts) if is_object(each)]
        for each in messages:
            self.keep(each)
        if not messages or "method" in messages[-1]:
            return PeerAnswer(asked, before=tuple(messages), web=web)
        return PeerAnswer(asked, messages[-1], tuple(messages[:-1]), web)


class CommandPeer(CheckedPeer):
    """A server that is a command."""

    transport = "stdio"

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        revision: Revision,
        calls: Mapping[str, JSONObject],
    ) -> None:
        """Start it. Raises: PeerUnreachable if that is not possible."""
        super().__init__(revision, calls)
        self._started = (words, environment, cwd)
        try:
            self._process = LineProcess(words, environment, cwd)
        except (OSError, ValueError) as problem:
            raise PeerUnreachable(str(problem)) from problem
        self._at_end = False
        self._left_out = 0

    def afresh(self) -> CheckedPeer:
        """Start it once more. Raises: PeerUnreachable."""
        return CommandPeer(*self._started, self.revision, self.calls)

    @property
    def last_words(self) -> str:
        """The end of its stderr."""
        return clip(" ".join(self._process.stderr.split())[-300:], 300)

    def _exchange(self, sent: _SentMessage) -> PeerAnswer:
        """Write a line, and read until the response to it."""
        asked, message = sent.words, sent.message
        try:
            self._process.write(sent.body, _WRITTEN)
        except TimeoutError:
            return PeerAnswer(f"{asked}: the server does not read it")
        except OSError:
            return PeerAnswer(f"{asked}: the server has ended")
        id = message.get("id") if is_object(message) else None
        if not sent.answered:
            return self.read(asked, id, _QUIET, sent.until)
        wait = _WAIT if self.seen else _FIRST_WAIT
        found = self.read(asked, id, max(_LEAST_WAIT, wait / 2**self._left_out), sent.until)
        self._left_out = self._left_out + 1 if found.message is None else 0
        return found

    def read(self, asked: str, id: JSON, seconds: float, until: Sequence[bytes] = RESPONSE) -> PeerAnswer:
        """Read until a response to a request with an id; without an id, until any response or the end of the time."""
        deadline = time.monotonic() + seconds
        before: list[JSONObject] = []
        unnamed: JSONObject | None = None
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self._process.read(left)
            except TimeoutError:
                break
            if line is None:
                self._at_end = True
                return PeerAnswer(f"{asked}: the server ended", before=tuple(before))
            found = read_json(line.decode("utf-8", "replace"))
            if not is_object(found) or found.get("jsonrpc") != "2.0":
                if len(self.stray) < _MOST_KEPT:
                    self.stray.append(clip(line.decode("utf-8", "replace").rstrip(), 200))
                if not is_object(found):
                    continue
            self.keep(found)
            if "method" not in found and (id is None or _same(found.get("id"), id)):
                return PeerAnswer(asked, found, tuple(before))
            if "method" not in found and found.get("id") is None:
                unnamed = found
                deadline = min(deadline, time.monotonic() + _LATE)
            else:
                before.append(found)
            if until is not RESPONSE and any(each in line for each in until):
                break
        return PeerAnswer(asked, unnamed, tuple(before))

    def alive(self) -> bool:
        """Return whether the process runs, and may still answer."""
        return not self._at_end and not self._process.full and self._process.exit_status(0.0) is None

    def ends(self, seconds: float) -> bool:
        """End its stdin; return whether it ends within some seconds."""
        self._process.child.close_stdin()
        return self._process.exit_status(seconds) is not None

    def close(self) -> None:
        """End the process and whatever it has started."""
        self._process.close()


def _same(found: JSON, id: JSON) -> bool:
    """Return whether ids are equal, or would be but for their type: the requirement on ids tells them apart."""
    return found == id or str(found) == str(id)


def _words(message: JSON | bytes) -> str:
    if isinstance(message, bytes):
        return clip(repr(message.decode("utf-8", "replace")), 80)
    if is_object(message) and isinstance(message.get("method"), str):
        params = message.get("params")
        shown = {k: v for k, v in params.items() if k != "_meta"} if is_object(params) else {}
        return clip(f"{message['method']} {json.dumps(shown)}" if shown else str(message["method"]), 120)
    return clip(json.dumps(message), 80)


def environment_of(added: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: ours, with what its entry adds. A check starts what its author starts."""
    return {**os.environ, **added}
