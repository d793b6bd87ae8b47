"""The page about HTTP names every setting, with the default that it has."""

from __future__ import annotations

import re
from pathlib import Path

from linkspan.core.http_checks import HttpPolicy

PAGE = (Path(__file__).parents[3] / "docs" / "http.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| `?([^|`]+?)`? \|", re.MULTILINE)
UNITS = {"s": 1, "ms": 1, "KiB": 1024, "MiB": 1024 * 1024}


def value(text: str) -> object:
    """Read a default as the page writes it."""
    if text in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[text]
    number, _, unit = text.replace("10 000", "10000").partition(" ")
    return int(number) * UNITS.get(unit, 1)


def test_every_setting_is_on_the_page_with_its_default() -> None:
    policy = HttpPolicy()
    settings = {name: getattr(policy, name) for name in HttpPolicy.__struct_fields__}
    assert {name: value(default) for name, default in ROW.findall(PAGE)} == settings
