"""The verbs of logins.

    linkspan login URL [--device] [--new] [options about the client]    linkspan logout [URL]    linkspan whoami [URL]
    linkspan client-metadata URL

The logins are those that every verb, and every client without auth=, uses. No token and no secret is ever shown.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from linkspan.cli.forms import PersonAtTerminal, web_url
from linkspan.cli.login_client import (
    add_client_options,
    identity_with,
    options_of,
    read_secret,
    refuse_typed_secret,
    registration_of,
)
from linkspan.cli.main import parser_for
from linkspan.cli.options import WrongUse, add_output
from linkspan.cli.session import INTERRUPTED, WRONG_USE, describe, for_the_shell, status_of
from linkspan.cli.terminal import Terminal, dump
from linkspan.client.login_options import NO_OPTIONS, LoginOptions
from linkspan.flows.client_errors import ClientError, ServerOrigin
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.wire.redaction import neutral, one_line, redact

if TYPE_CHECKING:
    from linkspan.auth.authorizer import LoggedOut
    from linkspan.auth.client_registration import Registered
    from linkspan.auth.tokens import Tokens
    from linkspan.client.authorizing import LoginAccess

_NO_LOGIN: Final = 1
_LOGIN_EXAMPLES: Final = """examples:
  linkspan login https://api.example.com/mcp
  linkspan login https://api.example.com/mcp --scope files:read --scope files:write
  linkspan login https://api.example.com/mcp --device
  linkspan login https://api.example.com/mcp --client-id desk --client-secret --redirect-port 17423"""


def login(arguments: Sequence[str]) -> int:
    """`linkspan login URL`: log in to a server, and keep the login for all verbs and clients."""
    parser = parser_for(
        "linkspan login", "Log in to a server, and keep the login.", _LOGIN_EXAMPLES, allow_abbrev=False
    )
    parser.add_argument("url", metavar="URL", help="the URL of an MCP server")
    parser.add_argument("--device", action="store_true", help="enter a code on another device instead")
    anew = "register as a new client, whatever registration is stored, and forget what was kept for this URL"
    parser.add_argument("--new", action="store_true", help=anew)
    add_client_options(parser)
    add_output(parser)
    try:
        refuse_typed_secret(arguments)
    except WrongUse as problem:
        parser.error(str(problem))
    options = parser.parse_args(arguments)

    def work(terminal: Terminal) -> tuple[int, JSON, str]:
        from linkspan.auth.identities import OAuth
        from linkspan.client.kept_options import keep_options

        wanted = _wanted(options, terminal)
        person = PersonAtTerminal(terminal.write_line)
        auth = OAuth(device=options.device, open_url=None if options.device else person)
        access = _access(options.url, identity_with(wanted, auth))
        access.show, access.follow = terminal.write_line, terminal.detail
        tokens = access.run(access.authorizer.log_in(register=options.new))
        keep_options(options.url, wanted)
        found = _described(options.url, tokens, access.authorizer.stored_client())
        return 0, found, f"logged in to {_line(found)}"

    return _run("login", options, work)


def logout(arguments: Sequence[str]) -> int:
    """`linkspan logout [URL]`: revoke and forget a login, or all of them."""
    about = "Revoke and forget a login; without URL, all of them."
    from linkspan.bridge.remembering import forget

    options = _with_optional_url("logout", about, arguments)

    def work(terminal: Terminal) -> tuple[int, JSON, str]:
        gone: dict[str, LoggedOut] = {}
        for url in [options.url] if options.url else _stored_urls():
            access = _access_as_stored(url)
            if (ended := access.run(access.authorizer.log_out())) is not None:
                gone[url] = ended
            forget(url)
        lines = [line for url, ended in gone.items() for line in _ended(url, ended)]
        forgotten = _forget_options(options.url)
        lines += [f"forgot its options; to log in again: {_command(url, kept)}" for url, kept in forgotten.items()]
        unrevoked: JSONObject = {url: ended.unrevoked for url, ended in gone.items() if ended.unrevoked is not None}
        document: JSONObject = {"loggedOut": [*gone], **({"notRevoked": unrevoked} if unrevoked else {})}
        document |= _as_json("forgotten", forgotten)
        return 0 if gone or forgotten else _NO_LOGIN, document, "\n".join(lines) or "there was no login"

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
                found.append(_described(url, tokens, access.authorizer.stored_client()))
        kept = _kept(options.url)
        lines = [_line(each, client=True) for each in found] or ["there is no login"]
        lines += [f"kept for logins: {_command(url, each)}" for url, each in kept.items()]
        return 0 if found else _NO_LOGIN, {"logins": [*found], **_as_json("kept", kept)}, "\n".join(lines)

    return _run("whoami", options, work)


def client_metadata(arguments: Sequence[str]) -> int:
    """`linkspan client-metadata URL`: print the document that describes a client, for hosting at this URL."""
    about = "Print the document to host at this https URL; `linkspan login --client-metadata-url` then names it as the client."
    parser = parser_for("linkspan client-metadata", about, "", allow_abbrev=False)
    parser.add_argument("url", metavar="URL", help="where the document will be")
    parser.add_argument("--name", metavar="NAME", default="Linkspan", help="what people see when they log in")
    by_port = "the --redirect-port of the logins, where the authorization server wants it to be listed"
    parser.add_argument("--port", metavar="PORT", type=int, help=by_port)
    add_output(parser)
    options = parser.parse_args(arguments)

    def work(terminal: Terminal) -> tuple[int, JSON, str]:
        from linkspan.auth.client_registration import client_metadata as described
        from linkspan.auth.identities import OAuth

        identity_with(LoginOptions(client_metadata_url=options.url, redirect_port=options.port), OAuth())  # checks both
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


def with_login(url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers with the token of a stored login, unless they authorize a request already.

    A token that is bound to a key is left out: each request needs a proof of its own.
    """
    if any(name.lower() == "authorization" for name in headers):
        return headers
    try:
        access = _access(url)
        tokens = access.run(access.authorizer.stored())
    except (ClientError, ValueError):
        return headers
    if tokens is None or tokens.key is not None:
        return headers
    return {**headers, "Authorization": f"Bearer {tokens.access_token}"}


def _access(url: str, auth: Any = None) -> LoginAccess:
    """Return what logs in to a server. Raises: ValueError for what is not the URL of one."""
    from linkspan.auth.identities import OAuth
    from linkspan.client.authorizing import access_to

    host = _host_of(url)
    return access_to(ServerOrigin(host, url=redact(url)), url, auth or OAuth(), None, interactive=auth is not None)


def _host_of(url: str) -> str:
    """Return the host of a server. Raises: ValueError for what is not the URL of one."""
    parts = web_url(url)
    if parts is None or not parts.hostname:
        raise ValueError(f"{one_line(url, 100)!r} is not the URL of a server, such as https://api.example.com/mcp")
    return parts.hostname


# What is kept for logins at a URL.


def _wanted(options: Any, terminal: Terminal) -> LoginOptions:
    """Return what to log in with: what was given, and what was kept of the same client. Raises: ValueError."""
    from linkspan.auth.identities import OAuth
    from linkspan.client.kept_options import kept_options

    _host_of(options.url)
    given = options_of(options)
    wanted = given if options.new else given.over(kept_options(options.url))
    identity_with(wanted, OAuth())  # before a person is asked for anything
    if not options.client_secret:
        return wanted
    if wanted.client_id is None:
        raise ValueError("--client-secret needs the --client-id that it belongs to")
    return msgspec.structs.replace(wanted, client_secret=read_secret(terminal))


def _access_as_stored(url: str) -> LoginAccess:
    """Return what logs out of a server as the client that has logged in, with the secret that was kept for it."""
    from linkspan.auth.identities import OAuth
    from linkspan.client.kept_options import completed

    access = _access(url)
    tokens = access.run(access.authorizer.stored())
    kept, _ = completed(OAuth(), url)
    return _access(url, kept) if tokens is not None and tokens.client_id == kept.client_id else access


def _kept(url: str | None) -> dict[str, LoginOptions]:
    """Return what is kept for logins at a URL, or at all of them."""
    from linkspan.client.kept_options import kept_options, urls_with_options

    found = {each: kept_options(each) for each in ([url] if url else sorted(urls_with_options()))}
    return {each: options for each, options in found.items() if options != NO_OPTIONS}


def _forget_options(url: str | None) -> dict[str, LoginOptions]:
    """Forget what is kept for logins at a URL, or at all of them; return it."""
    from linkspan.client.kept_options import keep_options

    found = _kept(url)
    for each in found:
        keep_options(each, NO_OPTIONS)
    return found


def _command(url: str, kept: LoginOptions) -> str:
    """Return the command that logs in with what is kept; a secret is not in it."""
    return one_line(shlex.join(["linkspan", "login", url, *kept.flags()]), 1000)


def _as_json(name: str, kept: Mapping[str, LoginOptions]) -> JSONObject:
    """Return a member with the commands of what is kept by URL; without any, no member."""
    return {name: {url: [*each.flags()] for url, each in kept.items()}} if kept else {}


# What is shown.


def _ended(url: str, ended: LoggedOut) -> list[str]:
    """Return what a logout has done, in lines for people."""
    lines = [f"logged out of {one_line(url)}"]
    if ended.unrevoked is not None:
        lines.append(
            one_line(f"{ended.issuer} did not revoke the token, which stays valid there: {ended.unrevoked}", 500)
        )
    return lines


def _stored_urls() -> list[str]:
    from linkspan.client.vault import Vault

    return sorted({key[2] for key in Vault().all_keys() if key[0] == "server" and not key[1]})


def _described(url: str, tokens: Tokens, client: Registered | None) -> JSONObject:
    found: JSONObject = {"url": url, "issuer": tokens.issuer, "client": tokens.client_id, "scopes": [*tokens.scopes]}
    found["registration"] = registration_of(client)
    found["expires"] = tokens.expires
    found["renewed"] = tokens.refresh_token is not None
    found["bound"] = tokens.key is not None
    return found


def _line(found: JSONObject, *, client: bool = False) -> str:
    """Return a login on one line, for people; with `client`, also whose it is."""
    scopes, expires = found["scopes"], found["expires"]
    assert is_array(scopes)
    if found["renewed"]:
        until = "renewed automatically"
    elif isinstance(expires, int | float):
        left = expires - time.time()
        until = f"expires in {max(1, round(left / 60))} min" if left > 0 else "expired"
    else:
        until = "does not say when it expires"
    facts = [f"by {found['issuer']}", " ".join(map(str, scopes)) or "no scopes named", until]
    if client:
        how = f", {found['registration']}" if found["registration"] else ""
        facts.append(f"client {found['client']}{how}")
    return one_line(f"{found['url']} ({'; '.join(facts)})", 700)
