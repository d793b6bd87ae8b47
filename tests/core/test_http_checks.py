"""The gate of an HTTP endpoint as a machine, without a server and without a face: headers in, a refusal or nothing out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from linkspan.core import http_checks
from linkspan.core.http_checks import Arrival, Gate, HttpPolicy
from linkspan.core.http_exchange import HttpResponse

LOCAL = Arrival("127.0.0.1", "127.0.0.1")
REMOTE = Arrival("10.0.0.5", "203.0.113.7")
APP = "https://app.example.com"
PLAIN = {"host": "mcp.example.com", "content-type": "application/json"}
LISTED: dict[str, Any] = {"allowed_hosts": ["mcp.example.com", "only.example.com:8443"]}
HOME = {"host": "localhost:8000"}


def refused(found: Mapping[str, str] | HttpResponse) -> HttpResponse:
    """Return a refusal, which must be there."""
    assert isinstance(found, HttpResponse)
    return found


def judged(gate: Gate, headers: Mapping[str, str], arrival: Arrival = REMOTE, method: str = "POST") -> int | None:
    """Return the status of the refusal, or None."""
    found = gate.admit(method, headers, arrival)
    return found.status if isinstance(found, HttpResponse) else None


HOSTS: list[tuple[dict[str, Any], Arrival, dict[str, str], int | None]] = [
    ({}, REMOTE, {"host": "any.example"}, None),
    ({}, REMOTE, {"host": "user@any.example"}, 400),
    ({}, REMOTE, {}, 400),
    ({}, Arrival("10.0.0.5", version="1.0"), {}, None),
    ({}, REMOTE, {"host": ""}, 400),
    ({}, Arrival("10.0.0.5", version="1.0"), {"host": ""}, None),
    ({}, Arrival("10.0.0.5", version="1.0"), {"host": "user@any.example"}, 400),
    ({}, LOCAL, {"host": "user@localhost"}, 400),
    (LISTED, REMOTE, {"host": "mcp.example.com:x"}, 400),
    ({}, LOCAL, {"host": "localhost:8000"}, None),
    ({}, LOCAL, {"host": "[::1]"}, None),
    ({}, LOCAL, {"host": "any.example"}, 421),
    ({}, LOCAL, {"host": "localhost.any.example"}, 421),
    ({}, Arrival("127.0.0.1", version="1.0"), {}, 421),
    (LISTED, REMOTE, {"host": "MCP.example.com:9"}, None),
    (LISTED, REMOTE, {"host": "only.example.com:8443"}, None),
    (LISTED, REMOTE, {"host": "only.example.com"}, 421),
    (LISTED, REMOTE, {"host": "localhost"}, 421),
    (LISTED, LOCAL, {"host": "localhost"}, None),
    (LISTED, LOCAL, {"host": "mcp.example.com"}, None),
]


@pytest.mark.parametrize(("policy", "arrival", "headers", "status"), HOSTS, ids=str)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_the_host(
    policy: dict[str, Any], arrival: Arrival, headers: dict[str, str], status: int | None, method: str
) -> None:
    """SEC-1."""
    assert judged(Gate(HttpPolicy(**policy)), {"content-type": "application/json"} | headers, arrival, method) == status


ORIGINS: list[tuple[dict[str, Any], Arrival, dict[str, str], int | None]] = [
    ({}, REMOTE, {"origin": "https://mcp.example.com"}, None),
    ({}, REMOTE, {"origin": "https://mcp.example.com:8443"}, 403),
    ({}, REMOTE, {"origin": APP}, 403),
    ({}, REMOTE, {"origin": "null"}, 403),
    ({}, LOCAL, HOME | {"origin": "http://127.0.0.1:6274"}, None),
    ({}, LOCAL, HOME | {"origin": APP}, 403),
    ({}, REMOTE, {"host": "localhost:8000", "origin": "http://localhost:6274"}, 403),
    ({"allowed_origins": [APP]}, REMOTE, {"origin": APP}, None),
    ({"allowed_origins": [APP]}, REMOTE, {"origin": "https://mcp.example.com"}, 403),
    ({"allowed_origins": [APP], **LISTED}, REMOTE, {"origin": "https://mcp.example.com"}, None),
    ({"allowed_origins": [APP]}, LOCAL, HOME | {"origin": "http://127.0.0.1:6274"}, 403),
    ({"cors": [APP]}, REMOTE, {"origin": APP}, None),
    ({"cors": [APP]}, REMOTE, {"origin": "https://other.example.com"}, 403),
    ({"cors": True}, REMOTE, {"origin": "null"}, None),
    ({"cors": True, **LISTED}, REMOTE, {"host": "any.example", "origin": APP}, 421),
    ({}, REMOTE, {"sec-fetch-site": "cross-site"}, 403),
    ({}, REMOTE, {"sec-fetch-site": "same-origin"}, None),
]


@pytest.mark.parametrize(("policy", "arrival", "headers", "status"), ORIGINS, ids=str)
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_the_origin(
    policy: dict[str, Any], arrival: Arrival, headers: dict[str, str], status: int | None, method: str
) -> None:
    """H5-2."""
    assert judged(Gate(HttpPolicy(**policy)), PLAIN | headers, arrival, method) == status


@pytest.mark.parametrize(
    ("page", "path", "mode", "status"),
    [
        (True, "/mcp", "navigate", None),
        (True, "/mcp", "no-cors", 403),
        (False, "/mcp", "navigate", 403),
        (False, "/.well-known/oauth-protected-resource", "cors", None),
    ],
)
def test_a_link_from_another_site_leads_to_the_page_and_to_metadata_only(
    page: bool, path: str, mode: str, status: int | None
) -> None:
    headers = PLAIN | {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode}
    assert judged(Gate(HttpPolicy(page=page)), headers, Arrival("10.0.0.5", path=path), "GET") == status


MEDIA: list[tuple[dict[str, str], int | None]] = [
    ({"content-type": "application/json"}, None),
    ({"content-type": "Application/JSON; charset=utf-8"}, None),
    ({"content-type": "text/plain"}, 415),
    ({"content-type": "application/jsonp"}, 415),
    ({"content-type": ""}, 415),
    ({}, 415),
    ({"content-type": "application/json", "accept": "application/json"}, None),
    ({"content-type": "application/json", "accept": "text/event-stream;q=0.9"}, None),
    ({"content-type": "application/json", "accept": "*/*"}, None),
    ({"content-type": "application/json", "accept": "text/html"}, 406),
    ({"content-type": "text/plain", "accept": "text/html"}, 415),
]


@pytest.mark.parametrize("path", [True, False, "", "/", "//", b"/sse"], ids=repr)
def test_a_path_of_pairs_that_is_none_is_refused_where_it_is_written(path: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"http_sse must be a path such as '/sse', got {path!r}")):
        HttpPolicy(http_sse=path)


@pytest.mark.parametrize(("headers", "status"), MEDIA, ids=str)
def test_the_media_types_of_a_post(headers: dict[str, str], status: int | None) -> None:
    """H5-4."""
    gate = Gate(HttpPolicy())
    assert judged(gate, {"host": "mcp.example.com"} | headers) == status
    for method in ("GET", "DELETE"):
        assert judged(gate, {"host": "mcp.example.com"} | headers, method=method) is None


SIZES: list[tuple[dict[str, Any], dict[str, str], int | None]] = [
    ({"max_body_bytes": 10}, {"content-length": "10"}, None),
    ({"max_body_bytes": 10}, {"content-length": "11"}, 413),
    ({"max_body_bytes": 10}, {"content-length": "9" * 5000}, 413),
    ({"max_body_bytes": 10}, {"content-length": "many"}, None),
    ({"max_headers": 4}, {"a": "", "b": ""}, None),
    ({"max_headers": 4}, {"a": "", "b": "", "c": ""}, 431),
    ({"max_header_bytes": 200}, {"x": "x" * (199 - len("".join((*PLAIN, *PLAIN.values()))))}, None),
    ({"max_header_bytes": 200}, {"x": "x" * (200 - len("".join((*PLAIN, *PLAIN.values()))))}, 431),
]


@pytest.mark.parametrize(("policy", "headers", "status"), SIZES, ids=lambda each: str(each)[:60])
def test_the_sizes(policy: dict[str, Any], headers: dict[str, str], status: int | None) -> None:
    refusal = Gate(HttpPolicy(**policy)).admit("POST", PLAIN | headers, REMOTE)
    if status is None:
        assert refusal == PLAIN | headers
        return
    assert (refused(refusal).status, refused(refusal).closes) == (status, True)


def test_what_is_too_long_is_decided_by_the_digits() -> None:
    gate = Gate(HttpPolicy(max_body_bytes=99))
    found = {each: gate.is_too_long(each) for each in ("0", "99", "100", "9" * 19, "-100", "\u0661\u0660\u0660", "")}
    assert [each for each, is_long in found.items() if is_long] == ["100", "9" * 19]


def test_other_methods_are_named_as_impossible() -> None:
    gate = Gate(HttpPolicy())
    for method in ("PUT", "PATCH", "HEAD", "X" * 99):
        refusal = refused(gate.admit(method, PLAIN, REMOTE))
        assert (refusal.status, dict(refusal.headers)["allow"]) == (405, "POST, GET, DELETE")


# The authority of a target in absolute form.

TARGETS: list[tuple[dict[str, Any], str | None, str, int | None]] = [
    ({}, "any.example", "mcp.example.com", None),
    ({}, None, "mcp.example.com", 400),
    ({}, "us er", "mcp.example.com", 400),
    ({}, "mcp.example.com", "user@mcp.example.com", 400),
    ({}, "mcp.example.com", "", 400),
    (LISTED, "any.example", "mcp.example.com", None),
    (LISTED, "mcp.example.com", "any.example", 421),
    (LISTED, "mcp.example.com", "only.example.com", 421),
]


@pytest.mark.parametrize(("policy", "host", "authority", "status"), TARGETS, ids=lambda each: str(each)[:30])
def test_it_counts_instead_of_a_host_that_is_valid(
    policy: dict[str, Any], host: str | None, authority: str, status: int | None
) -> None:
    headers = {"content-type": "application/json"} | ({"host": host} if host is not None else {})
    found = Gate(HttpPolicy(**policy)).admit("POST", headers, Arrival("10.0.0.5", authority=authority))
    if status is None:
        assert found == headers | {"host": authority}
    else:
        assert refused(found).status == status


def test_a_page_is_our_own_by_the_authority() -> None:
    headers = PLAIN | {"origin": APP}
    assert judged(Gate(HttpPolicy()), headers) == 403
    assert judged(Gate(HttpPolicy()), headers, Arrival("10.0.0.5", authority="app.example.com")) is None


def test_heads_that_differ_by_their_authority_are_judged_one_by_one() -> None:
    gate, raw = Gate(HttpPolicy(**LISTED)), tuple((name.encode(), value.encode()) for name, value in PLAIN.items())
    for authority in ("mcp.example.com", "any.example", "mcp.example.com", None):
        found = gate.read("POST", raw, Arrival("10.0.0.5", authority=authority))
        assert isinstance(found, HttpResponse) == (authority == "any.example")


# CORS.


@pytest.mark.parametrize(
    ("cors", "readable"), [(False, False), (True, True), ([APP], True), (["https://b.example"], False)], ids=str
)
def test_only_the_pages_of_cors_read_answers(cors: Any, readable: bool) -> None:
    gate = Gate(HttpPolicy(cors=cors, allowed_origins=[APP]))
    assert gate.cors_headers({}) == ()
    found = dict(gate.cors_headers({"origin": APP}))
    assert found.get("access-control-allow-origin") == (APP if readable else None)
    assert found.get("vary") == ("origin" if readable else None)
    refusal = refused(gate.admit("POST", PLAIN | {"origin": APP, "content-type": "text/plain"}, REMOTE))
    assert dict(refusal.headers).get("access-control-allow-origin") == (APP if readable else None)


def test_a_page_that_is_not_let_in_cannot_read_why() -> None:
    refusal = refused(Gate(HttpPolicy(cors=[APP])).admit("POST", PLAIN | {"origin": "https://b.example"}, REMOTE))
    assert [name for name, _ in refusal.headers] == ["content-type"]


def test_a_preflight_permits_the_parameters_that_it_names_and_nothing_else() -> None:
    wanted = {"access-control-request-headers": "X-Other, Mcp-Param-Region"}
    readers = Gate(HttpPolicy(cors=[APP], allowed_origins=["https://b.example"]))
    answer = refused(readers.admit("OPTIONS", PLAIN | wanted | {"origin": APP}, REMOTE))
    permitted = dict(answer.headers)["access-control-allow-headers"].split(", ")
    assert (answer.status, permitted[-1], "x-other" in permitted) == (204, "mcp-param-region", False)
    answer = refused(readers.admit("OPTIONS", PLAIN | wanted | {"origin": "https://b.example"}, REMOTE))
    assert answer == HttpResponse(204, (("allow", "POST, GET, DELETE, OPTIONS"),))


# What the operator is shown, and what is remembered.


@pytest.mark.parametrize(
    ("headers", "setting"),
    [({"host": "any.example"}, "allowed_hosts"), ({"origin": "https://any.example"}, "allowed_origins")],
    ids=str,
)
def test_a_refusal_that_a_setting_would_lift_names_it_for_the_log(headers: dict[str, str], setting: str) -> None:
    complaint = refused(Gate(HttpPolicy(**LISTED)).admit("POST", PLAIN | headers, REMOTE)).complaint
    assert complaint is not None
    assert setting in complaint


@pytest.mark.parametrize("headers", [{"content-type": "text/plain"}, {"sec-fetch-site": "cross-site"}], ids=str)
def test_a_refusal_for_which_the_client_must_change_is_not_for_the_log(headers: dict[str, str]) -> None:
    assert refused(Gate(HttpPolicy(**LISTED)).admit("POST", PLAIN | headers, REMOTE)).complaint is None


@pytest.mark.parametrize("setting", ["allowed_hosts", "allowed_origins", "cors"])
@pytest.mark.parametrize("value", ["", "https://a.example/path", "*", "a b"])
def test_a_setting_that_would_match_nothing_is_refused(setting: str, value: str) -> None:
    policy: dict[str, Any] = {setting: [value]}
    with pytest.raises(ValueError, match=f"{setting} must list"):
        Gate(HttpPolicy(**policy))


MANY = 1000
"""More different requests than a gate remembers."""
FEW = 50
"""Fewer of them."""
READ: dict[str, tuple[str, dict[str, Any], Callable[[int], dict[str, str]]]] = {
    "hosts that are served": ("parse_authority", {}, lambda n: {"host": f"h{n}.example"}),
    "hosts that are refused": ("parse_authority", LISTED, lambda n: {"host": f"h{n}.example"}),
    "origins that are refused": ("parse_origin", {}, lambda n: {"origin": f"https://o{n}.example"}),
    "our own origin": ("parse_origin", {}, lambda n: {"origin": "https://mcp.example.com", "host": f"mcp{n}.example"}),
    "media types": ("media_type", {}, lambda n: {"content-type": f"text/x-remembered-{n}"}),
}
"""What a gate reads with which function, its policy, and the request number n."""


@pytest.fixture
def count_reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[object]]:
    """Return a function that begins to collect what one function of the module is called with."""

    def begin(name: str) -> list[object]:
        read: list[object] = []
        original = getattr(http_checks, name)

        def reading(value: str) -> object:
            read.append(value)
            return original(value)

        monkeypatch.setattr(http_checks, name, reading)
        return read

    return begin


@pytest.mark.parametrize("kind", READ)
def test_a_decision_is_taken_once_and_remembered_within_a_bound(
    kind: str, count_reads: Callable[[str], list[object]]
) -> None:
    name, policy, headers_of = READ[kind]
    gate = Gate(HttpPolicy(**policy))
    read = count_reads(name)

    def send(number: int) -> tuple[int | None, bool]:
        """Return the status, and whether the gate had to read the header."""
        before = len(read)
        return judged(gate, PLAIN | headers_of(number)), len(read) > before

    first = [send(number) for number in range(MANY)]
    assert len(set(first)) == 1
    (status, _), newest = first[0], range(MANY - FEW, MANY)
    assert first[0] == (status, True)
    assert [send(number) for number in newest] == [(status, False)] * FEW
    assert [send(number) for number in range(FEW)] == [(status, True)] * FEW


def test_the_headers_of_cors_are_remembered_within_a_bound() -> None:
    gate = Gate(HttpPolicy(cors=True))
    found = [gate.cors_headers({"origin": f"https://o{number}.example"}) for number in range(MANY)]
    again = [gate.cors_headers({"origin": f"https://o{number}.example"}) for number in range(MANY - FEW, MANY)]
    assert all(one is other for one, other in zip(again, found[-FEW:], strict=True))
    first = gate.cors_headers({"origin": "https://o0.example"})
    assert first == found[0]
    assert first is not found[0]


def test_each_gate_remembers_its_own_decisions() -> None:
    headers = PLAIN | {"host": "any.example", "origin": APP}
    gates = [Gate(HttpPolicy(**each)) for each in (LISTED, {}, {"cors": True})]
    for _ in range(2):
        assert [judged(gate, headers) for gate in gates] == [421, 403, None]


def test_a_remembered_refusal_is_the_same_response_each_time() -> None:
    gate = Gate(HttpPolicy())
    one, other = (refused(gate.admit("POST", PLAIN | {"origin": APP}, REMOTE)) for _ in range(2))
    assert one == other
    with pytest.raises(AttributeError):
        one.body = b"changed"  # type: ignore[misc]


# Heads as they come.

RAW = ((b"Host", b"localhost:8000"), (b"Content-Type", b"application/json"), (b"X-Long", b" a "), (b"x-long", b"b"))


def test_a_head_is_read_by_name_and_what_is_repeated_is_joined() -> None:
    found = Gate(HttpPolicy()).read("POST", RAW, LOCAL)
    assert found == {"host": "localhost:8000", "content-type": "application/json", "x-long": "a, b"}


@pytest.mark.parametrize(("lines", "status"), [(20, None), (21, 431)])
def test_headers_are_counted_by_their_lines_whatever_their_names(lines: int, status: int | None) -> None:
    found = Gate(HttpPolicy(max_headers=20)).read("POST", (*RAW, *[(b"x-long", b"c")] * (lines - len(RAW))), LOCAL)
    assert (found.status if isinstance(found, HttpResponse) else None) == status


@pytest.mark.parametrize("name", [b"host", b"Origin"])
def test_a_host_or_an_origin_that_is_repeated_is_refused(name: bytes) -> None:
    found = Gate(HttpPolicy()).read("POST", (*RAW, (name, b"http://localhost"), (name, b"http://localhost")), LOCAL)
    assert isinstance(found, HttpResponse)
    assert (found.status, found.body) == (400, b"Host or Origin is there twice")


def test_a_head_is_remembered_for_the_method_the_path_and_the_kind_of_address_it_came_with() -> None:
    gate = Gate(HttpPolicy(allowed_hosts=["other.example"]))
    first = gate.read("POST", RAW, LOCAL)
    assert gate.read("POST", tuple(RAW), Arrival("127.0.0.1", "127.0.0.2")) is first
    assert isinstance(gate.read("POST", RAW, REMOTE), HttpResponse)
    assert isinstance(gate.read("PUT", RAW, LOCAL), HttpResponse)
    cross = (*RAW, (b"sec-fetch-site", b"cross-site"))
    found = [gate.read("GET", cross, Arrival("127.0.0.1", path=path)) for path in ("/mcp", "/.well-known/x")]
    assert [isinstance(each, HttpResponse) for each in found] == [True, False]


def test_heads_are_remembered_within_a_bound_and_large_ones_never() -> None:
    gate = Gate(HttpPolicy())

    def remembered(*heads: tuple[tuple[bytes, bytes], ...]) -> list[bool]:
        return [gate.read("POST", each, LOCAL) is gate.read("POST", each, LOCAL) for each in heads]

    large = (*RAW, (b"authorization", b"x" * 5000))
    assert remembered(RAW, large) == [True, False]
    first = gate.read("POST", RAW, LOCAL)
    for number in range(MANY):
        gate.read("POST", (*RAW, (b"x-number", b"%d" % number)), LOCAL)
    again = gate.read("POST", RAW, LOCAL)
    assert again == first
    assert again is not first
