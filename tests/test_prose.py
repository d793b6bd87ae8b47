"""The prose of the documents: sentences that are read once. Long ones, and those with passive upon passive, are counted by page.

`tests/test_words.py` refuses odd forms; this is about style and spelling. The counts may only
fall. Run it as a script to list them.
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

KNOWN_WORDS = "discreet,iterm"
"""Right words that codespell takes for mistakes."""

BOUNDS: dict[str, int] = {
    "CHANGELOG.md": 10,
    "docs/architecture.md": 5,
    "docs/arguments.md": 2,
    "docs/around-a-call.md": 1,
    "docs/asking.md": 1,
    "docs/changes.md": 1,
    "docs/command-line.md": 2,
    "docs/decisions/0001-msgspec.md": 3,
    "docs/decisions/0002-json-schema-validator.md": 1,
    "docs/decisions/0003-sealing-request-state.md": 1,
    "docs/decisions/0005-wrapped-results.md": 2,
    "docs/decisions/0006-http-client.md": 4,
    "docs/decisions/0007-http-server.md": 6,
    "docs/decisions/0008-what-tests-install.md": 1,
    "docs/decisions/0009-host-and-origin-by-default.md": 2,
    "docs/decisions/0010-only-what-was-asked.md": 3,
    "docs/decisions/0012-opentelemetry-api.md": 1,
    "docs/decisions/0013-prometheus-client.md": 3,
    "docs/decisions/0014-stores.md": 1,
    "docs/decisions/0016-postgresql.md": 1,
    "docs/decisions/0017-nats.md": 1,
    "docs/decisions/0019-no-authorization-server.md": 2,
    "docs/decisions/0020-joserfc.md": 3,
    "docs/decisions/0021-rich-and-no-prompt-toolkit.md": 2,
    "docs/decisions/0022-codes-of-errors.md": 1,
    "docs/decisions/0023-no-experimental-tasks.md": 1,
    "docs/decisions/0026-celery.md": 1,
    "docs/engines.md": 1,
    "docs/host.md": 1,
    "docs/http.md": 2,
    "docs/lifespan.md": 5,
    "docs/notebooks.md": 1,
    "docs/page.md": 4,
    "docs/protecting-a-server.md": 1,
    "docs/stores.md": 2,
    "docs/tasks.md": 3,
    "docs/telemetry.md": 1,
    "docs/visibility.md": 2,
}
"""Sentences of each page that are too long or too passive. May only fall: reword, then lower the bound."""
NEW = 4
"""The bound of a page that is not in the table."""

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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_sentences_that_are_too_long_or_passive_only_become_fewer(page: Path) -> None:
    found = list(findings(name_of(page), page.read_text()))
    assert len(found) <= BOUNDS.get(name_of(page), NEW), "\n".join(map(str, found))


def test_every_bound_is_of_a_page() -> None:
    assert BOUNDS.keys() <= {name_of(page) for page in PAGES}


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
    counts: dict[str, int] = {}
    for page in PAGES:
        found = list(findings(name_of(page), page.read_text()))
        counts[name_of(page)] = len(found)
        print(*found, sep="\n", end="\n" if found else "")
    print({name: count for name, count in counts.items() if count})
