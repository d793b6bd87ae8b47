"""The script that runs the conformance suite, without the suite: what it reads, and when it says that all is well."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from linkspan import SyncClient

FILE = Path(__file__).parents[2] / "conformance" / "run"
LISTING = """\
Required for 2026-07-28 (69 scenarios, frozen; run at the 2026-07-28 wire):

Server scenarios (test against a server):
  - server-stateless
  - tools-list

Client scenarios (test against a client):
  - tools_call
  - auth/metadata-default

Run and reported, but never scored:
  extension (2):
    - auth/dpop [client]
    - tasks-lifecycle [server]
  pending (1):
    - json-schema-2020-12 [server]
"""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = SourceFileLoader("conformance_run", str(FILE))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loader.name, module)
    loader.exec_module(module)
    return module


def write(folder: Path, name: str, *statuses: str) -> None:
    place = folder / f"{name}-2026-11-21T10-00-00-000Z"
    place.mkdir(parents=True)
    checks = [{"id": f"check-{number}", "status": status} for number, status in enumerate(statuses)]
    (place / "checks.json").write_text(json.dumps(checks))


@pytest.mark.parametrize(
    ("side", "scored", "beside"),
    [
        ("server", ["server-stateless", "tools-list"], ["tasks-lifecycle", "json-schema-2020-12"]),
        ("client", ["tools_call", "auth/metadata-default"], ["auth/dpop"]),
    ],
)
def test_what_is_required_is_read_from_the_suite(run: Any, side: str, scored: list[str], beside: list[str]) -> None:
    found = run.parse_requirements(LISTING, side)
    assert (found.scored, found.beside) == (scored, beside)


def test_a_scenario_passes_if_something_succeeded_and_nothing_failed(run: Any, tmp_path: Path) -> None:
    write(tmp_path, "server-good", "SUCCESS", "INFO", "WARNING")
    write(tmp_path, "server-server-stateless", "SUCCESS")
    write(tmp_path, "server-bad", "SUCCESS", "FAILURE")
    write(tmp_path, "server-skipped", "SKIPPED", "WARNING")
    names = ["good", "server-stateless", "bad", "skipped", "thrown"]
    verdicts = {each.name: each.passed for each in run.read_verdicts(tmp_path, "server", names)}
    assert verdicts == {"good": True, "server-stateless": True, "bad": False, "skipped": False, "thrown": False}


def test_names_of_client_scenarios_may_hold_slashes(run: Any, tmp_path: Path) -> None:
    write(tmp_path, "auth/basic-cimd", "SUCCESS")
    assert [each.passed for each in run.read_verdicts(tmp_path, "client", ["auth/basic-cimd"])] == [True]


def test_only_what_is_scored_decides(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    good = run.Verdict("good", [{"id": "a", "status": "SUCCESS"}])
    bad = run.Verdict("bad", [{"id": "b", "status": "FAILURE", "errorMessage": "not\n so"}])
    assert run.tell("server", [good], [bad], verbose=False)
    assert capsys.readouterr().out == "server: 1/1 scenarios, 1 checks passed; not scored: 0/1\n"
    assert not run.tell("server", [good, bad, run.Verdict("gone", None)], [], verbose=False)
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "server: 1/3 scenarios, 1 checks passed",
        "  FAILED bad",
        "    FAILURE b: not so",
        "  FAILED gone: no result",
    ]


def test_the_exit_status_tells_failures_from_a_suite_that_cannot_run(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["run", "server"])
    monkeypatch.setattr(run, "run", lambda given: True)
    assert run.main() == 0
    monkeypatch.setattr(run, "run", lambda given: False)
    assert run.main() == 1

    def fail(given: argparse.Namespace) -> bool:
        raise run.Unable("npm is missing")

    monkeypatch.setattr(run, "run", fail)
    assert run.main() == 2
    assert capsys.readouterr().err == "conformance: npm is missing\n"


def test_a_machine_without_npm_is_told_so(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(run.Unable, match="npm is missing"):
        run.install()


NPM = """#!/bin/sh
echo began >> "$FAKE_NPM/log"
if [ -e "$FAKE_NPM/problem" ]; then cat "$FAKE_NPM/problem" >&2; exit 1; fi
mkdir -p node_modules/it
sleep 0.5
echo whole > node_modules/it/file
"""
WANT = "import npm, sys; from pathlib import Path; print(npm.package(Path(sys.argv[1]), 'it', 'it/file').read_text())"


@pytest.fixture
def fake_npm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put an npm on the PATH that fails with the text of `problem`, if that exists, and keeps a log."""
    program = tmp_path / "npm"
    program.write_text(NPM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_NPM", str(tmp_path))
    return tmp_path


def test_processes_that_want_a_package_together_install_it_once_and_find_all_of_it(fake_npm: Path) -> None:
    command = [sys.executable, "-c", WANT, str(fake_npm / "cache" / "it")]
    piped: Any = {"cwd": FILE.parent, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **piped) for _ in range(4)]
    assert [each.communicate(timeout=60)[0] for each in running] == ["whole\n\n"] * 4
    assert (fake_npm / "log").read_text() == "began\n"


@pytest.mark.parametrize(
    ("problem", "unreachable", "attempts"),
    [("npm error code ECONNRESET", True, 3), ("npm error code EUSAGE", False, 1)],
    ids=["the network is tried again", "anything else is not"],
)
def test_what_npm_says_decides_whether_it_is_tried_again(
    run: Any, fake_npm: Path, problem: str, unreachable: bool, attempts: int
) -> None:
    (fake_npm / "problem").write_text(problem)
    with pytest.raises(run.Unable, match=problem) as caught:
        run.npm.package(fake_npm / "cache" / "it", "it", "it/file")
    assert isinstance(caught.value, run.npm.Unreachable) == unreachable
    assert (fake_npm / "log").read_text() == "began\n" * attempts
    assert sorted(each.name for each in (fake_npm / "cache").iterdir()) == ["it.lock"]


def test_a_server_that_ends_at_once_is_told_with_its_last_words(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "server.py").write_text("raise SystemExit('no such port')")
    monkeypatch.setattr(run, "HERE", tmp_path)
    with pytest.raises(run.Unable, match="no such port"), run.serving(tmp_path):
        pass


def test_a_server_is_reached_and_ended(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(
        "import socket, sys, time\n"
        "listening = socket.create_server(('127.0.0.1', int(sys.argv[-1])))\n"
        "print('listening', flush=True)\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setattr(run, "HERE", tmp_path)
    with run.serving(tmp_path) as url:
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/mcp")
    assert (tmp_path / "server.log").read_text() == "listening\n"


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_our_own_server_is_reached_over_http_even_when_it_lets_go(run: Any, tmp_path: Path, era: Any) -> None:
    with run.serving(tmp_path) as url, SyncClient(url, era=era) as client:
        assert client.call_tool("test_simple_text").text == "This is a simple text response for testing."
        assert client.call_tool("test_reconnection").text == "Reconnection test completed successfully"


def test_our_own_client_is_served_through_mounts(run: Any, tmp_path: Path) -> None:
    with run.serving(tmp_path, mounts=3) as url, SyncClient(url) as client:
        assert client.call_tool("test_simple_text").text == "This is a simple text response for testing."


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_our_own_client_is_served_by_several_processes_without_affinity(run: Any, tmp_path: Path, era: Any) -> None:
    def answer(_: Any) -> dict[str, Any]:
        return {"username": "mia", "email": "mia@example.com"}

    with run.serving(tmp_path, 3) as url, SyncClient(url, era=era, elicitation=answer) as client:
        assert client.call_tool("test_simple_text").text == "This is a simple text response for testing."
        assert client.call_tool("test_reconnection").text == "Reconnection test completed successfully"
        assert "mia" in client.call_tool("test_elicitation", {"message": "Well?"}).text
