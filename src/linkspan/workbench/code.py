"""A call as code: for curl, for the command line, for Python and for pytest. Each line makes the same request. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from linkspan.errors import RegistrationError
from linkspan.flows.http_messages import mirrored
from linkspan.revisions import REVISIONS
from linkspan.revisions.agreement import Agreement
from linkspan.schema.document import header_paths
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import REDACTED
from linkspan.workbench.exchanges import Wanted

_OWN: Final = frozenset(
    {"host", "content-length", "connection", "accept-encoding", "user-agent", "traceparent", "tracestate"}
)
"""Headers that curl sets itself, or that belong to one request only."""
_VERBS: Final = {"tool": "call", "resource": "read", "prompt": "prompt"}
_WIDTH: Final = 88


class Subject(msgspec.Struct, frozen=True):
    """Which server, as the command line names it."""

    words: Sequence[str]
    """A TARGET, or the words of a command."""
    url: str = ""
    options: Sequence[str] = ()
    """Options of the command line that a client needs, without secrets."""
    headers: Sequence[str] = ()
    """Names of headers that go with each request; their values are for variables of the shell."""


def call_as_code(
    subject: Subject,
    wanted: Wanted,
    revision: str,
    request: JSONObject | None,
    headers: Mapping[str, str],
    result: JSONObject | None = None,
) -> dict[str, str]:
    """Return the code by its kind: `curl` is empty for a server that is not at a URL.

    `request` is the message as it was sent, with these `headers`, in which a secret is `[redacted]`.
    """
    pinned = revision if wanted.revision else ""
    return {
        "curl": as_curl(subject, request, headers, handshake=not _is_newest(revision))
        if subject.url and request
        else "",
        "command": as_command(subject, wanted, pinned),
        "python": as_python(subject, wanted, pinned),
        "pytest": as_pytest(subject, wanted, pinned, result),
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


def as_command(subject: Subject, wanted: Wanted, pinned: str) -> str:
    """Return a line for a shell."""
    one = len(subject.words) == 1
    given = [json.dumps(wanted.arguments, ensure_ascii=False)] if wanted.kind != "resource" and wanted.arguments else []
    line = ["linkspan", _VERBS[wanted.kind], *(subject.words if one else ()), wanted.name, *given, *subject.options]
    line += ["--unchecked"] if wanted.kind != "resource" else []
    line += ["--protocol-version", pinned] if pinned else []
    headers = "".join(f' -H "{name}: ${_variable(name)}"' for name in subject.headers)
    return shlex.join(line) + headers + ("" if one else f" -- {shlex.join(subject.words)}")


def as_curl(subject: Subject, request: JSONObject, headers: Mapping[str, str], *, handshake: bool) -> str:
    """Return a line for curl; for a revision with a handshake, the lines that open a session come first."""
    sent = {name: value for name, value in headers.items() if name not in _OWN}
    body = json.dumps(request, ensure_ascii=False)
    if not handshake:
        return _curl(subject.url, sent, body)
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
    opened = _curl(subject.url, first, json.dumps(hello), "-si")
    ready = _curl(subject.url, with_session, '{"jsonrpc": "2.0", "method": "notifications/initialized"}')
    find = " | tr -d '\\r' | sed -n 's/^mcp-session-id: //Ip'"
    return f"SESSION=$({opened}{find})\n{ready}\n{_curl(subject.url, with_session, body)}"


def _curl(url: str, headers: Mapping[str, str], body: str, option: str = "-s") -> str:
    lines = [f"curl {option} {shlex.quote(url)}"]
    for name, value in headers.items():
        lines.append(f"-H {_header(name, value)}")
    return " \\\n  ".join([*lines, f"-d {shlex.quote(body)}"])


def _header(name: str, value: str) -> str:
    """Return a header in quotes; where a secret was, a variable of the shell stands."""
    if value == "$SESSION":
        return f'"{name}: $SESSION"'
    if REDACTED not in value:
        return shlex.quote(f"{name}: {value}")
    return f'"{name}: {value.replace(REDACTED, f"${_variable(name)}")}"'


def _variable(name: str) -> str:
    """Return the variable of the shell for the value of a header."""
    return "TOKEN" if name.lower() == "authorization" else re.sub(r"\W", "_", name).upper()


def as_python(subject: Subject, wanted: Wanted, pinned: str) -> str:
    """Return a program."""
    call, shown = _call(wanted)
    return "\n".join(
        [
            *_imports(subject),
            "",
            f"with SyncClient({_client(subject, pinned)}) as client:",
            *_indented(f"result = {call}", 1),
            f"    print({shown})",
            "",
        ]
    )


def as_pytest(subject: Subject, wanted: Wanted, pinned: str, result: JSONObject | None) -> str:
    """Return a test that expects what the call has returned."""
    call, _ = _call(wanted)
    checks: list[str] = []
    if wanted.kind == "tool" and result is not None:
        failed = result.get("isError") is True
        checks.append(f"assert {'' if failed else 'not '}result.is_error")
        texts = _texts(result.get("content"))
        if "structuredContent" in result:
            checks.append(f"assert result.structured == {_literal(result['structuredContent'])}")
        elif texts and not failed:
            checks.append(f"assert result.text == {_literal(chr(10).join(texts))}")
    else:
        checks.append(
            {"resource": "assert result.contents", "prompt": "assert result.messages"}.get(wanted.kind, "assert result")
        )
    name = re.sub(r"\W+", "_", wanted.name.rpartition("/")[2]).strip("_").lower() or "call"
    return "\n".join(
        [
            *_imports(subject),
            "",
            "",
            f"def test_{name}() -> None:",
            f"    with SyncClient({_client(subject, pinned)}) as client:",
            *_indented(f"result = {call}", 2),
            *(line for each in checks for line in _indented(each, 1)),
            "",
        ]
    )


def _texts(content: JSON) -> list[str]:
    blocks: list[JSON] = content if is_array(content) else []
    return [each["text"] for each in blocks if is_object(each) and isinstance(each.get("text"), str)]


def _imports(subject: Subject) -> list[str]:
    return [*(["import os", ""] if subject.headers else []), "from linkspan import SyncClient"]


def _client(subject: Subject, pinned: str) -> str:
    target = _literal(subject.words[0] if len(subject.words) == 1 else [*subject.words])
    headers = ", ".join(f'"{name}": os.environ["{_variable(name)}"]' for name in subject.headers)
    more = [f"headers={{{headers}}}"] if headers else []
    more += [f"protocol_version={_literal(pinned)}"] if pinned else []
    return ", ".join([target, *more])


def _call(wanted: Wanted) -> tuple[str, str]:
    arguments = f", {_literal(wanted.arguments)}" if wanted.arguments and wanted.kind != "resource" else ""
    method = {"tool": "call_tool", "resource": "read_resource", "prompt": "get_prompt"}[wanted.kind]
    shown = "result.text" if wanted.kind == "tool" else "result"
    return f"client.{method}({_literal(wanted.name)}{arguments})", shown


def _literal(value: JSON) -> str:
    """Return a value as Python, with double quotes where that is natural."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text if value.isprintable() and "\\" not in text.replace('\\"', "").replace("\\\\", "") else repr(value)
    if is_array(value):
        return f"[{', '.join(map(_literal, value))}]"
    if is_object(value):
        return f"{{{', '.join(f'{_literal(name)}: {_literal(each)}' for name, each in value.items())}}}"
    return repr(value)


def _indented(line: str, depth: int) -> list[str]:
    """Return a line at its depth. A long call is given its arguments on lines of their own."""
    space = "    " * depth
    if len(space + line) <= _WIDTH or not line.endswith(")"):
        return [space + line]
    head, _, rest = line.partition("(")
    return [f"{space}{head}(", f"{space}    {rest[:-1]},", f"{space})"]
