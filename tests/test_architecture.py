"""The four laws of the package (docs/architecture.md), read from its source; and what importing the server may load."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import linkspan

PACKAGE = Path(linkspan.__file__).parent

LAYERS = {
    name: level
    for level, names in enumerate(
        [
            ("types", "events", "errors", "_version"),
            ("wire", "schema"),
            ("revisions",),
            ("core",),
            ("server", "client", "auth"),
            ("extensions",),
            ("io",),
            ("host",),
            ("cli",),
        ]
    )
    for name in names
}
SHARED = {"types", "events", "errors"}
"""The values of the lowest layer, which may speak of one another."""

FACADES = {"linkspan", "linkspan.__main__"}
"""They load what lies anywhere below them."""

LAZY = {
    (
        "linkspan.server.server",
        "io",
    ): "Server is the user's facade: run() and handle_json() load their drivers when called",
}
"""Imports that go up, allowed inside of a function only. Each one needs a reason."""

WORLD = {"asyncio", "anyio", "threading", "socket", "ssl", "time", "subprocess", "selectors", "signal"}
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")


class Module(NamedTuple):
    """A module's dotted name, its layer, and its syntax."""

    name: str
    layer: str
    tree: ast.Module
    is_package: bool


class Import(NamedTuple):
    """An import: what is named, in which line, and whether a function has to be called for it."""

    target: str
    line: int
    lazy: bool


def read(path: Path) -> Module:
    parts = ["linkspan", *path.relative_to(PACKAGE).with_suffix("").parts]
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(name, (*name.split("."), "")[1], ast.parse(path.read_text(encoding="utf-8")), is_package)


MODULES = [module for path in sorted(PACKAGE.rglob("*.py")) if (module := read(path)).name not in FACADES]
every_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)


def imports_of(module: Module) -> Iterator[Import]:
    """Return every import, those for type checkers and those inside of functions too."""
    lazy = {
        id(inner)
        for outer in ast.walk(module.tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(outer)
    }
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            front = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*front, *filter(None, [node.module])])
            targets = [f"{source}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            yield Import(target, node.lineno, id(node) in lazy)


def may_import(module: Module, found: Import) -> bool:
    layer = (*found.target.split("."), "")[1]
    if layer == module.layer or (layer in SHARED and module.layer in SHARED):
        return True
    return LAYERS.get(layer, 99) < LAYERS[module.layer] or (found.lazy and (module.name, layer) in LAZY)


@every_module
def test_imports_go_down_only(module: Module) -> None:
    assert module.layer in LAYERS, "a new part of the package needs its place among the layers"
    ours = [found for found in imports_of(module) if found.target.split(".")[0] == "linkspan"]
    assert [found for found in ours if not may_import(module, found)] == []


@every_module
def test_no_input_output_clock_or_thread_below_io(module: Module) -> None:
    if LAYERS[module.layer] < LAYERS["io"]:
        assert [found for found in imports_of(module) if found.target.split(".")[0] in WORLD] == []


@every_module
def test_no_revision_is_named_outside_of_revisions(module: Module) -> None:
    """Docstrings are not looked at: the addresses of the spec's pages have dates in them."""
    documents = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(module.tree) if isinstance(node, ast.Constant) and id(node) not in documents]
    dated = [(node.lineno, node.value) for node in texts if isinstance(node.value, str) and DATE.search(node.value)]
    assert module.layer == "revisions" or dated == []


@every_module
def test_every_public_module_says_what_is_public(module: Module) -> None:
    if any(part.startswith("_") for part in module.name.split(".")):
        return
    stated = [value for target, value in assignments(module.tree) if target == "__all__"]
    assert len(stated) == 1, "one __all__, as a literal list"
    names = ast.literal_eval(stated[0])
    assert isinstance(names, list)
    assert sorted(set(names)) == sorted(names), "each name once"
    assert set(names) - defined_in(module.tree) == set()


def assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from ((name.id, node.value) for name in ast.walk(target) if isinstance(name, ast.Name))


def defined_in(tree: ast.Module) -> set[str]:
    """Return the names at the top of a module, also those under an `if` or a `try`."""
    names: set[str] = set()
    nodes: list[ast.AST] = list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        else:
            nodes += ast.iter_child_nodes(node)
    return names


def test_every_exception_to_the_laws_is_still_needed() -> None:
    by_name = {module.name: module for module in MODULES}
    for name, layer in LAZY:
        used = [
            found for found in imports_of(by_name[name]) if found.lazy and found.target.startswith(f"linkspan.{layer}")
        ]
        assert used, f"{name} does not import {layer} any more: take it off the list"


HEAVY = {"argparse", "asyncio", "concurrent", "cryptography", "email", "http", "jsonschema", "jsonschema_rs"}
HEAVY |= {"multiprocessing", "pydantic", "socket", "ssl", "urllib.request"}
MINE = {"linkspan", "msgspec", "typing_extensions"}
"""typing_extensions is loaded by msgspec where it is installed."""


def test_importing_the_server_loads_little() -> None:
    script = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import linkspan; linkspan.Server; print(*sys.modules)"
    )
    where = json.dumps([str(PACKAGE.parent), *filter(None, sys.path)])
    command = [sys.executable, "-I", "-S", "-c", script, where]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert "linkspan.server.server" in loaded
    assert loaded & HEAVY == set()
    tops = {name.partition(".")[0] for name in loaded}
    assert tops - sys.stdlib_module_names - MINE - {"__main__"} == set()
