"""Other people's clients start what `linkspan install` writes, and connect with what the page for people shows.

Each file is read as its host reads it: by the standard library, with the members that the host knows. The Inspector needs
110 MB from npm and node 22.19, so it is used where it is installed: `npm install -g @modelcontextprotocol/inspector@2.12.0`.
"""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from official import EXAMPLES, MODES, PATIENCE

from linkspan import Context, Server
from linkspan.cli.main import main
from over_http import serving

pytestmark = pytest.mark.timeout(60)

DICE = EXAMPLES / "dice.py"


class Reads(NamedTuple):
    """The members that a host reads."""

    section: str = "mcpServers"
    url: str = "url"
    headers: str = "headers"


HOSTS = {
    "claude-desktop": Reads(),
    "claude-code": Reads(),
    "cursor": Reads(),
    "vscode": Reads("servers"),
    "codex": Reads("mcp_servers", headers="http_headers"),
    "gemini-cli": Reads(url="httpUrl"),
    "zed": Reads("context_servers"),
    "windsurf": Reads(url="serverUrl"),
}


def make_server() -> Server:
    server = Server("ferry desk", "1.0.0")

    @server.tool
    def team(ctx: Context) -> str:
        """Return what the header X-Team was."""
        return ctx.headers.get("x-team", "none")

    return server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(make_server().asgi(page=True)) as url:
        yield url


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    return tmp_path


class Installed(NamedTuple):
    """What `linkspan install` has written."""

    path: str
    name: str
    entry: dict[str, Any]


def installed(capsys: pytest.CaptureFixture[str], host: str, *arguments: str) -> Installed:
    status = main(["install", host, *arguments, "--json", "--yes"])
    done = json.loads(capsys.readouterr().out)
    assert status == 0, done
    text = Path(done["path"]).read_text()
    document = tomllib.loads(text) if done["path"].endswith(".toml") else json.loads(text)
    return Installed(done["path"], done["name"], document[HOSTS[host].section][done["name"]])


def tools_of(target: Any, mode: str = "auto") -> list[str]:
    async def talk() -> list[str]:
        async with asyncio.timeout(PATIENCE), Client(target, mode=mode) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    return asyncio.run(talk())


@pytest.mark.parametrize("mode", MODES.values())
@pytest.mark.parametrize("host", HOSTS)
def test_the_official_client_starts_what_was_installed(
    host: str, mode: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = installed(capsys, host, str(DICE), "--env", "SEED=1").entry
    assert entry.get("type", "stdio") == "stdio"
    # As a host does: few variables of its own besides those of the entry, in a directory of its own.
    start = StdioServerParameters(command=entry["command"], args=entry["args"], env=entry["env"], cwd=home)
    assert tools_of(start, mode) == ["roll"]


@pytest.mark.parametrize("host", [host for host in HOSTS if host != "claude-desktop"])
def test_the_official_client_connects_to_a_url_that_was_installed(
    host: str, home: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = installed(capsys, host, url, "--header", "X-Team: blue").entry
    assert entry.get("type", "http") == "http"

    async def talk() -> Any:
        async with (
            asyncio.timeout(PATIENCE),
            httpx2.AsyncClient(headers=entry[HOSTS[host].headers]) as http,
            Client(streamable_http_client(entry[HOSTS[host].url], http_client=http)) as client,
        ):
            return (await client.call_tool("team", {})).structured_content

    assert asyncio.run(talk()) == {"result": "blue"}


def inspected(*arguments: str) -> list[str]:
    """Return the names of the tools that the Inspector lists."""
    inspector = shutil.which("mcp-inspector")
    if inspector is None:
        pytest.skip("the Inspector is not installed: npm install -g @modelcontextprotocol/inspector@2.12.0")
    command = [inspector, "--cli", *arguments, "--method", "tools/list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    return [tool["name"] for tool in json.loads(done.stdout)["tools"]]


@pytest.mark.parametrize("host", HOSTS)
def test_the_inspector_starts_what_was_installed(host: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, name, entry = installed(capsys, host, str(DICE))
    if HOSTS[host].section == "mcpServers":  # the Inspector reads the file itself
        assert inspected("--config", path, "--server", name) == ["roll"]
    else:
        assert inspected(entry["command"], *entry["args"], "--") == ["roll"]


@pytest.mark.parametrize("host", [host for host in HOSTS if host != "claude-desktop"])
def test_the_inspector_connects_to_a_url_that_was_installed(
    host: str, home: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, name, entry = installed(capsys, host, url)
    if HOSTS[host].section == "mcpServers" and "type" in entry:  # without a type it takes an entry for a command
        assert inspected("--config", path, "--server", name) == ["team"]
    else:
        assert inspected("--server-url", entry[HOSTS[host].url], "--transport", "http") == ["team"]


# The page for people.


@pytest.fixture(scope="module")
def shown(url: str) -> dict[str, str]:
    """What a browser without a script shows to copy, by its label."""
    request = urllib.request.Request(url, headers={"accept": "text/html"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        page = answer.read().decode()
    ways = re.findall(
        r"<summary>([^<]+)</summary>\n(.*?)</details>", page[page.index('<section id="connect">') :], re.S
    )
    lines = {label: re.search(r"<pre[^>]*>(.*?)</pre>", words, re.S) for label, words in ways}
    return {label: html.unescape(re.sub(r"<[^>]+>", "", found[1])) for label, found in lines.items() if found}


@pytest.mark.parametrize(
    ("label", "section"), [("mcp.json", "mcpServers"), ("Cursor", "mcpServers"), ("VS Code", "servers")]
)
def test_the_official_client_connects_to_an_entry_of_the_page(label: str, section: str, shown: dict[str, str]) -> None:
    (entry,) = json.loads(shown[label])[section].values()
    assert tools_of(entry["url"]) == ["team"]


def test_the_inspector_takes_the_whole_mcp_json_of_the_page(shown: dict[str, str], home: Path) -> None:
    file = home / "mcp.json"
    file.write_text(shown["mcp.json"])
    (name,) = json.loads(shown["mcp.json"])["mcpServers"]
    assert inspected("--config", str(file), "--server", name) == ["team"]


def test_fastmcp_takes_the_whole_mcp_json_of_the_page(shown: dict[str, str]) -> None:
    fastmcp: Any = pytest.importorskip("fastmcp", reason="FastMCP is not installed: pip install '.[peers]'")

    async def talk() -> list[str]:
        async with asyncio.timeout(PATIENCE), fastmcp.Client(json.loads(shown["mcp.json"])) as client:
            return [tool.name for tool in await client.list_tools()]

    assert asyncio.run(talk()) == ["team"]


def typed(line: str) -> str:
    """Type a line at a shell that finds this Python's commands first, and return what it shows."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        line,
        shell=True,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_line_for_curl_lists_the_tools(shown: dict[str, str]) -> None:
    answer = json.loads(typed(f"{shown['curl']} --silent --show-error"))
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["team"]


def test_the_line_for_a_terminal_lists_the_tools(shown: dict[str, str]) -> None:
    assert "team" in typed(shown["Terminal"])


def test_the_lines_of_python_list_the_tools(shown: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "lines.py"
    file.write_text(shown["Python"])
    assert "name='team'" in typed(f"{sys.executable} {file}")
