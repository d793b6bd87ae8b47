"""What other distributions add by entry points: stores, models and hosts, each found by its name. Built-in names come first."""

from __future__ import annotations

from typing import Any, Final

from linkspan.errors import LinkspanError

STORES: Final = "linkspan.stores"
"""Functions that get the URL of a store, and return a `Store`, by the scheme of the URL."""
MODELS: Final = "linkspan.models"
"""Functions `(name, *, key, **options)` that return a `Model`, by what stands before the colon."""
HOSTS: Final = "linkspan.hosts"
"""Values of `HostFormat`, by the name that `linkspan install` takes."""


def added(group: str, name: str) -> Any:
    """Return what a distribution has added under a name, or None. Raises: LinkspanError if it cannot be loaded."""
    from importlib.metadata import entry_points

    for found in entry_points(group=group, name=name):
        try:
            return found.load()
        except Exception as problem:
            distribution = found.dist.name if found.dist is not None else found.value
            raise LinkspanError(
                f"{distribution} adds {name!r} to {group}, which cannot be loaded: {type(problem).__name__}: {problem}"
            ) from problem
    return None


def names_added(group: str) -> list[str]:
    """Return the names of what is added to a group, sorted, without loading any of it."""
    from importlib.metadata import entry_points

    return sorted({each.name for each in entry_points(group=group)})
