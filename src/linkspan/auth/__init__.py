"""Authorization: who a client is for a server, and whom a server lets in. Names are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkspan.loading import load

if TYPE_CHECKING:
    from linkspan.auth.exchanging import TokenExchange as TokenExchange
    from linkspan.auth.identities import ClientCredentials as ClientCredentials
    from linkspan.auth.identities import Enterprise as Enterprise
    from linkspan.auth.identities import OAuth as OAuth
    from linkspan.auth.identities import WorkloadIdentity as WorkloadIdentity
    from linkspan.auth.presets import PRESETS as PRESETS
    from linkspan.auth.protection import Protected as Protected
    from linkspan.auth.verifying import ApiKeys as ApiKeys
    from linkspan.auth.verifying import Introspection as Introspection
    from linkspan.auth.verifying import Jwt as Jwt

_HOMES = {
    "linkspan.auth.exchanging": ("TokenExchange",),
    "linkspan.auth.identities": ("ClientCredentials", "Enterprise", "OAuth", "WorkloadIdentity"),
    "linkspan.auth.presets": ("PRESETS",),
    "linkspan.auth.protection": ("Protected",),
    "linkspan.auth.verifying": ("ApiKeys", "Introspection", "Jwt"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "PRESETS",
    "ApiKeys",
    "ClientCredentials",
    "Enterprise",
    "Introspection",
    "Jwt",
    "OAuth",
    "Protected",
    "TokenExchange",
    "WorkloadIdentity",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        from linkspan.habits import missing_import

        raise missing_import(__name__, name)
    value: object = getattr(load(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
