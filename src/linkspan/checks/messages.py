"""Requirements on messages: their envelope, their ids, their errors, and what is said before the first request."""

from __future__ import annotations

from contextlib import closing
from typing import Final

from linkspan.checks.findings import expect, not_applicable
from linkspan.checks.peer import CheckedPeer, PeerAnswer
from linkspan.checks.requirement import requirement
from linkspan.checks.shapes import expect_cacheable, expect_shape
from linkspan.revisions import LEGACY
from linkspan.revisions.modern import CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, SERVER_INFO
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.messages import DiscoverResult, InitializeResult

_BASIC: Final = "basic"
_LIFECYCLE: Final = "basic/lifecycle"
_DISCOVER: Final = "server/discover"
_ODD: Final = "1900-01-01"
"""A revision that does not exist."""
_OLD_METHODS: Final = ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")


def _simple(peer: CheckedPeer, **members: JSON) -> PeerAnswer:
    """Send a request that each server serves."""
    return peer.exchange({**peer.message("server/discover" if peer.modern else "ping"), **members})


@requirement("MSG-1", 'each message has "jsonrpc": "2.0"', _BASIC)
def _version(peer: CheckedPeer) -> None:
    answer = _simple(peer)
    answer.expect_served()
    for each in peer.seen:
        expect(each.get("jsonrpc") == "2.0", f"{_short(each)} has jsonrpc {each.get('jsonrpc')!r}")


@requirement("MSG-2", "a response has a result, which is an object, or an error, and not both", _BASIC)
def _one_of_both(peer: CheckedPeer) -> None:
    for answer in (_simple(peer), peer.ask("linkspan/no_such_method")):
        message = answer.message
        expect(message is not None, f"{answer.asked}: {answer.words}")
    for each in peer.seen:
        if "method" not in each:
            expect(("result" in each) != ("error" in each), f"a response has {', '.join(sorted(each))}")
            expect("result" not in each or is_object(each["result"]), f"a result is {_short(each)}")


@requirement("MSG-3", "an error has a code, which is an integer, and a message", _BASIC)
def _errors(peer: CheckedPeer) -> None:
    peer.ask("linkspan/no_such_method")
    for each in peer.seen:
        if (error := each.get("error")) is not None:
            expect(is_object(error), f"an error is {_short(each)}")
            code, words = (error.get("code"), error.get("message")) if is_object(error) else (None, None)
            expect(isinstance(code, int) and not isinstance(code, bool), f"an error has the code {code!r}")
            expect(isinstance(words, str), f"an error has the message {words!r}")


@requirement("MSG-4", "a notification is not answered", _BASIC)
def _no_answers(peer: CheckedPeer) -> None:
    answer = peer.notify("notifications/linkspan_unknown")
    expect(answer.message is None, f"{answer.asked}: {answer.words}")
    expect(not _simple(peer).failed, "after an unknown notification the server does not answer")


@requirement("MSG-5", "an error has the id of its request", _BASIC)
def _ids_of_errors(peer: CheckedPeer) -> None:
    answer = peer.ask("linkspan/no_such_method", id="the-one")
    expect(answer.failed, answer.words)
    found = answer.message.get("id") if answer.message is not None else None
    expect(found == "the-one", f"the error for the id 'the-one' has the id {found!r}")


@requirement("MSG-10", "an id is a string or an integer: null and fractions are refused", _BASIC, strength="should")
def _odd_ids(peer: CheckedPeer) -> None:
    for odd, shown in ((1.5, "1.5"), (None, "null")):
        answer = peer.exchange({**peer.message("server/discover" if peer.modern else "ping"), "id": odd})
        expect(answer.message is None or answer.failed, f"a request with the id {shown}: {answer.words}")


@requirement("MSG-11", "a response has the id of its request, of the same type", _BASIC)
def _same_ids(peer: CheckedPeer) -> None:
    for id in ("7", 7, 0, "a b/ü", 9007199254740991):
        answer = _simple(peer, id=id)
        found = answer.message.get("id") if answer.message is not None else None
        expect(found == id and type(found) is type(id), f"asked with the id {id!r}, answered with {found!r}")


@requirement("MSG-33", "a batch is not served", _BASIC)
def _batches(peer: CheckedPeer) -> None:
    if peer.revision.batching:
        not_applicable("this revision has batches")
    request = peer.message("server/discover" if peer.modern else "ping")
    answer = peer.exchange([request])
    served = answer.web.status == 200 or answer.message is not None
    expect(not served or answer.failed, f"a batch of one request: {answer.words}")


@requirement("MSG-35", "what is not JSON is answered with -32700, and does no harm", _BASIC, strength="should")
def _not_json(peer: CheckedPeer) -> None:
    answer = peer.exchange(b'{"jsonrpc": "2.0", "id": 1, "method": ')
    expect(answer.message is not None or answer.web.status >= 400, f"half a message: {answer.words}")
    if answer.message is not None:
        answer.expect_refused(-32700)


@requirement("MSG-36", "after a message that is not valid JSON the server goes on", _BASIC)
def _goes_on(peer: CheckedPeer) -> None:
    for each in (b"{", b'"text"', b"12", b"\xff\xfe"):
        peer.exchange(each, answered=False)
    answer = _simple(peer)
    expect(not answer.failed and answer.message is not None, f"after messages that are not valid JSON: {answer.words}")


@requirement("MSG-41", "codes from -32099 to -32020 are those of the protocol only", _BASIC)
def _codes(peer: CheckedPeer) -> None:
    peer.ask("linkspan/no_such_method")
    for each in peer.seen:
        error = each.get("error")
        code = error.get("code") if is_object(error) else None
        if isinstance(code, int) and -32099 <= code <= -32020:
            expect(code in peer.revision.error_codes, f"an error has the code {code}")


@requirement("MSG-50", "members that are not known are ignored", _BASIC)
def _unknown_members(peer: CheckedPeer) -> None:
    method, capability = next(
        (each for each in (("tools/list", "tools"), ("prompts/list", "prompts"), ("resources/list", "resources"))
         if is_object(peer.capabilities.get(each[1]))),
        ("", ""),
    )  # fmt: skip
    if not capability:
        not_applicable("it has no list")
    answer = peer.ask(method, {"linkspanUnknown": {"a": [1]}, "_meta": {"com.example/unknown": 1}})
    expect(not answer.failed and answer.message is not None, f"{answer.asked}: {answer.words}")


@requirement("MSG-52", "an unknown method is refused with -32601", _BASIC)
def _unknown_methods(peer: CheckedPeer) -> None:
    peer.ask("linkspan/no_such_method").expect_refused(-32601, status=404 if peer.modern else 0)


@requirement("MSG-57", "params that are an array are refused", _BASIC, strength="should")
def _arrays(peer: CheckedPeer) -> None:
    answer = peer.exchange({**peer.message("tools/list", meta=False), "params": ["a"]})
    expect(answer.message is None or answer.failed, f"tools/list with params ['a']: {answer.words}")
    expect(answer.message is not None or answer.web.status >= 400, f"tools/list with params ['a']: {answer.words}")


@requirement(
    "INI-1",
    "a handshake for an unknown revision is answered with one that the server has",
    _LIFECYCLE,
    eras=("legacy",),
)
def _negotiation(peer: CheckedPeer) -> None:
    with closing(peer.afresh()) as other:
        answer = other.initialize(_ODD)
    if answer.failed and answer.error.get("code") == -32602:
        not_applicable("it names its versions in an error")
    found = answer.result.get("protocolVersion")
    expect(found in LEGACY, f"initialize with {_ODD}: protocolVersion {found!r}")


@requirement(
    "INI-2",
    "the answer to a handshake has a version, capabilities, and the server's name and version",
    _LIFECYCLE,
    eras=("legacy",),
)
def _handshake(peer: CheckedPeer) -> None:
    expect_shape(peer.hello, InitializeResult, "initialize")


@requirement("INI-6", "ping is answered with an empty result", "basic/utilities/ping", eras=("legacy",))
def _ping(peer: CheckedPeer) -> None:
    answer = peer.ask("ping")
    expect(set(answer.result) <= {"_meta"}, f"ping: {answer.words}")


@requirement(
    "DISC-1", "server/discover says versions, capabilities and for how long they hold", _DISCOVER, eras=("modern",)
)
def _discover(peer: CheckedPeer) -> None:
    expect_shape(peer.hello, DiscoverResult, "server/discover")
    expect_cacheable(peer.hello, "server/discover")


@requirement(
    "DISC-2",
    "an unknown revision is refused with -32022, the versions that are spoken, and the one that was asked for",
    _BASIC,
    eras=("modern",),
)
def _unknown_revision(peer: CheckedPeer) -> None:
    message = peer.message("server/discover", {"_meta": {PROTOCOL_VERSION: _ODD}})
    answer = peer.exchange(message, headers={"MCP-Protocol-Version": _ODD})
    answer.expect_refused(-32022, status=400)
    data = answer.error.get("data")
    spoken, asked = (data.get("supported"), data.get("requested")) if is_object(data) else (None, None)
    expect(bool(is_array(spoken) and spoken), f"{answer.words}: data.supported must name versions")
    expect(asked == _ODD, f"{answer.words}: data.requested must be {_ODD!r}")


@requirement("META-3", "a request without clientCapabilities is refused with -32602", _BASIC, eras=("modern",))
def _no_capabilities(peer: CheckedPeer) -> None:
    message = peer.message("server/discover", meta=False)
    message["params"] = {"_meta": {PROTOCOL_VERSION: peer.revision.date}}
    peer.exchange(message).expect_refused(-32602, status=400)


@requirement("META-5", "a request without clientInfo is served", _BASIC, eras=("modern",))
def _no_name(peer: CheckedPeer) -> None:
    message = peer.message("server/discover", meta=False)
    message["params"] = {"_meta": {k: v for k, v in peer.envelope().items() if k != CLIENT_INFO}}
    peer.exchange(message).expect_served()


@requirement("META-6", "a result has the name of the server in its _meta", _BASIC, eras=("modern",), strength="should")
def _server_info(peer: CheckedPeer) -> None:
    answer = _simple(peer)
    meta = answer.result.get("_meta")
    expect(is_object(meta) and SERVER_INFO in meta, f"the _meta of {answer.asked} has no {SERVER_INFO}")


@requirement(
    "META-7", "clientCapabilities of another type than an object are refused with -32602", _BASIC, eras=("modern",)
)
def _odd_capabilities(peer: CheckedPeer) -> None:
    peer.ask("server/discover", {"_meta": {CAPABILITIES: "none"}}).expect_refused(-32602, status=400)


@requirement("MSG-20", "each result has a resultType", _BASIC, eras=("modern",))
def _result_types(peer: CheckedPeer) -> None:
    _simple(peer)
    for each in peer.seen:
        if is_object(result := each.get("result")):
            expect(isinstance(result.get("resultType"), str), f"{_short(each)} has no resultType")


@requirement("MSG-6", "a server sends no requests", _BASIC, eras=("modern",))
def _no_requests(peer: CheckedPeer) -> None:
    _simple(peer)
    for each in peer.seen:
        expect(not ("method" in each and "id" in each), f"the server asked: {_short(each)}")


@requirement("ERA-9", "methods of revisions with a handshake are refused with -32601", _BASIC, eras=("modern",))
def _gone(peer: CheckedPeer) -> None:
    for method in _OLD_METHODS:
        answer = peer.ask(method, {"uri": "x:y", "level": "info"})
        if method == "initialize" and answer.failed and answer.error.get("code") == -32022:
            continue  # on a pipe that has begun with this revision, a handshake is for another one
        answer.expect_refused(-32601, status=404)


@requirement("SRV-2", "what is not announced is refused with -32601", "server")
def _gates(peer: CheckedPeer) -> None:
    methods = {"tools": "tools/list", "prompts": "prompts/list", "resources": "resources/list"}
    missing = [method for name, method in methods.items() if not is_object(peer.capabilities.get(name))]
    if not missing:
        not_applicable("it announces all of them")
    for method in missing:
        peer.ask(method).expect_refused(-32601, status=404 if peer.modern else 0)


@requirement("SRV-3", "what is announced is served", "server")
def _serves(peer: CheckedPeer) -> None:
    methods = {"tools": "tools/list", "prompts": "prompts/list", "resources": "resources/list"}
    there = [method for name, method in methods.items() if is_object(peer.capabilities.get(name))]
    if not there:
        not_applicable("it announces none of them")
    for method in there:
        peer.ask(method).expect_served()


@requirement("CAN-4", "the cancellation of an unknown request is ignored", "basic/utilities/cancellation")
def _odd_cancel(peer: CheckedPeer) -> None:
    answer = peer.notify("notifications/cancelled", {"requestId": "no-such-request", "reason": "a check"})
    expect(answer.message is None, f"{answer.asked}: {answer.words}")
    expect(not _simple(peer).failed, "after it the server does not answer")


@requirement("PROG-1", "a request that asks for progress is served", "basic/utilities/progress")
def _progress(peer: CheckedPeer) -> None:
    method = "server/discover" if peer.modern else "ping"
    peer.ask(method, {"_meta": {"progressToken": "p-1"}}).expect_served()


def _short(message: JSONObject) -> str:
    return PeerAnswer("", message).words
