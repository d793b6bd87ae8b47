"""Every Python block in the documents runs, page by page, in order, and every block for the shell on some pages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from linkspan import reset_configuration

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if "tutorial-" not in page.name]
"""All but the tutorials, which are carried out by `test_tutorials.py`."""
BLOCK = re.compile(r"```(python|bash)\n(.*?)```", re.DOTALL)
WITH_SHELL = {"chat.md", "contracts.md", "debugging.md", "notebooks.md", "tracing.md"}
NEEDS = {
    "openapi.md": ("fastapi",),
    "frameworks.md": ("django", "fastapi", "flask", "litestar", "quart", "starlette"),
    "serverless.md": ("mangum",),
    "with-claude-agent-sdk.md": ("claude_agent_sdk",),
    "with-langchain.md": ("langchain_mcp_adapters",),
    "with-openai-agents.md": ("agents",),
    "with-pydantic-ai.md": ("pydantic_ai",),
}
"""Packages that a page shows. Those of agents bring 100 others of 500 MB, so that no extra has them; their pages are compiled."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_on_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(page.name, ()):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[peers]'")
    if page.name == "README.md":  # it asks to save its first program, and needs nothing of the clone
        (tmp_path / "ferries.py").write_text(next(code for kind, code in BLOCK.findall(README) if kind == "python"))
    else:
        (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LINKSPAN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    names: dict[str, object] = {"__name__": "page"}
    text = page.read_text()
    try:
        for block in BLOCK.finditer(text):
            language, code = block.groups()
            if language == "python":
                line = text[: block.start()].count("\n") + 1
                exec(compile("\n" * line + code, str(page), "exec", dont_inherit=True), names)
            elif page.name in WITH_SHELL:
                subprocess.run(["bash", "-ec", code], stdin=subprocess.DEVNULL, timeout=60, check=True)
    finally:
        reset_configuration()
        close_loop_left_open()


def close_loop_left_open() -> None:
    """Close the event loop of this thread: mangum keeps one for the next event, as nothing tells it that none will come."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning), contextlib.suppress(RuntimeError):
        asyncio.get_event_loop().close()
        asyncio.set_event_loop(None)


@pytest.mark.parametrize("name", NEEDS)
def test_the_code_on_a_page_about_another_package_is_python(name: str) -> None:
    for language, code in BLOCK.findall((ROOT / "docs" / name).read_text()):
        assert language != "python" or compile(code, name, "exec")


def test_the_figures_in_the_readme_are_those_that_were_measured() -> None:
    rows = [
        line.split("|") for line in (ROOT / "docs" / "figures.md").read_text().splitlines() if line.startswith("| ")
    ]
    measured = {
        own.strip(): (official.split()[0], re.findall(r"FastMCP ([\d.]+)", others)[0])
        for _, _, own, _, _, official, others, _ in rows
        if "FastMCP" in others
    }
    table = re.findall(
        r"^\| .* \| ([\d.]+ \S+) \| ([\d.]+) times that \| ([\d.]+) times that \|$", README, re.MULTILINE
    )
    assert len(table) == 4
    assert {own: tuple(rest) for own, *rest in table} == {own: measured[own] for own, *_ in table}


SERVING = re.findall(
    r"^(?:ExecStart=\S*/)?(linkspan run --http .*)$|^CMD (\[.*\])$",
    re.sub(r" *\\\n\s*", " ", (ROOT / "docs" / "deployment.md").read_text()),
    re.MULTILINE,
)
"""The commands of the page about deployment, as a line or as JSON."""


@pytest.mark.parametrize(("line", "listed"), SERVING)
def test_what_a_unit_or_an_image_runs_serves(line: str, listed: str, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install '.[http]'")
    (tmp_path / "server.py").write_text("from linkspan import Server\n\nserver = Server('x')\n")
    _, *arguments = json.loads(listed) if listed else line.split()
    arguments[arguments.index("--port") + 1] = "0"
    command = [sys.executable, "-m", "linkspan", *arguments]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        assert serving.stderr.readline().startswith("Serving MCP at http://")
        serving.terminate()


def test_the_page_about_deployment_has_each_kind_of_command() -> None:
    assert len(SERVING) == 3


FENCED = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1$", re.DOTALL | re.MULTILINE)
WIDTH = 88
"""Columns of code on a page of the site, at the width that it has beside the menu."""


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.stem
)
def test_what_readers_copy_fits_the_page(page: Path) -> None:
    """What a program prints is as it prints it, and a line of JSON Lines cannot be broken."""
    blocks = FENCED.findall(page.read_text())
    lines = [line for _, kind, code in blocks if kind not in ("", "text", "console") for line in code.splitlines()]
    assert [line for line in lines if len(line) > WIDTH and not line.startswith('{"when"')] == []
