"""`linkspan bridge TARGET...`: any server for any host, over stdio or HTTP. stdout belongs to the protocol."""

from __future__ import annotations

import hashlib
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from linkspan.cli.main import parser_for
from linkspan.cli.options import REPEATABLE, WrongUse, header, seconds, split, timeouts_of, variable

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from linkspan.bridge.gateway import BridgedServer, Gateway
    from linkspan.bridge.rules import Rules

_DESCRIPTION = """Offer servers to hosts that could not reach them: a URL to a host that knows stdio only, a command over
HTTP, a server of one revision to a client of another. TARGET is a .py file, a command in quotes, a URL, mcp.json:NAME, a
whole mcp.json (all its servers), or NAME=TARGET. Of one server, the host sees that server; of several, tools are called
NAME_tool. Patterns are server/tool with *."""

_EPILOG = """examples:
  linkspan bridge https://mcp.example.com/mcp             # for a host that knows stdio only
  linkspan bridge 'npx -y @example/files /srv' --http     # a command as a URL
  linkspan bridge mcp.json --deny 'git/push' --ask 'files/write_*'"""

_ACQUAINTANCE: Final = 3.0
"""Seconds for which the URL is not shown until it is known who the only server is."""
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def main(arguments: Sequence[str]) -> int:
    """`linkspan bridge`: serve what other servers offer."""
    given, command = split(list(arguments))
    parser = parser_for("linkspan bridge", _DESCRIPTION, _EPILOG, allow_abbrev=False)
    _add_options(parser)
    try:
        options: Any = parser.parse_args(given)
        if command == ():
            raise WrongUse("a command must follow --")
        targets: list[Any] = [*options.target, *([command] if command else [])]
        if not targets:
            raise WrongUse("name a server: a file, a command, a URL or an mcp.json")
        return _bridge(targets, options)
    except WrongUse as problem:
        parser.error(str(problem))


def _add_options(parser: ArgumentParser) -> None:
    add: Any = parser.add_argument
    add("target", nargs="*", metavar="TARGET", help="a server, or NAME=TARGET (repeatable)")
    add("--stdio", action="store_true", help="serve over stdio, which is what happens without --http")
    add("--http", action="store_true", help="serve over HTTP; the first line on stdout is the URL")
    http: Any = parser.add_argument_group("over HTTP").add_argument
    http("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    http("--port", type=int, default=8000, help="port to listen on (8000); 0 for any free one")
    http(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="processes that share the port (1); with several, servers are URLs of the newest revision",
    )
    http("--auth", metavar="issuer=URL", help="take tokens of this authorization server")
    http(
        "--resource",
        metavar="URL",
        help="the URL of this bridge, as its clients write it; needed off loopback with --auth",
    )
    http(
        "--api-key-file",
        metavar="FILE",
        help="take the keys of a file: NAME and the SHA-256 of the key, one on each line",
    )
    http("--open", action="store_true", help="take requests without a key; loopback only")
    http(
        "--shared", action="store_true", help="let all callers use one connection, with the rights of this user's login"
    )
    http("--allow-host", metavar="NAME[:PORT]", help="a Host that requests may name (repeatable)", **REPEATABLE)
    http("--metrics", action="store_true", help="serve numbers for Prometheus at /metrics")
    rules: Any = parser.add_argument_group("what callers may do").add_argument
    rules("--only", metavar="PATTERN", help="offer nothing else (repeatable)", **REPEATABLE)
    rules("--allow", metavar="PATTERN", help="may be called (repeatable)", **REPEATABLE)
    rules("--ask", metavar="PATTERN", help="the user is asked before each call (repeatable)", **REPEATABLE)
    rules("--deny", metavar="PATTERN", help="does not exist for callers (repeatable)", **REPEATABLE)
    rules("--policy", metavar="FILE", help="a TOML file with rules, also for single principals and scopes")
    rules(
        "--pin", metavar="FILE", help="keep definitions of tools in a file, and refuse tools whose definition changed"
    )
    rules(
        "--accept",
        metavar="TOOL",
        help="with --pin: accept how a tool is defined now, and end (repeatable)",
        **REPEATABLE,
    )
    rules(
        "--budget",
        type=int,
        metavar="TOKENS",
        help="show this much of a result at once; the rest can be read and searched",
    )
    server: Any = parser.add_argument_group("the servers behind it").add_argument
    server(
        "-e", "--env", type=variable, metavar="KEY=VALUE", help="set a variable of commands (repeatable)", **REPEATABLE
    )
    server("-H", "--header", type=header, metavar="NAME:VALUE", help="send this to URLs (repeatable)", **REPEATABLE)
    sent = "send this to URLs: the value is in a file, where no list of processes shows it (repeatable)"
    server("--header-file", metavar="NAME:FILE", help=sent, **REPEATABLE)
    server("--cwd", metavar="DIR", help="working directory of commands")
    server("--era", choices=("modern", "legacy"), help="use this era only (default: negotiated)")
    server("--timeout", type=seconds, metavar="SECONDS", help="deadline for the start, and for each response")
    server("--record", metavar="FILE", help="write what is said with the servers to a transcript, without secrets")
    server("--status", action="store_true", help="offer a resource, linkspan://servers, with how the servers are")
    server("-q", "--quiet", action="store_true", help="do not show what the servers write to stderr")


def _bridge(targets: Sequence[Any], options: Any) -> int:
    """Check the options, and serve. Raises: WrongUse."""
    if options.http and options.stdio:
        raise WrongUse("--stdio and --http are two ways to serve: write one of them")
    if not options.http:
        for name in ("auth", "api_key_file", "open", "shared", "metrics"):
            if getattr(options, name):
                raise WrongUse(f"--{name.replace('_', '-')} goes with --http")
        if options.workers != 1:
            raise WrongUse("--workers goes with --http")
    from linkspan.bridge.gateway import BridgeOptions, Gateway
    from linkspan.bridge.rules import WrongRules, read_rules
    from linkspan.errors import LinkspanError

    try:
        rules = read_rules(options.policy, options.allow, options.ask, options.deny)
    except WrongRules as problem:
        raise WrongUse(str(problem)) from None
    servers = _servers(targets, options)
    if options.workers != 1:
        _check_workers(servers, options)
    auth = _auth(options, rules) if options.http else None
    chosen = BridgeOptions(
        rules=rules,
        only=options.only,
        is_shared=options.shared or not options.http,
        pin=Path(options.pin) if options.pin else None,
        asks_to_accept=not options.http or _is_for_one(options, rules),
        remembers=options.shared or not options.http,
        budget=options.budget,
        shows_status=options.status,
        list_timeout=30.0 if len(servers) == 1 else 3.0,
        has_workers=options.workers != 1,
    )
    if options.accept:
        return _accept(servers, chosen, options.accept)
    try:
        gateway = Gateway(servers, chosen, auth)
    except LinkspanError as problem:
        raise WrongUse(str(problem)) from None
    return _serve_http(gateway, options) if options.http else _serve_stdio(gateway)


def _check_workers(servers: Sequence[BridgedServer], options: Any) -> None:
    """Refuse what one process keeps for itself. Raises: WrongUse."""
    from linkspan.client.targets import resolve

    if options.workers < 1:
        raise WrongUse(f"--workers must be at least 1, got {options.workers}")
    if options.era == "legacy":
        raise WrongUse(
            "--workers needs servers of the newest revision: a session of --era legacy belongs to one process, so leave out "
            "--workers, or serve it with a bridge of one process, and name the URL of that"
        )
    for each in servers:
        if resolve(each.target, name=each.name).url is None:
            raise WrongUse(
                f"{each.name} is a command, which each of the workers would start: leave out --workers, or serve it with a "
                "bridge of one process, and name the URL of that"
            )


# What is behind it.


def _servers(targets: Sequence[Any], options: Any) -> list[BridgedServer]:
    """Return the servers that targets name. Raises: WrongUse."""
    from linkspan.bridge.gateway import BridgedServer
    from linkspan.client.targets import UnusableTarget, read_config, resolve

    found: dict[str, Any] = {}
    try:
        for target in targets:
            name, text = _named(target)
            if name is None and isinstance(text, str) and re.search(r"\.(json|toml)$", text):
                found |= read_config(text)
                continue
            name = name or re.sub(r"[^A-Za-z0-9_-]+", "_", resolve(text).origin.server).strip("_")[:32] or "server"
            if name in found:
                raise WrongUse(f"two servers are called {name!r}: write NAME=TARGET")
            found[name] = text
    except UnusableTarget as problem:
        raise WrongUse(str(problem)) from None
    given = _client_options(options)
    return [BridgedServer(name, target, _options_for(name, target, given, options)) for name, target in found.items()]


def _named(target: Any) -> tuple[str | None, Any]:
    """Part NAME=TARGET."""
    parts = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9_-]{0,31})=(.+)", target) if isinstance(target, str) else None
    return (parts[1], parts[2]) if parts is not None else (None, target)


def _client_options(options: Any) -> dict[str, Any]:
    headers = dict(options.header)
    for each in options.header_file:
        name, colon, path = each.partition(":")
        if not colon:
            raise WrongUse("--header-file must be followed by NAME:FILE")
        try:
            headers |= [header(f"{name}:{Path(path).read_text('utf-8').strip()}")]
        except OSError as error:
            raise WrongUse(f"{path} cannot be read: {error.strerror or error}") from None
    given: dict[str, Any] = {"headers": headers, "env": dict(options.env), "cwd": options.cwd, "era": options.era}
    if options.workers != 1:
        given["era"] = "modern"  # a session of a handshake would be another one in each worker
    if options.record:
        from linkspan.testing.recorder import TranscriptWriter

        try:
            given["recorder"] = TranscriptWriter(options.record, secrets=[*headers.values(), *given["env"].values()])
        except OSError as error:
            raise WrongUse(f"{options.record} cannot be written: {error.strerror or error}") from None
    if options.timeout is not None:
        given["timeouts"] = timeouts_of(options.timeout)
    return {name: value for name, value in given.items() if value}


def _options_for(name: str, target: Any, given: Mapping[str, Any], options: Any) -> dict[str, Any]:
    """Return the options of one server's clients: its stderr goes to ours with its name in front, and a person may log in."""
    from linkspan.auth.identities import OAuth

    found = dict(given)
    is_url = isinstance(target, str) and "://" in target.split()[0]
    is_known = any(each.lower() == "authorization" for each in given.get("headers", ()))
    if is_url and not is_known and not options.http:
        found["auth"] = OAuth()

    def show(text: str) -> None:
        for line in text.splitlines():
            with suppress(OSError, ValueError):
                sys.stderr.write(f"{name}: {line}\n")

    return found | {"on_stderr": _ignore if options.quiet else show}


def _ignore(text: str) -> None:
    """Show nothing."""


def _accept(servers: Sequence[BridgedServer], options: Any, names: Sequence[str]) -> int:
    """Pin tools as their servers define them now."""
    from linkspan.client.sync_client import SyncClient
    from linkspan.flows.client_errors import ClientError
    from linkspan.host.memory import Memory, Pins, tool_key

    if options.pin is None:
        raise WrongUse("--accept goes with --pin FILE")
    pins, left = Pins(Memory(options.pin)), {*names}
    for each in servers:
        try:
            with SyncClient(each.target, name=each.name, **each.options) as client:
                for tool in client.list_tools():
                    if tool.name in names:
                        pins.pin(tool_key(client.origin, None, client.environment, tool.name), tool)
                        left.discard(tool.name)
        except ClientError as error:
            print(f"linkspan bridge: {error}", file=sys.stderr)
            return 3
    for name in left:
        print(f"linkspan bridge: there is no tool {name!r}", file=sys.stderr)
    return 2 if left else 0


# Serving.


def _serve_stdio(gateway: Gateway) -> int:
    from linkspan.runtime.stdout import claim_stdout
    from linkspan.serve.stdio import StdioTransport

    claim_stdout()
    try:
        return StdioTransport(gateway.server).open()
    finally:
        gateway.close()


def _auth(options: Any, rules: Rules) -> Any:
    """Return what lets callers in; prints a key that was made for this start. Raises: WrongUse."""
    from linkspan.auth import ApiKeys, Protected
    from linkspan.revisions.neutral import Grant

    keys = {digest: Grant("bridge", name, scopes=frozenset(scopes)) for digest, (name, scopes) in rules.keys.items()}
    if options.api_key_file:
        keys |= _key_file(options.api_key_file)
    is_loopback = options.host in _LOOPBACK
    if options.open:
        if not is_loopback or keys or options.auth:
            raise WrongUse("--open takes requests without a key: on loopback, and without --auth and keys")
        return None
    if not keys and not options.auth:
        if not is_loopback:
            raise WrongUse(f"--host {options.host} is reached from elsewhere: it needs --auth or --api-key-file")
        key = secrets.token_urlsafe(32)
        keys = {hashlib.sha256(key.encode()).hexdigest(): Grant("bridge", "local")}
        print(f"Authorization: Bearer {key}", file=sys.stderr, flush=True)
    issuer: str | None = None
    if options.auth:
        kind, _, issuer = options.auth.partition("=")
        if kind != "issuer" or not issuer:
            raise WrongUse("--auth must be followed by issuer=URL")
    try:
        return Protected(options.resource, issuer=issuer, verify=[ApiKeys(keys)] if keys else [])
    except (ValueError, ImportError) as problem:
        raise WrongUse(str(problem)) from None


def _is_for_one(options: Any, rules: Rules) -> bool:
    """Return whether all callers are programs of the person who starts the bridge: on loopback, without keys of others."""
    return options.host in _LOOPBACK and not (options.auth or options.api_key_file or rules.keys)


def _key_file(path: str) -> dict[str, Any]:
    from linkspan.revisions.neutral import Grant

    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except OSError as error:
        raise WrongUse(f"{path} cannot be read: {error.strerror or error}") from None
    found: dict[str, Any] = {}
    for line in lines:
        match line.split("#")[0].split():
            case []:
                continue
            case [name, digest, *scopes] if re.fullmatch(r"[0-9a-f]{64}", digest):
                found[digest] = Grant("bridge", name, scopes=frozenset(scopes))
            case _:
                raise WrongUse(f"{path}: a line is NAME, the SHA-256 of the key as 64 digits, and scopes")
    if not found:
        raise WrongUse(f"{path} has no keys")
    return found


def _serve_http(gateway: Gateway, options: Any) -> int:
    from linkspan.cli.run import keep_stdout
    from linkspan.core.http_checks import LOOPBACK, HttpPolicy
    from linkspan.errors import LinkspanError
    from linkspan.serve.http import serve_http

    if options.shared:
        _say(f"All callers use {', '.join(gateway.upstreams)} with the rights of this user.")
    if options.open:
        _say("Requests need no key.")
    if options.workers > 1:
        _say("With several workers, a server that needs a handshake is refused.")
    gateway.get_acquainted(_ACQUAINTANCE)
    hosts = [*LOOPBACK, *options.allow_host] if options.allow_host else None
    metrics = "/metrics" if options.metrics else None
    try:
        return serve_http(
            gateway.server,
            announce=keep_stdout(),
            policy=HttpPolicy(allowed_hosts=hosts),
            host=options.host,
            port=options.port,
            workers=options.workers,
            metrics=metrics,
        )
    except LinkspanError as problem:
        _fail(str(problem))
    finally:
        gateway.close()


def _say(text: str) -> None:
    print(f"linkspan bridge: {text}", file=sys.stderr, flush=True)


def _fail(problem: str) -> NoReturn:
    raise WrongUse(problem)
