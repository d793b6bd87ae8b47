"""What a server says and asks, in whatever thread brings it: its log, its reports, its questions. The callbacks of a client."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from linkspan.flows.answers import Refused
from linkspan.flows.client_errors import Change, ClientError, ClientEvent, Disconnected
from linkspan.flows.http_messages import HttpHop
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.messages import CreateMessageParams, ElicitParams, LoggingMessageParams
from linkspan.wire.redaction import Redactor
from linkspan.wire.reports import Report
from linkspan.wire.values import to_builtins
from linkspan.workbench.events import EventLog, PrintedText, Trickle, cut, cut_json
from linkspan.workbench.exchanges import BenchCall, BenchCalls, GivenAnswer
from linkspan.workbench.questions import PersonsAnswer, Questions

_HOPS: Final = 100
_LINES: Final = 40
_LONGEST_QUESTION: Final = 2_000
"""Characters of what a model was asked that are kept with the answer."""
_REPORTS: Final = 50
"""Reports that a call is looked for among when it ends."""
_LATE: Final = 1.0
"""Seconds that what a process said last may come after the error of its call."""
_STDOUT: Final = "(stdout) "
"""What a client puts before a line that was no message."""


class ServerTalk:
    """Takes what a client brings of its server. `on_lists_changed` and `on_crash` are called for what others do about it."""

    def __init__(
        self,
        events: EventLog,
        exchanges: BenchCalls,
        redactor: Redactor,
        on_lists_changed: Callable[[], object],
        on_crash: Callable[[BenchCall], object],
    ) -> None:
        self._events = events
        self._exchanges = exchanges
        self._redactor = redactor
        self._on_lists_changed = on_lists_changed
        self._on_crash = on_crash
        self.questions = Questions(self._question_changed)
        self.hops: deque[HttpHop] = deque(maxlen=_HOPS)
        self.current = threading.local()
        """Its `exchange` is the call that a thread makes."""
        self.printed_text = PrintedText()
        """What the processes of the server wrote to stderr."""
        self._shown_already: deque[str] = deque(maxlen=_HOPS)
        self._stray: deque[str] = deque(maxlen=_HOPS)
        self._reports: deque[Report] = deque(maxlen=_REPORTS)
        self._changed = threading.Condition()
        self.losses = 0
        """How many connections were lost."""
        self._trickle, self._trickling = Trickle(), threading.Lock()

    def elicited(self, params: ElicitParams) -> Any:
        """Let the person fill in a form, or open a page."""
        answer = self._answer("elicitation", to_builtins(params), params.message, params.mode or "form")
        content: JSON = {} if answer.content is None else answer.content
        said: dict[str, JSON] = {"accept": content, "decline": False}
        return said.get(answer.action)

    def sampled(self, params: CreateMessageParams) -> str:
        """Let the person play the model. Raises: Refused."""
        shown = to_builtins(params)
        answer = self._answer("sampling", shown, clip(_texts_of(shown), _LONGEST_QUESTION), "")
        if answer.action != "accept":
            raise Refused
        return answer.text or ""

    def _answer(self, kind: Literal["elicitation", "sampling"], params: JSON, message: str, mode: str) -> GivenAnswer:
        """Return the answer to a question, which is kept with its call. Raises: Refused."""
        exchange: BenchCall | None = getattr(self.current, "exchange", None) or self._exchanges.only()
        if exchange is None:
            return _given(kind, message, mode, self.questions.ask(kind, cut_json(params), None))
        answer = exchange.take_reused(kind, message, mode)
        if answer is not None:
            self._events.add("log", source="bench", level="INFO", text=f"answered as before: {cut(message)}")
        else:
            person = self.questions.ask(
                kind, cut_json(params), exchange.id, lambda: exchange.state != "running" or exchange.stopper.stopped
            )
            answer = _given(kind, message, mode, person)
        if not exchange.keep_answer(answer):
            text = "an answer is not kept: there are too many, or it is too long"
            self._events.add("log", source="bench", level="WARNING", text=text)
        return answer

    def _question_changed(self, number: int, shown: JSONObject | None) -> None:
        if shown is None:
            self._events.add("answered", id=number)
        else:
            self._events.add("question", question=shown)

    def logged(self, message: LoggingMessageParams) -> None:
        """Show a log message of the protocol."""
        found = to_builtins(message)
        data: JSON = found.get("data")
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        self._log("mcp", str(found.get("level")), text, logger=str(found.get("logger") or ""))

    def tapped(self, kind: str, **facts: Any) -> None:
        """Show a message, or a line that is not a message of the protocol."""
        if kind == "message":
            self._events.add("message", **facts)
            return
        text = str(facts["text"])
        self._stray.append(text)
        self._log("stdout", "ERROR", f"not a message of the protocol: {text}")

    def printed(self, text: str) -> None:
        """Show what a process wrote to stderr, unless a report says the same."""
        stray = text.removeprefix(_STDOUT).removesuffix("\n") if text.startswith(_STDOUT) else None
        if stray is not None and any(each.startswith(stray) for each in self._stray):
            return
        self.printed_text.add(text)
        if text in self._shown_already:  # what a report says, too
            self._shown_already.remove(text)
        else:
            self._log("stderr", "", text)

    def reported(self, report: Report) -> None:
        """Show a record of the server's log; the traceback belongs to its call."""
        if report.printed:
            self._shown_already.append(report.printed)
        self._log("log", report.level, report.text, logger=report.logger, traceback=report.traceback)
        if not report.traceback or report.stage is not None:
            return
        exchange = self._exchanges.reported(report.tool, report.request_id, report.incident)
        with self._changed:
            self._reports.append(report)
            self._changed.notify_all()
        if exchange is not None:
            self._explain(exchange, report)

    def explain(self, exchange: BenchCall) -> None:
        """Add to a call that has ended the traceback of its incident, if that was reported before the call had its id."""
        with self._changed:
            report = next((each for each in self._reports if exchange.names(each.incident)), None)
        if report is not None and not exchange.report:
            self._explain(exchange, report)

    def _explain(self, exchange: BenchCall, report: Report) -> None:
        exchange.report = self._redactor.text(report.traceback)
        self._exchanges.changed(exchange)
        if exchange.state != "running":
            self._on_crash(exchange)

    def traceback_of(self, error: ClientError) -> str:
        """Return the traceback behind an error that names its incident; it may come a moment later. Empty without one."""
        if "incident " not in (error.message or ""):
            return ""

        def found() -> Report | None:
            return next((each for each in self._reports if each.incident and each.incident in str(error.message)), None)

        with self._changed:
            self._changed.wait_for(lambda: found() is not None, _LATE)
            report = found()
        return self._redactor.text(report.traceback) if report is not None else ""

    def printed_since(self, moment: int, losses: int) -> str:
        """Return the last lines of a process that was lost, as far as it printed them after a moment."""
        with self._changed:
            self._changed.wait_for(lambda: self.losses > losses, _LATE)
        return self._redactor.text("\n".join(self.printed_text.since(moment).splitlines()[-_LINES:]))

    def _log(self, source: str, level: str, text: str, **more: JSON) -> None:
        with self._trickling:
            shown = self._trickle.let_through(text, time.monotonic())
        if shown:
            self._events.add("log", source=source, level=level, text=cut(shown), **more)

    def event(self, event: ClientEvent) -> None:
        """Show how a connection ended."""
        if isinstance(event, Disconnected):
            lines = event.error.stderr.splitlines()[-_LINES:] if event.error.stderr else []
            text = "\n".join([str(event.error.problem), *lines])
            self._events.add("log", source="bench", level="ERROR", text=text)
            with self._changed:
                self.losses += 1
                self._changed.notify_all()

    def resource_changed(self, change: Change) -> None:
        """Show that a resource has changed; lists are listed again."""
        if change.kind == "resource":
            self._events.add("changed", uri=change.uri)
        else:
            self._on_lists_changed()

    def hopped(self, hop: HttpHop) -> None:
        """Show a request over HTTP."""
        self.hops.append(hop)
        self._events.add("http", **msgspec.to_builtins(hop))


def _given(kind: Literal["elicitation", "sampling"], message: str, mode: str, answer: PersonsAnswer) -> GivenAnswer:
    return GivenAnswer(kind, message, mode, answer.action, answer.content, answer.text)


def _texts_of(params: JSON) -> str:
    """Return what a model is asked."""
    contents = [block for each in params.get("messages") or () for block in _blocks(each.get("content"))]
    return "\n".join(str(each["text"]) for each in contents if is_object(each) and "text" in each)


def _blocks(content: JSON) -> list[JSON]:
    return content if is_array(content) else [content]
