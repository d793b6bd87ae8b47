"""What a client accepts as a target, and how that becomes a connection: a server, a command, a file, a URL.

A server that is only known by its command is named after its package, script or image, not after its launcher."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from linkspan.client.config import Configuration, Settled, UnusableTarget, read_config, read_mapping, settled
from linkspan.client.login_options import NO_OPTIONS, LoginOptions
from linkspan.flows.client_errors import Origin
from linkspan.runtime.calls import Connectable
from linkspan.runtime.channels import OpenChannel
from linkspan.runtime.command_lines import command_line, split_command
from linkspan.wire.redaction import redact
from linkspan.wire.reports import VARIABLE

if TYPE_CHECKING:
    from linkspan.client.transports.stdio import Command

__all__ = ["ServerTarget", "Target", "UnusableTarget", "file_name", "read_config", "resolve", "server_name"]

_Other: TypeAlias = str | Path | Sequence[str] | Mapping[str, Any] | Connectable
ServerTarget: TypeAlias = _Other | OpenChannel
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

    origin: Origin
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

        return Target(Origin(name or name_of(target)), channel=target)
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
        return Target(Origin(name or (shown if isinstance(shown, str) else type(target).__name__)), server=target)
    raise UnusableTarget(
        f"a client cannot connect to a {type(target).__name__}: pass a Server, a command, a .py file, an entry of an "
        "mcp.json, a URL, or a function that opens a channel"
    )


def _text(text: str, name: str | None, env: Mapping[str, str] | None, cwd: str | None, *, inherit_env: bool) -> Target:
    if re.match(r"https?://", text):
        return Target(Origin(name or _host_of(text), url=redact(text)), url=text)
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
        origin=Origin(name, command_line(argv)),
        command=msgspec.structs.replace(target.command, reports=bool(ours)),
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
    servers = entry if isinstance(entry, Configuration) else read_mapping(entry)
    if servers is not None:
        chosen = _only(servers, name)
        return _entry(servers[chosen], name or chosen, env, cwd, inherit_env=inherit_env)
    found = settled(entry)
    if found.url is not None:
        target = _text(found.url, name, env, cwd, inherit_env=inherit_env)
        origin = target.origin
        if found.url in found.shown:
            shown = found.shown[found.url]
            origin = Origin(name or _host_of(shown), url=redact(shown, found.secrets))
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


def _only(servers: Configuration, name: str | None) -> str:
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
    return Target(Origin(name or server_name(words, cwd), shown), command=command, environment=given)


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


_Kind: TypeAlias = Literal["script", "module", "package", "image", "command", "folder", "code"]
"""What the first word after a launcher and its options is; "folder": its folder names the server; "code": nothing does."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LAUNCHERS: Final[dict[str, _Kind]] = {
    **dict.fromkeys(
        ("python", "pythonw", "pypy", "py", "node", "nodejs", "bun", "bun run", "deno run", "tsx", "ts-node", "ruby",
         "perl", "php", "java", "dotnet", "go run", "sh", "bash", "zsh", "dash", "fish", "pwsh", "powershell",
         "linkspan run", "fastmcp run", "mcp run"),
        "script",
    ),
    **dict.fromkeys(
        ("npx", "npm exec", "npm x", "pnpm dlx", "pnpm exec", "pnpx", "yarn dlx", "yarn exec", "bunx", "bun x",
         "uvx", "uv tool run", "uv x", "pipx run"),
        "package",
    ),
    **dict.fromkeys(
        (f"{supervisor} {how}" for supervisor in ("docker", "podman", "nerdctl")
         for how in ("run", "container run", "exec", "container exec", "compose run", "compose exec")),
        "image",
    ),
    **dict.fromkeys(
        ("env", "sudo", "nohup", "nice", "exec", "time", "stdbuf", "timeout", "cmd", "wsl", "uv run", "poetry run", "pdm run",
         "hatch run", "pipenv run", "rye run", "conda run", "micromamba run", "mise exec", "direnv exec", "dotenv run"),
        "command",
    ),
    **dict.fromkeys(
        ("npm run", "npm start", "pnpm run", "pnpm start", "yarn run", "yarn start", "cargo run", "make", "dotnet run"),
        "folder",
    ),
}  # fmt: skip
_WITH_VALUE: Final = {
    "python": "-W -X",
    "uv": "-p --python -w --with --with-editable --with-requirements --directory --project --env-file --from --index "
    "--default-index --index-url -i --extra-index-url -f --find-transports --extra --group --only-group --no-extra "
    "--refresh-package --cache-dir --config-file -c --constraints --package --transport-mode --resolution --exclude-newer",
    "pipx": "--python --spec --index-url --pip-args",
    "npm": "-p --package --registry --call --cache --userconfig --prefix -w --workspace -C --dir --cwd --filter -F",
    "node": "-r --require --import --loader --experimental-loader --env-file -C --conditions",
    "deno": "-c --config --import-map --lock --env-file",
    "java": "-cp -classpath --class-path",
    "dotnet": "--project",
    "cargo": "--manifest-path --bin --package -p",
    "make": "-C -f",
    "env": "-u --unset -C --chdir",
    "sudo": "-u -g -E",
    "nice": "-n",
    "stdbuf": "-i -o -e",
    "timeout": "-s -k --signal --kill-after",
    "wsl": "-d --distribution -u --user --cd",
    "conda": "-n --name -p --prefix",
}
_VALUES: Final = {family: _words(options) for family, options in _WITH_VALUE.items()}
_FAMILIES: Final = {
    **dict.fromkeys(("pythonw", "pypy", "py"), "python"),
    **dict.fromkeys(("nodejs", "tsx", "ts-node", "bun"), "node"),
    **dict.fromkeys(("npx", "pnpm", "pnpx", "yarn", "bunx"), "npm"),
    **dict.fromkeys(("podman", "nerdctl"), "docker"),
    "uvx": "uv",
    "micromamba": "conda",
}
_DOCKER_ALONE: Final = _words(
    "-i -t -it -ti -d -q -P --interactive --tty --rm --init --detach --privileged --read-only --no-healthcheck "
    "--oom-kill-disable --publish-all --quiet --sig-proxy --no-deps --no-TTY -T --build --service-ports",
)
"""The options of `docker run` without a value: there are fewer of them than of the others."""
_OPTIONS_THAT_START: Final = {
    "python": "module",
    "uv": "module",
    **dict.fromkeys(("node", "ruby", "perl", "php"), "code"),
    **dict.fromkeys(("sh", "bash", "zsh", "dash"), "shell"),
}
_FOLDER_OPTIONS: Final = frozenset(
    {"--directory", "--project", "--prefix", "-C", "--dir", "--cwd", "--chdir", "--manifest-path"}
)
_PACKAGE_OPTIONS: Final = frozenset({"-p", "--package", "--from", "--spec"})

_GENERIC: Final = _words(
    "index main app server run start serve cli stdio mcp mcp-server mcp_server __main__ __init__ program default latest",
)
_GENERIC_FOLDERS: Final = _GENERIC | _words(
    "dist build out bin lib src source target release debug scripts cmd node_modules .bin .venv venv env",
)
_SUFFIX: Final = re.compile(
    r"\.(?:py|pyw|pyz|pex|js|mjs|cjs|ts|mts|cts|sh|exe|cmd|bat|ps1|jar|dll|rb|pl|php|go|git|whl|gz|tgz|tar|zip|transcript)$",
    re.IGNORECASE,
)
_VERSION: Final = re.compile(r"[-_]v?\d+(?:\.\d+)+(?:[-_.+].*)?$")


class _Launched(NamedTuple):
    kind: _Kind
    words: tuple[str, ...] = ()
    """What comes after the launcher and its options."""
    folder: str | None = None
    package: str | None = None
    """The package that an option names, and whose program the first word is."""


def server_name(argv: Sequence[str], cwd: str | None = None) -> str:
    """Return what a person would call the server that a command starts; `cwd` is where it starts."""
    return _found(argv, cwd) or _plain(_base(argv[0])) or argv[0]


def file_name(path: str, cwd: str | None = None) -> str:
    """Return what a person would call a file: `weather/server.py` and `weather/dist/index.js` are `weather`."""
    own = _plain(_base(path))
    if own.lower() not in _GENERIC:
        return own
    return _folder_name(os.path.dirname(path), cwd) or own


def _found(argv: Sequence[str], cwd: str | None) -> str | None:
    if not argv:
        return None
    launched = _launched(argv)
    if launched is None:
        on_the_path = _base(argv[0]) == argv[0] and not _SUFFIX.search(argv[0])
        return _plain(argv[0]) if on_the_path else file_name(argv[0], cwd)
    folder = os.path.join(cwd or "", launched.folder) if launched.folder is not None else cwd
    words = launched.words
    if launched.kind == "folder" or (words and words[0] == "."):
        return _folder_name("", folder)
    if not words:
        return None
    if launched.kind == "module":
        return _module_name(words[0])
    if launched.kind == "command":
        return _found(words, folder)
    if launched.kind == "package":
        name = _package_name(words[0])
        return _package_name(launched.package) if name in _GENERIC and launched.package is not None else name
    if launched.kind == "image":
        name = _image_name(words[0])
        return (_found(words[1:], None) if name in _LAUNCHERS or name == "uv" else None) or name
    return file_name(words[0], folder)


def _launched(argv: Sequence[str]) -> _Launched | None:
    """Take a command line apart. Returns None if its program launches no other."""
    first = re.sub(r"(?<=\D)[\d.]+$", "", _SUFFIX.sub("", _base(argv[0]).lower()))
    family = _FAMILIES.get(first, first)
    key, folder, package = first, None, None
    words = list(argv[1:])
    while words and _leads_on(key):
        word = words.pop(0)
        if family in _OPTIONS_THAT_START and (found := _by_option(family, word, words)) is not None:
            return found._replace(folder=folder)
        if word.startswith("-") and len(word) > 1:
            option, equals, value = word.partition("=")
            if words and not equals and _takes_value(family, word):
                value = words.pop(0)
            folder = value if option in _FOLDER_OPTIONS else folder
            package = value if option in _PACKAGE_OPTIONS else package
        elif _leads_on(f"{key} {word}"):
            key = f"{key} {word}"
        elif not _precedes_command(family, word):
            words.insert(0, word)
            break
    kind = _LAUNCHERS.get(key)
    return _Launched(kind, tuple(words), folder, package) if kind is not None else None


def _leads_on(key: str) -> bool:
    return any(each == key or each.startswith(f"{key} ") for each in _LAUNCHERS)


def _takes_value(family: str, option: str) -> bool:
    return option not in _DOCKER_ALONE if family == "docker" else option in _VALUES.get(family, ())


def _precedes_command(family: str, word: str) -> bool:
    """Return whether a word belongs to the launcher: an assignment, a duration, a switch of Windows."""
    pattern = {"env": r"\w+=.*", "timeout": r"[\d.]+[smhd]?", "cmd": r"/.*"}.get(family)
    return pattern is not None and re.fullmatch(pattern, word, re.DOTALL) is not None


def _by_option(family: str, word: str, rest: Sequence[str]) -> _Launched | None:
    """Return what an option starts: a module, code, a shell's command; None for any other option."""
    what = _OPTIONS_THAT_START[family]
    if what == "shell":
        return _Launched("command", tuple(_last_command(rest))) if re.fullmatch(r"-\w*c", word) else None
    if word == "-m" and rest and what == "module":
        return _Launched("module", (rest[0],))
    return _Launched("code") if word in ("-c", "-e") and family != "uv" else None


def _last_command(words: Sequence[str]) -> list[str]:
    """Return the last command of a shell's `-c`: what comes before prepares it."""
    with suppress(ValueError):
        found: list[str] = []
        for word in shlex.split(words[0], comments=True) if words else ():
            ends = word.endswith(";")
            found = [] if word in ("&&", "||", ";", "|") or ends else [*found, word]
        return found
    return []


def _package_name(spec: str) -> str:
    """Return the name in `@scope/name@1.2`, `name[extra]>=1`, `git+https://host/owner/name.git@v1`, `./name-1.0.whl`."""
    scope, slash, name = spec.partition("/") if spec.startswith("@") else ("", "", spec)
    if "://" in name or name.startswith("github:"):
        name = re.sub(r"(?<=[^/])@[^/]*$", "", name.partition("#")[0])
    elif name.endswith(".whl"):
        name = _base(name).partition("-")[0]
    name = _plain(_base(re.split(r"\[|[=<>~!]=|[<>@]", name)[0] if "://" not in name else name))
    if slash and (name.lower() in _GENERIC or not name):
        return scope.lstrip("@")
    return name


def _image_name(image: str) -> str:
    """Return the name in `registry:5000/owner/name:tag@sha256:...`; an image called `mcp` is its owner's."""
    parts = [part.partition(":")[0] for part in image.partition("@")[0].split("/")]
    named = [part for part in parts if part and part.lower() not in _GENERIC]
    return _plain(named[-1]) if named else parts[-1]


def _module_name(module: str) -> str:
    named = [part for part in module.split(".") if part not in _GENERIC]
    return named[-1] if named else module


def _folder_name(folder: str, cwd: str | None) -> str | None:
    """Return the name of the nearest folder that is called like something."""
    with suppress(OSError):  # our own directory may be gone
        whole = Path(os.path.abspath(os.path.join(cwd or "", folder)))
        return (
            next((each.name for each in (whole, *whole.parents) if each.name.lower() not in _GENERIC_FOLDERS), "")
            or None
        )
    return None


def _base(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _plain(name: str) -> str:
    """Return a name without the suffix of its file and its version."""
    plain = _SUFFIX.sub("", name)
    return _VERSION.sub("", plain) or plain or name
