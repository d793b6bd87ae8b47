"""Texts of strangers, made harmless."""

from __future__ import annotations

import json

import pytest

from linkspan.cli.terminal import dump
from linkspan.wire.redaction import hidden, neutral, neutral_json, one_line, revealed, revealed_line

HIDDEN = "".join(chr(0xE0000 + ord(each)) for each in "obey")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with\ttabs\nand lines", "plain, with\ttabs\nand lines"),
        ("Grüße, 数, 🎲", "Grüße, 数, 🎲"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\r\nb\rc", "a\nb\\x0dc"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud800", "\\ud800"),
        (HIDDEN[0], "\\U000e006f"),
    ],
)
def test_what_would_command_or_hide_is_written_out(text: str, shown: str) -> None:
    assert neutral(text) == shown


def test_names_in_json_are_neutralised_too() -> None:
    assert neutral_json({"\x1b": ["\x07", 1, None, {"a": "\x00"}]}) == {"\\x1b": ["\\x07", 1, None, {"a": "\\x00"}]}


def test_one_line_is_one_line_of_bounded_length() -> None:
    assert one_line("a\n  b\x1b", 0) == "a b\\x1b"
    assert one_line("abcdefgh", 6) == "abc..."


@pytest.mark.parametrize("text", ["\x1b\x7f\x9b\u202e", HIDDEN])
def test_dumped_json_is_the_same_value_with_nothing_to_obey(text: str) -> None:
    dumped = dump(text)
    assert json.loads(dumped) == text
    assert dumped.isascii()


INVISIBLE = (
    "\u200b\u200c\u200d\u2060\u2028\u2029\ufeff\ufe00\ufe0f\U000e0100\U000e01ef"
    "\xad\u034f\u061c\u3164\u115f\u180e\u2064\ufff9"
)


@pytest.mark.parametrize("letter", INVISIBLE)
def test_what_an_eye_does_not_see_is_escaped(letter: str) -> None:
    escaped = letter.encode("ascii", "backslashreplace").decode()
    for show in (neutral, revealed):
        assert show(f"rm{letter} -rf") == f"rm{escaped} -rf"
        assert show(f"delete{letter}all") == f"delete{escaped}all"
    assert revealed_line(f"{letter}rm \n -rf{letter}") == f"{escaped}rm -rf{escaped}"
    assert dump(f"a{letter}") == dump(f"a{letter}", reveal=True)
    assert json.loads(dump({letter: letter})) == {letter: letter}


@pytest.mark.parametrize("letter", "\u2800\xa0\u202f\u2003\u3000\u1680\u2000\u200a\u205f")
def test_what_looks_like_a_space_is_escaped_where_people_decide(letter: str) -> None:
    escaped = letter.encode("ascii", "backslashreplace").decode()
    assert revealed(f"rm{letter}-rf") == f"rm{escaped}-rf"
    assert revealed_line(f"{letter}rm \n -rf{letter}") == f"{escaped}rm -rf{escaped}"
    shown = dump({f"a{letter}": letter}, None, reveal=True)
    assert shown.isascii()
    assert json.loads(shown) == {f"a{letter}": letter}
    assert neutral(f"10{letter}000") == f"10{letter}000"  # elsewhere it is how people write
    assert letter in dump(f"10{letter}000")


WRITTEN = {
    "a heart as emoji": "I \u2764\ufe0f it",
    "a heart as text": "I \u2764\ufe0e it",
    "a burning heart": "\u2764\ufe0f\u200d\U0001f525",
    "a family": "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "a keycap": "press 1\ufe0f\u20e3",
    "copyright": "\xa9\ufe0f",
    "Persian": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "Hindi": "\u0915\u094d\u200d\u0937",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_people_read_emoji_and_words_as_they_are_written_and_approve_what_is_there(name: str) -> None:
    text = WRITTEN[name]
    assert neutral(text) == one_line(text) == neutral_json(text) == text
    assert dump(text) == f'"{text}"'
    shown = [revealed(text), revealed_line(text), dump(text, reveal=True)]
    assert all(each.isprintable() and not hidden().search(each) for each in shown)
    assert json.loads(shown[2]) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u2764\ufe0f\ufe0f", "\u2764\ufe0f\\ufe0f"),
        ("\u2764\ufe0f\U000e0101", "\u2764\ufe0f\\U000e0101"),
        ("\u2764\ufe01", "\u2764\\ufe01"),
        ("1\ufe0f", "1\\ufe0f"),
        ("\ufe0f", "\\ufe0f"),
        ("\U0001f469\u200d", "\U0001f469\\u200d"),
        ("\u200d\U0001f469", "\\u200d\U0001f469"),
        ("\u06cc\u200c\u200c\u062e", "\u06cc\\u200c\\u200c\u062e"),
        ("\u06cc\u200c ", "\u06cc\\u200c "),
        ("</\u200dtool_output>", "</\\u200dtool_output>"),
    ],
)
def test_a_joiner_or_selector_out_of_its_place_is_escaped(text: str, shown: str) -> None:
    assert neutral(text) == shown


def test_a_part_of_a_text_is_shown_as_it_would_be_in_the_whole() -> None:
    whole = "\u2764\ufe0f\u200d\U0001f525 \u06cc\u200c\u062e \u2764\ufe0f\ufe0f 1\ufe0f\u20e3"
    for at in range(1, len(whole)):
        if whole[at - 1] in "\u200c\u200d" or whole[at - 1 : at + 1] == "\ufe0f\u20e3":
            continue  # what follows decides, so it is not written before that is there
        assert neutral(whole[:at]) + neutral(whole[at:], whole[max(0, at - 2) : at]) == neutral(whole)


def test_all_that_unicode_calls_default_ignorable_is_hidden() -> None:
    """https://www.unicode.org/Public/UCD/latest/ucd/DerivedCoreProperties.txt"""
    from sys import maxunicode
    from unicodedata import category

    seen = {"Cf", "Zl", "Zp", "Cc", "Cs"}
    signs = [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)]
    for number in range(maxunicode + 1):
        if category(chr(number)) in seen and number not in (9, 10, *signs):
            assert hidden().match(chr(number)), hex(number)
