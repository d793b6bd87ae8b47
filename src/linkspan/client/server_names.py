"""What a person would call a server that is only known by its command: its package, script or image, not its launcher."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

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
_SUFFIX: Final = (
    r"(?i)\.(?:py|pyw|pyz|pex|js|mjs|cjs|ts|mts|cts|sh|exe|cmd|bat|ps1|jar|dll|rb|pl|php|go|git|whl|gz|tgz|tar|zip"
    r"|transcript)$"
)
_VERSION: Final = r"[-_]v?\d+(?:\.\d+)+(?:[-_.+].*)?$"


class _Launched(msgspec.Struct, frozen=True):
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
        on_the_path = _base(argv[0]) == argv[0] and not re.search(_SUFFIX, argv[0])
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
    first = re.sub(r"(?<=\D)[\d.]+$", "", re.sub(_SUFFIX, "", _base(argv[0]).lower()))
    family = _FAMILIES.get(first, first)
    key, folder, package = first, None, None
    words = list(argv[1:])
    while words and _leads_on(key):
        word = words.pop(0)
        if family in _OPTIONS_THAT_START and (found := _by_option(family, word, words)) is not None:
            return msgspec.structs.replace(found, folder=folder)
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
    plain = re.sub(_SUFFIX, "", name)
    return re.sub(_VERSION, "", plain) or plain or name
