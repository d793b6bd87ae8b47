"""Options of `linkspan login` about the client, and a secret that is on no command line."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from linkspan.cli.options import REPEATABLE, WrongUse
from linkspan.cli.terminal import Terminal
from linkspan.client.login_options import LoginOptions

if TYPE_CHECKING:
    from linkspan.auth.client_registration import Registered
    from linkspan.auth.identities import OAuth

_SECRET: Final = "--client-secret"
_VARIABLE: Final = "LINKSPAN_CLIENT_SECRET"
_KEYWORD: Final = re.compile(r"\b(client_id|client_secret|client_metadata_url|redirect_port|resource|issuer)=")


def add_client_options(parser: ArgumentParser) -> None:
    """Add the options about the client and what it asks for; `options_of` returns their values."""
    add: Any = parser.add_argument_group("the client").add_argument
    add("--client-id", metavar="ID", help="the client that you registered at the authorization server")
    add(_SECRET, action="store_true", help=f"it has a secret, which is asked for, or in the variable {_VARIABLE}")
    add("--redirect-port", type=int, metavar="PORT", help="its redirect URI is http://127.0.0.1:PORT/callback")
    document = "the https URL of a document about the client, where no client is registered"
    add("--client-metadata-url", metavar="URL", help=document)
    asked = "ask for these scopes, besides what the server wants; several in quotes (repeatable)"
    add("--scope", metavar="SCOPES", help=asked, **REPEATABLE)
    named = parser.add_mutually_exclusive_group()
    named.add_argument("--resource", metavar="URI", help="name this in place of the server when asking for tokens")
    named.add_argument("--no-resource", action="store_true", help="do not name the server when asking for tokens")
    add("--issuer", metavar="URL", help="the only authorization server to use")
    safe = "log in where PKCE with S256 is not announced, because you know that it is supported"
    add("--assume-pkce", action="store_true", help=safe)


def options_of(options: Any) -> LoginOptions:
    """Return what the options of `add_client_options` say; a secret is still to be read."""
    return LoginOptions(
        client_id=options.client_id,
        client_metadata_url=options.client_metadata_url,
        redirect_port=options.redirect_port,
        scopes=tuple(dict.fromkeys(scope for each in options.scope for scope in each.split())),
        resource=False if options.no_resource else options.resource or True,
        issuer=options.issuer,
        assume_pkce=options.assume_pkce,
    )


def refuse_typed_secret(arguments: Sequence[str]) -> None:
    """Raise WrongUse if a secret is on the command line, before any text could show it."""
    for at, word in enumerate(arguments):
        follows = arguments[at + 1] if word == _SECRET and at + 1 < len(arguments) else "-"
        if word.startswith(f"{_SECRET}=") or not (follows.startswith("-") or "://" in follows):
            raise WrongUse(
                f"{_SECRET} takes no value, since others can read command lines: it asks for the secret, or reads the "
                f"variable {_VARIABLE} [LS-414]"
            )


def read_secret(terminal: Terminal) -> str:
    """Return the client's secret, from the environment or from the person at the terminal. Raises: ValueError."""
    secret = os.environ.get(_VARIABLE, "").strip()
    if not secret and terminal.interactive:
        try:
            secret = terminal.read_secret("Client secret (it is not shown): ").strip()
        except EOFError:
            secret = ""
    if not secret:
        raise ValueError(f"{_SECRET} got no secret: run this at a terminal and type it, or set {_VARIABLE} [LS-413]")
    return secret


def identity_with(wanted: LoginOptions, auth: OAuth) -> OAuth:
    """Return an identity with these options. Raises: ValueError in terms of the command line."""
    try:
        return wanted.identity(auth)
    except ValueError as problem:
        text = _KEYWORD.sub(lambda found: f"--{found[1].replace('_', '-')}", str(problem))
        raise ValueError(text) from None


def registration_of(client: Registered | None) -> str | None:
    """Return how a client became known to its authorization server; None where that was not stored."""
    if client is None:
        return None
    if client.dynamic:
        return "registered dynamically"
    return "described by its document" if client.client_id.startswith("https:") else "registered by hand"
