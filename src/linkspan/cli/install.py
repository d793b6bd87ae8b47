"""`linkspan install HOST SERVER` and `linkspan uninstall HOST NAME`: a server in the configuration of a host.

Nothing is written before the change was shown and confirmed; the former file stays beside the new one.
"""

from __future__ import annotations

import os
import re
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final

from linkspan.cli.config_edit import CannotEdit, has_entry, with_entry, without_entry
from linkspan.cli.forms import web_url
from linkspan.cli.main import parser_for
from linkspan.cli.options import REPEATABLE, WrongUse, header, near, split, variable
from linkspan.cli.other_sdks import missing_module, program_name
from linkspan.cli.session import REFUSED, WRONG_USE
from linkspan.cli.terminal import dump
from linkspan.client.config import config_path
from linkspan.client.host_formats import HOST_FORMATS, HostFormat, all_formats, host_format
from linkspan.client.login_options import NO_OPTIONS, LoginOptions
from linkspan.runtime.shared_files import replace_shared
from linkspan.text import split_object
from linkspan.types.base import JSONObject
from linkspan.wire.redaction import REDACTED, is_secret_name, neutral, redact_json

HOSTS: Final[Mapping[str, HostFormat]] = {name: each for name, each in HOST_FORMATS.items() if each.is_written}

_HOST_LIST = "hosts: " + ", ".join(HOSTS) + "\n"
_INSTALL = """Add a server to the configuration of a host. The change is shown first, and the former file is kept."""
_INSTALL_EXAMPLES = (
    _HOST_LIST
    + """
linkspan install                                        # where each host has its configuration
linkspan install claude-desktop server.py               # starts with this Python, from any directory
linkspan install cursor server.py --workspace           # for the current directory only
linkspan install vscode https://example.com/mcp --name example
linkspan install claude-desktop https://example.com/mcp --bridge
linkspan install claude-code https://example.com/mcp --client-id desk --redirect-port 17423
linkspan install claude-code --env API_KEY=... -- npx -y some-server"""
)
_UNINSTALL = (
    """Remove a server from the configuration of a host. The change is shown first, and the former file is kept."""
)
_MEMBER: Final = re.compile(r"""^(.\s*"?)([\w.-]+)("?\s*[:=]\s*)(["'].*["'])""")


def install(arguments: Sequence[str]) -> int:
    """Add a server to a host's configuration, and return the exit status."""
    given, command = split(list(arguments))
    if given in ([], ["--json"]) and command is None:
        return _list_hosts(as_json=bool(given))
    parser = parser_for("linkspan install", _INSTALL, _INSTALL_EXAMPLES, allow_abbrev=False)
    add = parser.add_argument
    add("host", metavar="HOST", help="which host; without any argument, all are listed")
    if command is None:
        add(
            "server",
            metavar="SERVER",
            help="a .py file (or FILE.py:OBJECT) or a URL; or `-- COMMAND ARGS...` at the end",
        )
    add("--name", help="the name in the configuration (default: that of the file, of the command or of the URL's host)")
    set_ = "set a variable of the server; KEY alone takes that of the shell (repeatable); it is written to the file"
    add("--env", type=variable, metavar="KEY=VALUE", help=set_, **REPEATABLE)
    sent = "send this with every request to a URL (repeatable); it is written to the file"
    add("--header", type=header, metavar="NAME:VALUE", help=sent, **REPEATABLE)
    own = "the client that you registered for logins (default: the one of `linkspan login`, where the host can know it)"
    add("--client-id", metavar="ID", help=own)
    add("--redirect-port", type=int, metavar="PORT", help="the port of its redirect URI")
    through = (
        "let the host start `linkspan bridge` for a URL: hosts that know no URLs, or not this revision, reach it so"
    )
    add("--bridge", action="store_true", help=through)
    _add_options(parser)
    try:
        options: Any = parser.parse_args(given)
        host = _host(options.host)
        if options.bridge:
            if command is not None or "://" not in options.server:
                raise WrongUse("--bridge is for a URL")
            name, entry = _bridged(options.server, options.header)
            options.header = list[tuple[str, str]]()
        else:
            name, entry = _described(host, None if command is not None else options.server, command)
        if host.types:
            entry = {"type": "http" if "command" not in entry else "stdio", **entry}
        for given_, member, needed in ((options.env, "env", True), (options.header, host.headers, False)):
            if given_ and ("command" in entry) is not needed:
                raise WrongUse(f"--{'env' if needed else 'header'} is for a server that {_KIND[needed]}")
            entry |= {member: dict(given_)} if given_ else {}
        login = _login(host, None if "command" in entry else options.server, options)
        oauth = {
            member: value for option, member in host.oauth.items() if (value := getattr(login, option)) is not None
        }
        entry |= {"oauth": oauth} if oauth else {}
    except WrongUse as problem:
        parser.error(str(problem))
    options.name = options.name or name
    _offer_exec(options.host, command, entry)

    def change(text: str, toml: bool) -> str:
        return with_entry(text, host.section, options.name, entry, toml=toml)

    by_hand = f"; add this to it: {dump(redact_json({host.section: {options.name: entry}}), None)}"
    return _write("install", host, options, change, by_hand, _note_on_secret(host, login))


def _offer_exec(host: str, command: Sequence[str] | None, entry: JSONObject) -> None:
    """Warn where a command would not start, since it needs another version of its SDK, and name the line to use."""
    missing = missing_module(entry["command"]) if command else None
    if command and missing is not None:
        problem = f"{command[0]} imports {missing}, which the version of its SDK beside it does not have"
        offered = neutral(" ".join(["linkspan install", host, "-- linkspan exec", *command]))
        print(
            f"linkspan install: {problem}: with linkspan-compat installed there, use `{offered}` [LS-121]",
            file=sys.stderr,
        )


def _login(host: HostFormat, url: str | None, options: Any) -> LoginOptions:
    """Return the client for logins at a URL: what was given, completed by what `linkspan login` has kept. Raises: WrongUse."""
    given = LoginOptions(client_id=options.client_id, redirect_port=options.redirect_port)
    if given != NO_OPTIONS and url is None:
        raise WrongUse(f"{given.flags()[0]} is for a server that {_KIND[False]}")
    if given != NO_OPTIONS and not host.oauth:
        raise WrongUse(f"{host.title} takes no client from its configuration here: leave {given.flags()[0]} out")
    if url is None or not host.oauth:
        return NO_OPTIONS
    from linkspan.auth.identities import OAuth
    from linkspan.cli.login_client import identity_with
    from linkspan.client.kept_options import kept_options

    try:
        identity_with(given, OAuth())
    except ValueError as problem:
        raise WrongUse(str(problem)) from None
    return given.over(kept_options(url))


def _note_on_secret(host: HostFormat, login: LoginOptions) -> str:
    if login.client_secret is None:
        return ""
    return f" The secret of the client is not written; `{host.secret_command}` gives it to {host.title}."


def _list_hosts(*, as_json: bool) -> int:
    """Show where each host has its configuration."""
    found = {name: config_path(host.title) for name, host in all_formats() if host.is_written}
    there = {name: path is not None and path.exists() for name, path in found.items()}
    if as_json:
        hosts = [{"host": name, "path": str(path), "exists": there[name]} for name, path in found.items()]
        print(dump({"hosts": hosts}))
        return 0
    for name, path in found.items():
        print(f"{name:<16}{path}{'' if there[name] else '  (not there yet)'}")
    return 0


_KIND: Final = {True: "the host starts; this one has a URL", False: "has a URL; the host starts this one"}


def uninstall(arguments: Sequence[str]) -> int:
    """Remove a server from a host's configuration, and return the exit status."""
    parser = parser_for("linkspan uninstall", _UNINSTALL, _HOST_LIST, allow_abbrev=False)
    parser.add_argument("host", metavar="HOST", help="which host")
    parser.add_argument("name", metavar="NAME", help="the name in its configuration")
    _add_options(parser)
    options = parser.parse_args(list(arguments))
    try:
        host = _host(options.host)
    except WrongUse as problem:
        parser.error(str(problem))

    def change(text: str, toml: bool) -> str:
        if not has_entry(text, host.section, options.name, toml=toml):
            raise CannotEdit(f"it has no server {options.name!r}")
        return without_entry(text, host.section, options.name, toml=toml)

    return _write("uninstall", host, options, change, "")


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--workspace", action="store_true", help="use the configuration of the current directory")
    parser.add_argument("-y", "--yes", action="store_true", help="write the change without asking")
    parser.add_argument("--dry-run", action="store_true", help="only show the change")
    shown = "one JSON document on stdout: what was done, or the error; without --yes nothing is written"
    parser.add_argument("--json", action="store_true", help=shown)


def _host(name: str) -> HostFormat:
    found = host_format(name.lower())
    if found is None or not found.is_written:
        known = [known for known, host in all_formats() if host.is_written]
        raise WrongUse(f"there is no host {name!r}{near(name, known)}; known are {', '.join(known)}")
    return found


def _described(host: HostFormat, server: str | None, command: Sequence[str] | None) -> tuple[str, JSONObject]:
    """Return a name and an entry that works from any directory: a file starts with this Python."""
    if command is not None:
        from shutil import which

        found = which(command[0]) if command else None
        if found is None:
            raise WrongUse(f"there is no command {command[0]!r}" if command else "a command must follow --")
        files = {each for each in command[1:] if re.search(r"[./\\]", each) and os.path.exists(each)}
        args = [os.path.abspath(each) if each in files else each for each in command[1:]]
        return program_name(command), {"command": os.path.abspath(found), "args": args}
    assert server is not None
    if "://" not in server:
        path, wanted = split_object(server) if not os.path.exists(server) else (server, "")
        if not os.path.isfile(path):
            raise WrongUse(f"there is no file {path!r}")
        absolute = os.path.abspath(path) + (f":{wanted}" if wanted else "")
        return Path(path).stem, {"command": sys.executable, "args": ["-m", "linkspan", "run", absolute]}
    if host.url is None:
        raise WrongUse(
            f"{host.title} has URLs in its settings (Connectors), not in its configuration file: add it there"
        )
    parts = web_url(server)
    if parts is None or not parts.hostname:
        raise WrongUse("the URL must begin with http:// or https:// and a host")
    return parts.hostname, {host.url: server}


def _bridged(url: str, headers: Sequence[tuple[str, str]]) -> tuple[str, JSONObject]:
    """Return a name and an entry by which a host starts a bridge to a URL. Raises: WrongUse."""
    parts = web_url(url)
    if parts is None or not parts.hostname:
        raise WrongUse("the URL must begin with http:// or https:// and a host")
    sent = [word for each, value in headers for word in ("--header", f"{each}:{value}")]
    return parts.hostname, {"command": sys.executable, "args": ["-m", "linkspan", "bridge", url, *sent]}


# The file.


def _write(
    verb: str, host: HostFormat, options: Any, change: Callable[[str, bool], str], by_hand: str, note: str = ""
) -> int:
    """Show a change of the host's file, ask, and write it; return the exit status. `note` is for the person at the end."""
    path = config_path(host.title, workspace=options.workspace)
    if path is None:
        problem = f"{host.title} has no configuration for one directory: leave --workspace out"
        return _failed(verb, options, WRONG_USE, problem)
    path = path.resolve()  # what links to it stays a link
    try:
        old = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
        new = change(old, path.suffix == ".toml")
    except (OSError, UnicodeDecodeError, CannotEdit) as problem:
        return _failed(verb, options, REFUSED, f"cannot change {path}: {problem}{by_hand}")
    difference = _difference(path, old, new)
    document: JSONObject = {"host": options.host, "path": str(path), "name": options.name, "difference": difference}
    if new == old:
        return _done(options, {**document, "written": False}, f"{path} needs no change")
    if not options.json:
        print(difference)
    if options.dry_run:
        return _done(options, {**document, "written": False}, "")
    if not options.yes and (options.json or not _agreed(path)):
        return _failed(verb, options, REFUSED, "nothing is written without --yes") if options.json else REFUSED
    try:
        kept = _replace(path, new)
    except OSError as problem:
        return _failed(verb, options, REFUSED, f"cannot change {path}: {problem}{by_hand}")
    former = f"; the former one is {kept.name}" if kept else ""
    text = f"{path} is written{former}. Restart {host.title} to use it.{note}"
    return _done(options, {**document, "written": True, "backup": str(kept) if kept else None}, text)


def _done(options: Any, document: JSONObject, text: str) -> int:
    """Report what was done."""
    if options.json or text:
        print(dump(document) if options.json else text)
    return 0


def _failed(verb: str, options: Any, status: int, problem: str) -> int:
    """Report why nothing was done, and return the exit status."""
    if options.json:
        print(dump({"error": {"type": "WrongUse" if status == WRONG_USE else "CannotEdit", "problem": problem}}))
    else:
        print(f"linkspan {verb}: {problem}", file=sys.stderr)
    return status


def _difference(path: Path, old: str, new: str) -> str:
    """Return the changed lines and those around them, in which the secrets of other servers are hidden."""
    lines = unified_diff(old.splitlines(), new.splitlines(), str(path), str(path), lineterm="", n=2)
    return "\n".join(neutral(_MEMBER.sub(_hidden, line)) for line in lines)


def _hidden(found: re.Match[str]) -> str:
    before, name, between, value = found.groups()
    return f"{before}{name}{between}{value if not is_secret_name(name) else REDACTED}"


def _agreed(path: Path) -> bool:
    if not sys.stdin.isatty():
        print("Nothing is written: this is not a terminal; add --yes to write it", file=sys.stderr)
        return False
    try:
        return input(f"Write {path}? [y/N] ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print()
        return False


def _replace(path: Path, text: str) -> Path | None:
    """Write a file whole or not at all, with the permissions of the former one, which is kept; return where."""
    import shutil

    path.parent.mkdir(parents=True, exist_ok=True)
    kept = None
    if path.exists():
        kept = _new_file(path, time.strftime("%Y%m%d-%H%M%S"))
        shutil.copy2(path, kept)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(descriptor)
        if kept is not None:
            shutil.copymode(path, new)
        replace_shared(new, path)
    finally:
        with suppress(OSError):
            new.unlink()
    return kept


def _new_file(path: Path, stamp: str) -> Path:
    """Make an empty file for a copy of `path`, under a name that no earlier copy has; return it."""
    number = 1
    while True:
        kept = path.with_name(f"{path.name}.{stamp}{f'-{number}' * (number > 1)}.bak")
        try:
            kept.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return kept
