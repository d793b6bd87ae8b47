"""Make the table of figures: `python bench/table.py` measures everything and writes docs/figures.md and docs/figures.svg.

`python bench/table.py stdio http` measures only those parts, and prints them. See README.md for what each row is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import http_server
import stdio
from picture import draw
from runs import CLIENTS, ROOT, SERVERS, Row, environment

import client
from peers import NEWER, Peers

DOCS = ROOT / "docs"
HERE = Path(__file__).parent
OTHERS = ("FastMCP", "TypeScript", "Go", "Rust")
CONNECTIONS = {1: "one connection", 16: "16 connections", 64: "64 connections"}
FUNCTIONS = {
    "add_async": "",
    "progress": "",
    "add_inline": ", inline function",
    "progress_inline": ", inline function",
    "add_def": ", `def`, in a thread",
}
"""What the titles of rows say of a tool; nothing of an `async def`."""


@dataclass
class Line:
    """One line of the table: a figure of ours, its floor, and those of others."""

    title: str
    what: str
    ours: Row
    floor: Row | None = None
    others: list[Row] = field(default_factory=list)
    unit: str = "µs"
    newer: Row | None = None
    """The same on the other Python."""

    def cells(self) -> list[str]:
        figure = self.ours.median(self.what)
        cells = [
            self.title,
            "-" if figure is None else f"{figure:,.1f} {self.unit}" if self.unit else f"{figure:.0f}",
            "",
            "",
            "",
            "",
        ]
        if self.newer is not None and (found := self.newer.ratio(self.ours, self.what)):
            cells[3] = f"{found[0]:.2f} ({found[1]:.2f}-{found[2]:.2f})"
        if self.floor is not None and (found := self.ours.ratio(self.floor, self.what)):
            cells[2] = f"{found[0]:.2f} ({found[1]:.2f}-{found[2]:.2f})"
        for each in self.others:
            if (found := each.ratio(self.ours, self.what)) is None:
                continue
            if each.name == "official":
                cells[4] = f"{found[0]:.2f} ({found[1]:.2f}-{found[2]:.2f})"
            else:
                cells[5] += f"{', ' if cells[5] else ''}{each.name} {found[0]:.1f}"
        return cells


ON_NEWER = f"on Python {NEWER}, x Linkspan"
WITH = {"context": "a `Context`", "dependency": "a dependency", "middleware": "a middleware"}
"""What titles say of rows of `around.py`."""
HEAD = ["", "Linkspan", "x its floor", ON_NEWER, "the official SDK, x Linkspan", "others, x Linkspan"]


def markdown(lines: list[Line]) -> str:
    rows = [HEAD, ["---", "---:", "---:", "---:", "---:", "---"], *(each.cells() for each in lines)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


class Parts:
    """What can be measured."""

    def __init__(self, peers: Peers, scale: float, rounds: int) -> None:
        self._peers, self._scale, self._rounds = peers, scale, rounds
        self._ours = [peers.http, str(SERVERS / "ours.py")]

    def _newer(self, row: Row) -> Row | None:
        """Return the same row on the other Python, if it is here."""
        if self._peers.newer is None:
            return None
        return Row(f"{row.name} newer", [self._peers.newer, *row.command[1:]], row.tool, row.modern)

    def _calls(self, count: int) -> int:
        return max(64, int(count * self._scale))

    def _others(self, *port: str) -> list[Row]:
        """Return the peers, those whose toolchain is here. Only Python's speak the newest revision."""
        official = [self._peers.official, str(SERVERS / "official.py"), *port]
        fast = [self._peers.official, str(SERVERS / "fast.py"), *port]
        rows = [Row("official", official, weight=0.1), Row("FastMCP", fast, weight=0.05)]
        others = {"TypeScript": self._peers.typescript, "Go": self._peers.go, "Rust": self._peers.rust}
        return rows + [Row(name, [*each, *port], modern=False, weight=0.3) for name, each in others.items() if each]

    def stdio(self) -> list[Line]:
        floors = {
            "64": Row("msgspec loop", [self._peers.http, str(SERVERS / "floor.py")]),
            "1": Row("asyncio loop", [self._peers.http, str(SERVERS / "floor.py"), "tasks"]),
        }
        ours = {kind: Row(kind, self._ours, f"add_{kind}") for kind in ("inline", "async", "def")}
        newer = {kind: self._newer(row) for kind, row in ours.items()}
        others = self._others()
        plain = Row("official", others[0].command, "add_def", weight=0.1)
        rows = [*floors.values(), *ours.values(), *filter(None, newer.values()), *others, plain]
        stdio.measure_calls(rows, self._calls(6000), self._rounds)
        names = {"inline": "inline function", "async": "`async def`", "def": "`def`, in a thread"}
        loads = {"64": "64 in flight", "1": "one at a time"}
        return [
            Line(
                f"stdio, {loads[load]}, {names[kind]}",
                f"cpu {load}",
                row,
                floors[load],
                [plain, *others[1:]] if kind == "def" else others,
                newer=newer[kind],
            )
            for load in loads
            for kind, row in ours.items()
        ]

    def start(self) -> list[Line]:
        floor = Row("msgspec loop", [self._peers.plain, str(SERVERS / "floor.py")])
        file = str(SERVERS / "ours.py")
        plain, extra = (Row("ours", [python, file], "add_inline") for python in (self._peers.plain, self._peers.http))
        others = self._others()
        stdio.measure_starts([floor, plain, extra, *others], 3 * self._rounds)
        return [
            Line("start to the first answer, plain install", "start cpu", plain, floor, others, "ms"),
            Line("start to the first answer, with `[http]`", "start cpu", extra, floor, others, "ms"),
            Line("memory at rest", "memory", plain, floor, others, "MiB"),
        ]

    def http(self) -> list[Line]:
        floor = Row("bare ASGI app on uvicorn", [self._peers.http, str(SERVERS / "http_floor.py"), "PORT"], "add")
        http, asgi = ([*self._ours, face, "PORT"] for face in ("http", "asgi"))
        others = self._others("PORT")
        rust = [each for each in others if each.name == "Rust"]
        streaming = [Row("Rust", [*each.command, "sse"], "progress", modern=False) for each in rust]
        lines = []
        for title, command, tools, modern, beside in (
            ('`run("http")`', http, ("add_async", "add_inline", "add_def"), True, others),
            ("the same with a handshake session", http, ("add_async", "add_inline"), False, rust),
            ("the same with one notice of progress (SSE)", http, ("progress", "progress_inline"), True, streaming),
            ("`asgi()` on uvicorn", asgi, ("add_async", "add_inline"), True, others[:1]),
        ):
            for tool in tools:
                row = Row(f"{title} {tool}", command, tool, modern)
                newer = self._newer(row)
                lines += [
                    Line(f"{title}, {load}{FUNCTIONS[tool]}", f"cpu {count}", row, floor, beside, newer=newer)
                    for count, load in CONNECTIONS.items()
                ]
        rows = {id(each): each for line in lines for each in (line.ours, line.newer, *line.others) if each is not None}
        http_server.measure_calls([floor, *rows.values()], self._calls(2000), self._rounds)
        idle = Row("idle", asgi)
        http_server.measure_idle(idle, 1000, 500)
        return [
            *lines,
            Line("an idle session", "session", idle, unit="KiB"),
            Line("a listening stream, connection and all", "stream", idle, unit="KiB"),
            Line("from a change to its 500th stream", "change", idle, unit="ms"),
        ]

    def large(self) -> list[Line]:
        lines = []
        for where, module, port in (("stdio", stdio, []), ("HTTP", http_server, ["PORT"])):
            for tool, words in (("echo", "a text only"), ("echo_structured", "structured, too")):
                row = Row("ours", [*self._ours, *(["http", *port] if port else [])], tool)
                official = Row("official", self._others(*port)[0].command, tool)
                others = [official]
                if tool == "echo":
                    others += [Row(each.name, each.command, tool, False) for each in self._others(*port)[2:]]
                module.measure_large([row, *others], 1_000_000, 5, self._rounds)
                lines.append(Line(f"echo of 1 MB, {where}, {words}", "cpu", row, None, others, "ms"))
                lines.append(Line(f"its peak of memory, {where}, {words}", "peak", row, None, others, "MiB"))
        return lines

    def client(self) -> list[Line]:
        loop, on_a_loop = (
            Row(kind, [self._peers.http, str(CLIENTS / "floor.py"), kind]) for kind in ("loop", "asyncio")
        )
        ours, sync = (Row(kind, [self._peers.http, str(CLIENTS / "ours.py"), kind]) for kind in ("async", "sync"))
        official = Row("official", [self._peers.official, str(CLIENTS / "official.py")], weight=0.1)
        target = ["env", f"PYTHONPATH={ROOT / 'src'}", *self._ours]  # a client passes on no PYTHONPATH
        client.measure_calls([loop, on_a_loop, ours, sync, official], target, self._calls(4000), self._rounds)
        return [
            Line("`Client` over stdio, one at a time", "cpu 1", ours, on_a_loop, [official]),
            Line("`SyncClient` over stdio, one at a time", "cpu 1", sync, on_a_loop, [official]),
            Line("`Client` over stdio, 64 in flight", "cpu 64", ours, on_a_loop, [official]),
        ]

    def http_client(self) -> list[Line]:
        server = http_server.Server(Row("ours", [*self._ours, "http", "PORT"]))
        server.check()
        url = f"http://127.0.0.1:{server.port}/mcp"
        floor = Row("bare library", [self._peers.http, str(CLIENTS / "floor_http.py")])
        ours, sync = (Row(kind, [self._peers.http, str(CLIENTS / "ours.py"), kind]) for kind in ("async", "sync"))
        official = Row("official", [self._peers.official, str(CLIENTS / "official.py")], weight=0.1)
        command = Row("ours", [self._peers.http, "-m", "linkspan", "call", url, "add_async", "a=1", "b=2"])
        try:
            client.measure_calls([floor, ours, sync, official], [url], self._calls(4000), self._rounds)
            client.measure_commands([command], self._rounds)
        finally:
            server.close()
        return [
            Line("`Client` over HTTP, one at a time", "cpu 1", ours, floor, [official]),
            Line("`Client` over HTTP, 64 at once", "cpu 64", ours, floor, [official]),
            Line("`SyncClient` over HTTP, one at a time", "cpu 1", sync, floor, [official]),
            Line("`linkspan call URL`, the whole command", "command cpu", command, unit="ms"),
        ]

    def size(self) -> list[Line]:
        counts = {"plain": self._peers.plain, "http": self._peers.http, "official": self._peers.official}
        rows = {
            name: Row(name, [], figures={"count": [self._peers.distributions(each)]}) for name, each in counts.items()
        }
        return [
            Line("distributions, plain install", "count", rows["plain"], unit=""),
            Line("distributions, with `[http]`", "count", rows["http"], unit=""),
        ]

    def around(self) -> list[Line]:
        """Measure what dependencies and middleware add to a call, in a process of its own; their floor is the call alone."""
        program = [self._peers.http, str(HERE / "around.py"), str(self._rounds), str(self._calls(6400)), "--json"]
        env = {**environment(program), "PYTHONPATH": str(ROOT / "src")}
        found = json.loads(subprocess.run(program, check=True, capture_output=True, env=env).stdout)
        lines: list[Line] = []
        for kind, title in (("inline", "inline function"), ("def", "`def`, in a thread")):
            rows = {name: Row(name, [], figures={"around": times}) for name, times in found[kind].items()}
            floor = rows.pop("shortcut")
            lines += [
                Line(f"a call with {WITH.get(each.name, each.name)}, {title}", "around", each, floor)
                for each in rows.values()
            ]
        return lines

    def instructions(self) -> list[Line]:
        """Count instructions of a call over stdio, which do not depend on what else the machine does."""
        floor = Row("msgspec loop", [self._peers.http, str(SERVERS / "floor.py")])
        rows = {kind: Row(kind, self._ours, f"add_{kind}") for kind in ("inline", "async")}
        official = Row("official", self._others()[0].command)
        for each in (floor, *rows.values(), official):
            few, many = (count_instructions(each, calls) for calls in (100, 1100))
            if few is None or many is None:
                return []
            each.note("instructions", (many - few) / 1000 / 1000)
        return [
            Line(f"instructions of a call over stdio, {kind}", "instructions", row, floor, [official], "thousand")
            for kind, row in rows.items()
        ]


def count_instructions(row: Row, calls: int) -> int | None:
    """Return the instructions of a server's user code for so many calls; None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    server = stdio.Server.__new__(stdio.Server)
    server.row, server.sent = row, 0
    with tempfile.TemporaryFile() as requests, tempfile.TemporaryFile() as report:
        for _ in range(calls):
            requests.write(server.request())
        requests.seek(0)
        tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", "--log-fd=9"]
        subprocess.run(
            ["bash", "-c", f'exec 9>&{report.fileno()}; exec "$@"', "-", *tool, *row.command],
            stdin=requests,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**environment(row.command), "PYTHONHASHSEED": "0"},
            pass_fds=[report.fileno()],
            check=True,
        )
        report.seek(0)
        line = next(each for each in report.read().decode().splitlines() if "refs:" in each)
    return int(line.rpartition(":")[2].strip().replace(",", ""))


def main() -> None:
    parts = [name for name, each in vars(Parts).items() if isinstance(each, Callable) and name[0] != "_"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"one of {', '.join(parts)}; all of them if none is named"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="how many calls, as a part of what a quiet machine needs"
    )
    parser.add_argument("--newer", help=f"an interpreter of Python {NEWER}, if it is not found")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "linkspan-bench")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    measured = Parts(Peers(options.cache, options.newer), options.scale, options.rounds)
    lines: list[Line] = []
    for name in options.parts or parts:
        print(f"measuring {name}", file=sys.stderr)
        lines += getattr(measured, name)()
    text = markdown(lines)
    print(text)
    if not options.parts:
        DOCS.joinpath("figures.md").write_text(page(text))
        DOCS.joinpath("figures.svg").write_text(draw(bars(lines)))


def page(table: str) -> str:
    named = [each for each in Path("/proc/cpuinfo").read_text().splitlines() if each.startswith("model name")]
    cpu = named[0].partition(":")[2].strip() if named else "an unknown processor"
    load, cores = os.getloadavg()[1], os.cpu_count() or 1
    busy = (
        "The machine had other work to do meanwhile, so the figures are high and their spread is wide. "
        if load > cores / 2
        else ""
    )
    return f"""# Figures

What calls cost, measured in one interleaved run on one machine by `python bench/table.py`. Absolute figures are those of this
machine; compare the ratios. Behind each ratio stands the middle half of its rounds. Each row is explained in `bench/README.md`.

![CPU of a call, compared with others](figures.svg)

{table}
{busy}Python {platform.python_version()} on {platform.system()}, {os.cpu_count()} cores, {cpu}.
"""


def bars(lines: list[Line]) -> dict[str, list[tuple[str, float]]]:
    """Return what the picture shows: a title, and names with microseconds per call."""
    wanted = {
        "stdio, 64 in flight, `async def`": "CPU of a call over stdio, 64 in flight (µs)",
        '`run("http")`, 64 connections': "CPU of a call over HTTP, 64 connections (µs)",
        "start to the first answer, plain install": "CPU from start to the first answer (ms)",
    }
    found: dict[str, list[tuple[str, float]]] = {}
    for line in lines:
        if line.title in wanted:
            named = [("Linkspan", line.ours), *((each.name, each) for each in line.others)]
            figures = [(name, row.median(line.what)) for name, row in named]
            found[wanted[line.title]] = [(name, figure) for name, figure in figures if figure is not None]
    return found


if __name__ == "__main__":
    main()
