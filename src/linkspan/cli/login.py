"""The verbs of logins.

    linkspan login URL [--device] [--scope S] [--new]    linkspan logout [URL]    linkspan whoami [URL]
    linkspan client-metadata URL

The logins are those that every verb, and every client without auth=, uses. No token is ever shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from linkspan.cli.forms import PersonAtTerminal, web_url
from linkspan.cli.main import parser_for
from linkspan.cli.options import REPEATABLE, add_output
from linkspan.cli.session import INTERRUPTED, WRONG_USE, describe, for_the_shell, status_of
from linkspan.cli.terminal import Terminal, dump
from linkspan.flows.client_errors import ClientError, Origin
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.wire.redaction import neutral, one_line, redact

if TYPE_CHECKING:
    from linkspan.auth.tokens import Tokens
    from linkspan.client.authorizing import Access

__all__ = ["client_metadata", "login", "logout", "whoami"]

_NO_LOGIN: Final = 1
_LOGIN_EXAMPLES: Final = """examples:
  linkspan login https://api.example.com/mcp
  linkspan login https://api.example.com/mcp --scope files:read --scope files:write
  linkspan login https://api.example.com/mcp --device"""


def login(arguments: Sequence[str]) -> int:
    """`linkspan login URL`: log in to a server, and keep the login for all verbs and clients."""
    parser = parser_for(
        "linkspan login", "Log in to a server, and keep the login.", _LOGIN_EXAMPLES, allow_abbrev=False
    )
    parser.add_argument("url", metavar="URL", help="the URL of an MCP server")
    parser.add_argument("--device", action="store_true", help="enter a code on another device instead")
    parser.add_argument("--scope", metavar="SCOPE", help="ask for this, too (repeatable)", **REPEATABLE)
    parser.add_argument("--new", action="store_true", help="register as a new client, whatever registration is stored")
    add_output(parser)
    options = parser.parse_args(arguments)

    def work(terminal: Terminal) -> tuple[int, JSON, str]:
        from linkspan.auth.identities import OAuth

        person = PersonAtTerminal(terminal.write_line)
        auth = OAuth(scopes=tuple(options.scope), device=options.device, open_url=None if options.device else person)
        access = _access(options.url, auth)
        access.show = terminal.write_line
        tokens = access.run(access.authorizer.log_in(register=options.new))
        found = _described(options.url, tokens)
        return 0, found, f"logged in to {_line(found)}"

    return _run("login", options, work)


def logout(arguments: Sequence[str]) -> int:
    """`linkspan logout [URL]`: revoke and forget a login, or all of them."""
    about = "Revoke and forget a login; without URL, all of them."
    options = _with_optional_url("logout", about, arguments)

    def work(terminal: Terminal) -> tuple[int, JSON, str]:
        gone: list[str] = []
        for url in [options.url] if options.url else _stored_urls():
            access = _access(url)
            if access.run(access.authorizer.log_out()):
                gone.append(url)
        lines = [f"logged out of {one_line(url)}" for url in gone]
        return 0 if gone else _NO_LOGIN, {"loggedOut": [*gone]}, "\n".join(lines) or "there was no login"

    return _run("logout", options, work)


def whoami(arguments: Sequence[str]) -> int:
    """`linkspan whoami [URL]`: show what is stored of a login, or of all, without the tokens."""
    about = "Show the logins that are stored, without their tokens."
    options = _with_optional_url("whoami", about, arguments)

    def work(terminal: Terminal) -> tuple[int, JSON, str]:
        found: list[JSONObject] = []
        for url in [options.url] if options.url else _stored_urls():
            access = _access(url)
            tokens = access.run(access.authorizer.stored())
            if tokens is not None:
                found.append(_described(url, tokens))
        text = "\n".join(map(_line, found)) or "there is no login"
        return 0 if found else _NO_LOGIN, {"logins": [*found]}, text

    return _run("whoami", options, work)


def client_metadata(arguments: Sequence[str]) -> int:
    """`linkspan client-metadata URL`: print the document that describes a client, for hosting at this URL."""
    about = "Print the document to host at this https URL; OAuth(client_metadata_url=URL) then names it as the client."
    parser = parser_for("linkspan client-metadata", about, "", allow_abbrev=False)
    parser.add_argument("url", metavar="URL", help="where the document will be")
    parser.add_argument("--name", metavar="NAME", default="Linkspan", help="what people see when they log in")
    by_port = "the port of OAuth(redirect_port=...), where the authorization server wants it to be listed"
    parser.add_argument("--port", metavar="PORT", type=int, help=by_port)
    add_output(parser)
    options = parser.parse_args(arguments)

    def work(terminal: Terminal) -> tuple[int, JSON, str]:
        from linkspan.auth.client_registration import client_metadata as described
        from linkspan.auth.identities import OAuth

        OAuth(client_metadata_url=options.url, redirect_port=options.port)  # checks both
        place = f"127.0.0.1:{options.port}" if options.port else "127.0.0.1"
        document: JSONObject = {"client_id": options.url, **described(options.name, f"http://{place}/callback")}
        return 0, document, dump(document)

    return _run("client-metadata", options, work)


def _with_optional_url(verb: str, about: str, arguments: Sequence[str]) -> Any:
    parser = parser_for(f"linkspan {verb}", about, "", allow_abbrev=False)
    parser.add_argument("url", metavar="URL", nargs="?", help="the URL of an MCP server (default: all)")
    add_output(parser)
    return parser.parse_args(arguments)


def _run(verb: str, options: Any, work: Callable[[Terminal], tuple[int, JSON, str]]) -> int:
    """Do the work of a verb and show its outcome: a status, a JSON document, and a text."""
    terminal = Terminal(quiet=options.quiet, verbose=options.verbose, color=not options.no_color)
    try:
        status, document, text = work(terminal)
    except KeyboardInterrupt:
        terminal.write_line("interrupted")
        return INTERRUPTED
    except ValueError as problem:
        status, document, text = WRONG_USE, {"error": {"type": "WrongUse", "problem": str(problem)}}, ""
        if not options.json:
            terminal.fail(neutral(f"linkspan {verb}: {problem}"))
    except ClientError as error:
        error = for_the_shell(error)
        status, document, text = status_of(error), {"error": describe(error)}, ""
        if not options.json:
            terminal.fail(neutral(str(error)))
    terminal.emit(dump(document) if options.json else neutral(text))
    return status


def _access(url: str, auth: Any = None) -> Access:
    """Return what logs in to a server. Raises: ValueError for what is not the URL of one."""
    from linkspan.auth.identities import OAuth
    from linkspan.client.authorizing import access_to

    parts = web_url(url)
    if parts is None or not parts.hostname:
        raise ValueError(f"{one_line(url, 100)!r} is not the URL of a server, such as https://api.example.com/mcp")
    return access_to(Origin(parts.hostname, url=redact(url)), url, auth or OAuth(), None, interactive=auth is not None)


def _stored_urls() -> list[str]:
    from linkspan.client.vault import Vault

    return sorted({key[2] for key in Vault().all_keys() if key[0] == "server" and not key[1]})


def _described(url: str, tokens: Tokens) -> JSONObject:
    found: JSONObject = {"url": url, "issuer": tokens.issuer, "client": tokens.client_id, "scopes": [*tokens.scopes]}
    found["expires"] = tokens.expires
    found["renewed"] = tokens.refresh_token is not None
    found["bound"] = tokens.key is not None
    return found


def _line(found: JSONObject) -> str:
    """Return a login on one line, for people."""
    scopes, expires = found["scopes"], found["expires"]
    assert is_array(scopes)
    if found["renewed"]:
        until = "renewed automatically"
    elif isinstance(expires, int | float):
        left = expires - time.time()
        until = f"expires in {max(1, round(left / 60))} min" if left > 0 else "expired"
    else:
        until = "does not say when it expires"
    text = f"{found['url']} (by {found['issuer']}; {' '.join(map(str, scopes)) or 'no scopes named'}; {until})"
    return one_line(text, 500)
