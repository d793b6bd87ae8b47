"""Takes the pictures of the pages: `python docs/pictures.py` serves what the tutorials write, and photographs it in Chromium."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests"))

from http_browser import chromium  # noqa: E402
from ports import reserve_port  # noqa: E402
from tutorials import BLOCK, PORT, write_file  # noqa: E402

PICTURES = DOCS / "pictures"


@contextmanager
def serving(page: Path, file: str) -> Iterator[str]:
    """Serve a file that a tutorial writes. Yields its URL."""
    with TemporaryDirectory() as folder:
        for block in BLOCK.finditer(page.read_text()):
            write_file(block, Path(folder), PORT)
        command = [sys.executable, "-m", "linkspan", "run", "--http", "--port", str(reserve_port()), file]
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            try:
                yield server.stderr.readline().split()[-1]
            finally:
                server.terminate()


def main() -> None:
    """Take all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with serving(DOCS / "tutorial-1-server.md", "ferries.py") as url, chromium() as browser:
        page = browser.new_page(viewport={"width": 760, "height": 1200}, color_scheme="light")
        page.goto(url)
        tool = page.locator(".item", has=page.get_by_role("heading", name="departures", exact=True))
        tool.locator("> summary").click()
        tool.locator("li[data-name=port]").locator("textarea, input").fill("Oban")
        tool.get_by_role("button", name="Call", exact=True).click()
        tool.get_by_text("18:00").first.wait_for()
        page.evaluate("document.activeElement.blur()")
        page.evaluate(
            "port => { document.querySelector('pre code, pre').textContent = `http://127.0.0.1:${port}/mcp` }", PORT
        )
        end = tool.evaluate("element => element.getBoundingClientRect().bottom")
        page.screenshot(path=PICTURES / "tutorial-server.png", clip={"x": 0, "y": 0, "width": 760, "height": end + 30})


if __name__ == "__main__":
    main()
