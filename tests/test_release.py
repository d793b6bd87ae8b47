"""What is published: the wheel and the source distribution hold the package, what they need, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from configparser import ConfigParser
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import linkspan
from linkspan.cli.main import main

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "linkspan"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RELEASE = f"linkspan-{linkspan.__version__}"
DEVELOPMENT = {"dev", "docs", "faults", "peers"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and the wheel from what is in it, as the release does."""
    pytest.importorskip("hatchling", reason="needs hatchling, which builds the package")
    place = tmp_path_factory.mktemp("dist")
    build(ROOT, place, "sdist")
    with tarfile.open(place / f"{RELEASE}.tar.gz") as archive:
        archive.extractall(place / "source", filter="data")
    build(place / "source" / RELEASE, place, "wheel")
    return place


def build(project: Path, place: Path, target: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(place), "-t", target]
    subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=60)


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, bytes]:
    with ZipFile(built / f"{RELEASE}-py3-none-any.whl") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(wheel: dict[str, bytes]) -> Message:
    return HeaderParser().parsestr(wheel[f"{RELEASE}.dist-info/METADATA"].decode())


def package_files() -> set[str]:
    """Return the files of the package as they are here."""
    found = (each.relative_to(PACKAGE.parent) for each in PACKAGE.rglob("*") if each.is_file())
    return {each.as_posix() for each in found if "__pycache__" not in each.parts}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: dict[str, bytes]) -> None:
    about = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert set(wheel) == package_files() | {f"{RELEASE}.dist-info/{each}" for each in about}
    assert {name for name in wheel if "." in Path(name).name and not name.endswith(".py")} >= {
        "linkspan/py.typed",
        "linkspan/server/assets/page.css",
        "linkspan/server/assets/page.js",
    }
    assert {Path(name).suffix for name in package_files()} == {".py", ".css", ".html", ".js", ".toml", ".typed"}


def test_the_wheel_holds_the_files_as_they_are(wheel: dict[str, bytes]) -> None:
    changed = [name for name in package_files() if wheel[name] != (PACKAGE.parent / name).read_bytes()]
    assert changed == []
    assert wheel[f"{RELEASE}.dist-info/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert b"Root-Is-Purelib: true" in wheel[f"{RELEASE}.dist-info/WHEEL"]


def test_the_source_distribution_holds_what_builds_the_wheel_and_nothing_else(built: Path) -> None:
    with tarfile.open(built / f"{RELEASE}.tar.gz") as archive:
        names = {each.name.removeprefix(f"{RELEASE}/") for each in archive.getmembers()}
    beside = {".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert names == {f"src/{each}" for each in package_files()} | beside


def test_the_metadata_are_what_an_index_shows(metadata: Message) -> None:
    shown = {name: metadata[name] for name in ("Name", "Version", "Requires-Python", "License-Expression")}
    assert shown == {
        "Name": "linkspan",
        "Version": linkspan.__version__,
        "Requires-Python": ">=3.11",
        "License-Expression": "MIT",
    }
    assert metadata["Summary"] == PROJECT["description"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()
    assert [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each] == ["msgspec>=0.20"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])


def test_the_versions_of_python_are_those_that_are_tested(metadata: Message) -> None:
    shown = re.findall(r"Python :: (3\.\d+)", "\n".join(metadata.get_all("Classifier", [])))
    gate = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (tested,) = re.findall(r"python: \[(.*)\]", gate)
    assert shown == re.findall(r"[\d.]+", tested)
    assert metadata["Requires-Python"] == f">={shown[0]}"


def test_extras_of_users_pin_nothing_and_errors_name_those_that_exist() -> None:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    assert set(extras) >= DEVELOPMENT
    wanted = [each for name in extras.keys() - DEVELOPMENT for each in extras[name]]
    assert [each for each in wanted if not re.fullmatch(r"[\w.-]+>=[\d.]+(; .*)?", each)] == [
        next(each for each in PROJECT["optional-dependencies"]["http"] if each.startswith("uvicorn"))
    ], "serving builds on names that uvicorn does not document: it is capped at what was tried"
    named = {
        extra
        for each in PACKAGE.rglob("*.py")
        for extra in re.findall(r"install_hint\([\"'](\w+)[\"']\)", each.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= extras.keys() - DEVELOPMENT


def test_the_command_is_the_one_of_the_package(wheel: dict[str, bytes]) -> None:
    entries = ConfigParser()
    entries.read_string(wheel[f"{RELEASE}.dist-info/entry_points.txt"].decode())
    assert {name: dict(entries[name]) for name in entries.sections()} == {
        "console_scripts": {"linkspan": "linkspan.cli.main:main"},
        "pytest11": {"linkspan": "linkspan.testing.plugin"},
    }
    assert callable(main)


def test_what_is_released_was_tried_listed_and_attested() -> None:
    """The steps of the workflow that a reader of RELEASING.md relies on."""
    steps = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    for step in (".ci/release", "sbom.cdx.json", "attest-build-provenance", "attest-sbom", "gh-action-pypi-publish"):
        assert step in steps, step
