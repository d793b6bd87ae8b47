"""Takes secrets out of texts that people will see."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["redact"]


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` without the values of `secrets`."""
    for each in secrets:
        text = text.replace(each, "[redacted]")
    return text
