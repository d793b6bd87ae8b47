"""How a client finds out what a server speaks, when the server answers the probe in every way there is (ERA-2, ERA-3, ERA-7)."""

from __future__ import annotations

from typing import Any

import pytest
from faces import outcome, wait_until
from wild import error, raw, result, wild

from linkspan import ConnectError, SyncClient, Timeouts

IMPATIENT = Timeouts(connect=30.0, probe=0.1)
MODERN, LEGACY = "2026-07-28", "2025-11-25"
REFUSED = "Unsupported protocol version"


def newer(*versions: Any) -> str:
    return error(-32022, REFUSED, {"supported": list(versions), "requested": MODERN})


GOOD = {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}}}
OLD_SERVER: dict[str, list[Any]] = {
    "method not found": [error(-32601, "Method not found")],
    "invalid params": [error(-32602, "Invalid request parameters")],
    "invalid request": [error(-32600, "Bad request")],
    "internal error": [error(-32603, "Internal error")],
    "parse error": [error(-32700, "Parse error")],
    "not initialized": [error(-32000, "Server not initialized")],
    "not initialized, another code": [error(-32002, "Server not initialized")],
    "a code of no meaning": [error(0, "?")],
    "refused without a list": [error(-32022, REFUSED)],
    "refused with something else": [error(-32022, REFUSED, {"supported": "all"})],
    "refused with text": [error(-32022, REFUSED, "2025-11-25")],
    "legacy only": [newer("2025-06-18", LEGACY)],
    "legacy and the future": [newer(LEGACY, "2031-01-01")],
    "an error without id": [raw(error={"code": -32601, "message": "what?"})],
    "an error with a null id": [raw(id=None, error={"code": -32600, "message": "what?"})],
    "an empty result": [result({})],
    "a result of another shape": [result({"supportedVersions": "all", "capabilities": []})],
    "a result that is a list": [result([])],
    "a result that is null": [result(None)],
    "a result that is a text": [result("ok")],
    "a deep result": [{"deep": 5000}],
    "a message that is none": ['{"jsonrpc":"2.0","id":$ID}'],
    "result and error": [raw(id="$ID", result=GOOD, error={"code": -1, "message": "x"})],
    "an error of another shape": ['{"jsonrpc":"2.0","id":$ID,"error":"no"}'],
    "an error with a text for a code": ['{"jsonrpc":"2.0","id":$ID,"error":{"code":"E1","message":"no"}}'],
    "another id": [raw(id=999, result=GOOD)],
    "the id as a text": ['{"jsonrpc":"2.0","id":"$ID","result":{}}'],
    "junk": ["what?"],
    "silence": [],
    "death": [{"exit": 1}],
    "a legacy discovery": [result({**GOOD, "supportedVersions": [LEGACY]})],
}
FIRST_TRY = {
    name for name in OLD_SERVER if name not in ("silence", "junk", "another id", "the id as a text", "a deep result")
}


@pytest.mark.parametrize("name", OLD_SERVER)
def test_an_old_server_gets_the_handshake(name: str) -> None:
    plan = {"server/discover": OLD_SERVER[name]}
    probe = 20.0 if name in FIRST_TRY else 0.1

    def step(client: Any) -> Any:
        return client.call_tool("hi")

    seen: list[Any] = []
    options: Any = {"timeouts": Timeouts(connect=30.0, probe=probe), "on_event": seen.append}
    assert outcome("sync", wild(plan), step, **options).text == "hi"
    assert [event.revision for event in seen] == [LEGACY]


@pytest.mark.parametrize("name", OLD_SERVER)
def test_a_client_that_is_told_to_be_modern_never_shakes_hands(name: str) -> None:
    plan = {"server/discover": OLD_SERVER[name], "initialize": [{"exit": 9}]}
    with pytest.raises(ConnectError) as caught:
        outcome("sync", wild(plan), lambda client: client.ping(), era="modern", timeouts=Timeouts(connect=0.25))
    assert caught.value.exit_code != 9
    assert caught.value.phase == "negotiate"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (newer("2031-01-01"), "the server supports 2031-01-01, this client 2026-07-28"),
        (newer("2031-01-01", "2032-01-01"), "the server supports 2031-01-01, 2032-01-01, this client"),
        (newer("garbage"), "the server supports garbage, this client"),
        (newer(), "the server supports no version at all, this client"),
        (newer(1, None, {}), "the server supports no version at all, this client"),
        (result({**GOOD, "supportedVersions": ["2031-01-01"]}), "the server supports 2031-01-01, this client"),
    ],
)
def test_a_modern_server_without_a_version_in_common_is_an_error(answer: str, said: str) -> None:
    plan = {"server/discover": [answer], "initialize": [{"exit": 9}]}
    with pytest.raises(ConnectError) as caught:
        outcome("sync", wild(plan), lambda client: client.ping())
    assert f"no protocol version in common: {said}" in caught.value.problem
    assert caught.value.exit_code is None


def test_a_modern_server_that_refuses_the_version_it_lists_is_asked_once_more_and_no_oftener() -> None:
    said: list[str] = []
    plan = {"server/discover": [{"stderr": "asked"}, newer(MODERN)], "initialize": [{"exit": 9}]}
    with pytest.raises(ConnectError):
        outcome("sync", wild(plan), lambda client: client.ping(), on_stderr=said.append)
    wait_until(lambda: len("".join(said).split()) >= 2)
    assert "".join(said).split() == ["asked", "asked"]


@pytest.mark.parametrize("code", [-32020, -32021])
def test_a_server_that_wants_something_modern_is_believed(code: int) -> None:
    plan = {"server/discover": [error(code, "send more", {"requiredCapabilities": {}})], "initialize": [{"exit": 9}]}
    with pytest.raises(ConnectError, match="it refused server/discover: send more") as caught:
        outcome("sync", wild(plan), lambda client: client.ping())
    assert (caught.value.code, caught.value.message) == (code, "send more")


@pytest.mark.parametrize("members", [{}, {"_meta": {}}, {"instructions": "be kind"}, {"unknown": [1]}, {"ttlMs": 5}])
def test_a_modern_server_may_say_more_or_less(members: dict[str, Any]) -> None:
    with SyncClient(wild({"server/discover": [result({**GOOD, **members})], "initialize": [{"exit": 9}]})) as client:
        assert client.protocol_version == MODERN
        assert client.instructions == members.get("instructions")


def test_a_late_answer_to_the_probe_does_not_disturb_the_handshake() -> None:
    plan = {"server/discover": [], "initialize": [raw(id=1, result=GOOD), result(legacy()), raw(id=1, result=GOOD)]}
    with SyncClient(wild(plan), timeouts=IMPATIENT) as client:
        assert client.protocol_version == LEGACY
        assert client.call_tool("hi").text == "hi"


def legacy(**members: Any) -> dict[str, Any]:
    return {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "serverInfo": {"name": "w", "version": "1"},
        **members,
    }


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_server_may_answer_the_handshake_with_any_version_of_its_era(version: str) -> None:
    plan = {"initialize": [result(legacy(protocolVersion=version))]}
    with SyncClient(wild(plan), era="legacy") as client:
        assert client.protocol_version == version


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (result(legacy(protocolVersion="2023-01-01")), "no protocol version in common: the server supports 2023-01-01"),
        (result(legacy(protocolVersion=MODERN)), "no protocol version in common: the server supports 2026-07-28"),
        (result({}), "invalid response to initialize"),
        (result({"protocolVersion": LEGACY, "capabilities": {}}), "required field `serverInfo`"),
        (result(legacy(capabilities=[])), "invalid response to initialize"),
        (error(-32602, "bad version"), r"it refused initialize: bad version \(-32602\)"),
        (error(-32602, "no", {"supported": ["2023-01-01"]}), "it refused initialize"),
    ],
)
def test_a_handshake_that_fails_says_why(answer: str, problem: str) -> None:
    with pytest.raises(ConnectError, match=problem) as caught:
        outcome("sync", wild({"initialize": [answer]}), lambda client: client.ping(), era="legacy")
    assert caught.value.phase == "negotiate"


def test_a_server_that_lists_older_versions_is_greeted_with_one_of_them() -> None:
    versions = ["2025-03-26", "2024-11-05"]
    said: list[str] = []
    plan = {"initialize": [{"stderr": "greeted"}, error(-32602, "no", {"supported": versions})]}
    with pytest.raises(ConnectError, match="it refused initialize"):
        outcome("sync", wild(plan), lambda client: client.ping(), era="legacy", on_stderr=said.append)
    wait_until(lambda: len("".join(said).split()) >= 2)
    assert "".join(said).split() == ["greeted", "greeted"]


@pytest.mark.parametrize(("wanted", "era"), [(MODERN, "modern"), ("2025-06-18", "legacy")])
def test_a_pinned_version_is_spoken_or_nothing(wanted: str, era: str) -> None:
    agreed = {"initialize": [result(legacy(protocolVersion=wanted))]}
    with SyncClient(wild(agreed), protocol_version=wanted) as client:
        assert client.protocol_version == wanted
    other = {"initialize": [result(legacy())], "server/discover": [newer("2031-01-01", LEGACY)]}
    with pytest.raises(ConnectError) as caught:
        outcome("sync", wild(other), lambda client: client.ping(), protocol_version=wanted)
    assert caught.value.phase == "negotiate"


def test_what_was_found_out_is_remembered_for_the_next_server() -> None:
    said: list[str] = []
    plan = {"server/discover": [{"stderr": "probed"}, error(-32601)]}
    client = SyncClient(wild(plan), on_stderr=said.append)
    for _ in range(3):
        client.connect()
        assert client.protocol_version == LEGACY
        client.close()
    wait_until(lambda: "probed" in "".join(said))
    assert "".join(said).count("probed") == 1
