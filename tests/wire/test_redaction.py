"""What is hidden before a person or a file gets to see it, and what is not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkspan.wire.redaction import redact, redact_json

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("api_key=abc123", "api_key=[redacted]"),
        ("OPENAI_API_KEY: 'abc'", "OPENAI_API_KEY: '[redacted]'"),
        ("api key: xyz", "api key: [redacted]"),
        ('{"password": "hun\\"ter2", "x": 1}', '{"password": "[redacted]", "x": 1}'),
        (r"{\"password\": \"hun\\\"ter2\", \"x\": 1}", r"{\"password\": \"[redacted]\", \"x\": 1}"),
        ('{"clientSecret":"abc","passwd":"cut o', '{"clientSecret":"[redacted]","passwd":"[redacted]'),
        ("{'Authorization': 'Bearer abc'}", "{'Authorization': '[redacted]'}"),
        ("Authorization: Digest abc def\nHost: here", "Authorization: [redacted]\nHost: here"),
        ('curl -H "Authorization: Bearer abc" url', 'curl -H "Authorization: [redacted]" url'),
        ("Set-Cookie: a=b; c=d", "Set-Cookie: [redacted]"),
        ("url?token=abc&page=1", "url?token=[redacted]&page=1"),
        ("serve --token abcdef --verbose", "serve --token [redacted] --verbose"),
        ("sent Bearer abc.def123", "sent Bearer [redacted]"),
        ("sent Basic dXNlcjpwYXNz", "sent Basic [redacted]"),
        ("postgres://me:p@ss:w@host/db", "postgres://me:[redacted]@host/db"),
        ("key sk-proj-abc123def.", "key [redacted]."),
        ("ghp_abcdefgh12 gho_abcdefgh12 github_pat_11ABCDEFG_x", "[redacted] [redacted] [redacted]"),
        ("xoxb-1234-5678abc AKIAABCDEFGHIJKLMNOP", "[redacted] [redacted]"),
        ("AIzaSyA1234567890abcdefghij", "[redacted]"),
        (f"jwt\\n{JWT}!", "jwt\\n[redacted]!"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nabc-d\n-----END RSA PRIVATE KEY----- b", "a [redacted] b"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE cut off", "[redacted]"),
    ],
)
def test_what_looks_secret_is_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "maxTokens: 100, tokens=5",
        '"progressToken": "abc", "nextCursor": "eyJhIjoxfQ=="',
        "Bearer token required, Basic authentication too",
        "token: The token to use",
        "the secret of the cookie",
        "token_endpoint: https://host:8080/a@b",
        '"password": null, "required": true',
        "task-management-is-sk-learning",
    ],
)
def test_what_only_sounds_secret_is_shown(text: str) -> None:
    assert redact(text) == text


def test_given_secrets_are_hidden_wherever_they_stand() -> None:
    assert redact("open sesame and sesame", ["sesame"]) == "open [redacted] and [redacted]"
    assert redact('{"a": "x\\"yzzy\\n1"}', ['x"yzzy\n1']) == '{"a": "[redacted]"}'
    assert redact("short", ["short"]) == "short", "a secret of five letters would be found in innocent words"


def test_json_keeps_its_protocol_and_its_schemas() -> None:
    message = {
        "jsonrpc": "2.0",
        "id": "token=abc",
        "method": "tools/call",
        "params": {
            "_meta": {"progressToken": "sk-abcdef123456"},
            "cursor": JWT,
            "arguments": {"password": "x", "PIN_SECRET": 1234, "tokens": ["a"], "note": f"use {JWT}"},
            "schema": {"properties": {"password": {"type": "string"}}},
            "headers": [{"name": "Authorization", "value": "abc"}],
        },
    }
    params = message["params"]
    assert isinstance(params, dict)
    assert redact_json(message) == {
        **message,
        "params": {
            **params,
            "arguments": {
                "password": "[redacted]",
                "PIN_SECRET": "[redacted]",
                "tokens": ["a"],
                "note": "use [redacted]",
            },
            "headers": [{"name": "Authorization", "value": "[redacted]"}],
        },
    }


SENTENCE = "a the answer to each question was found in seven small rooms of Rome today"
WORDS = st.lists(st.sampled_from(sorted(set(SENTENCE.split(" ")))))
PIECES = st.sampled_from(
    ['token"', ": ", "=", '"', "\\", "'", "password", "eyJ", ".", "://", "@", ":", "-----BEGIN PRIVATE KEY-----", "\n"]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("token"), inner),
)


@given(WORDS)
def test_ordinary_words_are_shown(words: list[str]) -> None:
    assert redact(" ".join(words)) == " ".join(words)


@given(st.text() | st.lists(PIECES).map("".join), st.lists(st.text()))
def test_redaction_never_raises(text: str, secrets: list[str]) -> None:
    shown = redact(text, secrets)
    assert not any(secret in shown.replace("[redacted]", "") for secret in secrets if len(secret) >= 12)


@given(JSON_VALUES)
def test_redaction_of_json_never_raises_and_keeps_the_shape(value: object) -> None:
    assert type(redact_json(value)) is type(value)


def test_redaction_takes_linear_time() -> None:
    """A quadratic pattern would take minutes for any of these."""
    started = time.perf_counter()
    for piece in (
        "token",
        "://",
        "eyJ",
        "eyJaaaa.",
        "-----BEGIN PRIVATE KEY-----",
        'token"   ',
        "sk-",
        'password:\\"',
        "--a",
    ):
        redact(piece * (400_000 // len(piece)))
    assert time.perf_counter() - started < 20
