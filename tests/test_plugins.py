"""Stores, models and hosts of other distributions, which entry points name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from linkspan import LinkspanError
from linkspan.cli.main import main as run_verb
from linkspan.host.models import open_model
from linkspan.plugins import added
from linkspan.stores import MemoryStore, open_store

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return what installs a distribution with a module and entry points, until the end of the test."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(module: str, entry_points: str) -> None:
        (tmp_path / "acme_plugin.py").write_text(module)
        folder = tmp_path / "acme_plugin-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plugin\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(entry_points)
        monkeypatch.delitem(__import__("sys").modules, "acme_plugin", raising=False)

    return write


def test_a_store_of_another_distribution_is_opened_by_its_scheme(install: Install) -> None:
    module = "from linkspan.stores import MemoryStore\n\ndef open_store(url):\n    return MemoryStore()\n"
    install(module, "[linkspan.stores]\nacme = acme_plugin:open_store\n")
    store = open_store("acme://host/1")
    assert isinstance(store, MemoryStore)
    with pytest.raises(LinkspanError, match=r"acme:\.\.\.; not as 'acne'"):
        open_store("acne://host/1")


def test_a_model_of_another_distribution_is_opened_by_its_name(install: Install) -> None:
    module = "def open_model(name, *, key=None, **options):\n    return f'{name} {key} {options}'\n"
    install(module, "[linkspan.models]\nacme = acme_plugin:open_model\n")
    assert str(open_model("acme:large", key="k", headers={})) == "large k {'headers': {}}"
    with pytest.raises(ValueError, match="acme:NAME"):
        open_model("acne:large")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("acme = acme_plugin:main", "made"),
        ("acme=acme_plugin:main [extra]", "made"),
        ("acme-2 = acme_plugin:main", None),
        ("[console_scripts]\nacme = acme_plugin:main", None),
    ],
)
def test_an_entry_point_is_read_in_its_group(install: Install, line: str, value: str | None) -> None:
    install("main = 'made'\n", f"# none\n\n[linkspan.acme]\n{line}\n")
    assert added("linkspan.acme", "acme") == value


def test_an_entry_point_is_read_where_no_folder_of_a_distribution_says_it(install: Install, tmp_path: Path) -> None:
    install("class Made:\n    part = 'made'\n", "[linkspan.acme]\nacme = acme_plugin:Made.part\n")
    (tmp_path / "acme_plugin-1.0.dist-info").rename(tmp_path / "acme_plugin-1.0.egg-info")
    (tmp_path / "acme_plugin-1.0.egg-info" / "METADATA").rename(tmp_path / "acme_plugin-1.0.egg-info" / "PKG-INFO")
    assert added("linkspan.acme", "acme") == "made"
    assert added("linkspan.acme", "acne") is None


def test_a_verb_of_another_distribution_is_run(install: Install) -> None:
    install("def main(arguments):\n    return len(arguments)\n", "[linkspan.verbs]\nferry = acme_plugin:main\n")
    assert run_verb(["ferry", "1", "2"]) == 2


def test_a_verb_that_cannot_be_loaded_is_named(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("raise ImportError('no driver')\n", "[linkspan.verbs]\nferry = acme_plugin:main\n")
    assert run_verb(["ferry"]) == 2
    assert (
        "acme-plugin adds 'ferry' to linkspan.verbs, which cannot be loaded: ImportError: no driver"
        in capsys.readouterr().err
    )


def test_a_verb_of_this_package_and_an_option_look_for_no_distribution() -> None:
    code = """
import sys
from linkspan.cli.main import main
main(["version"])
try:
    main(["--version"])
except SystemExit:
    print("importlib.metadata" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split()[-1] == "False"


def test_what_cannot_be_loaded_is_named(install: Install) -> None:
    install("raise ImportError('no driver')\n", "[linkspan.stores]\nacme = acme_plugin:open_store\n")
    with pytest.raises(LinkspanError, match=r"acme-plugin adds 'acme' to linkspan.stores.*no driver"):
        open_store("acme://host/1")


def test_a_built_in_name_is_not_replaced(install: Install) -> None:
    install("def open_store(url):\n    raise AssertionError\n", "[linkspan.stores]\nmemory = acme_plugin:open_store\n")
    assert isinstance(open_store("memory:"), MemoryStore)


def test_a_host_of_another_distribution_is_read_and_written(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from linkspan.cli.install import install as run_install
    from linkspan.client.config import known_configs, read_config

    module = (
        "from linkspan.client.host_formats import HostFormat\n\n"
        "DESK = HostFormat(title='Acme Desk', path='~/.acme/mcp.json', section='helpers', url='address')\n"
    )
    install(module, "[linkspan.hosts]\nacme = acme_plugin:DESK\n")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    path = tmp_path / ".acme" / "mcp.json"
    path.parent.mkdir()
    path.write_text('{"helpers": {"old": {"command": "old"}}}')
    found = known_configs(home=tmp_path, workspace=tmp_path)
    assert [(each.host, each.path) for each in found] == [("Acme Desk", path)]
    assert list(read_config(path)) == ["old"]
    assert run_install(["acme", "https://example.com/mcp", "--name", "example", "--yes"]) == 0
    assert '"address": "https://example.com/mcp"' in path.read_text()
