"""The script that runs the conformance suite, without the suite: what it reads, and when it says that all is well."""

from __future__ import annotations

import argparse
import json
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
        "listening = socket.create_server(('127.0.0.1', int(sys.argv[2])))\n"
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


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_our_own_client_is_served_by_several_processes_without_affinity(run: Any, tmp_path: Path, era: Any) -> None:
    def answer(_: Any) -> dict[str, Any]:
        return {"username": "mia", "email": "mia@example.com"}

    with run.serving(tmp_path, 3) as url, SyncClient(url, era=era, elicitation=answer) as client:
        assert client.call_tool("test_simple_text").text == "This is a simple text response for testing."
        assert client.call_tool("test_reconnection").text == "Reconnection test completed successfully"
        assert "mia" in client.call_tool("test_elicitation", {"message": "Well?"}).text
