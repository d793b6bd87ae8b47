"""The page for people: what a server is and has, the lines that connect a client to it, and forms to try it.

It is readable without its script, and asks nothing of any other place. Whatever an author wrote is text in it, never markup.
"""

from __future__ import annotations

import base64
import hashlib
import pkgutil
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from linkspan._version import __version__
from linkspan.core.call import Call
from linkspan.core.http_exchange import BrowserPage, Header
from linkspan.errors import INTERNAL_ERROR, RemoteProtocolError
from linkspan.revisions import LATEST
from linkspan.revisions.modern import CAPABILITIES, PROTOCOL_VERSION
from linkspan.revisions.neutral import Encoded, Outcome, Peer, Request, TransportInfo
from linkspan.schema.summary import default_words, properties_of, required_of, resolve, size_words, type_words
from linkspan.server.dispatch import Dispatcher
from linkspan.types.base import JSON, Implementation, JSONObject, Wire, is_object
from linkspan.types.messages import ListParams
from linkspan.types.methods import ITEM_METHODS, LISTS, TOOL_LIST, ListSpec
from linkspan.wire.jsonrpc import encode
from linkspan.wire.values import to_builtins


def make_page(dispatcher: Dispatcher, url: str, facts: TransportInfo, login: JSONObject | None = None) -> BrowserPage:
    """Return the page of a server at `url`: it shows what a list request with these `facts` would return.

    With `login`, it is that of a protected server for people without a token: its name, and nothing that needs one. They log
    in at `issuer`, None if there is none, for `resource` and `scopes`.
    """
    if login is not None:
        about = msgspec.structs.replace(dispatcher.profile.implementation, version="", description=None)
        text = render(about, None, {}, url, dispatcher.profile.served.versions, login)
        return BrowserPage(text.encode(errors="replace"), _headers(login["issuer"]))
    lists = {each.member: _listed(dispatcher, each, facts) for each in LISTS.values()}
    profile = dispatcher.profile
    text = render(profile.implementation, profile.instructions, lists, url, profile.served.versions)
    return BrowserPage(text.encode(errors="replace"), _headers(None))


def _listed(dispatcher: Dispatcher, spec: ListSpec[Any, Any], facts: TransportInfo) -> list[JSONObject]:
    """Return the items of a list, page after page; nothing where such a list is refused."""
    found: list[JSONObject] = []
    params = ListParams()
    while True:
        outcome = dispatcher.begin(Request(0, spec.method, params, Peer(LATEST), facts=facts))
        if isinstance(outcome, Call):
            outcome = _outcome_of(outcome)
        if not isinstance(outcome, Encoded | Wire):
            return found
        page: JSONObject = msgspec.json.decode(outcome.body) if isinstance(outcome, Encoded) else to_builtins(outcome)
        found += page[spec.member]
        if (cursor := page.get("nextCursor")) is None:
            return found
        params = ListParams(cursor=cursor)


def _outcome_of(call: Call) -> Outcome:
    """Run hooks and middleware of the author's here. What must be awaited leaves the page without the list."""
    try:
        value = call.run()
    except BaseException as error:
        return call.fail(error)
    if hasattr(type(value), "__await__"):
        getattr(value, "close", bool)()
        return RemoteProtocolError(INTERNAL_ERROR, "the page cannot wait for async middleware")
    return call.finish(value)


def render(
    about: Implementation,
    instructions: str | None,
    lists: Mapping[str, Sequence[JSONObject]],
    url: str,
    versions: Sequence[str],
    login: JSONObject | None = None,
) -> str:
    """Return the page as HTML; `lists` are the items as they are on the wire, by the member they come in.

    `versions` are the revisions that the server speaks; `login` is for the script, where people have no token yet.
    """
    title = about.title or about.name
    items = {
        "Tools": [_tool(each) for each in lists.get("tools", ())],
        "Resources": [_resource(each) for each in lists.get("resources", ())],
        "Templates": [_template(each) for each in lists.get("resourceTemplates", ())],
        "Prompts": [_prompt(each) for each in lists.get("prompts", ())],
    }
    offered = {name: found for name, found in items.items() if found}
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f'<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n',
            f"<style>{_STYLE}</style>\n</head>\n",
            f'<body data-version="{LATEST.date}" data-product="{escape(__version__)}"',
            f' data-login="{escape(encode(login).decode())}"' if login is not None else "",
            ">\n<main>\n",
            _header(about, instructions, offered),
            _connect(about, url),
            '<p class="quiet" id="still">With JavaScript you could also try the tools here.</p>\n',
            *(
                f'<section id="{name.lower()}">\n<h2>{name}</h2>\n{"".join(found)}</section>\n'
                for name, found in offered.items()
            ),
            "" if offered else _NOTHING if login is None else _PROTECTED,
            f'</main>\n<footer class="quiet">Linkspan {escape(__version__)}; speaks MCP {", ".join(versions)}',
            f"</footer>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n",
        ]
    )


_NOTHING: Final = '<p class="quiet">Nothing is offered here yet.</p>\n'
_PROTECTED: Final = (
    '<p class="protected">This server is protected. What it offers is shown to those who have a token.</p>\n'
)


def _header(about: Implementation, instructions: str | None, offered: Mapping[str, Sequence[str]]) -> str:
    ways = [("connect", "Connect a client")]
    ways += [(name.lower(), f"{name} ({len(found)})") for name, found in offered.items()]
    links = "".join(f'<a href="#{where}">{words}</a>' for where, words in ways)
    named = _code(about.name) if about.title and about.title != about.name else ""
    known = [named, f"version {escape(about.version)}" if about.version else "", "an MCP server"]
    website = about.website_url or ""
    icon = next((each.src for each in about.icons or () if each.src.startswith("data:image/")), None)
    link = (
        f' · <a href="{escape(website)}" rel="noreferrer">{escape(website)}</a>'
        if website.startswith(("https://", "http://"))
        else ""
    )
    return "".join(
        [
            "<header>\n",
            f'<img class="icon" src="{escape(icon)}" alt="">\n' if icon else "",
            f'<h1 dir="auto">{escape(about.title or about.name)}</h1>\n',
            f'<p class="quiet">{" · ".join(filter(None, known))}{link}</p>\n',
            _words(about.description),
            f"<h2>Instructions</h2>\n{_words(instructions)}" if instructions else "",
            f'<nav aria-label="On this page">{links}</nav>\n',
            "</header>\n",
        ]
    )


def _connect(about: Implementation, url: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", about.name).strip("-") or "server"
    ways = {
        "Claude Code": _shell(f"claude mcp add --transport http {name} {_URL}", url),
        "Claude Desktop": "Where Linkspan is installed, this writes its configuration:"
        + _shell(f"linkspan install --bridge claude-desktop {_URL} --name {name}", url),
        "Cursor": _link("cursor", name) + "or in .cursor/mcp.json:" + _entry("mcpServers", name, {"url": _URL}, url),
        "VS Code": _link("vscode", name)
        + "or in .vscode/mcp.json:"
        + _entry("servers", name, {"type": "http", "url": _URL}, url),
        "mcp.json": _entry("mcpServers", name, {"type": "http", "url": _URL}, url),
        "Python": _line(escape(_PYTHON, quote=False).replace(_URL, _here("json", encode(url).decode()))),
        "Terminal": _shell(f"linkspan list {_URL}", url),
        "curl": _shell(_CURL, url),
    }
    shown = "".join(
        f'<details name="client"><summary>{label}</summary>\n{words}</details>\n' for label, words in ways.items()
    )
    address = _line(_here("url", url))
    return (
        f'<section id="connect">\n<h2>Connect a client</h2>\n{address}<div class="ways">\n{shown}</div>\n</section>\n'
    )


def _entry(section: str, name: str, entry: JSONObject, url: str) -> str:
    """Return the lines for a configuration file, with the URL where an entry has it."""
    text = msgspec.json.format(encode({section: {name: entry}}), indent=2).decode()
    return _line(escape(text, quote=False).replace(f'"{_URL}"', _here("json", encode(url).decode())))


def _shell(command: str, url: str) -> str:
    return _line(escape(command, quote=False).replace(_URL, _here("shell", shlex.quote(url))))


def _here(kind: str, text: str) -> str:
    """Return the URL as a part of a line; the script knows it better behind a proxy."""
    return f'<span data-here="{kind}">{escape(text)}</span>'


def _line(text: str) -> str:
    return f'<div class="line"><pre tabindex="0">{text}</pre></div>\n'


def _link(host: str, name: str) -> str:
    """Return a link that a host's own scheme handles; the script fills it in."""
    title = {"cursor": "Cursor", "vscode": "VS Code"}[host]
    return f'<a href="#connect" data-install="{host}" data-name="{name}" hidden>Install in {title}</a> '


_URL: Final = "url-of-this-page"
_PYTHON: Final = f"""from linkspan import SyncClient

with SyncClient({_URL}) as client:
    print(client.list_tools())"""
_ENVELOPE: Final[JSONObject] = {PROTOCOL_VERSION: LATEST.date, CAPABILITIES: {}}
_LIST: Final[JSONObject] = {"jsonrpc": "2.0", "id": 1, "method": TOOL_LIST.method, "params": {"_meta": _ENVELOPE}}
_CURL: Final = " \\\n  ".join(
    [
        f"curl {_URL}",
        "-H 'content-type: application/json' -H 'accept: application/json, text/event-stream'",
        f"-H 'mcp-protocol-version: {LATEST.date}' -H 'mcp-method: {TOOL_LIST.method}'",
        f"-d '{encode(_LIST).decode()}'",
    ]
)


# Items. The script makes a form of each: `data-method` is what it calls, `data-key` the member that says of what.


def _tool(tool: JSONObject) -> str:
    schema: JSON = tool.get("inputSchema")
    annotations: JSON = tool.get("annotations") or {}
    hints = [word for hint, word in _HINTS.items() if annotations.get(hint) is True]
    return _item(
        tool["name"],
        tool.get("title") or annotations.get("title"),
        hints,
        tool.get("description"),
        ("tool", tool["name"]),
        [
            _parameters(_parameter(name, each, schema) for name, each in properties_of(schema).items()),
            _json("Input schema", schema, "schema"),
            _json("Output schema", tool.get("outputSchema")),
        ],
    )


_HINTS: Final = {
    "readOnlyHint": "read-only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open world",
}


def _parameter(name: str, schema: JSON, root: JSON) -> str:
    found: JSON = resolve(schema, root)
    both: JSON = {**found, **schema} if is_object(found) and is_object(schema) else {}
    kind = ", ".join(each for each in (type_words(schema, root), size_words(both)) if each)
    description: JSON = both.get("description")
    return _field(name, kind + default_words(both), name in required_of(root), description)


def _resource(resource: JSONObject) -> str:
    uri, size = resource["uri"], resource.get("size")
    facts = [resource.get("mimeType"), f"{size} bytes" if size is not None else None]
    title = resource.get("title") or resource["name"]
    return _item(uri, title, facts, resource.get("description"), ("resource", uri), [])


def _template(template: JSONObject) -> str:
    uri = template["uriTemplate"]
    schema = {"type": "object", "properties": {"uri": {"type": "string", "default": uri}}, "required": ["uri"]}
    return _item(
        uri,
        template.get("title") or template["name"],
        [template.get("mimeType")],
        template.get("description"),
        ("resource", ""),
        [
            _parameters([_field("uri", "the template with its {variables} filled in", True, None)]),
            f'<pre class="schema" hidden>{escape(encode(schema).decode())}</pre>\n',
        ],
    )


def _prompt(prompt: JSONObject) -> str:
    arguments: list[JSONObject] = prompt.get("arguments") or []
    schema = {
        "type": "object",
        "properties": {each["name"]: {"type": "string"} for each in arguments},
        "required": [each["name"] for each in arguments if each.get("required")],
    }
    return _item(
        prompt["name"],
        prompt.get("title"),
        [],
        prompt.get("description"),
        ("prompt", prompt["name"]),
        [
            _parameters(
                _field(each["name"], "text", bool(each.get("required")), each.get("description")) for each in arguments
            ),
            f'<pre class="schema" hidden>{escape(encode(schema).decode())}</pre>\n',
        ],
    )


_VERBS: Final = {"tool": "Call", "resource": "Read", "prompt": "Get"}


def _item(
    name: str,
    title: JSON,
    marks: Iterable[JSON],
    description: JSON,
    about: tuple[str, str],
    inside: Iterable[str],
) -> str:
    noun, value = about
    method = ITEM_METHODS[noun]
    words = description.strip() if isinstance(description, str) else ""
    shown = [f'<span class="mark">{escape(str(each))}</span>' for each in marks if each]
    if isinstance(title, str) and title != name:
        shown.insert(0, f'<span dir="auto">{escape(title)}</span>')
    if words:
        shown.append(f'<span class="brief quiet" dir="auto">{escape(words.splitlines()[0])}</span>')
    return "".join(
        [
            f'<details class="item" data-verb="{_VERBS[noun]}" data-method="{method.name}" '
            f'data-key="{method.params.named_by}" data-value="{escape(value)}">\n',
            f"<summary>{' '.join([f'<h3>{_code(name)}</h3>', *shown])}</summary>\n",
            f'<div class="inside">\n{_words(words)}{"".join(inside)}</div>\n</details>\n',
        ]
    )


def _parameters(fields: Iterable[str]) -> str:
    shown = "".join(fields)
    return f'<ul class="fields">\n{shown}</ul>\n' if shown else ""


def _field(name: str, kind: str, required: bool, description: JSON) -> str:
    needed = ' <span class="mark">required</span>' if required else ""
    words = _words(description) if isinstance(description, str) else ""
    label = f'<label class="label">{_code(name)} <span class="quiet">{escape(kind)}</span>{needed}</label>'
    return f'<li data-name="{escape(name)}">{label}\n{words}</li>\n'


def _json(title: str, value: JSON, kind: str = "") -> str:
    if value is None:
        return ""
    text = msgspec.json.format(encode(value), indent=2).decode()
    return f'<details><summary>{title}</summary><pre class="{kind}" tabindex="0">{escape(text)}</pre></details>\n'


def _words(text: str | None) -> str:
    return f'<p class="words" dir="auto">{escape(text)}</p>\n' if text else ""


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


# What never changes is read once, when the first browser asks, without the indentation and remarks that are for its readers.
# The policy names it by its hash, so that nothing else can run.


def _asset(name: str) -> str:
    found = pkgutil.get_data("linkspan.server", f"assets/{name}")
    assert found is not None
    return re.sub(r"^[ \t]+|^//.*\n|\r", "", found.decode(), flags=re.MULTILINE)


def _joined(*names: str) -> str:
    """Return modules as one script: the page is one document, and its policy names what may run by its hash."""
    return '"use strict";\n' + "".join(
        re.sub(r"^import .*\n|^export ", "", _asset(each), flags=re.MULTILINE) for each in names
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE: Final = _asset("page.css")
_SCRIPT: Final = _joined("json.js", "elements.js", "forms.js", "results.js", "page.js")
_POLICY: Final = "; ".join(
    [
        "default-src 'none'",
        f"script-src {_hash(_SCRIPT)}",
        f"style-src {_hash(_STYLE)}",
        "img-src data:",
        "media-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types page",
        "connect-src 'self'",
    ]
)
_HEADERS: Final = (
    ("content-type", "text/html; charset=utf-8"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
    ("vary", "accept"),
)


def _headers(issuer: str | None) -> Sequence[Header]:
    """Return what the page may do: send requests to its own server, and to the one at which people log in."""
    parts = urlsplit(issuer or "")
    beside = f" {parts.scheme}://{parts.netloc}" if parts.netloc else ""
    return (*_HEADERS, ("content-security-policy", _POLICY + beside))
