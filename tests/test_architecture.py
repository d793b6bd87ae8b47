"""The four laws of docs/architecture.md, and what an import may load."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import figures
from linkspan.revisions import REVISIONS

SOURCE = Path(__file__).parent.parent / "src" / "linkspan"

PICTURE = SOURCE.parent.parent / "docs" / "architecture.md"

LAYERS = {
    "habits": -1,
    "loading": 0,
    "naming": 0,
    "text": 0,
    "types": 1,
    "errors": 1,
    "keywords": 1.5,
    "plugins": 1.5,
    "wire": 2,
    "schema": 2,
    "revisions": 3,
    "core": 4,
    "server": 5,
    "flows": 5,
    "auth": 6,
    "extensions": 8.5,
    "runtime": 7,
    "stores": 7.5,
    "engines": 7.5,
    "client": 8,
    "upstreams": 8.7,
    "serve": 9,
    "host": 10,
    "bridge": 10.6,
    "contract": 10.2,
    "testing": 10.5,
    "workbench": 10.7,
    "checks": 10.3,
    "doctor": 10.5,
    "skills": 10.5,
    "apps": 10.5,
    "openapi": 10.5,
    "cli": 11,
}
PURE = {name for name, rank in LAYERS.items() if rank < LAYERS["runtime"]}
"""The packages whose modules have no clock, thread, process or socket: these come in as arguments."""
FACADES = {"__init__", "__main__", "_version"}
SAME_FLOOR = {("errors", "types"), ("types", "errors")}
DRIVERS_ONLY = {
    "anyio",
    "asyncio",
    "concurrent",
    "multiprocessing",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
}
NOT_AT_IMPORT = DRIVERS_ONLY - {"time"} | {
    "argparse",
    "cryptography",
    "email",
    "hashlib",
    "http",
    "jsonschema",
    "jsonschema_rs",
    "logging",
    "pydantic",
    "urllib.request",
}
DATE = re.compile(r"20\d\d-\d\d-\d\d")


MODULES = sorted(figures.sources())
every_module = pytest.mark.parametrize("name", MODULES)


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """Forget the syntax trees in the end: they are large."""
    yield
    figures.nodes.cache_clear()


def imports(name: str) -> Iterator[str]:
    """Return the dotted names that a module imports."""
    for node in figures.nodes(name):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "imports say from where"
            assert not node.level, "imports say from where"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(module: str) -> str:
    """Return the layer of a file, or of the dotted name of a module below `linkspan`."""
    return re.split(r"[/.]", module)[0]


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest cannot collect both in one process."""
    tests = Path(__file__).parent
    files = [each.name for place in (tests, tests.parent / "compat" / "tests") for each in place.rglob("test_*.py")]
    assert [name for name, count in Counter(files).items() if count > 1] == []


@every_module
def test_imports_go_down_only(name: str) -> None:
    mine = layer(name)
    if mine in FACADES:
        return
    for imported in imports(name):
        if not imported.startswith("linkspan."):
            continue
        theirs = layer(imported.removeprefix("linkspan."))
        if theirs in {mine, "_version"} or (mine, theirs) in SAME_FLOOR:
            continue
        assert theirs in LAYERS, f"{name} imports {imported}, which is in no layer"
        assert LAYERS[theirs] < LAYERS[mine], f"{name} imports {imported}"


@every_module
def test_pure_modules_touch_no_clock_thread_or_socket(name: str) -> None:
    if layer(name) not in PURE:
        return
    touched = {imported.split(".")[0] for imported in imports(name)} & DRIVERS_ONLY
    assert not touched, f"{name} imports {', '.join(touched)}"


@every_module
def test_dates_stand_in_revisions_only(name: str) -> None:
    if layer(name) == "revisions":
        return
    said = {id(node.value) for node in figures.nodes(name) if isinstance(node, ast.Expr)}
    for node in figures.nodes(name):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            named = set(DATE.findall(node.value)) & set(REVISIONS)
            assert not named, f"{name}:{node.lineno} names a revision by its date"


OF_ONE_SYSTEM = {
    "fcntl": {"runtime/descriptors.py", "runtime/shared_files.py", "runtime/stdout.py", "serve/sharing.py"},
    "msvcrt": {"runtime/shared_files.py", "runtime/stdout.py"},
    "os.close": {
        "cli/chat_store.py", "cli/terminal.py", "client/vault.py", "host/memory.py", "runtime/descriptors.py",
        "runtime/files.py", "runtime/forks.py", "runtime/shutdown_watchdog.py", "runtime/stdout.py",
        "serve/http_workers.py", "serve/sharing.py", "serve/stream.py", "stores/sqlite.py",
    },
    "os.fork": {"serve/http_workers.py"},
    "os.killpg": {"runtime/process.py"},
    "os.read": {"runtime/descriptors.py", "runtime/stdout.py", "serve/http_workers.py"},
    "pass_fds": {"runtime/process.py"},
    "signal.SIGKILL": {"runtime/process.py", "serve/http_workers.py"},
    "termios": {"cli/terminal.py"},
}  # fmt: skip
"""What a system lacks, or has for descriptors and not for sockets, and the modules that know what they have before them."""


def uses_of_one_system(name: str) -> set[str]:
    """Return which of these a module names."""
    found = set(imports(name))
    for node in figures.nodes(name):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.keyword) and node.arg is not None:
            found.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found & OF_ONE_SYSTEM.keys()


@every_module
def test_what_only_some_systems_have_is_used_by_the_modules_that_guard_it(name: str) -> None:
    elsewhere = {each for each in uses_of_one_system(name) if name not in OF_ONE_SYSTEM[each]}
    assert not elsewhere, f"{name} uses {', '.join(elsewhere)}"


def test_each_module_that_guards_something_of_one_system_uses_it() -> None:
    unused = {
        (each, name) for each, names in OF_ONE_SYSTEM.items() for name in names if each not in uses_of_one_system(name)
    }
    assert not unused


@every_module
def test_no_thread_of_ours_is_waited_for_at_the_exit(name: str) -> None:
    """One that is no daemon holds the process for as long as it runs; `testing` waits for its own."""
    held = [
        node.lineno
        for node in figures.nodes(name)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("Thread", "Timer")
        and not any(each.arg == "daemon" and ast.unparse(each.value) == "True" for each in node.keywords)
    ]
    assert layer(name) == "testing" or not held, f"{name} starts threads that are no daemons, in lines {held}"


def test_no_name_of_a_module_stands_twice_in_the_pure_packages() -> None:
    names = Counter(Path(name).stem for name in MODULES if layer(name) in PURE and not name.endswith("__init__.py"))
    assert not [name for name, count in names.items() if count > 1]


@every_module
def test_every_module_says_what_it_is(name: str) -> None:
    tree = figures.nodes(name)[0]
    assert isinstance(tree, ast.Module)
    assert ast.get_docstring(tree) or name == "_version.py", f"{name} has no docstring"


@every_module
def test_what_a_module_lists_as_public_is_there(name: str) -> None:
    tree = figures.nodes(name)[0]
    assert isinstance(tree, ast.Module)
    assigned = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    if "__all__" not in assigned:
        brings = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "__future__"]
        assert not (name.endswith("__init__.py") and brings), f"{name} is a package with names: list them in __all__"
        return
    if name == "__init__.py":
        return  # its names are loaded when they are used; tests/server holds them
    defined = set(assigned) | {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
    }
    brought = {
        alias.asname or alias.name
        for node in figures.nodes(name)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    missing = set(ast.literal_eval(assigned["__all__"])) - defined - brought
    assert not missing, f"{name} lists {', '.join(missing)}, which it does not have"


def test_importing_the_server_loads_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import linkspan; linkspan.Server; print(*set(sys.modules) - before)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {each for each in loaded if each in NOT_AT_IMPORT or each.split(".")[0] in NOT_AT_IMPORT}
    assert not heavy
    foreign = {each.split(".")[0] for each in loaded} - sys.stdlib_module_names - {"linkspan", "msgspec"}
    assert not foreign


def test_what_only_some_servers_need_is_not_imported_with_the_server() -> None:
    code = "import sys, linkspan; linkspan.Server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"inspect", "json", "typing_extensions"} & set(loaded)


def test_importing_the_client_loads_no_server_no_http_and_no_crypto() -> None:
    code = "import sys, asyncio; before = {*sys.modules}; import linkspan.client as c; c.Client; c.SyncClient; "
    code += "print(*{*sys.modules} - before)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [each for each in loaded if each.startswith(("linkspan.server", "linkspan.auth", "linkspan.host"))]
    assert not {"http", "http.client", "httpx2", "hashlib", "cryptography"} & set(loaded)
    code = "import sys; import linkspan.client as c; c.SyncClient; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "asyncio" not in loaded, "a client for threads waits for no event loop"


def test_handle_json_needs_no_event_loop_and_no_thread_for_plain_functions() -> None:
    code = """
import sys, linkspan
server = linkspan.Server()
@server.tool
def add(a: int, b: int) -> int: return a + b
call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}'
assert '"3"' in server.handle_json(call)
print(*sys.modules)
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncio", "threading", "concurrent.futures"} & set(loaded)


FACES = {"Client", "SyncClient", "Context", "Server"}
"""Classes that have a method for each thing that the protocol can do."""
MOST_METHODS = 30
LARGE = {
    "Authorizer": "each method is a step of the specification, beside the requirement that it meets",
    "BaseServer": "the face that the author of a server registers with: one method for each thing to do",
    "Dispatcher": "what connections ask, and the one way of each call: split off are the method table and the views of sources",
    "ServerConnection": "one machine with one lock: what is split off has to know half of its state",
}
"""Other classes that have more, and why; four at most."""


def test_classes_have_few_methods() -> None:
    large = {name for name, count in figures.method_counts().items() if count > MOST_METHODS}
    assert large - FACES == LARGE.keys()
    assert len(LARGE) <= 4


SAME_NAMES = {
    "Call": "the public one of middleware, and the one that the core hands to what runs it",
    "Prompt": "what an author writes, and how a list shows it",
    "Resource": "the same",
    "ResourceTemplate": "the same",
    "Tool": "the same",
}
"""Names of classes that stand for two, and why."""


def test_one_class_has_one_name() -> None:
    twice = {name: modules for name, modules in figures.class_names().items() if len(modules) > 1}
    assert twice.keys() == SAME_NAMES.keys(), twice


NAMED_IN = {"tools/call": 10, "prompts/get": 5, "resources/read": 9, "completion/complete": 8}
"""In how many files a method may be named; elsewhere its facts are read: `linkspan.types.methods`.

`checks/` is left out: it writes the messages that the specification names, for servers that are not ours.
"""


@pytest.mark.parametrize("method", NAMED_IN)
def test_a_method_is_named_where_it_is_made(method: str) -> None:
    files = [each for each in figures.files_naming(method) if not each.startswith("checks/")]
    assert len(files) <= NAMED_IN[method], files


# The ratchet: each figure may only fall. `python tests/figures.py` prints them, and the sizes, which nothing bounds.

BOUNDS = {
    "attributes of other objects assigned in core": 0,
    "decisions by era in server and core": 0,
    "decisions by era elsewhere": 0,
    "modules in import cycles": 0,
    "calls over stdio": 32,
    "calls over ASGI": 44,
    "calls of a client in memory": 75,
    "calls over handle_json": 26,
    'calls over run("http")': 50,
    'calls over run("http") in a session': 65,
    "calls of an HTTP client": 100,
    "calls for a task on SQLite": 450,
    "calls for a progress notification": 13,
    "calls for a change": 12,
    "objects a call on a byte stream leaves to the collector": 0,
    "objects a call over ASGI leaves to the collector": 0,
}


@pytest.fixture(scope="module")
def measured() -> dict[str, float]:
    """Every figure, measured once, in a process where the objects and threads of no other test count."""
    done = subprocess.run([sys.executable, figures.__file__, "json"], capture_output=True, text=True, check=True)
    figures_by_name: dict[str, float] = json.loads(done.stdout)
    return figures_by_name


@pytest.mark.parametrize("name", BOUNDS)
def test_no_figure_rises(name: str, measured: dict[str, float]) -> None:
    assert measured[name] <= BOUNDS[name], f"{name}: {measured[name]}, it was {BOUNDS[name]}"


def test_the_picture_shows_the_walks_that_are_measured() -> None:
    assert figures.PICTURE.read_text() == figures.picture(), "run `python tests/figures.py walk`"


def test_the_picture_has_every_package() -> None:
    picture = PICTURE.read_text().split("```")[1]
    packages = {each.parent.name for each in SOURCE.glob("*/__init__.py")}
    assert [name for name in LAYERS if (f"{name}/" if name in packages else name) not in picture] == []
