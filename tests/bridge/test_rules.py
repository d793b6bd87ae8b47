"""The rules of a bridge: which come first, and what a file may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkspan.bridge.rules import Rules, WrongRules, read_rules

FILE = """
deny = ["git/push"]
ask = ["files/write_*"]
otherwise = "deny"

[principals.alice]
key = "00"
allow = ["git/*", "files/write_log"]
tokens = { git = "GIT_TOKEN_OF_ALICE" }

[scopes."files:write"]
allow = ["files/*"]
"""


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    path = tmp_path / "policy.toml"
    path.write_text(FILE)
    return read_rules(path, allow=["time"])


@pytest.mark.parametrize(
    ("principal", "scopes", "server", "tool", "decision"),
    [
        ("alice", (), "git", "push", "deny"),  # nothing allows what is denied
        ("alice", (), "git", "log", "allow"),
        ("bob", (), "git", "log", "deny"),
        ("alice", (), "files", "write_log", "allow"),  # her own rules come first
        ("alice", (), "files", "write_all", "ask"),
        ("bob", ("files:write",), "files", "write_all", "allow"),
        (None, (), "time", "now", "allow"),
        (None, (), "other", "tool", "deny"),
    ],
)
def test_the_nearest_rule_decides(
    rules: Rules, principal: str | None, scopes: tuple[str, ...], server: str, tool: str, decision: str
) -> None:
    assert rules.decide(principal, frozenset(scopes), server, tool) == decision


def test_a_principal_has_the_token_that_the_environment_holds(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TOKEN_OF_ALICE", "secret")
    assert rules.token("alice", "git") == "secret"
    assert rules.token("bob", "git") is None
    assert rules.token("alice", "files") is None
    assert rules.with_tokens("git")
    assert not rules.with_tokens("files")


def test_without_rules_everything_is_allowed() -> None:
    assert read_rules(None).decide(None, frozenset(), "any", "tool") == "allow"
    assert not read_rules(None).are_there


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("deny = 'git/push'", "Expected `array`"),
        ("[principals.alice]\nalow = []", "unknown field `alow`"),
        ("otherwise = 'maybe'", "Invalid enum value 'maybe'"),
        ("deny = [", "policy.toml"),
    ],
)
def test_a_file_with_a_mistake_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(WrongRules, match=words):
        read_rules(path)


def test_the_gateway_of_the_page_does_what_the_page_describes(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0]
    assert len([line for line in text.splitlines() if line.strip()]) <= 20
    path = tmp_path / "gateway.toml"
    path.write_text(text)
    rules = read_rules(path)
    wanted = {
        "git/push": "deny deny",
        "git/log": "allow deny",
        "files/read_text": "allow allow",
        "files/write": "allow deny",
    }
    wanted["files/write_file"] = "allow ask"
    for name, decisions in wanted.items():
        server, _, tool = name.partition("/")
        assert " ".join(rules.decide(each, frozenset(), server, tool) for each in ("alice", "bob")) == decisions
    assert {name for name, _ in rules.keys.values()} == {"alice", "bob"}
