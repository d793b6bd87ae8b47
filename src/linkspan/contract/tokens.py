"""How many tokens of a model a text takes: one estimate for each place that shows one, where it is marked with `~`.

Measured with 35 tools of 8 examples: 9,350 bytes of compact JSON were 2,122 tokens of o200k, 4.4 bytes each. Other letters than
Latin ones take two bytes or three in UTF-8, and about one token for each letter.
"""

from __future__ import annotations

import json
from typing import Final

from linkspan.text import counted
from linkspan.types.base import JSON

BYTES_PER_TOKEN: Final = 4.4
OTHER_BYTES_PER_TOKEN: Final = 2.2
"""For letters outside of ASCII."""


def tokens_of(value: JSON) -> int:
    """Return about how many tokens a text, or JSON without spaces, takes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    whole = len(text.encode("utf-8", "surrogatepass"))
    plain = sum(each.isascii() for each in text)
    return round(plain / BYTES_PER_TOKEN + (whole - plain) / OTHER_BYTES_PER_TOKEN)


def token_words(count: int) -> str:
    """Return a number of tokens as people read it: `~1,240 tokens`."""
    return f"~{counted(count, 'token')}"
