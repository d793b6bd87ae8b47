"""`linkspan init`: every kind of project runs as it is written."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from shell import Shell

FILES = ["server.py", "test_server.py", "pyproject.toml", "README.md"]


@pytest.mark.parametrize(
    ("option", "dependency", "tests"),
    [(None, "linkspan", 5), ("--http", "linkspan[http]", 6), ("--auth", "linkspan[auth,http]", 6)],
)
def test_the_tests_of_a_new_project_pass(
    linkspan: Shell, tmp_path: Path, option: str | None, dependency: str, tests: int
) -> None:
    folder = tmp_path / "Über Ferries"
    done = linkspan("init", str(folder), *([option] if option else []))
    assert (done.status, sorted(each.name for each in folder.iterdir())) == (0, sorted(FILES))
    assert f"cd '{folder}' && " in done.out
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # those of this environment only cost time
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert f"{tests} passed" in ran.stdout, ran.stdout + ran.stderr
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["dependencies"][0].partition(">")[0]) == ("ber-ferries", dependency)
    assert "{" not in (folder / "README.md").read_text()
    listed = linkspan("list", str(folder / "server.py"), "--json")  # a path with a space is no command
    assert [each["name"] for each in listed.json["tools"]] == ["count_words"]


def test_a_new_project_can_be_installed(linkspan: Shell, tmp_path: Path) -> None:
    pytest.importorskip("pip", reason="needs pip to build a wheel")
    pytest.importorskip("hatchling", reason="needs hatchling to build a wheel")
    linkspan("init", str(tmp_path / "ferries"))
    wheel = ["wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", *wheel, str(tmp_path / "ferries")], check=True, timeout=60)
    (built,) = tmp_path.glob("ferries-0.1.0-*.whl")
    assert "server.py" in zipfile.ZipFile(built).namelist()


def test_nothing_is_overwritten(linkspan: Shell, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("mine")
    done = linkspan("init", str(tmp_path))
    assert (done.status, [each.name for each in tmp_path.iterdir()]) == (2, ["server.py"])
    assert "has server.py already, and nothing is overwritten" in done.err
    assert (tmp_path / "server.py").read_text() == "mine"
    assert linkspan("init", str(tmp_path), "--json").json["error"]["type"] == "WrongUse"
    assert linkspan("init", str(tmp_path / "server.py" / "x")).status == 2


def test_as_json_the_files_are_named(linkspan: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "linkspan"
    here.mkdir()
    monkeypatch.chdir(here)
    done = linkspan("init", "--json")
    assert (done.status, done.json) == (0, {"directory": str(here), "files": FILES})
    assert tomllib.loads((here / "pyproject.toml").read_text())["project"]["name"] == "my-server"
