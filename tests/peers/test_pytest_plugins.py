"""The plugin of pytest beside those that run async tests: pytest-asyncio in both of its modes, and the one of anyio."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pip_servers import python_with

pytestmark = pytest.mark.timeout(600)  # the first to want the environment installs it

ROOT = Path(__file__).parents[2]
SERVER = '''
from linkspan import Server

server = Server("ferries")


@server.tool
def book(seats: int = 1) -> dict[str, int]:
    """Book seats on a ferry."""
    return {"seats": seats}
'''
INI = """
[pytest]
linkspan_target = ferries.py
filterwarnings = error
"""
LOOPS = "asyncio_default_fixture_loop_scope = function\n"
BODY = """    assert (await amcp.call_tool("book", {"seats": 2})).structured == {"seats": 2}
    assert [each.name for each in await amcp.list_tools()] == ["book"]
"""
ASYNCIO = f"""
import pytest
import pytest_asyncio

@pytest_asyncio.fixture
async def seats(amcp):
    result = await amcp.call_tool("book", {{"seats": 3}})
    yield result.structured["seats"]
    assert (await amcp.call_tool("book")).structured == {{"seats": 1}}

@pytest.mark.asyncio
async def test_one(amcp):
{BODY}
@pytest.mark.asyncio
async def test_with_a_fixture_of_its_loop(seats, amcp):
    assert seats == 3
{BODY}
@pytest.mark.asyncio(loop_scope="module")
async def test_on_the_loop_of_the_module(amcp):
{BODY}
@pytest.mark.asyncio(loop_scope="module")
async def test_again_on_the_loop_of_the_module(amcp):
{BODY}
"""
AUTO = f"""
import pytest

@pytest.fixture
async def seats(amcp):
    return (await amcp.call_tool("book", {{"seats": 3}})).structured["seats"]

async def test_one(amcp):
{BODY}
async def test_with_a_fixture_of_its_loop(seats, amcp):
    assert seats == 3
{BODY}
"""
ANYIO = f"""
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
async def seats(amcp, anyio_backend):
    yield (await amcp.call_tool("book", {{"seats": 3}})).structured["seats"]
    assert (await amcp.call_tool("book")).structured == {{"seats": 1}}

@pytest.mark.anyio
async def test_one(amcp):
{BODY}
@pytest.mark.anyio
async def test_with_a_fixture_of_its_loop(seats, amcp):
    assert seats == 3
{BODY}
"""
SYNC = """
def test_sync(mcp, mcp_lock, mcp_snapshot):
    mcp_snapshot(mcp.call_tool("book"))
    mcp_lock()
"""


@pytest.fixture(scope="module")
def python() -> str:
    return python_with("pytest-plugins.txt")


def run(python: str, project: Path, *options: str, ini: str = LOOPS, **files: str) -> tuple[dict[str, int], str]:
    """Run the tests of a project; return how many of each outcome there were, and what was printed."""
    (project / "ferries.py").write_text(SERVER)
    (project / "pytest.ini").write_text(INI + ini)
    for name, text in files.items():
        (project / f"test_{name}.py").write_text(text)
    env = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST")}
    env["PYTHONPATH"] = str(ROOT / "src")
    command = [python, "-m", "pytest", "-p", "linkspan.testing.plugin", "-p", "no:cacheprovider", "--timeout", "300"]
    done = subprocess.run(
        [*command, *options], cwd=project, env=env, capture_output=True, text=True, timeout=500, check=False
    )
    last = done.stdout.strip().rpartition("\n")[2].strip("= ").partition(" in ")[0]
    counts = {kind: int(number) for number, kind in (each.split() for each in last.split(", ") if each.count(" ") == 1)}
    return counts, done.stdout + done.stderr


def test_marked_tests_of_both_plugins_in_one_project(python: str, tmp_path: Path) -> None:
    counts, text = run(python, tmp_path, asyncio=ASYNCIO, anyio=ANYIO, sync=SYNC)
    assert counts == {"passed": 7}, text
    assert "asyncio: mode=Mode.STRICT" in text
    assert "anyio" in text.partition("collected")[0]


def test_unmarked_tests_that_pytest_asyncio_runs(python: str, tmp_path: Path) -> None:
    counts, text = run(python, tmp_path, ini=f"{LOOPS}asyncio_mode = auto\n", auto=AUTO, asyncio=ASYNCIO, sync=SYNC)
    assert counts == {"passed": 7}, text
    assert "asyncio: mode=Mode.AUTO" in text


def test_both_in_processes_of_xdist(python: str, tmp_path: Path) -> None:
    counts, text = run(python, tmp_path, "-n", "2", asyncio=ASYNCIO, anyio=ANYIO, sync=SYNC)
    assert counts == {"passed": 7}, text


def test_anyio_alone(python: str, tmp_path: Path) -> None:
    counts, text = run(python, tmp_path, "-p", "no:asyncio", ini="", anyio=ANYIO, sync=SYNC)
    assert counts == {"passed": 3}, text
