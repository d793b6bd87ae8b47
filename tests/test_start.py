"""How modules are loaded: with the collector off, and without what msgspec does not need."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

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


def test_what_an_application_has_frozen_stays_frozen() -> None:
    code = "import gc; gc.freeze(); import linkspan; linkspan.Server; "
    assert run(code + "print(gc.get_freeze_count() > 0, gc.isenabled())") == "True True"


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
