"""`linkspan install` and `uninstall`: the files of hosts, changed without a loss."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkspan import SyncClient
from linkspan.cli.config_edit import CannotEdit, with_entry, without_entry
from linkspan.cli.install import install, uninstall
from linkspan.cli.main import main
from linkspan.client.config import config_path, plain_json, read_config, settled
from linkspan.client.kept_options import keep_options
from linkspan.client.login_options import LoginOptions

DICE = Path(__file__).parents[2] / "examples" / "dice.py"
ENTRY: dict[str, Any] = {"command": "/usr/bin/python3", "args": ["-m", "x"], "env": {"A": "b"}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(host: str, *, workspace: bool = False) -> Path:
    found = config_path(host, workspace=workspace)
    assert found is not None
    return found


HOSTS = {
    "claude-desktop": "Claude Desktop",
    "claude-code": "Claude Code",
    "cursor": "Cursor",
    "vscode": "VS Code",
    "codex": "Codex",
    "gemini-cli": "Gemini CLI",
    "zed": "Zed",
    "windsurf": "Windsurf",
}


@pytest.mark.parametrize(("host", "title"), HOSTS.items())
def test_a_file_is_installed_so_that_it_starts_from_any_directory(host: str, title: str, home: Path) -> None:
    assert install([host, os.path.relpath(DICE), "--yes", "--env", "SEED=1"]) == 0
    entry = read_config(written(title))["dice"]
    assert (entry["command"], entry["env"]) == (sys.executable, {"SEED": "1"})
    with SyncClient(entry) as client:
        assert client.call_tool("roll", {"sides": 1}).structured == {"result": [1]}
    assert uninstall([host, "dice", "--yes"]) == 0
    assert "dice" not in written(title).read_text()


@pytest.mark.parametrize(
    ("host", "title", "entry"),
    [
        ("claude-code", "Claude Code", {"type": "http", "url": "https://a.example/mcp", "headers": {"X-Key": "1"}}),
        ("cursor", "Cursor", {"url": "https://a.example/mcp", "headers": {"X-Key": "1"}}),
        ("vscode", "VS Code", {"type": "http", "url": "https://a.example/mcp", "headers": {"X-Key": "1"}}),
        ("codex", "Codex", {"url": "https://a.example/mcp", "http_headers": {"X-Key": "1"}}),
        ("gemini-cli", "Gemini CLI", {"httpUrl": "https://a.example/mcp", "headers": {"X-Key": "1"}}),
        ("zed", "Zed", {"url": "https://a.example/mcp", "headers": {"X-Key": "1"}}),
        ("windsurf", "Windsurf", {"serverUrl": "https://a.example/mcp", "headers": {"X-Key": "1"}}),
    ],
)
def test_a_url_has_the_member_that_the_host_reads(host: str, title: str, entry: dict[str, Any]) -> None:
    arguments = [host, "https://a.example/mcp", "--name", "a", "--header", "X-Key: 1", "--workspace", "--yes"]
    if config_path(title, workspace=True) is None:
        assert install(arguments) == 2
        arguments.remove("--workspace")
    assert install(arguments) == 0
    assert dict(read_config(written(title, workspace="--workspace" in arguments))["a"]) == entry


def test_the_client_for_logins_is_written_where_the_host_reads_it(home: Path) -> None:
    options = ["https://a.example/mcp", "--name", "a", "--client-id", "desk", "--redirect-port", "17423", "--yes"]
    assert install(["claude-code", *options]) == 0
    entry = read_config(written("Claude Code"))["a"]
    assert entry["oauth"] == {"clientId": "desk", "callbackPort": 17423}
    login = settled(entry).login
    assert login is not None
    assert (login.client_id, login.redirect_port) == ("desk", 17423)


def test_a_client_that_a_login_has_kept_is_written_without_its_secret(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    url = "https://a.example/mcp"
    keep_options(url, LoginOptions("vault", "s3cret-of-vault", redirect_port=17424, scopes=("files:read",)))
    assert install(["claude-code", url, "--name", "a", "--yes"]) == 0
    shown = capsys.readouterr()
    assert (
        "The secret of the client is not written; `claude mcp add --client-secret` gives it to Claude Code."
        in shown.out
    )
    assert read_config(written("Claude Code"))["a"]["oauth"] == {"clientId": "vault", "callbackPort": 17424}
    assert install(["claude-code", url, "--name", "b", "--client-id", "desk", "--yes"]) == 0
    assert read_config(written("Claude Code"))["b"]["oauth"] == {"clientId": "desk"}
    assert install(["cursor", url, "--name", "a", "--yes"]) == 0
    assert dict(read_config(written("Cursor"))["a"]) == {"url": url}
    shown = capsys.readouterr()
    files = "".join(each.read_text() for each in (written("Claude Code"), written("Cursor")))
    assert "s3cret-of-vault" not in shown.out + shown.err + files


def test_a_change_is_shown_without_secrets_and_needs_consent(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    before = '{\n  "mcpServers": {\n    "old": {"command": "x", "env": {\n      "API_KEY": "sk-1"\n    }}\n  }\n}\n'
    file.write_text(before)
    assert install(["cursor", str(DICE), "--env", "TOKEN=tk-2"]) == 1
    shown = capsys.readouterr()
    assert '+    "dice": {' in shown.out
    assert "sk-1" not in shown.out + shown.err
    assert "tk-2" not in shown.out + shown.err
    assert "add --yes to write it" in shown.err
    assert file.read_text() == before
    assert install(["cursor", str(DICE), "--dry-run"]) == 0
    assert file.read_text() == before


def test_the_former_file_is_kept_and_so_are_its_permissions_and_links(home: Path) -> None:
    real = home / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.symlink_to(real)
    assert install(["cursor", str(DICE), "--yes"]) == 0
    assert file.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert [each.read_text() for each in home.glob("dotfiles.json.*.bak")] == ["{}"]
    assert not [*home.glob("*.new")]


def test_no_backup_is_ever_overwritten(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three changes within one second."""
    monkeypatch.setattr("linkspan.cli.install.time.strftime", lambda _: "20260102-030405")
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"original": 1}')
    file.chmod(0o640)
    for name in ("one", "two", "three"):
        assert install(["cursor", str(DICE), "--name", name, "--yes"]) == 0
    kept = sorted(file.parent.glob("*.bak"))
    assert [each.name for each in kept] == [f"mcp.json.20260102-030405{number}.bak" for number in ("-2", "-3", "")]
    assert kept[-1].read_text() == '{"original": 1}'
    assert stat.S_IMODE(kept[-1].stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["zedd", str(DICE)], "there is no host 'zedd' (did you mean 'zed'?)"),
        (["zed", "no.py"], "there is no file 'no.py'"),
        (["claude-desktop", "https://a.example/mcp"], "Claude Desktop has URLs in its settings"),
        (["zed", "ftp://a.example"], "the URL must begin with http:// or https://"),
        (["zed", "http://[x/mcp"], "the URL must begin with http:// or https://"),
        (["zed", "--", "no-such-command"], "there is no command 'no-such-command'"),
        (["zed", str(DICE), "--header", "A: b"], "--header is for a server that has a URL"),
        (["claude-code", str(DICE), "--client-id", "desk"], "--client-id is for a server that has a URL"),
        (["zed", "https://a.example", "--redirect-port", "17423"], "Zed takes no client from its configuration here"),
        (
            ["claude-code", "https://a.example", "--redirect-port", "0"],
            "--redirect-port must be from 1 to 65535, got 0",
        ),
        (["zed", "https://a.example", "--env", "A=b"], "--env is for a server that the host starts"),
    ],
)
def test_what_cannot_be_installed_is_said(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    assert main(["install", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_file_that_cannot_be_changed_safely_stays_as_it_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    for text, why in (
        ("{oops", "not valid JSON"),
        ("[]", "not a JSON object"),
        ('{"mcpServers": []}', "not an object"),
    ):
        file.write_text(text)
        assert install(["cursor", str(DICE), "--yes"]) == 1
        assert why in capsys.readouterr().err
        assert file.read_text() == text
    assert uninstall(["codex", "dice"]) == 1
    assert "it has no server 'dice'" in capsys.readouterr().err


def test_all_hosts_are_listed(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert install(["zed", str(DICE), "--yes"]) == 0
    capsys.readouterr()
    assert install([]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert [*lines] == [*HOSTS]
    assert "(not there yet)" in lines["cursor"]
    assert "(not there yet)" not in lines["zed"]


def test_a_command_gets_absolute_paths_of_the_files_that_it_names(home: Path) -> None:
    (home / "server.py").touch()
    (home / "some-server").mkdir()
    command = ["sh", "server.py", ".", "some-server", "-y", "no/such.py", "--port=1.5"]
    assert install(["cursor", "--name", "a", "--yes", "--", *command]) == 0
    entry = read_config(written("Cursor"))["a"]
    assert os.path.isabs(entry["command"])
    assert entry["args"] == [str(home / "server.py"), str(home), *command[3:]]


def test_as_json_a_change_is_one_document(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    def run(verb: str, *arguments: str) -> tuple[int, Any]:
        status = main([verb, *arguments, "--json"])
        shown = capsys.readouterr()
        assert shown.err == ""
        return status, json.loads(shown.out)

    path = str(home / ".cursor" / "mcp.json")
    status, found = run("install")
    assert (status, [each["host"] for each in found["hosts"]]) == (0, [*HOSTS])
    status, found = run("install", "cursor", str(DICE), "--env", "TOKEN=tk-2")
    assert (status, found["error"]["problem"]) == (1, "nothing is written without --yes")
    status, found = run("install", "cursor", str(DICE), "--env", "TOKEN=tk-2", "--dry-run")
    assert (status, found["written"], found["path"], found["name"]) == (0, False, path, "dice")
    assert "tk-2" not in found["difference"]
    status, found = run("install", "cursor", str(DICE), "--yes")
    assert (status, found["written"], found["backup"]) == (0, True, None)
    status, found = run("install", "cursor", str(DICE), "--yes")
    assert (status, found["written"], found["difference"]) == (0, False, "")
    status, found = run("uninstall", "cursor", "dice", "--yes")
    assert (status, found["written"], Path(found["backup"]).parent) == (0, True, home / ".cursor")
    assert run("uninstall", "cursor", "dice", "--yes")[0] == 1
    assert run("install", "nohost", str(DICE))[1]["error"]["type"] == "WrongUse"
    assert run("install", "windsurf", str(DICE), "--workspace")[0] == 2


# The text of the file.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '{\n  "s": {\n    "me": 1\n  }\n}\n'),
        ('{"a": 1}\n', '{"a": 1,\n  "s": {\n    "me": 1\n  }\n}\n'),
        ('{\n\t"s": {\n\t\t"b": 2 // two\n\t}\n}', '{\n\t"s": {\n\t\t"b": 2, // two\n\t\t"me": 1\n\t}\n}'),
        ('{\n  "s": {\n    "b": 2,\n  },\n}', '{\n  "s": {\n    "b": 2,\n    "me": 1\n  },\n}'),
        ('{"s": {"me": 0, "b": 2}}', '{"s": {"me": 1, "b": 2}}'),
        ('{\r\n  "s": {\r\n  }\r\n}\r\n', '{\r\n  "s": {\r\n    "me": 1\r\n  }\r\n}\r\n'),
    ],
)
def test_an_entry_is_added_to_json_and_the_rest_stays(text: str, expected: str) -> None:
    found = with_entry(text, "s", "me", {}).replace('"me": {}', '"me": 1')
    assert found == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(
    st.dictionaries(st.text(max_size=5), json_values, max_size=4),
    st.dictionaries(st.text(max_size=5), json_values, max_size=3),
    st.sampled_from([None, 2, 4, "\t"]),
    st.sampled_from(["me", "", 'a"b', "ü", "// not a comment"]),
)
def test_adding_and_removing_change_nothing_else(
    document: dict[str, Any], servers: dict[str, Any], indent: Any, name: str
) -> None:
    document["mcpServers"] = servers
    text = "// the servers\n" + json.dumps(document, indent=indent, ensure_ascii=False) + "  /* end */\n"
    added = with_entry(text, "mcpServers", name, ENTRY)
    assert json.loads(plain_json(added)) == document | {"mcpServers": servers | {name: ENTRY}}
    assert "// the servers\n" in added
    assert "/* end */" in added
    left = {key: value for key, value in servers.items() if key != name}
    assert json.loads(plain_json(without_entry(added, "mcpServers", name))) == document | {"mcpServers": left}


TOML = """model = "x"  # the default

[mcp_servers.other]
command = "a"

["mcp_servers"."me"]
command = "old"

[mcp_servers.me.env]
X = "1"

[tui]
theme = "dark"
"""


def test_a_table_of_toml_is_replaced_and_removed() -> None:
    replaced = with_entry(TOML, "mcp_servers", "me", ENTRY, toml=True)
    assert tomllib.loads(replaced)["mcp_servers"] == {"other": {"command": "a"}, "me": ENTRY}
    assert 'model = "x"  # the default' in replaced
    removed = without_entry(replaced, "mcp_servers", "me", toml=True)
    assert tomllib.loads(removed) == {
        "model": "x",
        "mcp_servers": {"other": {"command": "a"}},
        "tui": {"theme": "dark"},
    }


@pytest.mark.parametrize(
    "text",
    ['mcp_servers = {me = {command = "x"}}\n', 'text = """\n[mcp_servers.me]\n"""\n[mcp_servers.me]\ncommand = "x"\n'],
)
def test_toml_whose_tables_are_not_in_lines_of_their_own_is_refused(text: str) -> None:
    with pytest.raises(CannotEdit):
        without_entry(text, "mcp_servers", "me", toml=True)


@pytest.mark.skipif(os.name == "nt", reason="commands are programs there, not scripts")
@pytest.mark.parametrize(("module", "offers"), [("mcp.server.fastmcp", True), ("mcp.server.mcpserver", False)])
def test_a_command_that_needs_another_version_of_its_sdk_is_offered_exec(
    home: Path, capsys: pytest.CaptureFixture[str], module: str, offers: bool
) -> None:
    site = home / "lib" / "python3.11" / "site-packages"
    for each in ("mcp/server/mcpserver", "prog"):
        (site / each).mkdir(parents=True)
    (site / "prog" / "__init__.py").write_text(f"import json\nfrom {module} import Server\ndef main(): ...\n")
    (home / "bin").mkdir()
    script = home / "bin" / "prog-server"
    script.write_text(f"#!{home}/bin/python3.11\nimport re\nimport sys\nfrom prog import main\nsys.exit(main())\n")
    script.chmod(0o755)
    assert install(["cursor", "--yes", "--", str(script), "--fast"]) == 0
    said = capsys.readouterr().err
    assert (f"imports {module}, which" in said) is offers
    assert (f"`linkspan install cursor -- linkspan exec {script} --fast`" in said) is offers


@pytest.mark.skipif(os.name == "nt", reason="commands are programs there, not scripts")
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("linkspan exec mcp-server-time --local-timezone Europe/Oslo", "mcp-server-time"),
        (
            "linkspan exec --as mcp1 --keep=fastmcp awslabs.document-loader-mcp-server",
            "awslabs.document-loader-mcp-server",
        ),
        ("python -m linkspan exec dice.py exec", "dice"),
        ("uvx --from mcp-server-git --with linkspan-compat linkspan exec mcp-server-git", "mcp-server-git"),
        ("linkspan run tools/dice.py --as fastmcp3", "dice"),
        ("linkspan dev", "linkspan"),
        ("server.exe exec dice", "server"),
    ],
)
def test_the_name_of_an_entry_is_that_of_the_program_that_is_run(home: Path, command: str, name: str) -> None:
    words = command.split()
    program = home / "bin" / words[0]
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert install(["cursor", "--yes", "--", str(program), *words[1:]]) == 0
    assert list(read_config(written("Cursor"))) == [name]
