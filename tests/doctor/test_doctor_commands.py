"""A server that is a command: each fault is named by its id and by no other."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import pytest

from linkspan.doctor import command as module
from linkspan.doctor.command import Seen, command, judged, run
from linkspan.doctor.profiles import DoctorProfile
from linkspan.doctor.verdicts import Verdict

HOST = DoctorProfile("A host", date(2026, 11, 24), "here", ("command",), path="small", first_answer=10)
HOSTS = {"a-host": HOST}
ANSWER = """
import json, sys
line = sys.stdin.readline()
result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": result}), flush=True)
"""


def wrong(found: list[Verdict]) -> list[str]:
    return sorted({each.id for each in found if each.level in ("fault", "warning")})


COMMANDS = [
    ("", ANSWER + "sys.stdin.read()"),
    ("D28", "print('Starting the server', flush=True)\n" + ANSWER),
    ("D30", ANSWER + "import time; time.sleep(60)"),
    ("D31", ANSWER + "\nwhile True: pass"),
    ("D33", "import os; os.environ['FERRIES_API_KEY']"),
    ("D33", "import sys; sys.exit('FERRIES_API_KEY is not set')"),
    ("D34", "import no_such_module_of_ferries"),
    ("D34", "import sys; sys.exit('what now?')"),
    (
        "D35",
        "import sys, time; print('INFO: Uvicorn running on http://127.0.0.1:8000', file=sys.stderr); time.sleep(60)",
    ),
    ("D29", "import time; time.sleep(60)"),
]


@pytest.mark.parametrize(("id", "code"), COMMANDS)
def test_each_fault_is_named_alone(monkeypatch: pytest.MonkeyPatch, id: str, code: str) -> None:
    monkeypatch.setattr(module, "_END", 0.3)
    if id in ("D29", "D35"):
        monkeypatch.setattr(module, "_LONGEST_WAIT", 0.7)
    host = {
        "a-host": DoctorProfile(
            "A host", date(2026, 11, 24), "here", ("command",), first_answer=0.5 if id == "D29" else 10
        )
    }
    found = [each for each in command([sys.executable, "-c", code], host, {}) if each.id != "D29" or id == "D29"]
    assert wrong(found) == ([id] if id else [])


def test_two_faults_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_END", 0.3)
    code = "print('Starting', flush=True)\n" + ANSWER + "import time; time.sleep(60)"
    found = [each for each in command([sys.executable, "-c", code], HOSTS, {}) if each.id != "D29"]
    assert wrong(found) == ["D28", "D30"]


def test_a_command_that_is_nowhere_or_on_the_path_of_a_shell_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong([*command(["no-such-command-of-ferries"], HOSTS, {})]) == ["D26"]
    tool = tmp_path / "ferries-mcp"
    tool.write_text(f"#!{sys.executable}\n{ANSWER}")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = [each for each in command(["ferries-mcp"], HOSTS, {}) if each.id != "D29"]
    assert wrong(found) == ["D26"]
    assert next(each.cure for each in found if each.id == "D26") == f"write {tool}"


@pytest.mark.parametrize(("seconds", "level"), [(0.2, "ok"), (3.0, "warning"), (11.0, "fault")])
def test_a_late_first_answer_hurts_the_hosts_that_do_not_wait(seconds: float, level: str) -> None:
    found = {each.id: each for each in judged(Seen([], "", seconds, None, 0.1, 0.0), HOSTS)}
    assert found["D29"].level == level


def test_a_server_gets_no_variable_of_the_shell_and_starts_in_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SHELL", "x")
    code = (
        "import os, sys; sys.exit(f\"{'SECRET_OF_THE_SHELL' in os.environ} {os.environ.get('GIVEN')} {os.getcwd()}\")"
    )
    seen = run([sys.executable, "-c", code], {"GIVEN": "1"})
    assert seen.stderr == "False 1 /\n"
