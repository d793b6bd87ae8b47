"""One server of a configuration file, in the words of whichever host it was written for: docs/configuration.md.

Errors name the file, the server and the member, and never a value: values may be secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, TypeGuard

import msgspec

from linkspan.client.errors import NOWHERE, ClientError, Origin
from linkspan.types.base import JSON, is_mapping, is_object
from linkspan.wire.redaction import REDACTED, is_secret_name

__all__ = [
    "AskInput",
    "ConfigEntry",
    "Context",
    "InputWanted",
    "Settled",
    "UnusableTarget",
    "settled",
    "variable_of",
    "why_left_out",
]

_VARIABLE: Final = re.compile(r"\$\{(?:(input|workspaceFolder):([^}]+)|(?:env:)?(\w+)(?::-([^}]*))?)\}")
_BARE_VARIABLE: Final = re.compile(r"\$([A-Za-z_]\w*)")
_LINE: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*")
_URLS: Final = ("url", "httpUrl", "serverUrl", "uri")
_IN_SECONDS: Final = ("alwaysAllow", "autoApprove", "disabled")
_SHORTEST_IN_MILLISECONDS: Final = 1_000
_TIMEOUTS: Final = {
    "startup_timeout_sec": ("connect", 1.0),
    "startup_timeout_ms": ("connect", 0.001),
    "tool_timeout_sec": ("call", 1.0),
}


class UnusableTarget(ClientError, ValueError):
    """That is nothing to connect to; the message says what is."""

    def __init__(self, problem: str, origin: Origin = NOWHERE, **more: Any) -> None:
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


class Context:
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
        """Return what the person gives for an input, asked once; its default, or None, if nobody can be asked."""
        wanted = self._inputs.get(name, InputWanted(name))
        if name not in self._answers and self._ask is not None:
            self._answers[name] = self._ask(wanted)
        return self._answers.get(name, os.environ.get(variable_of(name), wanted.default))

    def is_secret(self, name: str) -> bool:
        """Tell whether an input is marked as a password, or called like one."""
        wanted = self._inputs.get(name)
        return is_secret_name(name) or (wanted is not None and wanted.secret)

    def wanted(self, name: str) -> str:
        """Return how a person knows an input."""
        description = self._inputs.get(name, InputWanted(name)).description
        return f"the input {name!r} ({description})" if description else f"the input {name!r}"


class ConfigEntry(dict[str, Any]):
    """An entry as it is written, which knows the file that it is from."""

    def __init__(self, members: Mapping[str, Any], name: str, context: Context) -> None:
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
    return _Entry(entry).settled()


class _Entry:
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
                    Settled(url=self._url(key), headers=self._headers(), timeouts=self._timeouts())
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
            self._refuse("envFile", f"{path!r} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}")
        found: dict[str, str] = {}
        for line in lines:
            match = _LINE.fullmatch(line)
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
            self._refuse(key, "must be a text")
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
            self._refuse(key, "must be a text")
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

        filled = _VARIABLE.sub(fill, text)
        if any(value != shown for value, shown in values):
            kept = iter(values)
            self._shown[filled] = _VARIABLE.sub(lambda _: next(kept)[1], text)
        if self._context is not None and self._context.bare_variables:  # as Gemini CLI writes them
            return _BARE_VARIABLE.sub(lambda found: os.environ.get(found[1], found[0]), filled)
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
            self._refuse(key, f"wants the environment variable {name}, which is not set")
        return value

    def _input(self, key: str, name: str) -> str:
        value = self._context.answer(name) if self._context is not None else os.environ.get(variable_of(name))
        if value is None:
            what = self._context.wanted(name) if self._context is not None else f"the input {name!r}"
            self._refuse(
                key, f"wants {what}: set the environment variable {variable_of(name)}, or give read_config an `inputs`"
            )
        return value

    def _refuse(self, key: str, words: str) -> NoReturn:
        raise UnusableTarget(f'{self._where}: "{key}" {words}')


def _is_items(value: JSON) -> TypeGuard[Sequence[JSON]]:
    return isinstance(value, list | tuple)


def _unquoted(text: str) -> str:
    for mark in ("'", '"'):
        if len(text) >= 2 and text[0] == mark == text[-1]:
            return text[1:-1]
    return re.sub(r"\s+#.*$", "", text)
