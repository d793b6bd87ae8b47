"""Plants random faults in the sources, one at a time, and counts how many the tests notice.

    pip install -e '.[dev,peers,faults]'
    python bench/faults.py map                               # once: which test runs which line (half an hour)
    python bench/faults.py map tests/core tests/serve        # or only these, added to the map
    python bench/faults.py plant core --count 100 --seed 1   # below src/linkspan; prints each fault and whether it was caught

Use a checkout without changes of your own: the file with the fault is written in place, and put back afterwards. A fault is
caught when a test fails, hangs or cannot be collected. First come the tests that run the line, the quickest first, then the
test directories that have to do with it, whole: what runs in a child process is in no map. `map` adds to what it has found
before, so that it can be made in pieces. `plant` is the same for the same seed and sources.
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
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, TypeAlias

HOME = Path(__file__).resolve().parent.parent
SOURCE = HOME / "src" / "linkspan"
MAP = HOME / ".faults.json"
QUICK = 60
"""Tests that run a line and are tried before the others that do: the quickest."""

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


_HUNG = "hung"
"""How tests are called that do not end in time. That of whole directories may be too short: it shows nothing."""

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


class Known:
    """Which tests ran each line of the sources, and how long each took."""

    def __init__(self) -> None:
        found = json.loads(MAP.read_text()) if MAP.exists() else {"seconds": {}, "lines": {}}
        self.seconds: dict[str, float] = found["seconds"]
        self.lines: dict[str, dict[str, list[str]]] = found["lines"]

    def tests_of(self, name: str, line: int) -> list[str]:
        """Return the tests that run a line of a file, the quickest first."""
        return sorted(self.lines.get(name, {}).get(str(line), []), key=lambda test: self.seconds.get(test, 0.0))

    def within(self, tests: list[str], seconds: float) -> list[str]:
        """Return as many of the tests as end within a time."""
        ends = accumulate(self.seconds.get(test, 0.0) for test in tests)
        return [test for test, end in zip(tests, ends, strict=True) if end <= seconds]

    def add(self, seconds: dict[str, float], rows: Iterable[tuple[str, str, bytes]]) -> None:
        """Add what one run of tests has shown, and write it down. The rows are file, context and the bits of the lines."""
        from coverage.numbits import numbits_to_nums

        self.seconds |= seconds
        for path, context, bits in rows:
            test = context.rpartition("|")[0]  # its phase follows, and it may have such a letter itself
            of_file = self.lines.setdefault(Path(path).relative_to(SOURCE).as_posix(), {})
            for line in numbits_to_nums(bits):
                tests = of_file.setdefault(str(line), [])
                if test not in tests:
                    tests.append(test)
        MAP.write_text(json.dumps({"seconds": self.seconds, "lines": self.lines}))


def make_map(pieces: list[str], jobs: int) -> None:
    """Run tests, one directory after the other, and remember which of them ran each line, and how long each took."""
    known = Known()
    for piece in pieces or [str(each.relative_to(HOME)) for each in sorted((HOME / "tests").glob("[!_]*"))]:
        options = f"-p no:cacheprovider -n {jobs} --dist loadfile -o timeout=300 --durations=0 -vv"
        coverage = "--cov=linkspan --cov-context=test --cov-report="
        command = [sys.executable, "-m", "pytest", *options.split(), *coverage.split(), piece]
        report = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False).stdout
        seconds: dict[str, float] = defaultdict(float)
        for row in report.splitlines():
            parts = row.split(maxsplit=2)
            if len(parts) == 3 and parts[0].endswith("s") and parts[1] in ("call", "setup"):
                seconds[parts[2].strip()] += float(parts[0][:-1])
        with sqlite3.connect(HOME / ".coverage") as found:
            known.add(
                seconds,
                found.execute(
                    "select file.path, context.context, numbits from line_bits join file on file.id = file_id "
                    "join context on context.id = context_id where context.context like '%|%'"
                ),
            )
        print(f"{piece}: {len(seconds)} tests; {sum(map(len, known.lines.values()))} lines in all", flush=True)


# Planting.


def plant(
    where: list[str], count: int, seed: int, seconds: float, rest: float, only: list[int], also: list[str]
) -> None:
    """Plant `count` random faults below directories, or `only` some of them, and print what became of each."""
    known = Known()
    possible = [fault for each in where for path in sorted((SOURCE / each).rglob("*.py")) for fault in faults_in(path)]
    print(f"{len(possible)} possible, {count} chosen with seed {seed}")
    survivors = 0
    for number, fault in enumerate(random.Random(seed).sample(possible, count), 1):
        if only and number not in only:
            continue
        name = fault.path.relative_to(SOURCE).as_posix()
        tests = known.tests_of(name, fault.line)
        original = fault.path.read_text()
        fault.path.write_text(with_fault(fault))
        try:
            verdict = (
                _noticed(tests[:QUICK], seconds)
                or _noticed(known.within(tests[QUICK:], seconds), seconds * 5)
                or (_noticed(also or _directories(where), rest).removesuffix(_HUNG) if rest else "")
            )
        finally:
            fault.path.write_text(original)
        survivors += not verdict
        print(
            f"{number:4} {'caught' if verdict else 'SURVIVED':9} {name}:{fault.line} {fault.change}"
            f" | {verdict or f'{len(tests)} tests run the line'}",
            flush=True,
        )
    print(f"{(len(only) or count) - survivors} caught, {survivors} survived")


def _directories(where: list[str]) -> list[str]:
    """Return the tests that have to do with a layer; the language models' and the schemas' have not."""
    left_out = {"host", "schema", "source_documents", "conformance", "__pycache__", "transcripts"}
    kept = [each for each in sorted((HOME / "tests").iterdir()) if each.is_dir() and each.name not in left_out]
    layers = {each.split("/")[0] for each in where}
    near = [each for each in kept if each.name in layers]
    others = [each for each in kept if each not in near]
    files = sorted((HOME / "tests").glob("test_*.py"))
    return [str(each.relative_to(HOME)) for each in (*near, *files, *others)]


def _noticed(tests: list[str], seconds: float) -> str:
    """Run tests; return the first that failed, `_HUNG`, or an empty text where nothing noticed."""
    if not tests:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        arguments = Path(folder, "tests")  # more of them than a command line takes
        arguments.write_text("\n".join(tests))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-o", "timeout=60"]
        with subprocess.Popen(
            [*command, f"@{arguments}"],
            cwd=HOME,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as running:
            try:
                report, _ = running.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                return _HUNG
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
    if running.returncode in (0, 5):
        return ""
    if running.returncode == 4:
        raise SystemExit(report)  # a test of the map does not exist any more
    failed = [line for line in report.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))]
    return failed[0].split(" - ")[0] if failed else "could not be run"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    mapping = verbs.add_parser("map", help="find out which test runs which line")
    mapping.add_argument("pieces", nargs="*", help="test directories and files; without any, all, one by one")
    mapping.add_argument("--jobs", type=int, default=2)
    planting = verbs.add_parser("plant", help="plant faults")
    planting.add_argument("where", nargs="+", help="directories below src/linkspan, such as core")
    planting.add_argument("--count", type=int, default=100)
    planting.add_argument("--seed", type=int, default=1)
    planting.add_argument("--only", type=int, nargs="+", default=[], help="numbers of this draw to plant again")
    planting.add_argument("--also", nargs="+", default=[], help="what to run last, in place of the directories")
    planting.add_argument("--seconds", type=float, default=120.0, help="for the tests that run the line")
    planting.add_argument("--rest", type=float, default=600.0, help="for the directories; 0 leaves them out")
    given = parser.parse_args()
    if given.verb == "map":
        make_map(given.pieces, given.jobs)
    else:
        plant(given.where, given.count, given.seed, given.seconds, given.rest, given.only, given.also)


if __name__ == "__main__":
    main()
