"""Middleware that comes with the library: limits of rate and of size, an audit log, and words for exceptions.

Each is added with `server.middleware(RateLimit(60, per=60))`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable, Mapping
from logging import getLogger
from typing import TYPE_CHECKING, TypeAlias, cast

from msgspec import structs

from linkspan.errors import LinkspanError, RemoteProtocolError, ToolError
from linkspan.revisions.neutral import InputRequired, Outcome
from linkspan.runtime.forks import ForkedLock
from linkspan.server.large_results import bytes_of, head_of, size_of
from linkspan.server.middleware import Call
from linkspan.stores.port import ABSENT
from linkspan.types.base import UNSET, TextContent
from linkspan.types.messages import CallToolResult
from linkspan.wire.values import key_of

if TYPE_CHECKING:
    from linkspan.serve.sharing import SharedStore
    from linkspan.server.configuration import Profile

_Steps: TypeAlias = Generator[None, Outcome, Outcome | None]


class RateLimit:
    """At most `calls` calls in `per` seconds, for each caller and each tool; beyond, the caller reads when to try again.

    A call that asks the user counts when it begins and when it ends: what a client replays counts too. The processes of a server
    with a store count together, by the `repr` of the key.
    """

    def __init__(
        self,
        calls: int,
        *,
        per: float = 60.0,
        key: Callable[[Call], Hashable] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Count by `key`; without one, by the caller and the name. `clock` gives seconds.

        Without authentication all callers share their count. Raises: ValueError for limits below one call, or without a time.
        """
        if calls < 1 or per <= 0:
            raise ValueError(f"RateLimit takes at least one call in a time above 0 s; got {calls} in {per} s")
        self._cost = per / calls
        self._per = per
        self._text = f"at most {calls} calls in {per:g} s"
        self._key: Callable[[Call], Hashable] = key or _caller_and_name
        self._clock = clock
        self._used_until: dict[Hashable, float] = {}
        self._lock = ForkedLock()
        self._profile: Profile | None = None
        self._has_warned = False

    def __repr__(self) -> str:
        return f"<RateLimit: {self._text}>"

    def share(self, profile: Profile) -> None:
        """Count for all processes of the server with this profile, where they have a store: the first server's counts."""
        self._profile = self._profile or profile

    def __call__(self, call: Call) -> _Steps:
        """Refuse a call that is too many."""
        key = self._key(call)
        if call.round == 1:
            self._take(key, self._per, call)
        outcome = yield
        if call.round > 1 and not isinstance(outcome, InputRequired):
            self._take(key, 2 * self._per, call)
        return None

    def _take(self, key: Hashable, most: float, call: Call) -> None:
        late = self._late_in_store(key, most)
        if late is None:
            late = self._late(key, most)
        if late > 1e-9:
            raise ToolError(f"Too many calls of {call.name or call.method}: {self._text}", retry_after=late)

    def _late(self, key: Hashable, most: float) -> float:
        """Count a call, unless it comes too early; return by how many seconds it does."""
        with self._lock:
            now = self._clock()
            until = max(self._used_until.get(key, now), now) + self._cost
            late = until - now - most
            if late <= 1e-9:
                if key not in self._used_until and len(self._used_until) >= 10_000:
                    self._used_until = {each: end for each, end in self._used_until.items() if end > now}
                self._used_until[key] = until
            return late

    def _late_in_store(self, key: Hashable, most: float) -> float | None:
        """Do the same for all processes; None where they have no store, or it fails: then each counts for itself."""
        profile = self._profile
        if profile is None or profile.sharing is None:
            return None
        try:
            store, now = cast("SharedStore", profile.sharing).store, cast("SharedStore", profile.sharing).now()
            name = f"rate/{key_of(profile.implementation.name)}/{key_of(repr((self._text, key)))}"
            while True:
                found = store.get(name)
                until = max(float(found.value) if found is not None else now, now) + self._cost
                if (late := until - now - most) > 1e-9:
                    return late
                expect = found.version if found is not None else ABSENT
                if store.put(name, repr(until).encode(), expect=expect, ttl=until - now) is not None:
                    return late
        except LinkspanError as problem:
            if not self._has_warned:
                self._has_warned = True
                getLogger("linkspan.server").warning("%r counts within each process: %s", self, problem)
            return None


def _caller_and_name(call: Call) -> Hashable:
    return call.context.principal, call.method, call.name


class ResultLimit:
    """Cuts the texts of a result that is longer than a model should read, and states what is missing."""

    def __init__(self, *, bytes: int | None = None, tokens: int | None = None) -> None:
        """Allow as many bytes of UTF-8, or tokens, counted as four bytes each. Raises: TypeError unless one is given."""
        if (bytes is None) == (tokens is None):
            raise TypeError("ResultLimit takes bytes=... or tokens=...")
        self._most = bytes if bytes is not None else 4 * (tokens or 0)

    def __repr__(self) -> str:
        return f"<ResultLimit: {self._most} bytes>"

    def __call__(self, call: Call) -> _Steps:
        """Cut the result of a tool.

        Structured content cannot be cut: it is left out, or, where the tool promises it, the result becomes an error.
        """
        outcome = yield
        if not isinstance(outcome, CallToolResult):
            return None
        total = bytes_of(outcome)
        if total <= self._most:
            return None
        asked = f"the limit is {self._most}; ask for less"
        if outcome.structured_content is not UNSET and call.tool is not None and call.tool.output_schema is not None:
            return CallToolResult(content=[TextContent(f"The result has {total} bytes, {asked}")], is_error=True)
        kept = head_of(outcome.content, self._most)
        left_out = total - sum(map(size_of, kept))
        kept.append(TextContent(f"[{left_out} of {total} bytes were left out: {asked}]"))
        return structs.replace(outcome, content=kept, structured_content=UNSET)


class Audit:
    """Logs who called what, and with which outcome: one record for each request, at INFO."""

    def __init__(self, logger: str = "linkspan.audit", *, arguments: bool = False) -> None:
        """Log to `logger`. `arguments` puts them into the record, which may then hold private data.

        A record has `method`, `tool`, `server`, `target`, `principal`, `client`, `request_id`, `outcome` and `duration` (seconds)
        in `extra`, and `incident`, as all records of a server; it is None.
        The outcome is "ok", "error", "asked" (only for the first round of questions) or the name of an exception.
        """
        self._logger = getLogger(logger)
        self._arguments = arguments

    def __repr__(self) -> str:
        return f"<Audit to the logger {self._logger.name}>"

    def __call__(self, call: Call) -> _Steps:
        """Log the outcome of a call."""
        began = time.monotonic()
        try:
            outcome = yield
        except BaseException as error:
            self._log(call, type(error).__name__, began)
            raise
        if isinstance(outcome, InputRequired):
            if call.round == 1:
                self._log(call, "asked", began)
        else:
            failed = isinstance(outcome, RemoteProtocolError) or getattr(outcome, "is_error", None) is True
            self._log(call, "error" if failed else "ok", began)
        return None

    def _log(self, call: Call, outcome: str, began: float) -> None:
        context, who = call.context, call.context.client_info
        facts: dict[str, object] = {
            "method": call.method,
            "tool": call.tool.name if call.tool is not None else None,
            "server": call.server,
            "incident": None,
            "target": call.name,
            "principal": context.principal,
            "client": who.name if who is not None else None,
            "request_id": context.request_id,
            "outcome": outcome,
            "duration": time.monotonic() - began,
        }
        if self._arguments:
            facts["arguments"] = dict(call.arguments)
        self._logger.info("%s %s: %s", call.method, call.name or "", outcome, extra=facts)


class ErrorMap:
    """Words for exceptions of handlers: `ErrorMap({httpx.HTTPStatusError: "The service answered {e.response.status_code}"})`."""

    def __init__(self, texts: Mapping[type[Exception], str]) -> None:
        """Answer exceptions of these types, or of subtypes, with a text that `str.format` fills in; the exception is `e`."""
        self._texts = dict(texts)

    def __repr__(self) -> str:
        return f"<ErrorMap of {', '.join(each.__name__ for each in self._texts)}>"

    def __call__(self, call: Call) -> _Steps:
        """Raise a ToolError for an exception that has words; the first type that fits counts."""
        try:
            yield
        except tuple(self._texts) as error:
            text = next(text for kind, text in self._texts.items() if isinstance(error, kind))
            raise ToolError(text.format(e=error)) from error
        return None
