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

__all__ = ["Challenge", "basic_credentials", "is_scope", "read_challenges", "write_challenge"]

_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_SCHEME: Final = re.compile(rf"(?P<scheme>{_TOKEN})(?=[ \t,]|\Z)")
_TOKEN68: Final = re.compile(r"[ \t]+(?P<text>[A-Za-z0-9\-._~+/]+=*)[ \t]*(?=,|\Z)")
_PARAMETER: Final = re.compile(
    rf"(?P<name>{_TOKEN})[ \t]*=[ \t]*(?:\"(?P<quoted>(?:[^\"\\]|\\.)*+)\"|(?P<bare>[^\s,\"]++))(?=[ \t,]|\Z)"
)
"""A bare value may be more than a token: servers write URLs without quotes."""
_SEPARATOR: Final = re.compile(r"[ \t,]*+")
_TO_NEXT: Final = re.compile(r"(?:\"(?:[^\"\\]|\\.)*+\"|[^,])*+(?:,|\Z)")
_ESCAPED: Final = re.compile(r"\\(.)")
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


def read_challenges(header: str) -> list[Challenge]:
    """Return the challenges of a WWW-Authenticate header; of several headers, joined by commas."""
    found: list[Challenge] = []
    parameters: dict[str, str] = {}
    place = _end(_SEPARATOR, header, 0)
    while place < len(header):
        if (parameter := _PARAMETER.match(header, place)) is not None:
            quoted = parameter["quoted"]
            value = parameter["bare"] if quoted is None else _ESCAPED.sub(r"\1", quoted)
            parameters.setdefault(parameter["name"].lower(), value)
            place = parameter.end()
        elif (scheme := _SCHEME.match(header, place)) is not None:
            parameters, place = {}, scheme.end()
            token = _TOKEN68.match(header, place)
            found.append(Challenge(scheme["scheme"].lower(), parameters, token["text"] if token else ""))
            place = token.end() if token else place
        else:
            place = _end(_TO_NEXT, header, place)
        place = _end(_SEPARATOR, header, place)
    return found


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return found.end() if found is not None else place


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
