"""How a client shows a token endpoint who it is, and which ways are tried where one is refused.

Spec: RFC 6749, section 2.3.1; RFC 8414, section 2. Servers differ from it: some read `client_id` from the form alone, even
beside HTTP Basic, and some refuse a form that repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from linkspan.auth.metadata import AuthorizationFailure, ServerMetadata
from linkspan.wire.challenges import basic_credentials

FORM: Final = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
"""The headers of a request to a token endpoint."""
BASIC: Final = "client_secret_basic"
POST: Final = "client_secret_post"
_HEADER_ALONE: Final = "client_secret_basic without client_id in the form"
_WITH_SECRET: Final = (BASIC, POST)
_DEFAULT: Final = (BASIC,)
"""What metadata that list no method stand for."""


def choose_method(server: ServerMetadata, *, secret: str | None) -> str:
    """Return how to authenticate first: with a secret, the first method that the server lists and that we can.

    Raises: AuthorizationFailure if it lists none of these.
    """
    if secret is None:
        return "none"
    listed = server.token_endpoint_auth_methods_supported or _DEFAULT
    for method in listed:
        if method in _WITH_SECRET:
            return method
    raise AuthorizationFailure(f"{server.issuer} does not accept a client secret, only {', '.join(listed)}")


def ways_to_authenticate(server: ServerMetadata, method: str) -> list[str]:
    """Return the ways that a client with this method can try, in their order: its own, then what else the server lists."""
    if method not in _WITH_SECRET:
        return [method]
    listed = server.token_endpoint_auth_methods_supported or _DEFAULT
    methods = dict.fromkeys((method, *(each for each in listed if each in _WITH_SECRET)))
    return [*methods, *([_HEADER_ALONE] if BASIC in methods else [])]


def is_refused(way: str, error: str | None) -> bool:
    """Return whether an error response refuses this way to authenticate, so that another one may be taken."""
    counts_client_id = error == "invalid_request" and way == BASIC  # as a second way
    return error == "invalid_client" or counts_client_id


def client_authentication(client_id: str, client_secret: str | None, way: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers of a form, and the fields with which it shows whose it is (RFC 6749, section 2.3.1).

    Raises: ValueError for a secret with another method than `client_secret_basic` and `client_secret_post`.
    """
    if client_secret is None:
        return {**FORM}, {"client_id": client_id}
    if way == POST:
        return {**FORM}, {"client_id": client_id, "client_secret": client_secret}
    if way not in (BASIC, _HEADER_ALONE):
        raise ValueError(f"method must be client_secret_basic or client_secret_post, got {way!r}")
    return {**FORM, "authorization": basic_credentials(client_id, client_secret)}, {}


def repeated_in_form(client_id: str, way: str) -> Mapping[str, str]:
    """Return what a form repeats of the Basic header: servers made with the official SDK read it there."""
    return {"client_id": client_id} if way == BASIC else {}
