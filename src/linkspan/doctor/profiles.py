"""The hosts that the doctor plays, from `profiles.toml`: data with dates and sources."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Final, Literal

import msgspec

FILE: Final = Path(__file__).with_name("profiles.toml")


class DoctorProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one host did on a date."""

    title: str
    date: date
    source: str
    reaches: tuple[Literal["command", "url"], ...]
    """What it connects to."""
    user_agent: str = ""
    ports: tuple[int, ...] = ()
    """The only ports that it connects to; empty for all."""
    redirect_uris: tuple[str, ...] = ()
    """Where it lets people come back from a login."""
    client_document: str = ""
    """The URL of the document with which it presents itself to an authorization server."""
    public: bool = False
    """Whether it connects from the internet."""
    first_answer: float = 60.0
    """Seconds that it waits for the first answer."""
    longest_name: int = 64
    most_tools: int | None = None
    most_tokens: int = 10_000
    audience: str = ""
    """Its name among the audiences of `linkspan lint`."""
    section: str = ""
    """Where its configuration lists servers."""
    json: Literal["strict", "comments"] = "strict"
    path: Literal["small", "whole"] = "whole"
    """Whether it gives servers a small PATH."""
    expands: bool = True
    """Whether it fills in `${NAME}` in its configuration."""


class InvalidProfiles(ValueError):
    """A file of profiles cannot be used; the message is why."""


def profiles(file: Path = FILE) -> Mapping[str, DoctorProfile]:
    """Return the hosts of a file by their names. Raises: InvalidProfiles."""
    import tomllib

    try:
        found = tomllib.loads(file.read_text("utf-8"))
        return msgspec.convert(found, dict[str, DoctorProfile])
    except (OSError, ValueError) as problem:
        raise InvalidProfiles(f"{file.name}: {problem}") from None
