"""`linkspan discover`: the servers that the hosts on this machine are configured with, read from their files.

Nothing is started without `--start`, which shows each command and asks before it runs one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from linkspan.cli.main import parser_for
from linkspan.cli.options import add_output
from linkspan.cli.session import WRONG_USE
from linkspan.cli.terminal import Terminal, dump, milliseconds
from linkspan.client.config import KnownConfig, known_configs
from linkspan.client.sync_client import SyncClient
from linkspan.client.targets import UnusableTarget, read_config, resolve
from linkspan.contract.tokens import token_words, tokens_of
from linkspan.flows.client_errors import ClientError
from linkspan.flows.state import Timeouts
from linkspan.text import counted
from linkspan.types.base import JSONObject
from linkspan.wire.redaction import one_line
from linkspan.wire.values import to_builtins

_PATIENCE: Final = 5.0
_AT_ONCE: Final = 8
_ABOUT: Final = "List the servers that the hosts on this machine are configured with, from their files."
_EXAMPLES: Final = """examples:
  linkspan discover                  # reads files, and starts nothing
  linkspan discover --start          # asks for each server whether to start it, and what it offers
  linkspan discover --json | jq '.servers[].name'"""


class _FoundServer(msgspec.Struct):
    """One server in the file of a host."""

    host: str
    file: str
    name: str
    what: str = ""
    """Its command or URL, without secrets."""
    problem: str = ""
    """Why a host cannot use it, as far as its file tells."""
    state: str = ""
    """What it answered, if it was started."""
    entry: Mapping[str, Any] | None = None

    def shown(self) -> JSONObject:
        """Return what `--json` shows of it."""
        names = ("host", "file", "name", "what", "problem", "state")
        return {name: value for name in names if (value := getattr(self, name))}


def main(arguments: Sequence[str]) -> int:
    """List the servers of all hosts, and return the exit status."""
    parser = parser_for("linkspan discover", _ABOUT, _EXAMPLES, allow_abbrev=False)
    parser.add_argument(
        "--start", action="store_true", help="ask for each server whether to start it; show what it offers"
    )
    add_output(parser)
    options: Any = parser.parse_args(list(arguments))
    terminal = Terminal(quiet=options.quiet, verbose=options.verbose, color=not options.no_color)
    if options.start and not terminal.interactive:
        terminal.fail("linkspan discover: --start asks before it runs a command: run it in a terminal")
        return WRONG_USE
    found = [each for config in known_configs() for each in _servers(config)]
    if options.start:
        _start(terminal, [each for each in found if each.entry is not None])
    if options.json:
        terminal.emit(dump({"servers": [each.shown() for each in found]}))
    else:
        terminal.emit(_table(found, terminal))
    return 0


def _servers(config: KnownConfig) -> Iterator[_FoundServer]:
    file = str(config.path)
    try:
        servers = read_config(config.path)
    except UnusableTarget as problem:
        yield _FoundServer(config.host, file, "", problem=str(problem))
        return
    for name, entry in servers.items():
        try:
            origin = resolve(entry, name=name).origin
        except (UnusableTarget, ClientError) as problem:
            yield _FoundServer(config.host, file, name, problem=str(problem))
        else:
            yield _FoundServer(config.host, file, name, origin.command or origin.url or "", entry=entry)
    for name, why in servers.left_out.items():
        yield _FoundServer(config.host, file, name, problem=f"it {why}")


def _start(terminal: Terminal, servers: Sequence[_FoundServer]) -> None:
    """Ask for each server, then start those that are wanted, a few at once."""
    wanted: list[_FoundServer] = []
    for each in servers:
        terminal.write_line(f"{each.host}: {one_line(each.name, 60)}\n  {one_line(each.what)}")
        try:
            if terminal.read("start it? [y/N] ").strip().casefold() in ("y", "yes"):
                wanted.append(each)
        except EOFError:
            break
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for each, state in zip(wanted, pool.map(_state, wanted), strict=True):
            each.state = state


def _state(found: _FoundServer) -> str:
    """Return what a server answers, in words. It has a few seconds for each answer."""
    assert found.entry is not None
    timeouts = Timeouts(connect=_PATIENCE, probe=_PATIENCE / 2, list=_PATIENCE, call=_PATIENCE, total=_PATIENCE)
    began = time.monotonic()
    try:
        with SyncClient(found.entry, name=found.name, timeouts=timeouts, on_stderr=lambda _: None) as client:
            took = time.monotonic() - began
            offers = client.server_capabilities
            tools = client.list_tools() if offers is None or offers.tools is not None else []
    except ClientError as error:
        return one_line(error.problem, 200)
    size = tokens_of(to_builtins(tools))
    return f"{client.protocol_version}, {counted(len(tools), 'tool')}, {token_words(size)}, {milliseconds(took)}"


def _table(found: Sequence[_FoundServer], terminal: Terminal) -> str:
    lines: list[str] = []
    for file in dict.fromkeys(each.file for each in found):
        servers = [each for each in found if each.file == file]
        lines += ["", terminal.out.cyan(f"{servers[0].host}: {one_line(file)}")]
        width = max(len(one_line(each.name, 40)) for each in servers)
        for each in servers:
            problem = terminal.out.red(one_line(each.problem)) if each.problem else ""
            lines.append(f"  {one_line(each.name, 40):<{width}}  {problem or one_line(each.what)}".rstrip())
            lines += [f"  {'':<{width}}  {terminal.out.dim(each.state)}"] if each.state else []
    return "\n".join(lines[1:]) or "no host on this machine has a configuration file"
