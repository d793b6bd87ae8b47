"""What a client accepts as a target, and how that becomes a connection: a server, a command, a file, a URL."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec

from linkspan.client.config import ConfiguredServers, Settled, UnusableTarget, read_config, read_mapping, settled
from linkspan.client.login_options import NO_OPTIONS, LoginOptions
from linkspan.client.server_names import file_name, server_name
from linkspan.flows.client_errors import ServerOrigin
from linkspan.runtime.command_lines import command_line, split_command
from linkspan.wire.redaction import redact
from linkspan.wire.reports import VARIABLE

if TYPE_CHECKING:
    from linkspan.client.transports.stdio import Command
    from linkspan.runtime.calls import Connectable
    from linkspan.runtime.channels import OpenChannel

__all__ = ["ServerTarget", "Target", "UnusableTarget", "read_config", "resolve"]

_Other: TypeAlias = "str | Path | Sequence[str] | Mapping[str, Any] | Connectable"
ServerTarget: TypeAlias = "_Other | OpenChannel"
"""A `Server`; a command as a list or one line; a `.py` file, perhaps with `:OBJECT`; an entry of an mcp.json as a mapping, or
`mcp.json:NAME`; a whole `{"mcpServers": {...}}` with one server; or a function that opens a channel."""

_INHERITED: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TZ", "TMPDIR", "TEMP", "TMP",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "APPDATA", "LOCALAPPDATA", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "SYSTEMROOT", "SYSTEMDRIVE", "PATHEXT",
    "PROGRAMFILES", "COMSPEC", "PROCESSOR_ARCHITECTURE", "USERNAME",
)  # fmt: skip
_PROXIES: Final = ("http_proxy", "https_proxy")
_INHERITED_PREFIXES: Final = ("LC_", "XDG_")
_FOR_OUR_PYTHON: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
_SHORTEST_SECRET: Final = 6
_NOTHING_HIDDEN: Final = Settled()


class Target(msgspec.Struct, frozen=True):
    """What to connect to. Exactly one of `server`, `command`, `url` and `channel` is given."""

    origin: ServerOrigin
    server: Connectable | None = None
    command: Command | None = None
    url: str | None = None
    channel: OpenChannel | None = None
    """Opens a channel of the application's."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    environment: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """What the caller or the configuration adds to the environment of a command."""
    secrets: tuple[str, ...] = ()
    """What the configuration fills into the URL or the headers and must never be shown."""
    timeouts: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    """Deadlines that its configuration gives, by the names of `Timeouts`."""
    login: LoginOptions = NO_OPTIONS
    """What its configuration says about logins."""


def resolve(
    target: ServerTarget,
    *,
    name: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    inherit_env: bool = False,
) -> Target:
    """Find out what a target is. Raises: UnusableTarget, which is a ValueError."""
    directory = os.fspath(cwd) if cwd is not None else None
    if callable(target) and not hasattr(target, "connect"):
        from linkspan.schema.annotations import name_of

        return Target(ServerOrigin(name or name_of(target)), channel=target)
    target = cast("_Other", target)
    if isinstance(target, Mapping):
        return _entry(target, name, env, directory, inherit_env=inherit_env)
    if isinstance(target, str | Path):
        return _text(os.fspath(target), name, env, directory, inherit_env=inherit_env)
    if isinstance(target, Sequence):
        argv = [os.fspath(each) for each in target]
        if not argv:
            raise UnusableTarget("the command is an empty list")
        return _command(argv, name, env, directory, inherit_env=inherit_env)
    if callable(getattr(target, "connect", None)):
        shown: object = getattr(target, "name", None)
        return Target(ServerOrigin(name or (shown if isinstance(shown, str) else type(target).__name__)), server=target)
    raise UnusableTarget(
        f"a client cannot connect to a {type(target).__name__}: pass a Server, a command, a .py file, an entry of an "
        "mcp.json, a URL, or a function that opens a channel"
    )


def _text(text: str, name: str | None, env: Mapping[str, str] | None, cwd: str | None, *, inherit_env: bool) -> Target:
    if re.match(r"https?://", text):
        return Target(ServerOrigin(name or _host_of(text), url=redact(text)), url=text)
    _refuse_other_urls(text)
    path, _, part = text.rpartition(":") if re.search(r"\.(py|json|toml|transcript):[^/\\]*$", text) else (text, "", "")
    if path.endswith((".json", ".toml")) and (" " not in path or Path(path).is_file()):
        return _from_config(path, part or name, env, cwd, inherit_env=inherit_env)
    if path.endswith((".py", ".transcript")) and (" " not in path.strip() or Path(path).is_file()):
        return _file(path, part, name, env, cwd, inherit_env=inherit_env)
    try:
        argv = split_command(text)
    except ValueError as problem:
        raise UnusableTarget(f"{text!r} is not a valid command: {problem}") from None
    if not argv:
        raise UnusableTarget("the target is empty: pass a command, a .py file or a URL")
    return _command(argv, name, env, cwd, inherit_env=inherit_env)


def _refuse_other_urls(text: str) -> None:
    """Raise UnusableTarget for what was meant as a URL: as a command it would only not be found."""
    if (scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", text)) is not None:
        raise UnusableTarget(
            f"{text!r} has the scheme {scheme[1]!r}: the URL of a server begins with http:// or https://"
        )
    if re.fullmatch(r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:.]+\]):\d{1,5}(?:/\S*)?", text):
        raise UnusableTarget(f"{text!r} is a URL without a scheme: write 'http://{text}' or 'https://{text}'")


# Files.


def _file(
    path: str, part: str, name: str | None, env: Mapping[str, str] | None, cwd: str | None, *, inherit_env: bool
) -> Target:
    """A file of ours is loaded by `linkspan run`, which keeps its stdout clean; another is run as it is."""
    found = Path(cwd or ".", path)
    try:
        source = found.read_text("utf-8", "replace")
    except OSError as error:
        raise UnusableTarget(f"{path!r} cannot be read: {error.strerror or error}") from None
    ours = part or path.endswith(".transcript") or re.search(r"^\s*(?:from|import)\s+linkspan\b", source, re.MULTILINE)
    argv = [sys.executable, "-m", "linkspan", "run", f"{path}:{part}" if part else path]
    if not ours:
        argv = [sys.executable, path]
    own = {key: os.environ[key] for key in _FOR_OUR_PYTHON if key in os.environ}
    if ours:
        own[VARIABLE] = "1"
    name = name or file_name(path, cwd)
    target = _command(argv, name, {**own, **(env or {})}, cwd, inherit_env=inherit_env)
    assert target.command is not None
    return msgspec.structs.replace(
        target,
        origin=ServerOrigin(name, command_line(argv)),
        command=msgspec.structs.replace(
            target.command, reports=bool(ours), is_ours=bool(ours) and not path.endswith(".transcript")
        ),
        environment=dict(env or {}),  # without our own variables
    )


def _from_config(
    path: str, wanted: str | None, env: Mapping[str, str] | None, cwd: str | None, *, inherit_env: bool
) -> Target:
    """Return one entry of an mcp.json; `wanted` is required if there are several."""
    servers = read_config(path)
    if wanted is None and len(servers) == 1:
        (wanted,) = servers
    if wanted is not None and wanted in servers.left_out:
        raise UnusableTarget(f"{path}: the server {wanted!r} {servers.left_out[wanted]}")
    if wanted is None or wanted not in servers:
        known = ", ".join(servers) or "none"
        what = f"has no server {wanted!r}" if wanted is not None else "has several servers"
        raise UnusableTarget(f"{path} {what}: write {path}:NAME with one of {known}")
    return _entry(servers[wanted], wanted, env, cwd, inherit_env=inherit_env)


def _entry(
    entry: Mapping[str, Any],
    name: str | None,
    env: Mapping[str, str] | None,
    cwd: str | None,
    *,
    inherit_env: bool,
) -> Target:
    """An entry of a configuration file in any host's words, or a whole configuration with one server."""
    servers = entry if isinstance(entry, ConfiguredServers) else read_mapping(entry)
    if servers is not None:
        chosen = _only(servers, name)
        return _entry(servers[chosen], name or chosen, env, cwd, inherit_env=inherit_env)
    found = settled(entry)
    if found.url is not None:
        target = _text(found.url, name, env, cwd, inherit_env=inherit_env)
        origin = target.origin
        if found.url in found.shown:
            shown = found.shown[found.url]
            origin = ServerOrigin(name or _host_of(shown), url=redact(shown, found.secrets))
        return msgspec.structs.replace(
            target,
            origin=origin,
            headers=found.headers,
            timeouts=found.timeouts,
            secrets=found.secrets,
            login=found.login or NO_OPTIONS,
        )
    given = {**found.env, **(env or {})}
    target = _command(found.command, name, given, cwd or found.cwd, inherit_env=inherit_env, hidden=found)
    return msgspec.structs.replace(target, timeouts=found.timeouts)


def _only(servers: ConfiguredServers, name: str | None) -> str:
    """Return which server of a whole configuration is meant: the one called `name`, or the only one."""
    if name is not None and name in servers:
        return name
    if len(servers) == 1:
        return next(iter(servers))
    if servers:
        first = next(iter(servers))
        raise UnusableTarget(
            f"the configuration has the servers {', '.join(servers)}: choose one with name={first!r}, or use a ClientGroup "
            "or a Host for all of them"
        )
    why = "; ".join(f"the server {each!r} {reason}" for each, reason in servers.left_out.items())
    raise UnusableTarget(f"this configuration names no server that can be started{f': {why}' if why else ''}")


# Commands.


def _command(
    argv: Sequence[str],
    name: str | None,
    env: Mapping[str, str] | None,
    cwd: str | None,
    *,
    inherit_env: bool,
    hidden: Settled = _NOTHING_HIDDEN,
) -> Target:
    from linkspan.client.transports.stdio import Command

    given = dict(env or {})
    if sys.platform == "win32":  # where PATH and Path are one variable, under the name that os.environ has
        given = {key.upper(): value for key, value in given.items()}
    secrets = tuple(value for value in given.values() if len(value) >= _SHORTEST_SECRET and value not in os.defpath)
    secrets += hidden.secrets
    words = [hidden.shown.get(word, word) for word in argv]
    shown = redact(command_line(words), secrets)
    whole = {**(os.environ if inherit_env else _minimal_environment()), **given}
    command = Command(tuple(argv), whole, cwd, secrets)
    return Target(ServerOrigin(name or server_name(words, cwd), shown), command=command, environment=given)


def _host_of(url: str) -> str:
    return url.split("/")[2].rpartition("@")[2]


def _minimal_environment() -> dict[str, str]:
    """What a server needs to start, and nothing that it could tell to others (STDIO-10)."""
    return {
        key: _without_password(value) if key.lower() in _PROXIES else value
        for key, value in os.environ.items()
        if (key in _INHERITED or key.startswith(_INHERITED_PREFIXES)) and not value.startswith("()")
    }


def _without_password(proxy: str) -> str:
    """Return the address of a proxy without the user name and password in it, which are ours."""
    scheme, slashes, rest = proxy.rpartition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}"
