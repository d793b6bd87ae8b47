"""What a server is called of which only the command is known: its package, script or image, and nothing of what launches it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from linkspan import SyncClient
from linkspan.client.config import UnusableTarget
from linkspan.client.targets import resolve

COMMANDS = {
    # Packages: neither a scope, a version, nor the value of an option.
    "uvx mcp-server-git": "mcp-server-git",
    "uvx --python 3.12 mcp-server-git": "mcp-server-git",
    "uvx --python=3.12 mcp-server-git@1.2.3": "mcp-server-git",
    "uvx --from weather-tools==2.1 server": "weather-tools",
    "uvx --from git+https://github.com/acme/weather.git@v1 mcp": "weather",
    "uvx git+https://github.com/acme/weather.git@v1.2": "weather",
    "uvx ./dist/weather-1.0-py3-none-any.whl": "weather",
    "uv tool run weather[fast]>=1": "weather",
    "pipx run weather": "weather",
    "npx -y @modelcontextprotocol/server-filesystem@2025.1.1 /tmp": "server-filesystem",
    "npx -y @playwright/mcp@latest": "playwright",
    "npx -y some-server@1.2.3": "some-server",
    "npx -p @acme/weather server": "weather",
    "npm exec --yes -- @acme/weather": "weather",
    "pnpm dlx weather": "weather",
    "bunx weather": "weather",
    "cmd /c npx -y weather": "weather",
    "npx.cmd -y weather": "weather",
    # Scripts: a file whose name says nothing is called after its folder.
    "node /srv/weather/build/index.js": "weather",
    "node --import tsx /srv/weather/src/main.ts": "weather",
    "/opt/node-22.1/bin/node weather.mjs": "weather",
    "python3.11 weather.py": "weather",
    "python3 -X utf8 -u /srv/weather/app.py": "weather",
    "/srv/venv/bin/python -m mcp_server_weather": "mcp_server_weather",
    "python -m weather.server --port 3": "weather",
    "python -m weather.__main__": "weather",
    "uv run weather.py": "weather",
    "uv run --directory /srv/weather server.py": "weather",
    "uv --directory /srv/weather run python -m app.weather": "weather",
    "uv run --with mcp mcp run weather.py": "weather",
    "poetry run python weather.py": "weather",
    "bun run weather.ts": "weather",
    "bun weather.ts": "weather",
    "deno run --allow-net weather.ts": "weather",
    "java -Xmx1g -jar /opt/weather-1.2.3-SNAPSHOT.jar": "weather",
    "dotnet /opt/Weather.dll": "Weather",
    "dotnet run --project /srv/weather": "weather",
    "go run ./cmd/weather": "weather",
    "npm --prefix /srv/weather start": "weather",
    # Images: neither the registry, the tag, nor the value of an option.
    "docker run -i --rm mcp/weather": "weather",
    "docker run -i --rm -e TOKEN --env MODE=3 -v /a:/b -p 80:80 ghcr.io/acme/weather-mcp:1.2": "weather-mcp",
    "docker run --rm -it --name x localhost:5000/acme/weather@sha256:abc": "weather",
    "docker run -i acme/mcp": "acme",
    "docker run -i node:22 npx -y weather": "weather",
    "podman run -i weather:3": "weather",
    "docker exec -i weather python server.py": "weather",
    "docker --context far compose run -T weather": "weather",
    # Around another command.
    "env -i TOKEN=x python3 weather.py": "weather",
    "/usr/bin/env node weather.js": "weather",
    "sudo -u nobody timeout 60 weather": "weather",
    "bash -c 'cd /srv && exec npx -y weather'": "weather",
    "sh -lc 'source .env; uvx weather'": "weather",
    "bash weather.sh": "weather",
    # Programs of their own.
    "weather": "weather",
    "/usr/local/bin/weather-server": "weather-server",
    "/opt/weather/bin/server": "weather",
    "./weather-1.2.0": "weather",
    "weather.exe --docker run x": "weather",
    # Where nothing else is known.
    "python -c 'print(3)'": "python",
    "docker": "docker",
    "npx": "npx",
}


@pytest.mark.parametrize(("command", "name"), COMMANDS.items())
def test_a_command_is_called_after_what_it_starts(command: str, name: str) -> None:
    assert resolve(shlex.split(command)).origin.server == name


@pytest.mark.parametrize(
    "command", [["python", "server.py"], ["node", "dist/index.js"], ["npm", "start"], ["./run.sh"]]
)
def test_a_file_that_is_called_like_any_other_is_called_after_where_it_starts(
    command: list[str], tmp_path: Path
) -> None:
    assert resolve(command, cwd=tmp_path / "weather").origin.server == "weather"


def test_a_file_of_ours_is_called_like_that_too(tmp_path: Path) -> None:
    folder = tmp_path / "weather" / "src"
    folder.mkdir(parents=True)
    for name, wanted in (("server.py", "weather"), ("forecast.py", "forecast")):
        (folder / name).write_text("from linkspan import Server\n")
        assert resolve(folder / name).origin.server == wanted
        assert resolve(name, cwd=folder).origin.server == wanted


def test_a_name_that_is_given_wins() -> None:
    assert resolve(["python", "weather.py"], name="mine").origin.server == "mine"


# A whole configuration.

DICE: dict[str, Any] = {"command": "uvx", "args": ["dice"]}


@pytest.mark.parametrize("section", ["mcpServers", "servers", "mcp_servers"])
def test_a_whole_configuration_with_one_server_is_a_target(section: str) -> None:
    target = resolve({section: {"cubes": DICE}})
    assert (target.origin.server, target.origin.command) == ("cubes", "uvx dice")
    assert resolve({section: {"cubes": DICE}}, name="mine").origin.server == "mine"


def test_servers_that_are_switched_off_do_not_count() -> None:
    assert resolve({"mcpServers": {"old": {**DICE, "disabled": True}, "cubes": DICE}}).origin.server == "cubes"


def test_the_name_chooses_one_of_several() -> None:
    servers = {"mcpServers": {"cubes": DICE, "cards": {"command": "cards"}}}
    assert resolve(servers, name="cards").origin.command == "cards"


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ({"a": DICE, "b": DICE}, "has the servers a, b: choose one with name='a'"),
        ({}, "names no server that can be started"),
        ({"a": {**DICE, "disabled": True}}, "'a' is disabled"),
    ],
)
def test_a_whole_configuration_that_leaves_a_choice_says_how_to_choose(servers: Any, words: str) -> None:
    with pytest.raises(UnusableTarget) as caught:
        SyncClient({"mcpServers": servers})
    assert words in str(caught.value)


def test_an_error_in_an_entry_names_its_server() -> None:
    with pytest.raises(UnusableTarget, match=r"server 'cubes'.*neither"):
        resolve({"mcpServers": {"cubes": {"args": []}}})


def test_inputs_of_a_whole_configuration_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret-key")
    config = {
        "inputs": [{"id": "api-key", "password": True}],
        "servers": {"cubes": {**DICE, "env": {"KEY": "${input:api-key}"}}},
    }
    target = resolve(config)
    assert target.environment["KEY"] == "secret-key"
