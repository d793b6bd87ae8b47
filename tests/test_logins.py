"""The pages about logins that programs of bench/logins carry out and write."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLES = re.findall(
    r"^\| \| (Linkspan \|.*)\n\|[-|]+\n((?:\|.*\n)+)", (ROOT / "docs" / "logins.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize(
    ("resource_indicators", "audience"), [(False, "included.custom.audience"), (True, "included.client.audience")]
)
def test_the_page_on_keycloak_has_the_steps_that_the_program_carries_out(
    monkeypatch: pytest.MonkeyPatch, resource_indicators: bool, audience: str
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench" / "logins")
    keycloak = import_module("keycloak")
    commands = keycloak.for_the_realm(1234, "http://127.0.0.1:5678/mcp", resource_indicators=resource_indicators)
    assert commands.startswith("kcadm.sh config credentials --server http://127.0.0.1:1234 ")
    assert [each for each in ("included.custom.audience", "included.client.audience") if each in commands] == [audience]
    assert "http://127.0.0.1:5678/mcp" in commands
    assert "trusted-hosts" in commands
    found = keycloak.blocks(1234, "http://127.0.0.1:5678/mcp")
    steps = [[language for language, _ in each] for name, each in found.items() if name.startswith("Step ")]
    assert steps == [["bash"], ["bash"], ["python", "bash"], ["bash"], ["bash"]]


def test_our_client_logs_in_wherever_another_one_does() -> None:
    assert len(TABLES) == 10
    for _, rows in TABLES:
        for row in rows.splitlines():
            what, ours, *others = (cell.strip() for cell in row.strip("|").split("|"))
            assert ours == "yes" or "yes" not in others, (what, ours, others)
