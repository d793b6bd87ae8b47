"""Skills of FastMCP, of the TypeScript SDK and of rmcp: our client at their servers, and their clients at ours."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from native_programs import BUILDING, native_program
from npm_servers import modern_node, node_modules
from pip_servers import python_with

from linkspan import SyncClient
from linkspan.skills import SyncClientSkills

pytestmark = BUILDING

HERE = Path(__file__).parent
FILES = {
    "pdf/SKILL.md": b"---\nname: pdf\ndescription: Forms\nmetadata: {version: '1.0', n: '12'}\n---\n\n# PDF\n",
    "pdf/references/FORMS.md": b"# Forms\r\n\r\nTwo of them.\r\n",  # line ends are part of the bytes
    "pdf/scripts/fill.py": b"print('filled')\n",
    "pdf/assets/logo.bin": bytes(range(256)),
    "billing/refunds/SKILL.md": b"---\nname: refunds\ndescription: Pay back\n---\nDo it.\n",
}
DATED = b"---\nname: dated\ndescription: With a date\nreviewed: 2026-01-02\nanswer: yes\n---\n"


def fastmcp(_: Path) -> list[str]:
    return [python_with("fastmcp-4.2.txt"), str(HERE / "skills_fastmcp.py")]


def typescript(folder: Path) -> list[str]:
    node = modern_node()
    (folder / "node_modules").symlink_to(node_modules())  # node looks beside the script
    script = folder / "skills_typescript.mjs"
    script.write_bytes((HERE / script.name).read_bytes())
    return [node, str(script)]


def rmcp(_: Path) -> list[str]:
    return [native_program("skills_rmcp")]


PEERS = [fastmcp, typescript, rmcp]


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    for path, data in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def run(command: list[str]) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_our_client_reads_and_verifies_their_skills(
    skills: Path, tmp_path: Path, peer: Callable[[Path], list[str]], era: Any
) -> None:
    command = [*peer(tmp_path), "server", str(skills)]
    if peer is fastmcp and era == "legacy":
        pytest.skip("FastMCP declares extensions to clients without a handshake only")
    with SyncClient(command, era=era) as client:
        ours = SyncClientSkills(client)
        found = {each.uri: each for each in ours.list()}
        assert ours.problems == []
        assert sorted(found) == ["skill://billing/refunds/SKILL.md", "skill://pdf/SKILL.md"]
        assert found["skill://pdf/SKILL.md"].entry.frontmatter["metadata"] == {"version": "1.0", "n": "12"}
        for uri, each in found.items():
            root = uri.removeprefix("skill://").removesuffix("SKILL.md")
            assert each.load().encode() == FILES[f"{root}SKILL.md"]
            read = {f"{root}{path}": each.read_bytes(path) for path in each.files}
            assert read == {path: data for path, data in FILES.items() if path.startswith(root)}
            assert ours.get(uri).entry == each.entry
        if peer is not fastmcp:  # it does not declare directoryRead
            assert {(each.uri, each.mime_type) for each in ours.read_directory("skill://pdf")} == {
                ("skill://pdf/SKILL.md", "text/markdown"),
                ("skill://pdf/assets", "inode/directory"),
                ("skill://pdf/references", "inode/directory"),
                ("skill://pdf/scripts", "inode/directory"),
            }


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("way", ["direct", "mounted"])
def test_their_clients_read_and_verify_our_skills(
    skills: Path, tmp_path: Path, peer: Callable[[Path], list[str]], way: str
) -> None:
    command = [*peer(tmp_path), "client", sys.executable, str(HERE / "skills_ours.py"), str(skills)]
    if way == "mounted":
        command.append("mounted")
    found = run(command)
    entries = {each["uri"]: each for each in found["skills"]}
    assert set(entries) == {
        "skill://pdf/SKILL.md",
        "skill://billing/refunds/SKILL.md",
        "skill://reports/daily/SKILL.md",
    }
    assert entries["skill://reports/daily/SKILL.md"]["resources"] == "dynamic"
    assert entries["skill://pdf/SKILL.md"]["frontmatter"]["metadata"] == {"version": "1.0", "n": "12"}
    read = {uri: base64.b64decode(data) for uri, data in found["files"].items() if "daily" not in uri}
    assert read == {f"skill://{path}": data for path, data in FILES.items()}
    if "directory" in found:
        assert {(each["uri"], each["mimeType"]) for each in found["directory"]} == {
            ("skill://pdf/SKILL.md", "text/markdown"),
            ("skill://pdf/assets", "inode/directory"),
            ("skill://pdf/references", "inode/directory"),
            ("skill://pdf/scripts", "inode/directory"),
        }


@pytest.mark.parametrize("peer", [typescript, rmcp])
def test_a_date_and_a_yes_are_texts_for_them_as_for_us(tmp_path: Path, peer: Callable[[Path], list[str]]) -> None:
    """FastMCP refuses a frontmatter with a date: `yaml.SafeLoader` makes a value of it that JSON does not have.

    rmcp reads 012 as a text, which is the number 12 in the core schema of YAML 1.2.
    """
    data = DATED if peer is rmcp else DATED.replace(b"answer", b"old: 012\nanswer")
    (tmp_path / "skills/dated").mkdir(parents=True)
    (tmp_path / "skills/dated/SKILL.md").write_bytes(data)
    with SyncClient([*peer(tmp_path), "server", str(tmp_path / "skills")]) as client:
        (skill,) = SyncClientSkills(client).list()
        assert skill.entry.frontmatter["reviewed"] == "2026-01-02"
        assert skill.entry.frontmatter["answer"] == "yes"
        assert skill.load().encode() == data
