"""How modules are loaded: with the collector off, without what msgspec does not need, and no more than a start needs."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import linkspan
from instructions import is_available
from linkspan.loading import load


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("was_on", [True, False])
@pytest.mark.parametrize("home", ["linkspan.server.page", "linkspan.nowhere"])
def test_the_collector_is_as_it_was_after_a_module_is_loaded(home: str, was_on: bool) -> None:
    if not was_on:
        gc.disable()
    try:
        load(home)
    except ModuleNotFoundError:
        assert home == "linkspan.nowhere"
    try:
        assert gc.isenabled() is was_on
    finally:
        gc.enable()


NOTING = "import gc; froze = []; freeze = gc.freeze; gc.freeze = lambda: (froze.append(1), freeze()); import linkspan; "


def test_a_program_that_imports_the_package_decides_itself_what_it_freezes() -> None:
    code = NOTING + "linkspan.Server; linkspan.Client; linkspan.Protected; import linkspan.auth; linkspan.auth.OAuth; "
    assert run(code + "print(froze, gc.isenabled())") == "[] True"


@pytest.mark.parametrize("frozen", [False, True])
def test_linkspan_run_makes_what_it_has_loaded_old_and_leaves_frozen_what_a_file_has_frozen(
    frozen: bool, tmp_path: Path
) -> None:
    file = tmp_path / "dice.py"
    file.write_text(f"import gc, linkspan\nserver = linkspan.Server('dice')\n{'gc.freeze()' if frozen else ''}\n")
    found = run(
        NOTING + f"from linkspan.cli.run import _load; _load({str(file)!r}); print(gc.get_freeze_count() > 0, froze)"
    )
    assert found == ("True [1]" if frozen else "False [1]")


def test_typing_extensions_can_be_imported_after_the_package() -> None:
    code = "import sys; paths = [*sys.meta_path]; import linkspan; linkspan.Server; import typing_extensions; "
    assert run(code + "print(paths == sys.meta_path, typing_extensions.Buffer.__name__)") == "True Buffer"


def test_other_threads_can_import_typing_extensions_while_msgspec_is_loaded() -> None:
    code = """
import sys, threading, linkspan
others = []
class Meanwhile:
    def find_spec(self, name, *_):
        if name.startswith("msgspec"):
            others.append(threading.Thread(target=__import__, args=("typing_extensions",)))
            others[-1].start()
sys.meta_path.insert(0, Meanwhile())
linkspan.Server
for each in others:
    each.join()
print(len(others) > 1, "typing_extensions" in sys.modules)
"""
    assert run(code) == "True True"


def test_types_that_need_it_are_read_as_before() -> None:
    code = """
import linkspan
linkspan.Server
import msgspec, typing, typing_extensions as t
class Part(t.TypedDict):
    a: t.Required[t.Annotated[int, "note"]]
    b: t.NotRequired[str]
class Whole(msgspec.Struct):
    parts: list[Part]
    literal: t.Literal["x"]
print(msgspec.json.decode(b'{"parts":[{"a":1}],"literal":"x"}', type=Whole).parts)
"""
    assert run(code) == "[{'a': 1}]"


CALL_A_TOOL = """
import sys
from linkspan.cli.main import main
assert main(["call", sys.argv[1], "add", "a=1", "b=2"]) == 0
print(sorted(sys.modules))
"""


def test_a_call_of_a_file_loads_nothing_of_http_of_servers_and_of_logs(tmp_path: Path) -> None:
    file = tmp_path / "adding.py"
    file.write_text(OURS)
    command = [
        sys.executable,
        "-S",
        "-c",
        CALL_A_TOOL,
        str(file),
    ]  # what is installed beside may load modules at its start
    paths = os.pathsep.join(sys.path)
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    loaded = set(re.findall(r"'([\w.]+)'", done.stdout))
    unwanted = {
        "asyncio",
        "logging",
        "random",
        "importlib.metadata",
        "linkspan.flows.http_messages",
        "linkspan.core.call",
    }
    assert "linkspan.client.transports.stdio" in loaded
    assert loaded & unwanted == set()


BARE = """
import sys, msgspec
class Arguments(msgspec.Struct):
    a: int
    b: int
class Params(msgspec.Struct):
    name: str
    arguments: Arguments
class Request(msgspec.Struct):
    id: int
    method: str
    params: Params
decode = msgspec.json.Decoder(Request).decode
for line in sys.stdin.buffer:
    request = decode(line)
    text = str(request.params.arguments.a + request.params.arguments.b)
    result = {"content": [{"type": "text", "text": text}]}
    sys.stdout.buffer.write(msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "result": result}) + b"\\n")
    sys.stdout.buffer.flush()
"""
OURS = """
from linkspan import Server
server = Server("adding")
@server.tool
def add(a: int, b: int) -> int:
    return a + b
server.run()
"""
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META},
}
MOST = 2.08
"""Instructions of a server from its start to its end with one call, as a multiple of those of a program with msgspec alone."""


@pytest.mark.skipif(not is_available(), reason="counting instructions needs valgrind, on Linux")
@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the bound is that of Python 3.11: others import differently"
)
def test_a_start_takes_few_more_instructions_than_that_of_msgspec_alone(tmp_path: Path) -> None:
    site = tmp_path / "site"  # what is installed beside these would count
    site.mkdir()
    for package in (linkspan, msgspec):
        assert package.__file__ is not None
        home = Path(package.__file__).parent
        (site / home.name).symlink_to(home)
    bare, ours = (_instructions(code, tmp_path / name, site) for name, code in (("bare.py", BARE), ("ours.py", OURS)))
    assert ours / bare < MOST


def _instructions(code: str, path: Path, site: Path) -> int:
    path.write_text(code)
    env = {
        "PYTHONPATH": str(site),
        "PYTHONPYCACHEPREFIX": str(site.parent / "compiled"),
        "PYTHONHASHSEED": "0",
        "PATH": os.environ["PATH"],
    }
    program = [os.path.realpath(sys.executable), "-S", str(path)]
    counting = ["valgrind", "--tool=exp-bbv", "--instr-count-only=yes", "--bb-out-file=/dev/null", *program]
    call = json.dumps(CALL).encode() + b"\n"
    for command in (program, counting):  # the first compiles what is imported
        done = subprocess.run(command, input=call, capture_output=True, env=env)
        assert b'"text":"3"' in done.stdout, done.stderr.decode()
    found = re.search(rb"Total instructions: (\d+)", done.stderr)
    assert found is not None
    return int(found[1])
