"""Authorization: who a client is for a server, and whom a server lets in. Names are loaded when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linkspan.loading import lazy_names

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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "exchanging": ("TokenExchange",),
        "identities": ("ClientCredentials", "Enterprise", "OAuth", "WorkloadIdentity"),
        "presets": ("PRESETS",),
        "protection": ("Protected",),
        "verifying": ("ApiKeys", "Introspection", "Jwt"),
    },
)
