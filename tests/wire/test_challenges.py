"""The WWW-Authenticate header in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkspan.wire.challenges import LONGEST_CHALLENGES, Challenge, read_challenges, read_scopes, write_challenge


def _bearer(**parameters: str) -> Challenge:
    return Challenge("bearer", parameters)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", []),
        ("Bearer", [_bearer()]),
        (
            'Bearer scope="a b", resource_metadata="https://h/x"',
            [_bearer(scope="a b", resource_metadata="https://h/x")],
        ),
        ('BEARER Scope="a"', [_bearer(scope="a")]),
        ("Bearer error=invalid_token", [_bearer(error="invalid_token")]),
        ('Bearer realm = "x" , error = "y"', [_bearer(realm="x", error="y")]),
        ("Bearer resource_metadata=https://h/x?a=b", [_bearer(resource_metadata="https://h/x?a=b")]),
        (r'Bearer realm="say \"hi\", \\ now"', [_bearer(realm=r'say "hi", \ now')]),
        ('Basic realm="x", Bearer error="y"', [Challenge("basic", {"realm": "x"}), _bearer(error="y")]),
        ("Basic, Bearer", [Challenge("basic", {}), _bearer()]),
        ("Negotiate YII+/==, Bearer a=b", [Challenge("negotiate", {}, "YII+/=="), _bearer(a="b")]),
        (
            'Basic realm="Bearer scope=fake, x", Bearer scope="s"',
            [Challenge("basic", {"realm": "Bearer scope=fake, x"}), _bearer(scope="s")],
        ),
        (
            'DPoP algs="ES256", error="use_dpop_nonce"',
            [Challenge("dpop", {"algs": "ES256", "error": "use_dpop_nonce"})],
        ),
        ('Bearer scope="a", scope="b"', [_bearer(scope="a")]),
        ('Bearer realm="x" error="y"', [_bearer(realm="x", error="y")]),
        (",, Bearer ,a=b,,", [_bearer(a="b")]),
        ('Bearer a=,, b="c"', [Challenge("bearer", {"b": "c"}, "a=")]),
        ('Bearer a="never closed, b="c"', [_bearer()]),
        ('@@ "x,y", Bearer a=b', [_bearer(a="b")]),
    ],
)
def test_challenges_are_read_in_every_form(header: str, expected: list[Challenge]) -> None:
    """AU-C1."""
    assert read_challenges(header) == expected


@given(st.text(max_size=200))
def test_no_header_breaks_the_reader(header: str) -> None:
    read_challenges(header)


def test_a_header_is_read_up_to_a_bound_and_no_value_is_cut() -> None:
    first, last = 'Bearer scope="a, b"', ', resource_metadata="https://h/x"'
    fits = f"{first}, realm={'x' * (LONGEST_CHALLENGES - len(f'{first}, realm={last}'))}{last}"
    assert len(fits) == LONGEST_CHALLENGES
    (whole,) = read_challenges(fits)
    assert (whole.parameters["scope"], whole.parameters["resource_metadata"]) == ("a, b", "https://h/x")
    (cut,) = read_challenges(fits.replace("x", "xx", 1))
    assert cut.parameters.keys() == {"scope", "realm"}
    assert read_challenges(f'Bearer scope="a", realm="{"," * LONGEST_CHALLENGES}"') == [_bearer(scope="a")]


def test_nothing_is_read_behind_a_quoted_string_that_is_not_closed() -> None:
    assert read_challenges(r'Bearer scope="a", realm="\", Basic realm="x"') == [_bearer(scope="a")]


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(st.characters(min_codepoint=32, max_codepoint=126))
    )
)
def test_what_is_written_is_read_back(parameters: dict[str, str]) -> None:
    assert read_challenges(write_challenge("Bearer", parameters)) == [Challenge("bearer", parameters)]


def test_a_value_cannot_begin_another_header() -> None:
    assert write_challenge("Bearer", {"error_description": "a\r\nSet-Cookie: é", "scope": None}) == (
        'Bearer error_description="a??Set-Cookie: ?"'
    )


def test_scopes_are_parted_by_the_space_and_by_no_other_blank() -> None:
    assert read_scopes("") == read_scopes("  ") == []
    assert read_scopes(" files:read  files:write ") == ["files:read", "files:write"]
    assert read_scopes("a\tb c\u00a0d e\u2003f g\nh") == ["a\tb", "c\u00a0d", "e\u2003f", "g\nh"]
