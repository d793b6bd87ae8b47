"""The WWW-Authenticate header, both ways: text to challenges and back; and the credentials of a client with a secret.

Reading never fails: what cannot be understood is skipped up to the next comma. Spec: RFC 9110, sections 11.2 to 11.6.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote_plus

import msgspec

from linkspan.wire.values import encode_base64

LONGEST_CHALLENGES: Final = 8192
"""Characters of a WWW-Authenticate header that are read."""
_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED: Final = r"\"(?P<quoted>(?:[^\"\\]|\\.)*+)\""
_END: Final = r"(?=[ \t,]|\Z)"
_PIECE: Final = re.compile(
    rf"(?P<name>{_TOKEN})[ \t]*+=[ \t]*+(?:{_QUOTED}|(?P<bare>[^\s,\"]++)){_END}"
    rf"|(?P<scheme>{_TOKEN}){_END}(?:[ \t]++(?P<token68>[A-Za-z0-9\-._~+/]++=*+)[ \t]*+(?=,|\Z))?"
    r"|(?![ \t,])(?P<unknown>(?:[^\",]|\"(?:[^\"\\]|\\.)*+(?:\"|\\?\Z))++)",
    re.DOTALL,
)
"""A parameter, a scheme with its token68 if it has one, or what is neither, up to the next comma. Each is read at most three
times, and a quoted string that is not closed takes all that follows: the work is linear.
A bare value may be more than a token, since servers write URLs without quotes."""
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_UNWRITABLE: Final = re.compile(r"[^\t\x20-\x7e]")


class Challenge(msgspec.Struct, frozen=True):
    """One way to authenticate that a server offers."""

    scheme: str
    """In lower case: `bearer`, `dpop`."""
    parameters: Mapping[str, str]
    """By name in lower case; of a repeated name, the first."""
    token: str = ""
    """A token68 in place of parameters, as in `Negotiate YII...`."""


def is_scope(text: object) -> bool:
    """Return whether a value can be the name of a scope (RFC 6749, section 3.3)."""
    return isinstance(text, str) and _SCOPE.fullmatch(text) is not None


def read_scopes(text: str) -> list[str]:
    """Return the names in a text that lists scopes: the space parts them, and no other blank does (RFC 6749, section 3.3)."""
    return [each for each in text.split(" ") if each]


def read_challenges(header: str) -> list[Challenge]:
    """Return the challenges of a WWW-Authenticate header; of several headers, joined by commas.

    Of a header longer than `LONGEST_CHALLENGES`, only what ends before that with a comma.
    """
    if len(header) > LONGEST_CHALLENGES:
        header = header[:LONGEST_CHALLENGES].rpartition(",")[0]
    found: list[Challenge] = []
    parameters: dict[str, str] = {}
    for piece in _PIECE.finditer(header):
        name, scheme, quoted = piece["name"], piece["scheme"], piece["quoted"]
        if name is not None:
            value = piece["bare"] if quoted is None else _ESCAPED.sub(r"\1", quoted)
            parameters.setdefault(name.lower(), value)
        elif scheme is not None:
            parameters = {}
            found.append(Challenge(scheme.lower(), parameters, piece["token68"] or ""))
    return found


def write_challenge(scheme: str, parameters: Mapping[str, str | None]) -> str:
    """Return a challenge with all its values quoted; None leaves a parameter out.

    A character that a header cannot carry becomes a question mark, so that no value can begin another header.
    """
    written = [
        '{}="{}"'.format(name, _UNWRITABLE.sub("?", value).replace("\\", "\\\\").replace('"', '\\"'))
        for name, value in parameters.items()
        if value is not None
    ]
    return f"{scheme} {', '.join(written)}" if written else scheme


def basic_credentials(client_id: str, client_secret: str) -> str:
    """Return the Authorization header of a client at a token endpoint (RFC 6749, section 2.3.1)."""
    return f"Basic {encode_base64(f'{quote_plus(client_id)}:{quote_plus(client_secret)}'.encode())}"
