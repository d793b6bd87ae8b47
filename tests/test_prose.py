"""The prose of the documents: sentences that are read once. Long ones, and those with passive upon passive, are listed.

`tests/test_words.py` refuses odd forms; this is about style and spelling. Spelling is tested; run this file as a script to list
the sentences, which nothing bounds.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "examples" / "README.md",
    ]
)

LONGEST = 30
"""Words of a sentence."""
PASSIVES = 2
"""Passive verbs of a sentence."""

KNOWN_WORDS = "discreet,iterm,te"
"""Right words that codespell takes for mistakes."""

_FENCE = re.compile(r"^ *(?:```|<!--).*?^ *(?:```|.*-->)$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"``[^`]+``|`[^`\n]*`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+", re.MULTILINE)
_END = re.compile(r"(?<=[.!?:;])[)\"*]*\s+(?=[A-Z`*(\"'\d])")
_IRREGULAR = (
    "built|bound|brought|chosen|done|drawn|driven|found|forgotten|given|held|hidden|kept|known|left|lost|made|meant|met|paid|"
    "put|read|run|seen|sent|set|shown|spoken|spent|taken|thrown|told|understood|won|written|begun|broken|cut|fed|got|sold|split"
)
_PASSIVE = re.compile(
    rf"\b(?:is|are|was|were|be|been|being|gets?)\s+(?:\w+ly\s+|not\s+|also\s+|only\s+)?(?:\w+ed|{_IRREGULAR})\b"
)


class Finding(NamedTuple):
    """A sentence to reword."""

    place: str
    why: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.place}: {self.why}: {self.sentence}"


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a Markdown text with their lines. Code, tables, headings and quoted sources are left out."""
    text = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    lines = ["" if each.lstrip().startswith(("|", "#", ">", "[!")) else each for each in text.split("\n")]
    at = 1
    for paragraph in re.split(r"\n(?=\s*\n)|\n(?=\s*(?:[-*]|\d+\.)\s)", "\n".join(lines)):
        plain = _ITEM.sub("", _LINK.sub(r"\1", _CODE.sub("`code`", paragraph)))
        for sentence in _END.split(" ".join(plain.split())):
            if sentence:
                yield at + len(paragraph) - len(paragraph.lstrip("\n")), sentence
        at += paragraph.count("\n") + 1


def findings(name: str, text: str) -> Iterator[Finding]:
    """Yield the sentences that are too long, or too passive."""
    for line, sentence in sentences(text):
        words = len(re.findall(r"[\w`'.-]+", sentence))
        passives = len(_PASSIVE.findall(sentence))
        if words > LONGEST:
            yield Finding(f"{name}:{line}", f"{words} words", sentence)
        elif passives > PASSIVES:
            yield Finding(f"{name}:{line}", f"{passives} passives", sentence)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_no_word_is_misspelled() -> None:
    pytest.importorskip("codespell_lib", reason="codespell is not installed: pip install '.[dev]'")
    places = [*map(str, PAGES), *(str(path) for path in (ROOT / "src").rglob("*.py"))]
    ignored = r"\[\w+\]\w+"  # and keys to press, such as [m]ore
    command = [sys.executable, "-m", "codespell_lib", "-L", KNOWN_WORDS, "--ignore-regex", ignored, *places]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A word. Word " + "word " * 28 + "end.", []),
        ("A word. Word " + "word " * 29 + "end.", ["31 words"]),
        ("It is read, is not written, and the file is kept.", ["3 passives"]),
        ("It is read, and the file is kept.", []),
        ("| " + "word " * 40 + "|", []),
        ("```\n" + "word " * 40 + "\n```", []),
        ("- " + "one " * 20 + "\n- " + "two " * 20, []),
    ],
)
def test_the_sentences_are_found(text: str, why: list[str]) -> None:
    assert [each.why for each in findings("here", text)] == why


if __name__ == "__main__":
    for page in PAGES:
        print(*findings(name_of(page), page.read_text()), sep="\n")
