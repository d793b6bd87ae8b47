r"""Escape control and invisible characters in untrusted text: what a terminal obeys or an eye does not see becomes `\x1b`.

`neutral` is for reading: it leaves what people write with such characters, emoji and words with joiners, as it is. `revealed` is
for approvals: there is nothing in what will be sent that is not seen.
"""

from __future__ import annotations

import re
from typing import Final

from linkspan.text import clip
from linkspan.types.base import JSON, is_array, is_object

__all__ = ["HIDDEN", "belongs", "neutral", "neutral_json", "one_line", "revealed", "revealed_line"]

HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""C0 except tab and newline, DEL and C1; line and paragraph separators; what turns the direction of text (Trojan Source);
halves of characters; and all that Unicode calls default ignorable: zero-width characters, joiners, fillers, variation selectors,
tags, which people do not see and models read. https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point"""

_JOINERS: Final = "\u200c\u200d"
_PRESENTATION: Final = "\ufe0e\ufe0f"
"""The variation selectors that choose text or emoji."""
_EMOJI: Final = re.compile(
    "[\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
"""Blocks in which emoji are, and few letters."""
_KEYCAP: Final = "\u20e3"


def neutral(text: str, before: str = "") -> str:
    r"""Return a text with every command and every hidden character written as `\x1b` or `\u202e`.

    `before` is what came before the text, if it is a part of a longer one: two characters are enough.
    """
    text = text.replace("\r\n", "\n")
    whole, shift = (before + text, len(before)) if before else (text, 0)
    return HIDDEN.sub(lambda found: found[0] if belongs(whole, found.start() + shift) else _escape(found), text)


def revealed(text: str) -> str:
    """Return a text with every command and every hidden character escaped, those too that `neutral` leaves."""
    return HIDDEN.sub(_escape, text.replace("\r\n", "\n"))


def neutral_json(value: JSON) -> JSON:
    """Return a JSON value with all its texts, names included, neutralised."""
    if isinstance(value, str):
        return neutral(value)
    if is_array(value):
        return [neutral_json(each) for each in value]
    if is_object(value):
        return {neutral(key): neutral_json(each) for key, each in value.items()}
    return value


def one_line(text: str, limit: int = 0) -> str:
    """Return a text, neutralised, on one line; of at most `limit` characters if that is not 0."""
    found = neutral(" ".join(text.split()))
    return clip(found, limit, "...") if limit else found


def revealed_line(text: str, limit: int = 0) -> str:
    """Return a text on one line with nothing hidden: see `revealed`."""
    found = " ".join(re.split(r"[ \t\n]+", revealed(text).strip(" \t\n")))
    return clip(found, limit, "...") if limit else found


def belongs(text: str, place: int) -> bool:
    """Return whether the hidden character at `place` is one that people write: after an emoji, or inside a word."""
    letter, last, following = text[place], text[place - 1 : place], text[place + 1 : place + 2]
    if letter in _PRESENTATION:
        return _is_emoji(last) or (following == _KEYCAP and last != "" and last in "0123456789#*")
    if letter not in _JOINERS or not last or not following:
        return False
    if _is_emoji(following):
        return _is_emoji(last) or (last == _PRESENTATION[1] and _is_emoji(text[place - 2 : place - 1]))
    return _is_of_a_word(last) and _is_of_a_word(following)


def _is_emoji(letter: str) -> bool:
    return _EMOJI.match(letter) is not None


def _is_of_a_word(letter: str) -> bool:
    """Return whether that is a letter, or a mark on one, outside ASCII, whose words need no joiners."""
    from unicodedata import category

    return not letter.isascii() and category(letter)[0] in "LM" and HIDDEN.match(letter) is None


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
