"""The options of `linkspan login`, kept by the URL of the server.

They are where the logins are, in the keyring or in a file that only this user can read, since a secret may be among them. Every
`OAuth()` for the URL takes from them what it leaves open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from linkspan.auth.network import without_credentials
from linkspan.client.login_options import NO_OPTIONS, LoginOptions
from linkspan.client.vault import Key, Vault, home

if TYPE_CHECKING:
    from linkspan.auth.identities import OAuth

_KIND: Final = "options"


def completed(auth: OAuth, url: str, configured: LoginOptions = NO_OPTIONS) -> tuple[OAuth, tuple[str, ...]]:
    """Return an identity with what it leaves open, and the options of `linkspan login` that would make the same login there.

    That is what the server's configuration has, then what was kept for the URL; nothing of another client's, and what was kept
    only for the login without an account.
    """
    kept = kept_options(url) if not auth.account else NO_OPTIONS
    own = LoginOptions(**{each: getattr(auth, each) for each in LoginOptions.__struct_fields__})
    found = own.over(configured).over(kept)
    return (found.identity(auth) if found != own else auth), found.flags(kept)


def kept_options(url: str) -> LoginOptions:
    """Return what was kept for the server at a URL."""
    if not home().is_dir():
        return NO_OPTIONS
    found = Vault().load(_key(url))
    try:
        return msgspec.json.decode(found, type=LoginOptions) if found is not None else NO_OPTIONS
    except msgspec.DecodeError:  # of another version
        return NO_OPTIONS


def keep_options(url: str, options: LoginOptions) -> None:
    """Keep options for the server at a URL, instead of what was kept; without any, forget what was kept."""
    vault, key = Vault(), _key(url)
    if options != NO_OPTIONS:
        vault.save(key, msgspec.json.encode(options))
    elif vault.has(key):
        vault.save(key, None)


def urls_with_options() -> list[str]:
    """Return the URLs for which options are kept."""
    return [key[1] for key in Vault().all_keys() if key[0] == _KIND]


def _key(url: str) -> Key:
    return (_KIND, without_credentials(url))
