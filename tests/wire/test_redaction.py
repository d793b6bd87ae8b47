"""What is hidden before a person or a file gets to see it, and what is not."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkspan.wire.redaction import _WELL_KNOWN, Redactor, is_secret_field, is_secret_name, redact, redact_json

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
        ("github_pat_11ABCDEFG_x", "[redacted]"),
        ("pwd=hunter2 DB_PASS=hunter2 DB_PWD: 'hunter2'", "pwd=[redacted] DB_PASS=[redacted] DB_PWD: '[redacted]'"),
        ("user=me pass=hunter2;x=1", "user=me pass=[redacted];x=1"),
        ("--db-pass hunter2 --pwd hunter2 --jwt abc", "--db-pass [redacted] --pwd [redacted] --jwt [redacted]"),
        (
            "jwt: abc.def, session_id=1234, sessionId: 'abc'",
            "jwt: [redacted], session_id=[redacted], sessionId: '[redacted]'",
        ),
        (
            '{"pass": "hunter2", "user_jwt": "abc", "sessid": "x"}',
            '{"pass": "[redacted]", "user_jwt": "[redacted]", "sessid": "[redacted]"}',
        ),
        ("Mcp-Session-Id: 0123", "Mcp-Session-Id: [redacted]"),
        ("GET /callback?code=abc&state=xyz HTTP/1.1", "GET /callback?code=[redacted]&state=xyz HTTP/1.1"),
        (
            "code_verifier=abc&client_assertion=abc&device_code=abc&refresh_token=abc",
            "code_verifier=[redacted]&client_assertion=[redacted]&device_code=[redacted]&refresh_token=[redacted]",
        ),
        ("sent DPoP abc.def123", "sent DPoP [redacted]"),
        ('{"authorization": "DPoP abc"}', '{"authorization": "[redacted]"}'),
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
        "pass: 12, fail: 0, bypass=1, compass: north, passed: 3",
        "PWD=/home/me OLDPWD=/tmp",
        "jwt_algorithm: RS256, sessions: 4",
        "status_code=200, exit-code: 1, AssertionError: a == b, assertion: failed",
        "the DPoP proof, a code=7",
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


@pytest.mark.parametrize("prefix", _WELL_KNOWN)
def test_every_token_with_a_known_prefix_is_hidden(prefix: str) -> None:
    rest = {"xox": "b-0123456789", "eyJ": "hbGciOiJ.eyJzdWIi.c2ln"}.get(prefix, "0123456789ABCDEFGHIJ")
    assert redact(prefix + rest) == "[redacted]"


@pytest.mark.parametrize(
    "name", ["pwd", "DB_PASS", "jwt", "session_id", "sessionId", "pass", "user-pass", "API_TOKEN", "MYSQL_PWD"]
)
def test_a_member_with_a_secret_name_is_hidden(name: str) -> None:
    assert is_secret_name(name)
    assert redact_json({name: "x", "a": [{name: 1}]}) == {name: "[redacted]", "a": [{name: "[redacted]"}]}
    assert redact(f"{name}=x") == f"{name}=[redacted]"


@pytest.mark.parametrize("name", ["PWD", "OLDPWD", "compass", "progressToken", "sessions", "keys"])
def test_a_member_with_another_name_is_shown(name: str) -> None:
    assert not is_secret_name(name)


PIN_FORM = {
    "type": "object",
    "properties": {"code": {"type": "string", "title": "Your PIN"}, "city": {"type": "string"}},
}
ANSWER = {"action": "accept", "content": {"code": "981234", "city": "Rome"}}
HIDDEN_ANSWER = {"action": "accept", "content": {"code": "[redacted]", "city": "Rome"}}


def test_the_answer_to_a_secret_field_is_hidden_and_wherever_it_comes_back() -> None:
    redactor = Redactor()
    asked = {"id": 1, "method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": PIN_FORM}}
    assert redactor.message(asked) == asked
    assert redactor.message({"id": 1, "result": ANSWER}) == {"id": 1, "result": HIDDEN_ANSWER}
    said = {"id": 2, "result": {"content": [{"type": "text", "text": "Your PIN is 981234."}]}}
    assert redactor.message(said) == {
        "id": 2,
        "result": {"content": [{"type": "text", "text": "Your PIN is [redacted]."}]},
    }
    assert redactor.text("PIN 981234") == "PIN [redacted]"
    assert Redactor(on=False).message({"result": ANSWER}) == {"result": ANSWER}


def test_the_answer_to_a_secret_field_of_a_round_trip_is_hidden_and_its_state() -> None:
    redactor = Redactor()
    wanted = {"method": "elicitation/create", "params": {"mode": "form", "requestedSchema": PIN_FORM}}
    first = {"id": 1, "result": {"resultType": "input_required", "inputRequests": {"a": wanted}, "requestState": "s1"}}
    assert redactor.message(first) == first
    second = {"id": 2, "params": {"inputResponses": {"a": ANSWER}, "requestState": "s1"}}
    assert redactor.message([second]) == [
        {"id": 2, "params": {"inputResponses": {"a": HIDDEN_ANSWER}, "requestState": "[redacted]"}}
    ]
    third = {"id": 2, "result": {"resultType": "input_required", "requestState": "OTgxMjM0"}}
    assert redactor.message(third) == {
        "id": 2,
        "result": {"resultType": "input_required", "requestState": "[redacted]"},
    }


@pytest.mark.parametrize(
    ("name", "schema", "secret"),
    [
        ("a", {"format": "password"}, True),
        ("a", {"writeOnly": True}, True),
        ("a", {"title": "API key"}, True),
        ("a", {"description": "The password of the database."}, True),
        ("pin", {}, True),
        ("access_token", {}, True),
        ("spin", {"title": "Tokens at most"}, False),
        ("city", {"description": "Where?"}, False),
    ],
)
def test_which_fields_of_a_form_are_secret(name: str, schema: dict[str, Any], secret: bool) -> None:
    assert is_secret_field(name, schema) == secret


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
