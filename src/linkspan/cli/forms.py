"""Input that a server requests from its user: a form, field by field, a page to open, or a login.

Laws: nothing is sent before the user has seen all of it (ELI-8); nothing here fetches a page, and only http and https URLs
reach a browser, with the user's consent (ELI-10).
Spec: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation.
"""

from __future__ import annotations

import math
import re
import select
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Final, Protocol
from urllib.parse import SplitResult, urlsplit

import msgspec

from linkspan.cli.terminal import Style
from linkspan.flows.answers import Refused, form_choices, form_problem
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.types.messages import ElicitParams
from linkspan.wire.redaction import is_secret_field, neutral, one_line, revealed, revealed_line

_GLANCE: Final = 0.2
"""Seconds after which a read of the terminal looks whether it is still needed."""


class Unreadable(ValueError):
    """A text is not a value of the field; the message states the expected one."""


class FormField(msgspec.Struct, frozen=True):
    """One field of a form."""

    name: str
    schema: Mapping[str, JSON]
    required: bool
    default: JSON = None
    """None: without a default, or with one that does not fit its field."""

    @property
    def title(self) -> str:
        """Its name for the user."""
        title: JSON = self.schema.get("title")
        return title if isinstance(title, str) and title else self.name

    @property
    def kind(self) -> str:
        """The expected value, in words."""
        if self.schema.get("type") == "array":
            return "any of these, separated by commas"
        if form_choices(self.schema):
            return "one of these"
        wanted: JSON = self.schema.get("format")
        named = _FORMATS.get(wanted) if isinstance(wanted, str) else None
        words = (named or _KINDS.get(_type(self.schema), _KINDS["string"]))[0]
        words = words.removeprefix("a ") if named is None else words
        bounds = ((text, self.schema.get(name)) for name, text in _BOUNDS.items())
        return ", ".join([words, *(text.format(each) for text, each in bounds if isinstance(each, int | float))])

    def shown(self, value: JSON) -> str:
        """Return a value in the words of the form."""
        if is_array(value):
            return ", ".join(self.shown(each) for each in value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return form_choices(self.schema).get(value, str(value))

    @property
    def secret(self) -> bool:
        """Whether it seems to ask for a secret, which no form may do (ELI-7)."""
        return is_secret_field(self.name, {**self.schema})


def fields_of(schema: Mapping[str, JSON] | None) -> list[FormField]:
    """Return the fields of a form, in its order."""
    members = schema or {}
    properties: JSON = members.get("properties")
    required: JSON = members.get("required")
    needed = required if is_array(required) else []
    fields: list[FormField] = []
    for name, field in properties.items() if is_object(properties) else ():
        if is_object(field):
            default: JSON = field.get("default")
            unfit = default is not None and form_problem(field, default) is not None
            fields.append(FormField(name, field, name in needed or unfit, None if unfit else default))
    return fields


def read_value(field: FormField, text: str) -> JSON:
    """Return a typed text as a value of the field. Raises: Unreadable."""
    schema = field.schema
    if schema.get("type") == "array":
        value: JSON = [_chosen(schema, each.strip()) for each in text.split(",") if each.strip()]
    elif form_choices(schema):
        value = _chosen(schema, text.strip())
    else:
        words, read = _KINDS.get(_type(schema), _KINDS["string"])
        try:
            value = read(text)
        except (ValueError, KeyError):
            raise Unreadable(f"must be {words}, not {text!r}") from None
    problem = form_problem(schema, value)
    wanted: JSON = schema.get("format")
    if problem is None and isinstance(value, str) and isinstance(wanted, str) and wanted in _FORMATS:
        words, form, read = _FORMATS[wanted]
        try:
            fits = re.match(form, value) is not None and read(value) is not None
        except ValueError:
            fits = False
        problem = None if fits else f"must be {words}"
    if problem is not None:
        raise Unreadable(problem)
    return value


def _type(schema: Mapping[str, JSON]) -> str:
    kind: JSON = schema.get("type")
    return kind if isinstance(kind, str) else "string"


def _chosen(schema: Mapping[str, JSON], text: str) -> JSON:
    """Return the choice that a text names: by its value, its title, or its number in the list."""
    choices = form_choices(schema)
    for value, title in choices.items():
        if text == str(value) or text.casefold() == title.casefold():
            return value
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return list(choices)[int(text) - 1]
    if not choices:
        return text
    raise Unreadable(f"must be one of {', '.join(choices.values())} (or its number), not {text!r}")


def _number(text: str) -> JSON:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return int(value) if re.fullmatch(r"[+-]?\d+", text.strip()) else value


_TRUTHS: Final = {
    **dict.fromkeys(("y", "yes", "true", "on", "1"), True),
    **dict.fromkeys(("n", "no", "false", "off", "0"), False),
}
_KINDS: Final[Mapping[str, tuple[str, Callable[[str], JSON]]]] = {
    "string": ("text", str),
    "integer": ("a whole number", int),
    "number": ("a number", _number),
    "boolean": ("yes or no", lambda text: _TRUTHS[text.strip().casefold()]),
}
"""What a type is called, and what reads it."""
_FORMATS: Final[Mapping[str, tuple[str, str, Callable[[str], object]]]] = {
    "date": ("a date like 1999-12-31", r".{10}\Z", date.fromisoformat),
    "date-time": ("a date and time like 1999-12-31T09:00:00Z", r".*T", datetime.fromisoformat),
    "email": ("an e-mail address", r"[^@\s]+@[^@\s]+\Z", str),
    "uri": ("a URI like https://example.com", r"[A-Za-z][A-Za-z0-9+.-]*:\S", str),
}
"""What a format is called, its form, and what reads it."""


_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
}


class Prompter(Protocol):
    """Shows lines and reads answers, if `interactive`."""

    interactive: bool
    err: Style

    def write_line(self, text: str) -> None:
        """Write a line."""
        ...

    def read(self, prompt: str) -> str:
        """Ask for a line. Raises: EOFError."""
        ...


class Dismissed(Exception):
    """The user does not answer: False declines, None cancels."""

    def __init__(self, answer: bool | None) -> None:
        super().__init__()
        self.answer = answer


def ask_user(
    terminal: Prompter,
    server: str,
    params: ElicitParams,
    answers: Mapping[str, str],
    is_over: Callable[[], bool] = lambda: False,
) -> JSONObject | bool | None:
    """Return a form's values, True, False for declined, or None for cancelled. Raises: Refused without a terminal.

    `answers` are given on the command line; a form that needs nothing else is not shown. `is_over` returns whether the answer is
    no longer needed.
    """
    try:
        if params.mode == "url":
            return ask_to_open(terminal, server, params)
        return _form(terminal, server, params, answers, is_over)
    except Dismissed as dismissal:
        return dismissal.answer
    except EOFError:
        return None


def read_answer(terminal: Prompter, prompt: str) -> str:
    """Return a line of the user, stripped. Raises: Dismissed for `decline` and `cancel`; EOFError."""
    text = terminal.read(prompt).strip()
    word = text.casefold()
    if word in ("decline", "cancel"):
        raise Dismissed(False if word == "decline" else None)
    return text


def _form(
    terminal: Prompter, server: str, params: ElicitParams, answers: Mapping[str, str], is_over: Callable[[], bool]
) -> JSONObject:
    fields = fields_of(params.requested_schema)
    known: JSONObject = {}
    for field in fields:
        if field.name in answers:
            try:
                known[field.name] = read_value(field, answers[field.name])
            except Unreadable as problem:
                raise Refused(f"--answer {field.name} {problem}") from None
    open_fields = [each for each in fields if each.name not in known]
    missing = [each for each in open_fields if each.required and each.default is None]
    if known and not missing:
        return known
    if not terminal.interactive:
        message = one_line(params.message, 200)
        options = " ".join(f"--answer {field.name}=..." for field in missing or open_fields)
        raise Refused(f"{message!r} ({f'answer it with {options}' if options else 'run it in a terminal to confirm'})")
    style = terminal.err
    terminal.write_line(f"\n{style.bold(f'{server} asks:')}")
    terminal.write_line("\n".join(f"  {line}" for line in neutral(params.message).split("\n")))
    if fields:
        terminal.write_line(
            style.dim('Enter accepts the value in [brackets]; "decline" refuses, "cancel" or Ctrl-D cancels.')
        )
    given: JSONObject = {}
    while True:
        for field in open_fields:
            value = _ask_field(terminal, field, given.get(field.name, field.default))
            if is_over():
                raise Dismissed(None)
            given.pop(field.name, None)
            if value is not None:
                given[field.name] = value
        if _review(terminal, server, fields, known | given):
            return known | given


def _ask_field(terminal: Prompter, field: FormField, default: JSON) -> JSON:
    """Ask until there is a value, or an optional field is left out."""
    style = terminal.err
    needed = "" if field.required or field.default is not None else ", optional"
    terminal.write_line(f"\n  {style.bold(one_line(field.title))} {style.dim(f'({one_line(field.kind)}{needed})')}")
    if isinstance(description := field.schema.get("description"), str):
        terminal.write_line(f"  {one_line(description)}")
    if field.secret:
        warning = "Forms must not ask for passwords or other secrets: be careful with your answer."
        terminal.write_line(style.yellow(f"  {warning}"))
    for number, title in enumerate(form_choices(field.schema).values(), 1):
        terminal.write_line(f"    {number}) {revealed_line(title)}")
    bracket = f" [{revealed_line(field.shown(default), 200)}]" if default is not None else ""
    while True:
        text = read_answer(terminal, f"  {revealed_line(field.name)}{bracket}: ")
        if not text and (default is not None or not field.required):
            return default
        try:
            if not text:
                raise Unreadable('needs a value ("decline" refuses, "cancel" cancels)')
            if text.casefold() in ('"decline"', '"cancel"'):  # in quotes it is the word itself
                text = text.strip('"')
            return read_value(field, text)
        except Unreadable as problem:
            terminal.write_line(style.yellow(f"  {revealed_line(field.name)} {one_line(str(problem))}"))


def _review(terminal: Prompter, server: str, fields: Sequence[FormField], values: Mapping[str, JSON]) -> bool:
    """Show the values before they are sent; return False to ask again. Raises: Dismissed, EOFError."""
    style = terminal.err
    width = max((len(revealed_line(each.name)) for each in fields), default=0)
    terminal.write_line("")
    for field in fields:
        value = style.dim("(left out)") if field.name not in values else revealed_line(field.shown(values[field.name]))
        terminal.write_line(f"  {revealed_line(field.name):<{width}}  {value}")
    edit = "e to edit, " if fields else ""
    while True:
        text = read_answer(
            terminal, style.bold(f"Send this to {server}?") + f" [Y, {edit}decline, cancel]: "
        ).casefold()
        if text in ("", "y", "yes", "d", "n", "no", "c", "e", "edit"):
            break
    if text in ("d", "n", "no", "c"):
        raise Dismissed(None if text == "c" else False)
    return text in ("", "y", "yes")


_LOOPBACK: Final = re.compile(r"localhost|127\.\d+\.\d+\.\d+|::1")


def ask_to_open(terminal: Prompter, server: str, params: ElicitParams) -> bool:
    """Ask for consent, and open the page. Raises: Refused without a terminal, Dismissed, EOFError."""
    url = params.url or ""
    if not terminal.interactive:
        raise Refused(f"{one_line(params.message, 200)!r}: the user must open {revealed_line(url)}")
    style = terminal.err
    parts = web_url(url)
    terminal.write_line(f"\n{style.bold(f'{server} asks you to open a page:')}")
    terminal.write_line("\n".join(f"  {line}" for line in neutral(params.message).split("\n")))
    terminal.write_line(f"\n  {revealed(url)}")
    terminal.write_line(f"  host: {style.bold(revealed(parts.hostname or '') if parts is not None else 'none')}")
    for doubt in doubts_about(url):
        terminal.write_line(style.yellow(f"  warning: {doubt}"))
    if parts is None:
        terminal.write_line("  It cannot be opened; the request was declined.")
        return False
    while True:
        text = read_answer(
            terminal, 'Open it in your browser? [y/N, "self" if you open it yourself, "cancel"]: '
        ).casefold()
        if text in ("", "n", "no"):
            raise Dismissed(False)
        if text in ("y", "yes"):
            import webbrowser

            with suppress(webbrowser.Error):
                if webbrowser.open(url):
                    return True
            advice = '  No browser could be started. Open the page yourself, then answer "self".'
            terminal.write_line(style.yellow(advice))
        if text == "self":
            return True


def doubts_about(url: str) -> list[str]:
    """Return warnings about a URL for the user who is to open it."""
    parts = web_url(url)
    if parts is None:
        return ["this is not an http or https URL"]
    host = parts.hostname or ""
    local = _LOOPBACK.fullmatch(host) is not None
    doubts = {
        "the host is written in Punycode: it may imitate another one": any(
            each.startswith("xn--") for each in host.split(".")
        ),
        "the host has letters outside ASCII: it may imitate another one": not host.isascii(),
        "the part before the @ is not the host": "@" in parts.netloc,
        "the host is an IP address": not local and re.fullmatch(r"[\d.]+|0x[\da-f]+|.*:.*", host) is not None,
        "the connection is not encrypted": parts.scheme == "http" and not local,
        "the page is on this computer": local,
    }
    return [words for words, holds in doubts.items() if holds]


def web_url(url: str) -> SplitResult | None:
    """Return the parts of an http or https URL with a host and nothing that misleads the eye, or None."""
    if re.search(r"[\x00-\x20\x7f-\x9f\u202a-\u202e\u2066-\u2069\\]", url):
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return None
    return parts if usable else None


# Logins.


class PersonAtTerminal:
    """Shows a login page: in the browser, or, where there is none, as a URL whose last address the person may paste."""

    def __init__(self, show: Callable[[str], object]) -> None:
        """`show` writes a line to the terminal, from any thread."""
        self._show = show
        self._over = threading.Event()

    def __call__(self, url: str) -> str | None:
        """Show a page; return the address that was pasted, None if there was none. In a thread of the login."""
        from linkspan.client.callback import open_browser

        self._over.clear()
        if open_browser(url):
            self._show(f"Log in with the browser. If it does not open, visit:\n{url}")
            return None
        self._show(f"Open this URL in a browser to log in:\n{url}")
        if not sys.stdin.isatty():
            return None
        self._show("If the browser cannot show the last page, paste the address of that page here:")
        return self._read()

    def remind(self, text: str) -> None:
        """Show what the login waits for. Called by what performs it."""
        self._show(text)

    def done(self) -> None:
        """Read no more: the login is over. Called by what performs it."""
        self._over.set()

    def _read(self) -> str | None:
        """Read lines until one is an address, or the login is over."""
        while not self._over.is_set():
            if sys.platform != "win32" and not select.select([sys.stdin], [], [], _GLANCE)[0]:
                continue
            line = sys.stdin.readline()
            if not line:
                return None
            if "state=" in line:
                return line.strip()
            self._show("That is not the address of the last page, which contains state=.")
        return None
