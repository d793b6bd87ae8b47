"""`linkspan init`: every kind of project runs as it is written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from shell import Shell

from linkspan._version import __version__

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
        [sys.executable, "-m", "pytest", "-q"], cwd=folder, env=environment, capture_output=True, text=True, timeout=100
    )
    assert f"{tests} passed" in ran.stdout, ran.stdout + ran.stderr
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert (project["name"], re.split(" @ |>", project["dependencies"][0])[0]) == ("ber-ferries", dependency)
    assert "{" not in (folder / "README.md").read_text()
    listed = linkspan("list", str(folder / "server.py"), "--json")  # a path with a space is no command
    assert [each["name"] for each in listed.json["tools"]] == ["count_words"]


def test_the_doctor_finds_nothing_in_a_new_project(linkspan: Shell, tmp_path: Path) -> None:
    linkspan("init", str(tmp_path))
    done = linkspan("doctor", str(tmp_path / "server.py"))
    assert "0 faults, 0 warnings" in done.out, done.out


def test_a_new_project_can_be_installed(linkspan: Shell, tmp_path: Path) -> None:
    pytest.importorskip("pip", reason="needs pip to build a wheel")
    pytest.importorskip("hatchling", reason="needs hatchling to build a wheel")
    linkspan("init", str(tmp_path / "ferries"))
    wheel = ["wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", *wheel, str(tmp_path / "ferries")], check=True, timeout=100)
    (built,) = tmp_path.glob("ferries-0.1.0-*.whl")
    assert "server.py" in zipfile.ZipFile(built).namelist()


CLONE = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("record", "dependency"),
    [
        ({"url": CLONE.as_uri(), "dir_info": {"editable": True}}, f"linkspan @ {CLONE.as_uri()}"),
        (
            {"url": "https://example.com/linkspan.git", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}},
            "linkspan @ git+https://example.com/linkspan.git@0a1b",
        ),
        (
            {"url": "https://example.com/all.zip", "subdirectory": "sdk", "archive_info": {}},
            "linkspan @ https://example.com/all.zip#subdirectory=sdk",
        ),
        ({"url": "file:///nowhere/linkspan-0.1.0-py3-none-any.whl", "archive_info": {}}, f"linkspan>={__version__}"),
        (None, f"linkspan>={__version__}"),
    ],
    ids=["clone", "git", "archive", "wheel that is gone", "index"],
)
def test_a_new_project_needs_linkspan_from_where_it_was_installed(
    linkspan: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: object, dependency: str
) -> None:
    class Installed:
        def __init__(self, name: str) -> None:
            assert name == "linkspan"

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return json.dumps(record) if record is not None else None

    monkeypatch.setattr("linkspan.cli.init.distribution", Installed)
    linkspan("init", str(tmp_path))
    found = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert found["project"]["dependencies"] == [dependency]
    assert ("metadata" in found["tool"]["hatch"]) == ("@" in dependency)


def test_from_a_clone_that_is_not_installed_the_clone_is_needed(
    linkspan: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("linkspan.cli.init.distribution", missing)
    linkspan("init", "--auth", str(tmp_path))
    found = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert found["project"]["dependencies"] == [f"linkspan[auth,http] @ {CLONE.as_uri()}"]


@pytest.mark.skipif("LINKSPAN_INSTALL" not in os.environ, reason="loads packages: LINKSPAN_INSTALL=pip or uv runs it")
@pytest.mark.parametrize("option", [(), ("--http",), ("--auth",)])
@pytest.mark.timeout(600)
def test_the_readme_of_a_new_project_holds(linkspan: Shell, tmp_path: Path, option: tuple[str, ...]) -> None:
    linkspan("init", str(tmp_path), *option)
    blocks = re.findall(r"^```\n(.*?)^```", (tmp_path / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    installs, used = {"pip": blocks[0], "uv": blocks[1]}[os.environ["LINKSPAN_INSTALL"]], blocks[2].splitlines()[:3]
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    ran = subprocess.run(
        ["bash", "-ec", "\n".join([installs, *used])],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
    assert "count_words" in ran.stdout


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
