"""Every Python block in the documents runs, page by page, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from linkspan import reset_configuration

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_on_the_page_runs(page: Path) -> None:
    names: dict[str, object] = {"__name__": "page"}
    try:
        for block in BLOCK.finditer(page.read_text()):
            line = page.read_text()[: block.start()].count("\n") + 1
            exec(compile("\n" * line + block.group(1), str(page), "exec"), names)
    finally:
        reset_configuration()
