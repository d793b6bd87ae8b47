"""Configuration files of hosts: where they are, and which servers they name. See docs/configuration.md."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, TypeGuard, cast

import msgspec

from linkspan.client.host_formats import all_formats
from linkspan.client.login_options import LoginOptions
from linkspan.flows.client_errors import NO_ORIGIN, ClientError, ServerOrigin
from linkspan.types.base import JSON, is_array, is_mapping, is_object
from linkspan.wire.redaction import REDACTED, is_secret_name

_SECTIONS: Final = ("mcpServers", "servers", "context_servers", "mcp_servers", "amp.mcpServers")
_OF_AN_ENTRY: Final = frozenset({"command", "cmd", "path", "source", "transport", "url", "httpUrl", "serverUrl", "uri"})
_STRING_OR_COMMENT: Final = r'(?s)"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/'
_STRING_OR_COMMA: Final = r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])'


class ConfiguredServers(dict[str, Mapping[str, Any]]):
    """The servers of a file by name, each of them something that a client takes; and those that were left out, with why."""

    def __init__(self) -> None:
        super().__init__()
        self.left_out: dict[str, str] = {}


class KnownConfig(msgspec.Struct, frozen=True):
    """A configuration file that is there."""

    host: str
    path: Path


def read_config(path: str | Path, *, inputs: AskInput | None = None) -> ConfiguredServers:
    """Return the servers of a host's configuration by name: JSON, with comments or without, or Codex's TOML.

    `inputs` is asked for each `${input:ID}` once, when a server that needs it is opened. An invalid entry is reported
    when that server is opened. Raises: UnusableTarget for a file that cannot be read or names no servers.
    """
    file = Path(path)
    return _read(file, _toml(file) if file.suffix == ".toml" else _json(file), inputs)


def read_mapping(document: Mapping[str, Any]) -> ConfiguredServers | None:
    """Return the servers of a configuration that was read already, or None for what is not a whole one."""
    if isinstance(document, ConfigEntry) or not _OF_AN_ENTRY.isdisjoint(document) or not [*_sections(document)]:
        return None
    return _read(Path("this configuration"), document, None)


def _read(file: Path, document: Mapping[str, JSON], inputs: AskInput | None) -> ConfiguredServers:
    context = FileContext(file, dict(_inputs(document)), inputs)
    found = ConfiguredServers()
    for name, entry in _named(file, document):
        why = why_left_out(entry)
        if why is None:
            found[name] = ConfigEntry(entry, name, context)
            found.left_out.pop(name, None)
        elif name not in found:
            found.left_out[name] = why
    return found


def known_configs(
    *, home: Path | None = None, workspace: Path | None = None, platform: str = sys.platform
) -> list[KnownConfig]:
    """Return the configuration files of hosts that are there, those of the workspace first."""
    home = home if home is not None else Path.home()
    workspace = workspace if workspace is not None else Path.cwd()
    places = [*_in_workspace(workspace), *_at_home(home, platform)]
    found: dict[Path, KnownConfig] = {}
    for host, path in places:
        if path.is_file():
            found.setdefault(path, KnownConfig(host, path))
    return list(found.values())


def config_path(host: str, *, workspace: bool = False) -> Path | None:
    """Return where a host, such as "VS Code", has its configuration, there or not; None for a host without one.

    `workspace` asks for the file of the current directory instead of the user's own.
    """
    places = _in_workspace(Path.cwd()) if workspace else _at_home(Path.home(), sys.platform)
    return next((path for name, path in places if name == host), None)


def _in_workspace(workspace: Path) -> Iterator[tuple[str, Path]]:
    for _, host in all_formats():
        if host.workspace is not None:
            yield host.title, workspace / host.workspace


def _at_home(home: Path, platform: str) -> Iterator[tuple[str, Path]]:
    for _, host in all_formats():
        if (path := host.at_home(home, platform)) is not None:
            yield host.title, path


# Files.


def _toml(file: Path) -> Mapping[str, JSON]:
    import tomllib

    try:
        return tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError as error:
        raise UnusableTarget(f"{os.fspath(file)!r} is not valid TOML: {error}") from None


def _json(file: Path) -> Mapping[str, JSON]:
    text = _text(file)
    try:
        found: JSON = json.loads(text)
    except ValueError:
        found = _json_with_comments(file, text)
    except RecursionError:
        raise UnusableTarget(f"{os.fspath(file)!r} is nested too deeply") from None
    if not is_object(found):
        raise UnusableTarget(f"{os.fspath(file)!r} is not a JSON object")
    return found


def plain_json(text: str, *, commas: bool = False) -> str:
    """Return JSON as editors read it: comments become spaces, and so do commas before a closing bracket, unless `commas`.

    Everything else stays at its place.
    """
    text = re.sub(_STRING_OR_COMMENT, lambda found: found[0] if found[0][0] == '"' else _blank(found[0]), text)
    return text if commas else re.sub(_STRING_OR_COMMA, lambda found: found[0] if found[0][0] == '"' else " ", text)


def _json_with_comments(file: Path, text: str) -> JSON:
    try:
        return json.loads(plain_json(text))
    except ValueError as error:
        raise UnusableTarget(f"{os.fspath(file)!r} is not valid JSON: {error}") from None


def _blank(text: str) -> str:
    """Keep the lines of what is taken out, so that an error names the right one."""
    return re.sub(r"[^\n]", " ", text)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except OSError as error:
        raise UnusableTarget(f"{os.fspath(file)!r} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UnusableTarget(f"{os.fspath(file)!r} is not UTF-8 text") from None


# Sections.


def _named(file: Path, document: Mapping[str, JSON]) -> Iterator[tuple[str, JSON]]:
    """Yield the entries of each section that a host would read; a later one replaces an earlier one of its name."""
    sections: list[JSON] = list(_sections(document))
    if (
        not sections
        and document
        and all(is_object(each) and ({"command", "url"} & each.keys()) for each in document.values())
    ):
        sections = [document]
    if not sections:
        raise UnusableTarget(f'{os.fspath(file)!r} has no "mcpServers" (or "servers") object')
    for section in sections:
        if is_object(section):
            yield from section.items()
            continue
        items: list[JSON] = section
        for at, each in enumerate(items):
            name: JSON = each.get("name", each.get("id")) if is_object(each) else None
            yield name if isinstance(name, str) else f"server-{at + 1}", each


def _sections(document: Mapping[str, JSON]) -> Iterator[JSON]:
    for key in dict.fromkeys((*_SECTIONS, *(host.section for _, host in all_formats()))):
        if is_object(document.get(key)) or is_array(document.get(key)):
            yield document[key]
    mcp: JSON = document.get("mcp")
    if is_object(mcp):
        yield mcp["servers"] if is_object(mcp.get("servers")) else mcp
    projects: JSON = document.get("projects")
    here: JSON = projects.get(os.getcwd()) if is_object(projects) else None
    if is_object(here) and is_object(here.get("mcpServers")):
        yield here["mcpServers"]


def _inputs(document: Mapping[str, JSON]) -> Iterator[tuple[str, InputWanted]]:
    mcp: JSON = document.get("mcp")
    listed: JSON = document.get("inputs", mcp.get("inputs") if is_object(mcp) else None)
    for each in listed if is_array(listed) else ():
        if not is_object(each) or not isinstance(each.get("id"), str):
            continue
        options: JSON = each.get("options")
        yield (
            each["id"],
            InputWanted(
                each["id"],
                str(each.get("description") or ""),
                each.get("password") is True,
                tuple(str(one) for one in options) if is_array(options) else (),
                each["default"] if isinstance(each.get("default"), str) else None,
            ),
        )


_VARIABLE: Final = r"\$\{(?:(input|workspaceFolder):([^}]+)|(?:env:)?(\w+)(?::-([^}]*))?)\}"
_BARE_VARIABLE: Final = r"\$([A-Za-z_]\w*)"
_LINE: Final = r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*"
_URLS: Final = ("url", "httpUrl", "serverUrl", "uri")
_IN_SECONDS: Final = ("alwaysAllow", "autoApprove", "disabled")
_SHORTEST_IN_MILLISECONDS: Final = 1_000
_TIMEOUTS: Final = {
    "startup_timeout_sec": ("connect", 1.0),
    "startup_timeout_ms": ("connect", 0.001),
    "tool_timeout_sec": ("call", 1.0),
}


class UnusableTarget(ClientError, ValueError):
    """The target is not something to connect to; the message explains what is."""

    def __init__(self, problem: str, origin: ServerOrigin = NO_ORIGIN, **more: Any) -> None:
        more.setdefault("phase", "connect")
        super().__init__(problem, origin, **more)


class InputWanted(msgspec.Struct, frozen=True):
    """Something that a configuration leaves to the person: `${input:ID}`."""

    id: str
    description: str = ""
    secret: bool = False
    options: tuple[str, ...] = ()
    default: str | None = None


AskInput: TypeAlias = Callable[[InputWanted], str]


class FileContext:
    """What the entries of one file share: where it lies, what it asks of the person, and what was answered."""

    def __init__(self, path: Path, inputs: Mapping[str, InputWanted], ask: AskInput | None) -> None:
        self.path = path
        folder = path.absolute().parent
        self.workspace = folder.parent if folder.name.startswith(".") else folder
        if self.workspace == Path.home():
            self.workspace = Path.cwd()
        self.bare_variables = folder.name == ".gemini"
        self._inputs = inputs
        self._ask = ask
        self._answers: dict[str, str] = {}

    def answer(self, name: str) -> str | None:
        """Return the user's value for an input, asked for once; its default, or None, if there is no way to ask."""
        wanted = self._inputs.get(name, InputWanted(name))
        if name not in self._answers and self._ask is not None:
            self._answers[name] = self._ask(wanted)
        return self._answers.get(name, os.environ.get(variable_of(name), wanted.default))

    def is_secret(self, name: str) -> bool:
        """Return whether an input is marked as a password, or named like one."""
        wanted = self._inputs.get(name)
        return is_secret_name(name) or (wanted is not None and wanted.secret)

    def wanted(self, name: str) -> str:
        """Return how a person knows an input."""
        description = self._inputs.get(name, InputWanted(name)).description
        return f"the input {name!r} ({description})" if description else f"the input {name!r}"


class ConfigEntry(dict[str, Any]):
    """An entry as it is written, which knows the file that it is from."""

    def __init__(self, members: Mapping[str, Any], name: str, context: FileContext) -> None:
        super().__init__(members)
        self.name = name
        self.context = context


class Settled(msgspec.Struct, frozen=True):
    """What an entry comes to: a command or a URL."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    timeouts: Mapping[str, float] = msgspec.field(default_factory=dict[str, float])
    login: LoginOptions | None = None
    secrets: tuple[str, ...] = ()
    """What was filled in for passwords and secret variables: of any length."""
    shown: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """What to show in place of the words of the command, or the URL, in which they are."""


def variable_of(name: str) -> str:
    """Return the environment variable that stands for an input: `api-key` is `API_KEY`."""
    return re.sub(r"\W", "_", name).upper()


def why_left_out(entry: JSON) -> str | None:
    """Return why an entry is not meant to be started, or None."""
    if not is_object(entry):
        return "is not an object"
    if entry.get("disabled") is True or entry.get("enabled") is False:
        return "is disabled"
    if not any(key in entry for key in ("command", "cmd", "source", "transport", *_URLS)) and "settings" in entry:
        return "is started by an extension of the editor"
    return None


def settled(entry: Mapping[str, Any]) -> Settled:
    """Return what to connect to. Raises: UnusableTarget."""
    return _FileEntry(entry).settled()


class _FileEntry:
    def __init__(self, entry: Mapping[str, Any]) -> None:
        self._context = entry.context if isinstance(entry, ConfigEntry) else None
        self._where = "this entry of an mcp.json"
        if isinstance(entry, ConfigEntry):
            self._where = f"{entry.context.path}, server {entry.name!r}"
        self._members = {**entry}
        self._secrets: dict[str, None] = {}
        self._shown: dict[str, str] = {}
        for key in ("transport", "source", "command"):
            inner: JSON = self._members.get(key)
            if is_mapping(inner):
                del self._members[key]
                self._members |= inner

    def settled(self) -> Settled:
        for key in _URLS:
            if self._members.get(key) is not None:
                return self._with_secrets(
                    Settled(url=self._url(key), headers=self._headers(), timeouts=self._timeouts(), login=self._login())
                )
        cwd = self._text("cwd") or None
        if cwd is not None and self._context is not None:
            cwd = os.path.join(self._context.workspace, cwd)
        return self._with_secrets(Settled(self._command(), self._env(), cwd, timeouts=self._timeouts()))

    def _with_secrets(self, found: Settled) -> Settled:
        return msgspec.structs.replace(found, secrets=tuple(self._secrets), shown=self._shown)

    def _url(self, key: str) -> str:
        found = self._text(key)
        if not re.match(r"https?://", found):
            self._refuse(key, "must begin with http:// or https://")
        return found

    def _command(self) -> tuple[str, ...]:
        key = next((each for each in ("command", "path", "cmd") if each in self._members), None)
        if key is None:
            raise UnusableTarget(f'{self._where} has neither a "command" (with "args") nor a "url"')
        words = self._list(key) if _is_items(self._members[key]) else [self._text(key)]
        if not words or not words[0]:
            self._refuse(key, "is empty: it is the program to start")
        return (*words, *self._list("args"))

    def _env(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if "envFile" in self._members:
            found |= self._env_file(self._text("envFile"))
        for each in self._items("env_vars"):
            name: JSON = each.get("name") if is_mapping(each) else each
            if isinstance(name, str) and name in os.environ:
                found[name] = os.environ[name]
        for key in ("env", "envs", "environment"):
            found |= self._texts(key)
        return found

    def _env_file(self, path: str) -> dict[str, str]:
        folder = self._context.workspace if self._context is not None else Path()
        try:
            lines = (folder / path).read_text("utf-8-sig").splitlines()
        except (OSError, UnicodeError) as error:
            self._refuse("envFile", f"{path!r} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}")
        found: dict[str, str] = {}
        for line in lines:
            match = re.fullmatch(_LINE, line)
            if match is not None:
                found[match[1]] = _unquoted(match[2])
        return found

    def _headers(self) -> dict[str, str]:
        found = {**self._texts("headers"), **self._texts("http_headers")}
        for name, variable in self._texts("env_http_headers").items():
            found[name] = self._variable("env_http_headers", variable, None)
        if "bearer_token_env_var" in self._members:
            token = self._variable("bearer_token_env_var", self._text("bearer_token_env_var"), None)
            found["Authorization"] = f"Bearer {token}"
        return found

    def _login(self) -> LoginOptions | None:
        """Return what is to be known for logins: as most hosts write it, or as Cursor does."""
        for key in ("oauth", "auth"):
            members: JSON = self._members.get(key)
            if is_mapping(members):
                return _LoginMembers(self, key, members).options()
        return None

    def _timeouts(self) -> dict[str, float]:
        """Read deadlines in seconds. A bare `timeout` is in seconds in Cline and Roo, in milliseconds in the others."""
        found: dict[str, float] = {}
        for key, (name, unit) in _TIMEOUTS.items():
            found |= self._seconds(key, name, unit)
        long = self._members.get("timeout")
        in_seconds = any(key in self._members for key in _IN_SECONDS)
        if isinstance(long, int | float) and long < _SHORTEST_IN_MILLISECONDS:
            in_seconds = True
        return found | self._seconds("timeout", "call", 1.0 if in_seconds else 0.001)

    def _seconds(self, key: str, name: str, unit: float) -> dict[str, float]:
        value: JSON = self._members.get(key)
        if value is None:
            return {}
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            self._refuse(key, "must be a number above 0")
        return {name: value * unit}

    # Members by type.

    def _text(self, key: str) -> str:
        value: JSON = self._members.get(key, "")
        if not isinstance(value, str):
            self._refuse(key, "must be a string")
        return self._substituted(key, value)

    def _items(self, key: str) -> Sequence[JSON]:
        value: JSON = self._members.get(key) or []
        if not _is_items(value):
            self._refuse(key, "must be a list")
        return value

    def _list(self, key: str) -> list[str]:
        return [self._substituted(key, self._scalar(key, each)) for each in self._items(key)]

    def _texts(self, key: str) -> dict[str, str]:
        value: JSON = self._members.get(key) or {}
        if not is_mapping(value):
            self._refuse(key, 'must be an object: {"NAME": "VALUE"}')
        given = {name: each for name, each in value.items() if each is not None}
        return {
            name: self._substituted(f"{key}.{name}", self._scalar(f"{key}.{name}", each))
            for name, each in given.items()
        }

    def _scalar(self, key: str, value: JSON) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if not isinstance(value, str | int | float):
            self._refuse(key, "must be a string")
        return str(value)

    # Variables.

    def _substituted(self, key: str, text: str) -> str:
        values: list[tuple[str, str]] = []

        def fill(found: re.Match[str]) -> str:
            value = self._value(key, found)
            secret = self._is_secret(found)
            values.append((value, REDACTED if secret else value))
            if secret and value:
                self._secrets[value] = None
            return value

        filled = re.sub(_VARIABLE, fill, text)
        if any(value != shown for value, shown in values):
            kept = iter(values)
            self._shown[filled] = re.sub(_VARIABLE, lambda _: next(kept)[1], text)
        if self._context is not None and self._context.bare_variables:  # as Gemini CLI writes them
            return re.sub(_BARE_VARIABLE, lambda found: os.environ.get(found[1], found[0]), filled)
        return filled

    def _is_secret(self, found: re.Match[str]) -> bool:
        if found[1] == "input" and self._context is not None:
            return self._context.is_secret(found[2])
        return is_secret_name(found[2] or found[3])

    def _value(self, key: str, found: re.Match[str]) -> str:
        if found[1] == "input":
            return self._input(key, found[2])
        workspace = self._context.workspace if self._context is not None else Path.cwd()
        known = {
            "workspaceFolder": os.fspath(workspace),
            "workspaceFolderBasename": workspace.name,
            "userHome": os.path.expanduser("~"),
            "pathSeparator": os.sep,
        }
        name = found[1] or found[3]
        return known[name] if name in known else self._variable(key, name, found[4])

    def _variable(self, key: str, name: str, fallback: str | None) -> str:
        value = os.environ.get(name)
        if not value and fallback is not None:
            return fallback
        if value is None:
            self._refuse(key, f"needs the environment variable {name}, which is not set")
        return value

    def _input(self, key: str, name: str) -> str:
        value = self._context.answer(name) if self._context is not None else os.environ.get(variable_of(name))
        if value is None:
            what = self._context.wanted(name) if self._context is not None else f"the input {name!r}"
            self._refuse(
                key, f"needs {what}: set the environment variable {variable_of(name)}, or pass inputs= to read_config"
            )
        return value

    def _refuse(self, key: str, words: str) -> NoReturn:
        raise UnusableTarget(f'{self._where}: "{key}" {words}')


class _LoginMembers(_FileEntry):
    """The object in an entry that is about logins."""

    def __init__(self, entry: _FileEntry, key: str, members: Mapping[str, JSON]) -> None:
        super().__init__(members)
        self._context = entry._context
        self._where = entry._where
        self._member = key
        self._secrets = entry._secrets
        self._shown = entry._shown

    def options(self) -> LoginOptions:
        """Return the members that a login needs. Raises: UnusableTarget."""
        client_id = self._first("clientId", "client_id", "CLIENT_ID")
        found = LoginOptions(
            client_id,
            self._secret("clientSecret", "client_secret", "CLIENT_SECRET"),
            self._first("clientMetadataUrl", "client_metadata_url"),
            self._port("callbackPort", "callback_port"),
            self._scopes("scopes") or self._scopes("scope"),
            self._resource("resource"),
        )
        if found.client_secret is not None and client_id is None:
            self._refuse("clientSecret", 'needs the "clientId" that it belongs to')
        self._check(
            "clientMetadataUrl", "must be an https URL with a path", client_metadata_url=found.client_metadata_url
        )
        self._check("callbackPort", "must be the number of a port", redirect_port=found.redirect_port)
        self._check("scopes", "must be a list, or one text with spaces between the scopes", scopes=found.scopes)
        self._check("resource", "must be a URI without a fragment, or false", resource=found.resource)
        return found

    def _first(self, *keys: str) -> str | None:
        """Return the text of the first of these members that is there; an empty one says nothing."""
        return next((self._text(key) for key in keys if self._members.get(key) is not None), None) or None

    def _secret(self, *keys: str) -> str | None:
        found = self._first(*keys)
        if found is None:
            return None
        self._secrets[found] = None
        for key in keys:
            if self._members.get(key) == found:
                _warn_of_secret(self._where, f"{self._member}.{key}")
        return found

    def _port(self, *keys: str) -> int | None:
        for key in keys:
            if (value := self._members.get(key)) is not None:
                text = self._substituted(key, self._scalar(key, value))
                return int(text) if text.isdecimal() else self._refuse(key, "must be the number of a port")
        return None

    def _scopes(self, key: str) -> tuple[str, ...]:
        if isinstance(self._members.get(key), str):
            return tuple(self._text(key).split())
        return tuple(self._list(key))

    def _resource(self, key: str) -> bool | str:
        value: JSON = self._members.get(key, True)
        return value if isinstance(value, bool) else self._first(key) or True

    def _check(self, key: str, words: str, **option: object) -> None:
        """Raise UnusableTarget unless an identity takes an option."""
        from linkspan.auth.identities import OAuth

        try:
            OAuth(**cast("Any", option))
        except ValueError:
            self._refuse(key, words)

    def _refuse(self, key: str, words: str) -> NoReturn:
        super()._refuse(f"{self._member}.{key}", words)


@cache
def _warn_of_secret(where: str, key: str) -> None:
    """Warn once of a secret that stands in a file."""
    import logging

    text = (
        f'{where}: "{key}" is a secret in a file: write "${{NAME}}" for a variable of the environment, or leave it out and run '
        "`linkspan login URL --client-id ID --client-secret` [LS-415]"
    )
    logging.getLogger("linkspan").warning("%s", text)


def _is_items(value: JSON) -> TypeGuard[Sequence[JSON]]:
    return isinstance(value, list | tuple)


def _unquoted(text: str) -> str:
    for mark in ("'", '"'):
        if len(text) >= 2 and text[0] == mark == text[-1]:
            return text[1:-1]
    return re.sub(r"\s+#.*$", "", text)
