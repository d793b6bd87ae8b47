"""A call as code: for curl, for the command line, for Python and for pytest. Each line makes the same request. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from linkspan.errors import RegistrationError
from linkspan.flows import client_errors
from linkspan.flows.http_messages import mirrored
from linkspan.revisions import REVISIONS
from linkspan.revisions.agreement import Agreement
from linkspan.schema.document import header_paths
from linkspan.text import counted
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import REDACTED, one_line
from linkspan.workbench.exchanges import GivenAnswer, Kind
from linkspan.workbench.placeholders import SecretText, has_secrets, python_literal, shell_json, shell_word

_OWN: Final = frozenset(
    {"host", "content-length", "connection", "accept-encoding", "user-agent", "traceparent", "tracestate"}
)
"""Headers that curl sets itself, or that belong to one request only."""
_VERBS: Final = {"tool": "call", "resource": "read", "prompt": "prompt"}
_WIDTH: Final = 88
_LONGEST_REMARK: Final = 80


class Subject(msgspec.Struct, frozen=True):
    """Which server, as the command line names it."""

    words: Sequence[str]
    """A TARGET, or the words of a command."""
    url: str = ""
    options: Sequence[str] = ()
    """Options of the command line that a client needs, without secrets."""
    headers: Sequence[str] = ()
    """Names of headers that go with each request; their values are for variables of the shell."""
    schemes: Mapping[str, str] = {}
    """By their names, the first word of those that have one before the secret, such as Bearer."""


class MadeCall(msgspec.Struct, frozen=True):
    """A call that was made, with a `SecretText` in the place of each secret."""

    kind: Kind
    name: Any
    arguments: Any
    revision: str
    """The revision in which it was made."""
    is_pinned: bool = False
    """Whether the person chose the revision."""
    request: Any = None
    """The message as it was sent."""
    headers: Mapping[str, str] = {}
    """Those that were sent with it, in which a secret is `[redacted]`."""
    answers: Sequence[GivenAnswer] = ()
    roots: Sequence[str] = ()
    """What was declared."""
    result: JSONObject | None = None
    error: JSONObject | None = None

    @property
    def date(self) -> str:
        """The revision to ask for; empty where the two sides agree on one."""
        return self.revision if self.is_pinned else ""


def call_as_code(subject: Subject, made: MadeCall) -> dict[str, str]:
    """Return the code by its kind: `curl` is empty for a server that is not at a URL, and where the message was not kept."""
    return {
        "curl": as_curl(subject, made) if subject.url and made.request else "",
        "command": as_command(subject, made),
        "python": as_python(subject, made),
        "pytest": as_pytest(subject, made),
    }


def with_own_names(
    headers: Mapping[str, str], revision: str, request: JSONObject | None, schema: JSON
) -> dict[str, str]:
    """Return the headers of a request like this one, with those that repeat its body; `schema` is that of its tool's input."""
    if request is None or "mcp-method" not in headers:
        return dict(headers)
    plan: Mapping[tuple[str, ...], str] = {}
    with suppress(RegistrationError):
        plan = header_paths(schema) if is_object(schema) else plan
    own = mirrored(Agreement(REVISIONS[revision]), str(request["method"]), encode(request.get("params", {})), plan)
    return {**{name: each for name, each in headers.items() if not name.startswith("mcp-param-")}, **own}


def _is_newest(revision: str) -> bool:
    return revision in REVISIONS and REVISIONS[revision].asks_in_results


def as_command(subject: Subject, made: MadeCall) -> str:
    """Return a line for a shell, after remarks on what it cannot do."""
    one = len(subject.words) == 1
    words = ["linkspan", _VERBS[made.kind], *(subject.words if one else ())]
    line = [*map(shlex.quote, words), shell_word(made.name)]
    line += [shell_json(made.arguments)] if made.kind != "resource" and made.arguments else []
    answers, remarks = _options_for_answers(made.answers)
    options = [*subject.options, *(["--unchecked"] if made.kind != "resource" else [])]
    options += ["--protocol-version", made.date] if made.date else []
    line += [*map(shlex.quote, options), *answers]
    line += [f'-H "{name}: {_scheme(subject, name)}${_variable(name)}"' for name in subject.headers]
    line += [] if one else ["--", shlex.join(subject.words)]
    return "\n".join([*remarks, " ".join(line)])


def _options_for_answers(answers: Sequence[GivenAnswer]) -> tuple[list[str], list[str]]:
    """Return the options that answer the forms, and remarks on the questions that none answers.

    A remark has no word of a server, and no sign that a shell takes for more than text.
    """
    given: dict[str, Any] = {}
    left: list[str] = []
    for each in answers:
        values = each.content if each.action == "accept" and each.mode != "url" else None
        if each.kind == "sampling":
            left.append("# The server asks for the answer of a model, which this command cannot give.")
        elif not values or any(_is_unsayable(name, value, given) for name, value in values.items()):
            done = {"decline": "declined", "cancel": "cancelled"}.get(each.action, "answered")
            left.append(f"# The server asks a question that you {done}: do so in the terminal.")
        else:
            given |= values
    return [f"--answer {_answer(name, value)}" for name, value in given.items()], [*dict.fromkeys(left)]


def _is_unsayable(name: str, value: Any, given: Mapping[str, Any]) -> bool:
    """Return whether no option can say a value: one is for all questions with a field of that name."""
    chosen = value if is_array(value) else []
    return "=" in name or given.get(name, value) != value or any("," in str(each) for each in chosen)


def _answer(name: str, value: Any) -> str:
    if isinstance(value, SecretText):
        return shell_word(SecretText((f"{name}={value.parts[0]}", *value.parts[1:]), value.variables))
    if has_secrets(value):
        return shlex.quote(f"{name}={REDACTED}")
    chosen = value if is_array(value) else [value]
    return shlex.quote(f"{name}={','.join(each if isinstance(each, str) else json.dumps(each) for each in chosen)}")


def as_curl(subject: Subject, made: MadeCall) -> str:
    """Return a line for curl; for a revision with a handshake, the lines that open a session come first."""
    questions = len(made.answers)
    asks = f"# The server asks {counted(questions, 'question')} in this call: curl shows the first and cannot answer.\n"
    return (asks if questions else "") + _requests(subject.url, made)


def _requests(url: str, made: MadeCall) -> str:
    sent = {name: value for name, value in made.headers.items() if name not in _OWN}
    body = shell_json(made.request)
    if _is_newest(made.revision):
        return _curl(url, sent, body)
    session = sent.pop("mcp-session-id", None)
    version = sent.get("mcp-protocol-version", "")
    first = {name: value for name, value in sent.items() if name != "mcp-protocol-version"}
    hello: JSONObject = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "curl", "version": "8"}},
    }
    with_session = {**sent, **({"mcp-session-id": "$SESSION"} if session else {})}
    opened = _curl(url, first, shell_json(hello), "-si")
    ready = _curl(url, with_session, shell_json({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    find = " | tr -d '\\r' | sed -n 's/^mcp-session-id: //Ip'"
    return f"SESSION=$({opened}{find})\n{ready}\n{_curl(url, with_session, body)}"


def _curl(url: str, headers: Mapping[str, str], body: str, option: str = "-s") -> str:
    lines = [f"curl {option} {shlex.quote(url)}"]
    for name, value in headers.items():
        lines.append(f"-H {_header(name, value)}")
    return " \\\n  ".join([*lines, f"-d {body}"])


def _header(name: str, value: str) -> str:
    """Return a header in quotes; where a secret was, a variable of the shell stands."""
    if value == "$SESSION":
        return f'"{name}: $SESSION"'
    if REDACTED not in value:
        return shlex.quote(f"{name}: {value}")
    return f'"{name}: {value.replace(REDACTED, f"${_variable(name)}")}"'


def scheme_of(value: str) -> str:
    """Return the first word of the value of a header that has a secret after it, such as Bearer; else nothing."""
    scheme, space, rest = value.partition(" ")
    return scheme if space and rest and scheme.isalpha() else ""


def _scheme(subject: Subject, name: str) -> str:
    scheme = subject.schemes.get(name)
    return f"{scheme} " if scheme else ""


def _from_environment(subject: Subject, name: str) -> str:
    """Return Python for the value of a header."""
    if not (scheme := _scheme(subject, name)):
        return f'os.environ["{_variable(name)}"]'
    return f"f\"{scheme}{{os.environ['{_variable(name)}']}}\""


def _variable(name: str) -> str:
    """Return the variable of the shell for the value of a header."""
    return "TOKEN" if name.lower() == "authorization" else re.sub(r"\W", "_", name).upper()


def as_python(subject: Subject, made: MadeCall) -> str:
    """Return a program."""
    shown = "result.text" if made.kind == "tool" else "result"
    lines = [*_answers(made, 0), f"with SyncClient({_client(subject, made)}) as client:"]
    lines += [*_indented(f"result = {_call(made)}", 1), f"    print({shown})", ""]
    return "\n".join([*_imports(subject, made), "", *lines])


def as_pytest(subject: Subject, made: MadeCall) -> str:
    """Return a test that expects what has become of the call."""
    name = re.sub(r"\W+", "_", str(made.name).rpartition("/")[2]).strip("_").lower() or "call"
    if isinstance(made.name, SecretText):
        name = "call"
    client = f"SyncClient({_client(subject, made)}) as client"
    lines = [*_answers(made, 1)]
    fails = _failure(made.error) if made.error is not None else ""
    if fails:
        lines += [f"    with {client}:", f"        with pytest.raises({fails}) as raised:", *_indented(_call(made), 3)]
    else:
        lines += [f"    with {client}:", *_indented(f"result = {_call(made)}", 2)]
    checks = _checks_of_error(made.error) if made.error is not None else _checks(made)
    lines += [line for each in checks for line in _indented(each, 1)]
    return "\n".join([*_imports(subject, made, fails), "", "", f"def test_{name}() -> None:", *lines, ""])


def _failure(error: JSONObject) -> str:
    """Return the class of the error that a call ended with."""
    name = str(error.get("type"))
    return name if isinstance(getattr(client_errors, name, None), type) else "ClientError"


def _checks_of_error(error: JSONObject) -> list[str]:
    code = error.get("code")
    return [f"assert raised.value.code == {code}"] if isinstance(code, int) else []


def _checks(made: MadeCall) -> list[str]:
    result = made.result
    if made.kind != "tool" or result is None:
        expected = {"resource": "assert result.contents", "prompt": "assert result.messages"}
        return [expected.get(made.kind, "assert result")]
    failed = result.get("isError") is True
    checks = [f"assert {'' if failed else 'not '}result.is_error"]
    texts = _texts(result.get("content"))
    if "structuredContent" in result:
        expected_value = result["structuredContent"]
        checks += [f"assert result.structured == {python_literal(expected_value)}"]
    elif texts and not failed:
        checks += [f"assert result.text == {python_literal(chr(10).join(texts))}"]
    return checks


def _texts(content: JSON) -> list[str]:
    blocks: list[JSON] = content if is_array(content) else []
    return [each["text"] for each in blocks if is_object(each) and isinstance(each.get("text"), str)]


def _imports(subject: Subject, made: MadeCall, fails: str = "") -> list[str]:
    given = [[each.content, each.text] for each in made.answers]
    reads = bool(subject.headers) or has_secrets([made.name, made.arguments, given])
    refuses = any(each.kind == "sampling" and each.action != "accept" for each in made.answers)
    names = ", ".join(sorted({"SyncClient", *([fails] if fails else []), *(["Refused"] if refuses else [])}))
    return [
        *(["import os", ""] if reads else []),
        *(["import pytest", ""] if fails else []),
        f"from linkspan import {names}",
    ]


def _answers(made: MadeCall, depth: int) -> list[str]:
    """Return the answers of the person, in their order, and what takes the next one where a name is needed for it."""
    lines: list[str] = []
    forms = [each for each in made.answers if each.kind == "elicitation"]
    models = [each for each in made.answers if each.kind == "sampling"]
    if forms:
        lines += ["answers = [", *(f"    {_form_answer(each)},{_remark(each)}" for each in forms), "]"]
    if models:
        said = [python_literal(each.text or "") if each.action == "accept" else "None" for each in models]
        lines += ["said = [", *(f"    {each}," for each in said), "]"]
    if any(each.action != "accept" for each in models):
        gap = [""] if depth else ["", ""]
        lines += [*gap, "def say(_: object) -> str:", "    text = said.pop(0)"]
        lines += ["    if text is None:", "        raise Refused", "    return text", *gap]
    elif lines and depth == 0:
        lines.append("")
    return [f"{'    ' * depth}{line}".rstrip() for line in lines]


def _form_answer(answer: GivenAnswer) -> str:
    if answer.action != "accept":
        return "False" if answer.action == "decline" else "None"
    return "True" if answer.mode == "url" else python_literal(answer.content or {})


def _remark(answer: GivenAnswer) -> str:
    """Return a comment with the question, and with what a program cannot do again."""
    page = " (you opened a page: what you did there is not done again)" if answer.mode == "url" else ""
    words = one_line(answer.message, _LONGEST_REMARK) + page
    return f"  # {words}" if words else ""


def _client(subject: Subject, made: MadeCall) -> str:
    target = python_literal(subject.words[0] if len(subject.words) == 1 else [*subject.words])
    headers = ", ".join(f'"{name}": {_from_environment(subject, name)}' for name in subject.headers)
    more = [f"headers={{{headers}}}"] if headers else []
    more += [f"protocol_version={python_literal(made.date)}"] if made.date else []
    more += [f"roots={python_literal([*made.roots])}"] if made.roots else []
    if any(each.kind == "elicitation" for each in made.answers):
        more.append("elicitation=lambda _: answers.pop(0)")
    if models := [each for each in made.answers if each.kind == "sampling"]:
        refuses = any(each.action != "accept" for each in models)
        more.append("sampling=say" if refuses else "sampling=lambda _: said.pop(0)")
    return ", ".join([target, *more])


def _call(made: MadeCall) -> str:
    arguments = f", {python_literal(made.arguments)}" if made.arguments and made.kind != "resource" else ""
    method = {"tool": "call_tool", "resource": "read_resource", "prompt": "get_prompt"}[made.kind]
    return f"client.{method}({python_literal(made.name)}{arguments})"


def _indented(line: str, depth: int) -> list[str]:
    """Return a line at its depth. A long call is given its arguments on lines of their own."""
    space = "    " * depth
    if len(space + line) <= _WIDTH or not line.endswith(")"):
        return [space + line]
    head, _, rest = line.partition("(")
    return [f"{space}{head}(", f"{space}    {rest[:-1]},", f"{space})"]
