"""The flows of the HTTP client without connections: how often they ask again, after which pause, and what they give back."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from test_negotiation import WEB, state

from linkspan.client.transports import http_streams
from linkspan.client.transports.http_guarded import GuardedHttp
from linkspan.client.transports.http_requests import HttpFailure, HttpFlow, HttpRequests, Open, ReadBody
from linkspan.client.transports.http_streams import FirstTransport, OwnStream, SseReader
from linkspan.core.auth_flow import Http, HttpResult
from linkspan.core.flow import Sleep
from linkspan.flows.client_errors import ClientError, ConnectionLost, HttpError, InvalidResponse
from linkspan.flows.requesting import backoff
from linkspan.revisions import REVISIONS

EVENTS = {"content-type": "text/event-stream"}
CHANCE = 0.5
"""What `state()` returns as chance."""


class Reply:
    """A response that has come: these pieces, then its end or a failure."""

    def __init__(
        self, *pieces: str | bytes, status: int = 200, headers: dict[str, str] = EVENTS, cut: bool = False
    ) -> None:
        self.status, self.headers, self.peer = status, headers, ""
        self.pieces = [each.encode() if isinstance(each, str) else each for each in pieces]
        self.returned = 0
        self._cut = cut

    def take(self) -> bytes | None:
        if self.pieces:
            return self.pieces.pop(0)
        if self._cut:
            raise HttpFailure("cut", sent=True)
        return b""

    def give_back(self) -> None:
        self.returned += 1


class Driven:
    """Runs a flow over replies; a HttpFailure among them is a server that cannot be reached."""

    def __init__(self, *replies: Reply | HttpFailure) -> None:
        self.left = list(replies)
        self.replies = [each for each in replies if isinstance(each, Reply)]
        self.sent: list[Open] = []
        self.slept: list[float] = []

    def run(self, flow: HttpFlow[Any], *, sleeps: int = 100) -> Any:
        """Run it to its end, or to a pause that is one too many; return its value."""
        outcome: Any = None
        failure: HttpFailure | None = None
        while True:
            try:
                effect = flow.send(outcome) if failure is None else flow.throw(failure)
            except StopIteration as stop:
                return stop.value
            outcome = failure = None
            try:
                if isinstance(effect, Open):
                    self.sent.append(effect)
                    found = self.left.pop(0)
                    if isinstance(found, HttpFailure):
                        raise found
                    outcome = found
                elif isinstance(effect, ReadBody):
                    outcome = effect.reply.take()
                else:
                    assert isinstance(effect, Sleep)
                    self.slept.append(effect.seconds)
                    if len(self.slept) == sleeps:
                        return flow.close()
            except HttpFailure as problem:
                failure = problem


GONE = HttpFailure("it cannot be reached", sent=False)


class World:
    """A reader of streams whose request is answered by the event "done"."""

    def __init__(self, revision: str = "2025-11-25") -> None:
        self.state = state(origin=WEB)
        self.heard: list[str] = []
        self.refused: list[int] = []
        session: Any = SimpleNamespace(
            revision=REVISIONS[revision],
            is_pending=lambda _: "done" not in self.heard,
            headers=lambda: {"session": "s"},
        )
        requests = HttpRequests(self.state, {})
        self.streams = SseReader(self.state, requests, session, "https://there/mcp", self._receive, self._refuse)

    def _receive(self, event: Any, *_: object) -> None:
        self.heard.append(event.data)

    def _refuse(self, reply: Any) -> HttpFlow[None]:
        self.refused.append(reply.status)
        yield from ()

    def answer(self, first: Reply) -> HttpFlow[None]:
        return self.streams.read_answer(first, 1, "tools/call", None)


def last_ids(driven: Driven) -> list[str | None]:
    return [each.headers.get("last-event-id") for each in driven.sent]


# The stream of an answer.


def test_an_answer_is_asked_for_from_the_last_event_on_and_when_the_server_wants() -> None:
    world, first = World(), Reply("id: 7\nretry: 40\ndata: a\n\n", cut=True)
    driven = Driven(Reply("id: 8\ndata: b\n\n"), Reply("data: c\n\n"), Reply("data: done\n\n", "data: not read\n\n"))
    driven.run(world.answer(first))
    assert world.heard == ["a", "b", "c", "done"]
    assert last_ids(driven) == ["7", "8", "8"]
    assert driven.slept == [0.04] * 3
    assert {each.method for each in driven.sent} == {"GET"}
    assert first.returned
    assert [each.returned for each in driven.replies] == [1, 1, 1]
    assert driven.replies[-1].pieces == [b"data: not read\n\n"]


def test_a_later_stream_may_name_another_pause() -> None:
    world = World()
    driven = Driven(Reply("retry: 3000\ndata: b\n\n"), Reply("data: done\n\n"))
    driven.run(world.answer(Reply("id: 7\nretry: 40\ndata: a\n\n")))
    assert driven.slept == [0.04, 3.0]


@pytest.mark.parametrize(
    ("revision", "text", "cut", "problem"),
    [
        ("2025-11-25", "data: a\n\n", True, "cut"),
        ("2025-11-25", "data: a\n\n", False, "the stream ended before the response arrived"),
        ("2026-07-28", "id: 7\ndata: a\n\n", True, "cut"),
        ("2026-07-28", "id: 7\ndata: a\n\n", False, "the stream ended before the response arrived"),
    ],
)
def test_a_stream_that_cannot_be_asked_for_again_fails_at_once(
    revision: str, text: str, cut: bool, problem: str
) -> None:
    driven, first = Driven(), Reply(text, cut=cut)
    with pytest.raises(HttpFailure, match=problem) as failed:
        driven.run(World(revision).answer(first))
    assert failed.value.sent
    assert driven.slept == []
    assert first.returned


def test_five_failures_in_a_row_are_enough_and_the_pauses_between_them_grow() -> None:
    driven = Driven(*[GONE] * 9)
    with pytest.raises(HttpFailure, match="cut"):
        driven.run(World().answer(Reply("id: 7\nretry: 10\ndata: a\n\n", cut=True)))
    assert len(driven.sent) == 5
    assert driven.slept == [0.01, *(max(0.01, backoff(n, CHANCE)) for n in (1, 2, 3, 4))]


def test_a_stream_that_comes_begins_the_count_anew() -> None:
    world = World()
    driven = Driven(*[GONE] * 4, Reply("data: b\n\n"), *[GONE] * 4, Reply("data: done\n\n"))
    driven.run(world.answer(Reply("id: 7\ndata: a\n\n", cut=True)))
    assert world.heard == ["a", "b", "done"]
    assert len(driven.sent) == 10


def test_without_a_word_of_the_server_the_first_pause_is_a_second() -> None:
    driven = Driven(Reply("data: done\n\n"))
    driven.run(World().answer(Reply("id: 7\ndata: a\n\n")))
    assert driven.slept == [1.0]


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_is_busy_is_asked_for_the_stream_again(status: int) -> None:
    world, busy = World(), Reply(status=status, headers={})
    driven = Driven(busy, Reply("data: done\n\n"))
    driven.run(world.answer(Reply("id: 7\ndata: a\n\n")))
    assert world.refused == []
    assert busy.returned == 1


def test_a_server_that_has_forgotten_the_stream_is_not_asked_again() -> None:
    world, gone = World(), Reply(status=404, headers={})
    with pytest.raises(InvalidResponse, match=r"cannot be resumed \(status 404\)") as failed:
        Driven(gone).run(world.answer(Reply("id: 7\ndata: a\n\n")))
    assert failed.value.delivery == "maybe_sent"
    assert world.refused == [404]
    assert gone.returned == 1


# The stream of a session.


def keep(world: World, driven: Driven, sleeps: int) -> tuple[OwnStream, list[ClientError]]:
    restored: list[ClientError] = []
    own = OwnStream(world.streams, world.state, restored.append)
    driven.run(own.keep_open(), sleeps=sleeps)
    return own, restored


def test_a_session_without_a_stream_is_asked_for_it_once() -> None:
    world, none = World(), Reply(status=405, headers={})
    own, restored = keep(world, driven := Driven(none), 1)
    assert own.open.is_set()
    assert (world.refused, restored, driven.slept, none.returned) == ([405], [], [], 1)


def test_a_stream_of_a_session_goes_on_after_the_last_event() -> None:
    driven = Driven(Reply("id: 3\ndata: a\n\n"), Reply("data: b\n\n"), Reply("id: 5\ndata: c\n\n"))
    _, restored = keep(World(), driven, 3)
    assert last_ids(driven) == [None, "3", "3"]
    assert restored == []
    assert [each.returned for each in driven.replies] == [1, 1, 1]


def test_each_loss_of_a_stream_is_reported_once_when_it_is_back() -> None:
    driven = Driven(GONE, GONE, Reply("id: 1\ndata: a\n\n"), Reply("id: 2\ndata: b\n\n", cut=True), Reply("id: 3\n\n"))
    _, restored = keep(World(), driven, 5)
    assert [type(each) for each in restored] == [ConnectionLost, ConnectionLost]
    assert ["cannot be reached" in str(each) for each in restored] == [True, False]


def test_the_end_of_a_stream_without_ids_is_a_loss() -> None:
    _, restored = keep(World(), Driven(Reply("data: a\n\n"), Reply("data: b\n\n")), 2)
    assert ["the stream of notifications ended" in str(each) for each in restored] == [True]


def test_pauses_grow_while_a_stream_cannot_be_had() -> None:
    driven = Driven(*[GONE] * 4)
    own, _ = keep(World(), driven, 4)
    assert own.open.is_set()
    assert driven.slept == [backoff(n + 2, CHANCE) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize(("held", "pause"), [(0.0, 1.0), (1e9, backoff(4, CHANCE))])
def test_a_stream_that_was_open_for_a_while_has_not_failed(
    held: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_streams, "_HELD", held)
    driven = Driven(GONE, GONE, Reply("id: 1\ndata: a\n\n"))
    keep(World(), driven, 3)
    assert driven.slept[-1] == pause


@pytest.mark.parametrize(("asked", "pause"), [("60", 60.0), ("0", backoff(3, CHANCE)), ("x", backoff(3, CHANCE))])
def test_a_busy_server_says_when_it_wants_to_be_asked_for_the_stream(asked: str, pause: float) -> None:
    busy = Reply(status=503, headers={"retry-after": asked})
    _, restored = keep(World(), driven := Driven(busy, Reply("id: 1\ndata: a\n\n")), 2)
    assert driven.slept[0] == pause
    assert [type(each) for each in restored] == [HttpError]


def test_nobody_is_asked_to_log_in_again_and_again_for_a_stream() -> None:
    world, asked = World(), []

    def get(_: object) -> HttpFlow[Any]:
        asked.append("asked")
        raise ClientError("log in", WEB, phase="authorize")
        yield

    world.streams.get = get  # type: ignore[method-assign]
    own, restored = keep(world, driven := Driven(), 3)
    assert own.open.is_set()
    assert (asked, restored, driven.slept) == (["asked"], [], [])


# The transport of the first revision.


def listened(*pieces: str, used: bool = False, cut: bool = False) -> tuple[FirstTransport, World, list[ClientError]]:
    world, lost = World(), list[ClientError]()
    first = FirstTransport(world.streams, world.state, lost.append)
    first.used = used
    reply = Reply(*pieces, cut=cut)
    Driven(reply).run(first.listen())
    assert reply.returned == 1
    return first, world, lost


def test_the_first_event_names_the_endpoint_and_the_others_are_messages() -> None:
    first, world, lost = listened("event: endpoint\ndata: /post?s=1\n\ndata: a\n\n", "event: endpoint\ndata: /x\n\n")
    assert first.endpoint("https://there/sse", 0.0) == "https://there/post?s=1"
    assert world.heard == ["a", "/x"]
    assert lost == []


@pytest.mark.parametrize(
    "event", ["data: /post\n\n", "event: message\ndata: /post\n\n", "event: endpoint\ndata:  \n\n"]
)
def test_a_stream_that_begins_otherwise_names_none(event: str) -> None:
    first, world, _ = listened(event, "event: endpoint\ndata: /post\n\n")
    assert first.endpoint("https://there/sse", 60.0) is None  # at once: the stream has ended
    assert world.heard == []


@pytest.mark.parametrize("cut", [False, True])
def test_a_connection_ends_with_the_stream_that_it_lives_from(cut: bool) -> None:
    _, _, lost = listened("event: endpoint\ndata: /post\n\n", used=True, cut=cut)
    (error,) = lost
    assert isinstance(error, ConnectionLost)
    assert "the stream of responses ended" in str(error)
    assert error.delivery == "maybe_sent"


# Bodies, and redirects.


class Slow(Reply):
    """A response whose pieces come only when they are waited for."""

    waited = False

    def take(self) -> bytes | None:
        self.waited = not self.waited
        return None if self.waited else super().take()


@pytest.mark.parametrize("kind", [Reply, Slow])
@pytest.mark.parametrize("pieces", [["0123456789"], ["01234", "56789"], ["0", "123456789"]])
def test_a_body_may_be_as_large_as_its_bound_and_no_larger(kind: Callable[..., Reply], pieces: list[str]) -> None:
    requests = HttpRequests(state(origin=WEB), {})
    assert Driven().run(requests.whole(kind(*pieces), 10)) == b"0123456789"
    assert Driven().run(requests.whole(kind(*pieces), 10, cut=True)) == b"0123456789"
    with pytest.raises(InvalidResponse, match=r"larger than 9 bytes \(max_line_bytes\)"):
        Driven().run(requests.whole(kind(*pieces), 9))
    reply = kind(*pieces, "never read")
    assert Driven().run(requests.whole(reply, 9, cut=True)) == b"012345678"
    assert reply.pieces == [b"never read"]


class Named:
    """The access of one identity."""

    def __init__(self, identity: object) -> None:
        self.identity = identity

    def send(self, request: Any, *_: object) -> HttpFlow[Any]:
        reply: Any = yield msgspec.structs.replace(
            request, headers={**request.headers, "authorization": f"{self.identity}"}
        )
        return reply

    def secrets(self) -> list[str]:
        return [f"{self.identity}"]


@pytest.mark.parametrize("url", ["https://there/mcp", "https://ann:secret@there/mcp"])
@pytest.mark.parametrize("finds_login", [True, False])
def test_an_identity_is_used_whatever_the_url_and_the_headers_say(url: str, finds_login: bool) -> None:
    requests = HttpRequests(state(origin=WEB), {"authorization": "mine"}, access_to=Named, finds_login=finds_login)
    driven = Driven(Reply(), Reply())
    for identity in ("robot", None):
        driven.run(requests.send("POST", url, requests.headers({}, {}), identity=identity))
    assert [each.headers["authorization"] for each in driven.sent] == ["robot", "mine"]
    assert "robot" in requests.secrets(None, "robot")
    assert [requests.sends_credentials(url, None, each) for each in ("robot", None)] == [False, True]


@pytest.mark.parametrize(("finds_login", "sent"), [(True, ["-", "None"]), (False, ["-"])])
def test_a_stored_login_is_looked_for_at_a_401_where_that_is_wanted(finds_login: bool, sent: list[str]) -> None:
    requests = HttpRequests(state(origin=WEB), {}, access_to=Named, finds_login=finds_login)
    driven = Driven(Reply(status=401), Reply(status=401))
    assert driven.run(requests.send("POST", "https://there/mcp", {})).status == 401
    assert [each.headers.get("authorization", "-") for each in driven.sent] == sent


def redirected(*statuses: int, method: str = "POST", location: str = "/there") -> tuple[Driven, Any]:
    requests = HttpRequests(state(origin=WEB), {})
    driven = Driven(*(Reply(status=each, headers={"location": location}) for each in statuses))
    return driven, requests.send(method, "https://there/mcp", {"a": "b"}, b"body")


def test_three_redirects_are_followed_and_a_fourth_is_not() -> None:
    driven, flow = redirected(307, 308, 307, 200)
    reply = driven.run(flow)
    assert reply.status == 200
    assert [(each.url, each.body, each.headers) for each in driven.sent] == [
        ("https://there/mcp", b"body", {"a": "b"}),
        *[("https://there/there", b"body", {"a": "b"})] * 3,
    ]
    assert [each.returned for each in driven.replies] == [1, 1, 1, 0]
    driven, flow = redirected(307, 307, 307, 308, 200)
    with pytest.raises(HttpError, match="redirects too many times") as failed:
        driven.run(flow)
    assert failed.value.status == 308
    assert [each.returned for each in driven.replies] == [1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("method", "status", "location"),
    [
        ("POST", 301, "/there"),
        ("POST", 302, "/there"),
        ("POST", 303, "/there"),
        ("DELETE", 302, "/there"),
        ("GET", 307, "https://other/there"),
        ("GET", 307, "http://there/there"),
        ("GET", 307, "https://there:8443/there"),
        ("GET", 307, "https://ada@there/there"),
        ("GET", 307, ""),
    ],
)
def test_other_redirects_are_not_followed(method: str, status: int, location: str) -> None:
    driven, flow = redirected(status, 200, method=method, location=location)
    with pytest.raises(HttpError, match="it redirects") as failed:
        driven.run(flow)
    assert failed.value.status == status
    assert [each.returned for each in driven.replies] == [1, 0]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_what_only_reads_follows_every_redirect(status: int) -> None:
    driven, flow = redirected(status, 200, method="GET", location="https://there:443/there")
    assert driven.run(flow).status == 200


# Requests to authorization servers.


def asked(effect: Http, *replies: Reply) -> tuple[Driven, Callable[[], HttpResult]]:
    """Return what drives a request to an authorization server, and what runs it."""
    driven, guarded = Driven(*replies), GuardedHttp("https://there/mcp", lambda host: True, set)

    def run() -> HttpResult:
        results: list[HttpResult] = []
        try:
            driven.run(guarded._requests(effect, results))
        finally:
            guarded.close()
        (found,) = results
        return found

    return driven, run


def moved(status: int = 302, location: str = "/next") -> Reply:
    return Reply("moved", status=status, headers={"location": location})


@pytest.mark.parametrize("kind", [Reply, Slow])
@pytest.mark.parametrize("pieces", [["0123456789"], ["01234", "56789"]])
def test_a_body_of_an_authorization_server_has_its_bound(kind: Callable[..., Reply], pieces: list[str]) -> None:
    driven, run = asked(Http("GET", "https://as/x", {}, limit=10), kind(*pieces))
    assert run().body == b"0123456789"
    driven, run = asked(Http("GET", "https://as/x", {}, limit=9), kind(*pieces, "never read"))
    with pytest.raises(HttpFailure, match="its response is larger than 9 bytes") as failed:
        run()
    assert failed.value.sent
    assert driven.replies[0].pieces == [b"never read"]
    assert driven.replies[0].returned == 1


def test_an_authorization_server_may_redirect_four_times() -> None:
    effect = Http("GET", "https://as/x", {"a": "b"}, redirects=True)
    driven, run = asked(effect, moved(301), moved(303), moved(307), moved(308), Reply("here"))
    assert run().body == b"here"
    assert [each.url for each in driven.sent] == ["https://as/x", *["https://as/next"] * 4]
    assert all(each.headers["a"] == "b" for each in driven.sent)
    assert [each.returned for each in driven.replies] == [1] * 5
    driven, run = asked(effect, *(moved() for _ in range(5)))
    with pytest.raises(HttpFailure, match="it redirects too many times") as failed:
        run()
    assert failed.value.sent
    assert [each.returned for each in driven.replies] == [1] * 5


@pytest.mark.parametrize(
    ("effect", "location"),
    [
        (Http("GET", "https://as/x", {}), "/next"),
        (Http("POST", "https://as/x", {}, b"body", redirects=True), "/next"),
        (Http("GET", "https://as/x", {}, redirects=True), "https://other/next"),
        (Http("GET", "https://as/x", {}, redirects=True), "https://ada@as/next"),
        (Http("GET", "https://as/x", {}, redirects=True), "http://[::1/"),
    ],
)
def test_other_redirects_of_it_are_its_answer(effect: Http, location: str) -> None:
    driven, run = asked(effect, moved(location=location))
    found = run()
    assert (found.status, found.body) == (302, b"moved")
    assert len(driven.sent) == 1


@pytest.mark.parametrize("url", ["http://as/x", "https://as/x#y", "https://ada@as/x"])
def test_a_url_that_may_not_be_contacted_is_not(url: str) -> None:
    driven, run = asked(Http("GET", url, {}))
    with pytest.raises(HttpFailure) as failed:
        run()
    assert (failed.value.sent, failed.value.ours) == (False, True)
    assert driven.sent == []
