"""What other distributions add by entry points: verbs, stores, models and hosts, each by its name. Built-in names come first."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from operator import attrgetter
from typing import Any, Final

from linkspan.errors import LinkspanError

VERBS: Final = "linkspan.verbs"
"""Functions of the arguments of `linkspan VERB` that return the exit status."""
STORES: Final = "linkspan.stores"
"""Functions that get the URL of a store, and return a `Store`, by the scheme of the URL."""
MODELS: Final = "linkspan.models"
"""Functions `(name, *, key, **options)` that return a `Model`, by what stands before the colon."""
HOSTS: Final = "linkspan.hosts"
"""Values of `HostFormat`, by the name that `linkspan install` takes."""


def added(group: str, name: str) -> Any:
    """Return what a distribution has added under a name, or None. Raises: LinkspanError if it cannot be loaded."""
    value = _value_in_folders(group, name) or _value_elsewhere(group, name)
    if value is None:
        return None
    module, _, attribute = value.partition(":")
    try:
        return attrgetter(attribute)(import_module(module)) if attribute else import_module(module)
    except Exception as problem:
        raise LinkspanError(
            f"{_distribution(group, name) or value} adds {name!r} to {group}, which cannot be loaded: "
            f"{type(problem).__name__}: {problem}"
        ) from problem


def _value_in_folders(group: str, name: str) -> str | None:
    """Return what `name` in a group of entry points stands for, as `module:attribute`, where a folder of a distribution says it.

    Nearly all distributions are installed as such folders, and `importlib.metadata`, which knows more forms, takes 3 MB and 50
    modules.
    """
    for place in sys.path:
        try:
            found = [each for each in os.listdir(place or ".") if each.endswith(".dist-info")]
        except OSError:
            continue
        for each in found:
            try:
                with open(os.path.join(place, each, "entry_points.txt"), encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError):
                continue
            if (value := _value(text, group, name)) is not None:
                return value
    return None


def _value_elsewhere(group: str, name: str) -> str | None:
    """Return the same from a distribution in any other form."""
    from importlib.metadata import entry_points

    values = (each.value for each in entry_points(group=group, name=name))
    return next((each.partition("[")[0].strip() for each in values), None)


def _distribution(group: str, name: str) -> str | None:
    """Return the name of the distribution that adds something."""
    from importlib.metadata import entry_points

    return next((each.dist.name for each in entry_points(group=group, name=name) if each.dist is not None), None)


def _value(text: str, group: str, name: str) -> str | None:
    """Return a value of an `entry_points.txt`."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == group:
            key, _, value = line.partition("=")
            if key.strip() == name:
                return value.partition("[")[0].strip() or None  # without the extras that it needs
    return None


def names_added(group: str) -> list[str]:
    """Return the names of what is added to a group, sorted, without loading any of it."""
    from importlib.metadata import entry_points

    return sorted({each.name for each in entry_points(group=group)})
