"""Plants random faults in the sources, one at a time, and counts how many the tests notice.

    pip install -e '.[dev,peers,faults]'
    python bench/faults.py map                               # once: which test runs which line (about ten minutes)
    python bench/faults.py plant core --count 100 --seed 1   # below src/linkspan; prints each fault and whether it was caught

Use a checkout without changes of your own: the file with the fault is written in place, and put back afterwards. A fault is
caught when a test fails, hangs or cannot be collected. First come the tests that run the line, the quickest first, then the
test directories that have to do with it, whole. `plant` is the same for the same seed and sources.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

HOME = Path(__file__).resolve().parent.parent
SOURCE = HOME / "src" / "linkspan"
MAP = HOME / ".faults.json"
QUICK = 60
"""Tests that run a line and are tried before whole directories: the quickest."""

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


class Fault(NamedTuple):
    """One change to one file, by its place among all that can be made there, and what a reader wants to know of it."""

    path: Path
    number: int
    line: int
    change: str


# What can be changed.


def faults_in(path: Path) -> list[Fault]:
    """Return every fault that can be planted in a file."""
    places = enumerate(_places(ast.parse(path.read_text())))
    return [
        Fault(path, number, node.lineno, f"{change}: {ast.unparse(node).splitlines()[0][:70]}")
        for number, (node, change, _) in places
    ]


def with_fault(fault: Fault) -> str:
    """Return the source of the file with the fault in it."""
    tree = ast.parse(fault.path.read_text())
    _, _, change = next(place for number, place in enumerate(_places(tree)) if number == fault.number)
    change()
    return ast.unparse(ast.fix_missing_locations(tree))


Place: TypeAlias = tuple[ast.stmt | ast.expr, str, Callable[[], object]]
"""A node, the kind of change, and what makes it."""


def _places(tree: ast.Module) -> Iterator[Place]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _in_function(function)


def _in_function(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Place]:
    for owner in _inside(function):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(owner, field, None)
            if isinstance(block, list):
                yield from _in_block(block)
        if isinstance(owner, ast.Compare) and type(owner.ops[0]) in SWAPPED:
            yield owner, "other comparison", lambda o=owner: o.ops.__setitem__(0, SWAPPED[type(o.ops[0])]())
        elif isinstance(owner, ast.BoolOp | ast.BinOp) and type(owner.op) in SWAPPED:
            yield owner, "other operator", lambda o=owner: setattr(o, "op", SWAPPED[type(o.op)]())
        elif isinstance(owner, ast.If | ast.While | ast.IfExp):
            if not _is_type_checking(owner.test):
                yield (
                    owner.test,
                    "condition negated",
                    lambda o=owner: setattr(o, "test", ast.UnaryOp(ast.Not(), o.test)),
                )
        elif isinstance(owner, ast.Constant) and isinstance(owner.value, bool):
            yield owner, "other constant", lambda o=owner: setattr(o, "value", not o.value)
        elif isinstance(owner, ast.Constant) and isinstance(owner.value, int | float):
            yield owner, "other constant", lambda o=owner: setattr(o, "value", o.value + 1)


def _in_block(block: list[ast.stmt]) -> Iterator[Place]:
    for at, statement in enumerate(block):
        droppable = (
            (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.Await))
            or (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute | ast.Subscript))
            or isinstance(statement, ast.AugAssign | ast.Delete | ast.Raise | ast.Continue | ast.Break)
        )
        if droppable:
            yield statement, "dropped", lambda at=at: block.__setitem__(at, ast.copy_location(ast.Pass(), block[at]))
        elif isinstance(statement, ast.Return) and statement.value is not None and not _is_none(statement.value):
            yield statement, "returns None", lambda s=statement: setattr(s, "value", ast.Constant(None))


def _inside(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Walk the statements of a function and what they contain: no annotations, defaults, asserts, inner functions."""
    waiting: list[ast.AST] = [function]
    while waiting:
        node = waiting.pop()
        yield node
        inner = node.body if node is function else ast.iter_child_nodes(node)
        for child in inner:
            skipped = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Assert, ast.arguments, ast.AnnAssign)
            if isinstance(child, skipped) and not (isinstance(child, ast.AnnAssign) and child.value is not None):
                continue
            waiting.append(child.value if isinstance(child, ast.AnnAssign) and child.value is not None else child)


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


# Which test runs which line.


def make_map(jobs: int) -> None:
    """Run all tests once and remember which of them ran each line, and how long each took."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", str(jobs), "--dist", "loadfile"]
    command += ["--cov=linkspan", "--cov-context=test", "--cov-report=", "-o", "timeout=300", "--durations=0", "-vv"]
    report = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False).stdout
    seconds: dict[str, float] = defaultdict(float)
    for row in report.splitlines():
        parts = row.split(maxsplit=2)
        if len(parts) == 3 and parts[0].endswith("s") and parts[1] in ("call", "setup"):
            seconds[parts[2].strip()] += float(parts[0][:-1])
    lines: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    from coverage.numbits import numbits_to_nums

    with sqlite3.connect(HOME / ".coverage") as found:
        rows = found.execute(
            "select file.path, context.context, numbits from line_bits "
            "join file on file.id = file_id join context on context.id = context_id where context.context != ''"
        )
        for path, context, bits in rows:
            test = context.partition("|")[0]
            for line in numbits_to_nums(bits):
                lines[Path(path).relative_to(SOURCE).as_posix()][line].append(test)
    quickest = {
        name: {
            line: sorted(set(tests), key=lambda test: seconds.get(test, 0.0))[:QUICK] for line, tests in found.items()
        }
        for name, found in lines.items()
    }
    MAP.write_text(json.dumps(quickest))
    print(f"{len(seconds)} tests, {sum(map(len, lines.values()))} lines: {MAP.name}")


# Planting.


def plant(where: str, count: int, seed: int, seconds: float, rest: float) -> None:
    """Plant `count` random faults below a directory, and print what became of each."""
    known: dict[str, dict[str, list[str]]] = json.loads(MAP.read_text()) if MAP.exists() else {}
    possible = [fault for path in sorted((SOURCE / where).rglob("*.py")) for fault in faults_in(path)]
    chosen = random.Random(seed).sample(possible, count)
    survivors = 0
    for number, fault in enumerate(chosen, 1):
        name = fault.path.relative_to(SOURCE).as_posix()
        by_line = known.get(name, {}).get(str(fault.line), [])
        original = fault.path.read_text()
        fault.path.write_text(with_fault(fault))
        try:
            verdict = _noticed(by_line, seconds) or (_noticed(_directories(where), rest) if rest else "")
        finally:
            fault.path.write_text(original)
        survivors += not verdict
        print(f"{number:4} {verdict or 'SURVIVED':9} {name}:{fault.line} {fault.change}", flush=True)
    print(f"{count - survivors} caught, {survivors} survived")


def _directories(where: str) -> list[str]:
    """Return the tests that have to do with a layer; the language models' and the schemas' have not."""
    left_out = {"host", "schema", "source_documents", "conformance", "__pycache__", "transcripts"}
    kept = [each for each in sorted((HOME / "tests").iterdir()) if each.is_dir() and each.name not in left_out]
    near = [each for each in kept if where.split("/")[0] in each.name]
    others = [each for each in kept if each not in near]
    files = sorted((HOME / "tests").glob("test_*.py"))
    return [str(each.relative_to(HOME)) for each in (*near, *files, *others)]


def _noticed(tests: list[str], seconds: float) -> str:
    """Run tests; return how they noticed something, or an empty text."""
    if not tests:
        return ""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-o",
        "timeout=30",
        *tests,
    ]
    with subprocess.Popen(
        command, cwd=HOME, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as running:
        try:
            status = running.wait(seconds)
        except subprocess.TimeoutExpired:
            return "hung"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    return "" if status in (0, 5) else "caught"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    mapping = verbs.add_parser("map", help="find out which test runs which line")
    mapping.add_argument("--jobs", type=int, default=2)
    planting = verbs.add_parser("plant", help="plant faults")
    planting.add_argument("where", help="a directory or a package below src/linkspan, such as core")
    planting.add_argument("--count", type=int, default=100)
    planting.add_argument("--seed", type=int, default=1)
    planting.add_argument("--seconds", type=float, default=120.0, help="for the tests that run the line")
    planting.add_argument("--rest", type=float, default=600.0, help="for the directories; 0 leaves them out")
    given = parser.parse_args()
    if given.verb == "map":
        make_map(given.jobs)
    else:
        plant(given.where, given.count, given.seed, given.seconds, given.rest)


if __name__ == "__main__":
    main()
