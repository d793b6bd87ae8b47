"""What header values mean: as functions of text."""

from __future__ import annotations

import pytest

from linkspan.wire.headers import accepts, split_target, unknown_coding, wants_page

EVENTS = "text/event-stream"
ACCEPTS: list[tuple[str | None, bool]] = [
    (None, True),
    ("", False),
    (EVENTS, True),
    ("TEXT/Event-Stream; charset=utf-8", True),
    ("text/*", True),
    ("*/*;q=0.001", True),
    (f"application/json, {EVENTS};q=0.1", True),
    ("application/json", False),
    (f"{EVENTS};q=0", False),
    (f"{EVENTS} ; Q=0.000 ", False),
    (f"{EVENTS};q=0;x=1", False),
    (f"{EVENTS};xq=0", True),
    (f"{EVENTS};q=0, */*", False),
    (f"*/*, {EVENTS};q=0.0", False),
    ("text/*;q=0, */*", False),
    (f"*/*;q=0, {EVENTS}", True),
    (f"{EVENTS};level=1;q=0, {EVENTS}", True),
]


@pytest.mark.parametrize(("accept", "taken"), ACCEPTS)
def test_the_most_specific_range_that_matches_decides(accept: str | None, taken: bool) -> None:
    """RFC 9110, sections 12.4.2 and 12.5.1: a weight of 0 means not acceptable."""
    assert accepts(accept, EVENTS) is taken


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        ("text/html, */*;q=0.8", True),
        ("text/html;q=0.1", True),
        ("text/html;q=0, */*", False),
        ("text/html;q=0.0, application/json", False),
        (f"text/html, {EVENTS}", False),
        (f"text/html, {EVENTS};q=0", True),
    ],
)
def test_who_names_html_with_a_weight_of_0_is_no_browser(accept: str, page: bool) -> None:
    assert wants_page(accept) is page


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("/mcp?x=http://a/b", (None, "/mcp?x=http://a/b")),
        ("//evil.example/mcp", (None, "//evil.example/mcp")),
        ("*", (None, "*")),
        ("a.example:443", (None, "a.example:443")),
        ("http://a.example", ("a.example", "/")),
        ("HTTP://user@a.example:8000/mcp?x=y", ("user@a.example:8000", "/mcp?x=y")),
        ("http://[::1]:80?x", ("[::1]:80", "?x")),
        ("http:///mcp", ("", "/mcp")),
    ],
)
def test_only_a_target_in_absolute_form_has_an_authority(target: str, parts: tuple[str | None, str]) -> None:
    assert split_target(target) == parts


@pytest.mark.parametrize(
    ("codings", "unknown"),
    [
        ("", None),
        ("chunked", None),
        (" , CHUNKED ,", None),
        ("gzip", "gzip"),
        ("GZIP, chunked", "gzip"),
        ("br, gzip, chunked", "br"),
        ("identity", "identity"),
        ("chunked, chunked", None),
        ("chunked, gzip", None),
    ],
)
def test_a_coding_that_is_not_chunked_is_unknown(codings: str, unknown: str | None) -> None:
    assert unknown_coding(codings) == unknown
