"""The tutorials, carried out as a reader does: files are written, commands typed, and what they show is on the page."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
TUTORIALS = sorted(DOCS.glob("tutorial-*.md"))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_works_as_it_is_typed(page: Path, tmp_path: Path) -> None:
    from tutorials import carry_out

    carry_out(page, tmp_path, [each for each in TUTORIALS if each < page])


def test_the_picture_of_the_chat_shows_what_the_tutorial_shows() -> None:
    picture = (DOCS / "pictures" / "chat.svg").read_text()
    shown = [re.sub(r"<.*?>", "", line) for line in picture.splitlines() if line.startswith("<text")]
    tutorial = (DOCS / "tutorial-3-chat.md").read_text().replace(">", "&gt;").replace("<", "&lt;")
    assert [line for line in shown if line not in tutorial] == [], "run python docs/pictures.py"


def test_a_duration_is_no_difference_whatever_its_unit() -> None:
    from tutorials import VARIES, pattern_of

    shown = VARIES.sub("N", "<- departures after 1.2 s: []\n3 passed in 12.01s\n")
    assert re.fullmatch(pattern_of(["<- departures after 7.3 ms: []", "3 passed in 0.27s"]), shown)
    assert not re.fullmatch(pattern_of(["<- departures after 7.3 minutes: []", "3 passed in 0.27s"]), shown)
