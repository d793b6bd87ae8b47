"""Texts of strangers, made harmless."""

from __future__ import annotations

import json

import pytest

from linkspan.cli.terminal import dump
from linkspan.wire.plain import neutral, neutral_json, one_line

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
