"""What a check finds: that a requirement is not met, or that it is not about this server."""

from __future__ import annotations

from typing import NoReturn


class Unmet(Exception):
    """A server does not meet a requirement. Its text is the evidence: what was sent, and what came."""


class NotApplicable(Exception):
    """A requirement is about what this server does not have. Its text names what is missing."""


def expect(met: bool, evidence: str) -> None:
    """Raise what a server did instead if it does not meet a requirement. Raises: Unmet."""
    if not met:
        raise Unmet(evidence)


def not_applicable(why: str) -> NoReturn:
    """Leave a requirement out. Raises: NotApplicable."""
    raise NotApplicable(why)
