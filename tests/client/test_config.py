"""Configuration files as hosts write them (users.md, capability 12): every dialect comes to the same command or URL."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from linkspan import SyncClient
from linkspan.client.config import InputWanted, KnownConfig, UnusableTarget, known_configs, read_config, settled
from linkspan.client.login_options import LoginOptions
from linkspan.client.targets import resolve
from linkspan.flows.client_errors import ConnectError
from linkspan.flows.state import Timeouts

FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "claude_desktop_config.json": (
        """{"mcpServers": {"files": {"command": "npx", "args": ["-y", "@mcp/files", "${HOME_DIR}"], "env": {"KEY": "k"}}}}""",
        {"files": {"command": ("npx", "-y", "@mcp/files", "/home/me"), "env": {"KEY": "k"}}},
    ),
    ".mcp.json": (
        """{"mcpServers": {"api": {"type": "http", "url": "${BASE:-https://api.example.com}/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 30000}}}""",
        {
            "api": {
                "url": "https://api.example.com/mcp",
                "headers": {"Authorization": "Bearer s3cret"},
                "timeouts": {"call": 30.0},
            }
        },
    ),
    ".vscode/mcp.json": (
        """{
            // comments and trailing commas, as editors allow
            "inputs": [{"type": "promptString", "id": "api-key", "description": "Key of // Example", "password": true},],
            "servers": {
                "memory": {"type": "stdio", "command": "node", "args": ["${workspaceFolder}/server.js", "/* no comment */"],
                    "env": {"KEY": "${input:api-key}", "AGAIN": "${input:api-key}", "N": 3, "GONE": null},
                    "envFile": "${workspaceFolder}/.env", },
                "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"X": "${env:TOKEN}"}},
            }, /* the end */
        }""",
        {
            "memory": {
                "command": ("node", "{workspace}/server.js", "/* no comment */"),
                "env": {"FROM_FILE": "a b", "KEY": "from the person", "AGAIN": "from the person", "N": "3"},
            },
            "web": {"url": "https://example.com/mcp", "headers": {"X": "s3cret"}},
        },
    ),
    "settings.json": (
        """{"mcp": {"servers": {"a": {"command": "a", "cwd": "sub"}}, "inputs": []}, "editor.fontSize": 12}""",
        {"a": {"command": ("a",), "cwd": "{workspace}/sub"}},
    ),
    "cline_mcp_settings.json": (
        """{"mcpServers": {
            "old": {"command": "x", "disabled": true},
            "new": {"type": "streamableHttp", "url": "https://e.com/mcp", "disabled": false, "autoApprove": [], "timeout": 3600}
        }}""",
        {"new": {"url": "https://e.com/mcp", "timeouts": {"call": 3600.0}}},
    ),
    ".gemini/settings.json": (
        """{"mcpServers": {"s": {"httpUrl": "https://e.com/mcp", "headers": {"K": "$TOKEN $5"}, "timeout": 5000}}}""",
        {"s": {"url": "https://e.com/mcp", "headers": {"K": "s3cret $5"}, "timeouts": {"call": 5.0}}},
    ),
    "mcp_config.json": (
        """{"mcpServers": {"w": {"serverUrl": "https://e.com/mcp", "headers": {"K": "v"}}}}""",
        {"w": {"url": "https://e.com/mcp", "headers": {"K": "v"}}},
    ),
    ".zed/settings.json": (
        """{"context_servers": {
            "new": {"source": "custom", "command": "uvx", "args": ["x"], "env": {}},
            "old": {"command": {"path": "uvx", "args": ["y"], "env": {"A": "b"}}, "settings": {}},
            "extension": {"settings": {"key": "z"}}, "off": {"command": "o", "enabled": false}
        }}""",
        {"new": {"command": ("uvx", "x")}, "old": {"command": ("uvx", "y"), "env": {"A": "b"}}},
    ),
    "continue.json": (
        """{"mcpServers": [{"name": "db", "command": "db-server"},
                           {"transport": {"type": "stdio", "command": "uvx", "args": ["q"]}}]}""",
        {"db": {"command": ("db-server",)}, "server-2": {"command": ("uvx", "q")}},
    ),
    "opencode.json": (
        """{"mcp": {"local": {"type": "local", "command": ["bun", "x"], "environment": {"A": "b"}, "enabled": true}}}""",
        {"local": {"command": ("bun", "x"), "env": {"A": "b"}}},
    ),
    "claude-code.json": (
        """{"mcpServers": {"slack": {"type": "http", "url": "https://e.com/mcp",
            "oauth": {"clientId": "desk", "callbackPort": 3118, "scopes": "files:read  files:write"}}}}""",
        {
            "slack": {
                "url": "https://e.com/mcp",
                "login": {"client_id": "desk", "redirect_port": 3118, "scopes": ["files:read", "files:write"]},
            }
        },
    ),
    ".cursor/mcp.json": (
        """{"mcpServers": {"s": {"url": "https://e.com/mcp",
            "auth": {"CLIENT_ID": "desk", "CLIENT_SECRET": "${env:TOKEN}", "scopes": ["files:read"]}}}}""",
        {
            "s": {
                "url": "https://e.com/mcp",
                "login": {"client_id": "desk", "client_secret": "s3cret", "scopes": ["files:read"]},
            }
        },
    ),
    "own.json": (
        """{"mcpServers": {"s": {"url": "https://e.com/mcp", "oauth": {"clientMetadataUrl": "https://c.example/c.json",
            "callbackPort": "${PORT:-3119}", "scope": "a b", "resource": false, "clientSecret": "", "enabled": true}},
            "t": {"url": "https://e.com/mcp", "oauth": {"resource": "api://files"}},
            "u": {"url": "https://e.com/mcp", "oauth": false, "auth": "oauth"}}}""",
        {
            "s": {
                "url": "https://e.com/mcp",
                "login": {
                    "client_metadata_url": "https://c.example/c.json",
                    "redirect_port": 3119,
                    "scopes": ["a", "b"],
                    "resource": False,
                },
            },
            "t": {"url": "https://e.com/mcp", "login": {"resource": "api://files"}},
            "u": {"url": "https://e.com/mcp"},
        },
    ),
    "bare.json": ("""{"one": {"command": "one"}}""", {"one": {"command": ("one",)}}),
    ".codex/config.toml": (
        """
        model = "x"
        [mcp_servers.docs]
        command = "npx"
        args = ["-y", "docs"]
        env_vars = ["TOKEN", "NOT_SET_ANYWHERE", { name = "HOME_DIR", source = "local" }]
        startup_timeout_sec = 20
        tool_timeout_sec = 45.5
        [mcp_servers.docs.env]
        A = "b"
        [mcp_servers.figma]
        url = "https://figma.example.com/mcp"
        bearer_token_env_var = "TOKEN"
        http_headers = { "X-Region" = "eu" }
        env_http_headers = { "X-Home" = "HOME_DIR" }
        [mcp_servers.off]
        command = "x"
        enabled = false
        """,
        {
            "docs": {
                "command": ("npx", "-y", "docs"),
                "env": {"TOKEN": "s3cret", "HOME_DIR": "/home/me", "A": "b"},
                "timeouts": {"connect": 20.0, "call": 45.5},
            },
            "figma": {
                "url": "https://figma.example.com/mcp",
                "headers": {"X-Region": "eu", "X-Home": "/home/me", "Authorization": "Bearer s3cret"},
            },
        },
    ),
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    monkeypatch.setenv("HOME_DIR", "/home/me")
    monkeypatch.delenv("BASE", raising=False)
    monkeypatch.delenv("API_KEY", raising=False)


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def login(members: dict[str, Any]) -> dict[str, Any]:
    return {"url": "https://x", "oauth": members}


def facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    found = settled(entry)
    fields = set(found.__struct_fields__) - {"secrets", "shown"}
    shown = {name: value for name in found.__struct_fields__ if name in fields and (value := getattr(found, name))}
    return {name: msgspec.to_builtins(value) for name, value in shown.items()}


@pytest.mark.parametrize("name", FILES)
def test_every_dialect_comes_to_the_same_command_or_url(name: str, tmp_path: Path) -> None:
    text, expected = FILES[name]
    (tmp_path / ".env").write_text("# comment\nexport FROM_FILE='a b'\nKEY=from the file # no\n")
    asked: list[InputWanted] = []

    def ask(wanted: InputWanted) -> str:
        asked.append(wanted)
        return "from the person"

    found = read_config(written(tmp_path, name, text), inputs=ask)
    shown = json.loads(json.dumps({server: facts(entry) for server, entry in found.items()}))
    assert shown == json.loads(json.dumps(expected).replace("{workspace}", str(tmp_path)))
    if "vscode" in name:
        assert asked == [InputWanted("api-key", "Key of // Example", secret=True)]


def test_servers_that_are_switched_off_are_left_out_and_said(tmp_path: Path) -> None:
    file = written(tmp_path, "mcp.json", FILES[".zed/settings.json"][0].replace('"new"', '"list": [1], "new"'))
    assert read_config(file).left_out == {
        "list": "is not an object",
        "extension": "is started by an extension of the editor",
        "off": "is disabled",
    }
    with pytest.raises(UnusableTarget, match=r"mcp\.json: the server 'off' is disabled"):
        resolve(f"{file}:off")


def test_a_secret_that_stands_in_a_file_is_taken_with_a_warning_that_does_not_show_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    oauth = {"clientId": "desk", "clientSecret": "in-the-file"}
    file = written(tmp_path, "mcp.json", json.dumps({"mcpServers": {"s": login(oauth)}}))
    for _ in range(2):
        target = resolve(f"{file}:s")
        assert target.login == LoginOptions("desk", "in-the-file")
        assert "in-the-file" in target.secrets
        assert "in-the-file" not in repr(target.login)
    (warning,) = caplog.messages
    assert warning.startswith(f'{file}, server \'s\': "oauth.clientSecret" is a secret in a file: write "${{NAME}}"')
    assert "in-the-file" not in warning


def test_the_project_of_claude_code_adds_to_the_users_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    projects = {str(tmp_path): {"mcpServers": {"b": {"command": "mine"}}}, "/else": {"mcpServers": {"c": {}}}}
    text = json.dumps({"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}, "projects": projects})
    found = read_config(written(tmp_path, ".claude.json", text))
    assert {name: settled(entry).command for name, entry in found.items()} == {"a": ("a",), "b": ("mine",)}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"command": ["x"], "args": "y"}, '"args" must be a list'),
        ({"command": 7}, '"command" must be a string'),
        ({"command": ""}, '"command" is empty: it is the program to start'),
        ({"args": ["x"]}, 'has neither a "command" (with "args") nor a "url"'),
        ({"url": "ftp://hidden"}, '"url" must begin with http:// or https://'),
        ({"url": "https://x", "headers": ["hidden"]}, '"headers" must be an object: {"NAME": "VALUE"}'),
        ({"url": "https://x", "headers": {"K": ["hidden"]}}, '"headers.K" must be a string'),
        ({"command": "x", "env": {"K": "${NOWHERE} hidden"}}, '"env.K" needs the environment variable NOWHERE, which is not set'),
        ({"command": "x", "timeout": -1}, '"timeout" must be a number above 0'),
        (login({"clientId": ["hidden"]}), '"oauth.clientId" must be a string'),
        (login({"clientSecret": "${TOKEN}"}), '"oauth.clientSecret" needs the "clientId" that it belongs to'),
        (
            login({"clientId": "desk", "clientSecret": "${GONE}"}),
            '"oauth.clientSecret" needs the environment variable GONE, which is not set',
        ),
        (login({"callbackPort": 70000}), '"oauth.callbackPort" must be the number of a port'),
        (login({"callbackPort": "hidden"}), '"oauth.callbackPort" must be the number of a port'),
        (login({"clientMetadataUrl": "http://hidden/c"}), '"oauth.clientMetadataUrl" must be an https URL with a path'),
        (login({"scopes": ["hidden hidden"]}), '"oauth.scopes" must be a list, or one text with spaces between the scopes'),
        (login({"resource": "hidden"}), '"oauth.resource" must be a URI without a fragment, or false'),
        ({"command": "x", "envFile": "none.env"}, "\"envFile\" 'none.env' cannot be read: No such file or directory"),
        (
            {"command": "x", "env": {"K": "${input:api-key}"}},
            "\"env.K\" needs the input 'api-key' (Your key): set the environment variable API_KEY, "
            "or pass inputs= to read_config",
        ),
    ],
)  # fmt: skip
def test_an_error_names_file_server_and_member_but_no_value(members: Any, words: str, tmp_path: Path) -> None:
    inputs = [{"id": "api-key", "description": "Your key"}]
    file = written(tmp_path, "mcp.json", json.dumps({"inputs": inputs, "servers": {"s": members}}))
    with pytest.raises(UnusableTarget) as caught:
        resolve(f"{file}:s")
    assert str(caught.value) == f"{file}, server 's'{' ' if words.startswith('has') else ': '}{words}"
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("password", ["hunter2", "1234"])
@pytest.mark.parametrize("marked", [True, False])
def test_a_password_that_was_asked_for_is_not_shown(tmp_path: Path, password: str, marked: bool) -> None:
    """Of any length, and where it is marked as a password or only called like one."""
    name = "pin" if marked else "db-password"
    wanted = f"${{input:{name}}}"
    servers = {
        "command": {"command": sys.executable, "args": ["-c", "import sys; sys.exit(sys.argv[1])", f"--x={wanted}"]},
        "url": {"url": f"http://me:x@127.0.0.1:1/{wanted}/mcp?k={wanted}"},
        "host": {"url": f"http://{wanted}.localhost:1/mcp"},
    }
    inputs = [{"id": name, "password": marked}, {"id": "shown"}]
    file = written(tmp_path, "mcp.json", json.dumps({"inputs": inputs, "servers": servers}))
    found = read_config(file, inputs=lambda _: password)
    for server, entry in found.items():
        target = resolve(entry, name=server)
        whole = target.command.argv[-1] if target.command is not None else target.url
        assert password in str(whole), "the server gets it"
        assert password not in str(target.origin)
        assert password not in str(resolve(entry).origin)
        assert "[redacted]" in str(target.origin)
        with pytest.raises(ConnectError) as failed:
            SyncClient(entry, name=server, timeouts=Timeouts(connect=20)).connect()
        error = failed.value
        assert error.delivery == "not_sent"
        if len(password) >= 6:  # the server's own words are searched for texts that are no innocent words
            assert password not in str(error)
        assert password not in f"{error.problem} {error.command} {error.url} {error.hint}"


def test_an_input_that_is_no_secret_is_shown(tmp_path: Path) -> None:
    text = (
        '{"inputs": [{"id": "city"}], "servers": {"s": {"command": "x", "args": ["${input:city}", "${input:city}!"]}}}'
    )
    found = read_config(written(tmp_path, "mcp.json", text), inputs=lambda _: "Rome")
    assert resolve(found["s"]).origin.command == "x Rome 'Rome!'"


def test_an_input_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "from outside")
    file = written(tmp_path, "mcp.json", '{"servers": {"s": {"command": "x", "args": ["${input:api-key}"]}}}')
    assert settled(read_config(file)["s"]).command == ("x", "from outside")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"mcpServers": {"a": }}', "is not valid JSON: Expecting value: line 1"),
        ("{\n// a comment\n/* two\nlines */ x}", "line 4"),
        ("[]", "is not a JSON object"),
        ("{}", 'has no "mcpServers" (or "servers") object'),
        ("\x00\xff", "is not UTF-8 text"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_file_that_is_no_configuration_says_why(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UnusableTarget) as caught:
        read_config(file)
    assert words in str(caught.value)


def test_deadlines_of_the_configuration_hold_unless_the_caller_chose_others() -> None:
    client = SyncClient({"command": "x", "timeout": 1_200_000, "startup_timeout_sec": 3})
    timeouts = client._state.options.timeouts  # pyright: ignore[reportPrivateUsage]
    assert (timeouts.connect, timeouts.call, timeouts.total) == (3.0, 1200.0, 1200.0)


def test_the_files_of_hosts_are_found_where_they_lie(tmp_path: Path) -> None:
    home, workspace = tmp_path / "home", tmp_path / "work"
    for each in (".cursor/mcp.json", ".claude.json", "Library/Application Support/Claude/claude_desktop_config.json"):
        file = home / each
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    (workspace / ".vscode").mkdir(parents=True)
    (workspace / ".vscode" / "mcp.json").write_text("{}")
    assert known_configs(home=home, workspace=workspace, platform="darwin") == [
        KnownConfig("VS Code", workspace / ".vscode/mcp.json"),
        KnownConfig("Claude Desktop", home / "Library/Application Support/Claude/claude_desktop_config.json"),
        KnownConfig("Claude Code", home / ".claude.json"),
        KnownConfig("Cursor", home / ".cursor/mcp.json"),
    ]
    assert known_configs(home=home, workspace=home, platform="linux") == [
        KnownConfig("Cursor", home / ".cursor/mcp.json"),
        KnownConfig("Claude Code", home / ".claude.json"),
    ]
