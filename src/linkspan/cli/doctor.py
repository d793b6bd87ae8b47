"""`linkspan doctor`: what keeps a server from working with the hosts that people use, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from linkspan.cli.login import with_login
from linkspan.cli.main import parser_for
from linkspan.cli.options import (
    REPEATABLE,
    WrongUse,
    add_output,
    header,
    listed,
    named_call,
    near,
    parsed,
    split,
    variable,
)
from linkspan.cli.session import REFUSED, UNREACHABLE, WRONG_USE
from linkspan.cli.terminal import Style, Terminal, dump
from linkspan.client.sync_client import SyncClient
from linkspan.client.targets import Target, UnusableTarget, resolve
from linkspan.contract.taking import take
from linkspan.doctor.bundle import bundle
from linkspan.doctor.command import command
from linkspan.doctor.examining import of_host, of_list, of_url
from linkspan.doctor.profiles import FILE, DoctorProfile, InvalidProfiles, profiles
from linkspan.doctor.verdicts import Verdict, counts, markdown, settled, skipped
from linkspan.flows.client_errors import ClientError
from linkspan.flows.state import Timeouts
from linkspan.text import split_object

_OF_THE_LIST: Final = ("D40", "D41", "D42", "D43", "D44", "D45", "D46", "D47", "D48", "D49", "D50")
_TIMEOUTS: Final = Timeouts(connect=15, probe=5, list=10, call=10, total=15)
_EXAMPLES: Final = """TARGET is a URL, a .py file, a command in quotes, mcp.json:NAME, a bundle (.mcpb), or the
name of a host, whose files are read. Without one, the files of all hosts are read. Nothing but TARGET and its
authorization server is contacted. No tool is called but those of --call, and nothing is registered without --register.

examples:
  linkspan doctor https://mcp.example.com/mcp --as claude-ai,cursor
  linkspan doctor server.py                          # started as hosts start it
  linkspan doctor claude-desktop                     # reads its configuration, starts nothing
  linkspan doctor --start claude-desktop             # asks for each server whether to start it

exit status: 0 no fault, 1 faults, 2 the command line is wrong, 3 the server could not be reached"""


def main(arguments: Sequence[str]) -> int:
    """Examine a server or hosts, and return the exit status."""
    given, after = split(list(arguments))
    about = "Find what keeps a server from working with the hosts that people use."
    parser = parser_for("linkspan doctor", about, _EXAMPLES, allow_abbrev=False)
    parser.add_argument("target", metavar="TARGET", nargs="?", help="what to examine; see below")
    parser.add_argument(
        "--as", dest="hosts", metavar="HOSTS", help="the hosts to play, such as claude-ai,cursor (default: all)"
    )
    parser.add_argument("--profile", metavar="FILE", help="another file of hosts, in the form of the built-in one")
    parser.add_argument(
        "--header", type=header, metavar="NAME:VALUE", help="send this to a URL (repeatable)", **REPEATABLE
    )
    parser.add_argument(
        "--env", type=variable, metavar="KEY=VALUE", help="what the entry of a command sets (repeatable)", **REPEATABLE
    )
    parser.add_argument("--cwd", metavar="DIR", help="the directory that the entry of a command sets")
    parser.add_argument(
        "--register",
        action="store_true",
        help="register as hosts do: clients are left behind at the authorization server",
    )
    parser.add_argument(
        "--call", type=named_call, metavar="NAME=JSON", help="call this tool with arguments (repeatable)", **REPEATABLE
    )
    parser.add_argument(
        "--start", action="store_true", help="ask for each server of a host whether to start it, and examine it"
    )
    parser.add_argument("--markdown", action="store_true", help="a report to paste into an issue")
    add_output(parser)
    options: Any = parsed(parser, given)
    terminal = Terminal(quiet=options.quiet, verbose=options.verbose, color=not options.no_color)
    try:
        known = profiles(Path(options.profile) if options.profile else FILE)
        return _Examination(options, terminal, known, after).run()
    except (WrongUse, UnusableTarget, InvalidProfiles) as problem:
        terminal.fail(f"linkspan doctor: {problem}")
        return WRONG_USE


class _Examination:
    """One run of the verb."""

    def __init__(
        self, options: Any, terminal: Terminal, known: Mapping[str, DoctorProfile], after: tuple[str, ...] | None
    ) -> None:
        self._options = options
        self._terminal = terminal
        self._known = known
        self._target: str | tuple[str, ...] | None = after or options.target
        self._hosts = {name: known[name] for name in _named(options.hosts, known)}
        self._status = 0

    def run(self) -> int:
        """Examine the target; return the exit status."""
        target = self._target
        if target is None or target in self._known:
            wanted = self._hosts if target is None else {str(target): self._known[str(target)]}
            for name, host in wanted.items():
                found = of_host(name, host, Path.home(), Path.cwd())
                if target is None and all(each.level in ("ok", "skipped") for each in found):
                    continue
                self._report(host.title, found)
                if self._options.start:
                    self._start(name, host)
            if target is None and not self._status and not self._options.json:
                self._terminal.emit("no faults in the configuration of the hosts on this machine")
            return self._status
        if isinstance(target, str) and target.endswith((".mcpb", ".dxt", "manifest.json")):
            self._report(target, settled([*bundle(Path(target))]))
            return self._status
        if isinstance(target, str) and (file := Path(split_object(target)[0])).suffix == ".py" and file.is_file():
            target = str(file.resolve()) + target[len(split_object(target)[0]) :]
        resolved = resolve(target, env=dict(self._options.env), cwd=self._options.cwd)
        self._examine(resolved, target)
        return self._status

    def _examine(self, resolved: Target, target: Any) -> None:
        kind = "url" if resolved.url is not None else "command"
        self._hosts = {name: each for name, each in self._hosts.items() if kind in each.reaches}
        if resolved.url is not None:
            headers = with_login(resolved.url, {**resolved.headers, **dict(self._options.header)})
            named = self._options.hosts is not None
            found = of_url(resolved.url, headers, self._hosts, named=named, register=self._options.register)
        elif resolved.command is not None:
            started = resolved.command
            found = settled([*command(started.argv, self._hosts, resolved.environment, started.cwd)])
        else:
            raise WrongUse("the target is neither a command nor a URL")
        if any(each.level == "fault" and each.id in ("D25", "D26", "D34") for each in found):
            found += [skipped(each, "the server did not answer") for each in _OF_THE_LIST]
            self._status = max(self._status, UNREACHABLE)
        else:
            found += self._listed(target)
        self._report(resolved.origin.server, settled(found))

    def _listed(self, target: Any) -> list[Verdict]:
        """Examine the list of tools; it is asked for as any client does."""
        options = self._options
        try:
            with SyncClient(
                target,
                env=dict(options.env) or None,
                headers=dict(options.header) or None,
                cwd=options.cwd,
                timeouts=_TIMEOUTS,
                check_output="off",
                on_stderr=lambda _: None,
            ) as client:
                results = {name: client.call_tool(name, arguments) for name, arguments in options.call}
                called = {name: each.has_structured for name, each in results.items() if not each.is_error}
                return of_list(take(client), self._hosts, called)
        except (ClientError, ValueError) as error:
            why = error.problem if isinstance(error, ClientError) else str(error)
            return [skipped(each, why) for each in _OF_THE_LIST]

    def _start(self, name: str, host: DoctorProfile) -> None:
        """Ask for each server of a host whether to start it."""
        from linkspan.client.config import config_path
        from linkspan.client.targets import read_config

        if not self._terminal.interactive:
            raise WrongUse("--start asks before it runs a command: run it in a terminal")
        for file in filter(None, (config_path(host.title, workspace=each) for each in (False, True))):
            if not file.is_file():
                continue
            for entry, found in read_config(file).items():
                resolved = resolve(found, name=entry)
                what = resolved.origin.command or resolved.origin.url or ""
                self._terminal.write_line(f"{host.title}: {entry}\n  {what}")
                try:
                    answer = self._terminal.read("start it? [y/N] ")
                except EOFError:
                    return
                if answer.strip().casefold() in ("y", "yes"):
                    self._hosts = {name: host}
                    self._examine(resolved, found)

    def _report(self, title: str, found: Sequence[Verdict]) -> None:
        if any(each.level == "fault" for each in found):
            self._status = max(self._status, REFUSED)
        terminal = self._terminal
        if self._options.json:
            terminal.emit(dump({"target": title, "verdicts": [msgspec.to_builtins(each) for each in found]}))
        elif self._options.markdown:
            terminal.emit(markdown(title, found))
        else:
            shown = [each for each in found if each.level in ("fault", "warning") or terminal.verbose]
            lines = [_painted(each, terminal.out) for each in shown]
            terminal.emit("\n".join([terminal.out.bold(title), *lines, counts(found)]))


def _painted(found: Verdict, style: Style) -> str:
    paint = {"fault": style.red, "warning": style.yellow, "skipped": style.dim, "ok": style.dim}[found.level]
    first, newline, rest = str(found).partition("\n")
    return f" {paint(first)}{newline}{rest}"


def _named(given: str | None, known: Mapping[str, DoctorProfile]) -> list[str]:
    """Return the names of hosts in an option. Raises: WrongUse."""
    names = [each.strip() for each in given.split(",")] if given is not None else list(known)
    for each in names:
        if each not in known:
            raise WrongUse(f"--as: there is no host {each!r}{near(each, known)}; choose from {listed(list(known))}")
    return names
