"""Takes the pictures of the pages: `python docs/pictures.py`.

It serves what the tutorials write and takes screenshots in Chromium, and draws terminals from the sessions on the pages, which
the tests hold true.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import escape

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests"))

from http_browser import chromium  # noqa: E402
from ports import reserve_port  # noqa: E402
from tutorials import BLOCK, PORT, write_file  # noqa: E402

PICTURES = DOCS / "pictures"
TYPED_TEXT = re.compile(r"^(\$ |> |.*\[n\]o: )(.+)$")
BUTTONS = ((22, "#ff5f57"), (42, "#febc2e"), (62, "#28c840"))


@contextmanager
def serving(page: Path, file: str) -> Iterator[str]:
    """Serve a file that a tutorial writes. Yields its URL."""
    with TemporaryDirectory() as folder:
        for block in BLOCK.finditer(page.read_text()):
            write_file(block, Path(folder), PORT)
        command = [
            sys.executable,
            "-m",
            "linkspan",
            "run",
            "--http",
            "--port",
            str(reserve_port()),
            file,
        ]
        with subprocess.Popen(
            command, cwd=folder, stderr=subprocess.PIPE, text=True
        ) as server:
            assert server.stderr is not None
            try:
                yield server.stderr.readline().split()[-1]
            finally:
                server.terminate()


def drawn(session: str) -> str:
    """Return a terminal with a session as SVG. What is typed is bright."""
    lines = session.rstrip("\n").split("\n")
    wide, high = max(map(len, lines)) * 7.85 + 40, len(lines) * 18 + 58
    rows = []
    for number, line in enumerate(lines):
        shown, typed = (
            found.groups() if (found := TYPED_TEXT.match(line)) else (line, "")
        )
        words = (
            f'{escape(shown)}<tspan class="typed">{escape(typed)}</tspan>'
            if typed
            else escape(shown)
        )
        rows.append(
            f'<text x="20" y="{number * 18 + 56}" xml:space="preserve">{words}</text>'
        )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" role="img">',
            "<style>text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #c9d1d9 }",
            ".typed { fill: #7ee787; font-weight: 600 }</style>",
            f'<rect width="{wide:.0f}" height="{high}" rx="10" fill="#0d1117"/>',
            *(f'<circle cx="{x}" cy="20" r="6" fill="{fill}"/>' for x, fill in BUTTONS),
            *rows,
            "</svg>\n",
        ]
    )


def chat() -> str:
    """Return the picture of the chat of the tutorial, up to its first answer."""
    blocks = BLOCK.finditer((DOCS / "tutorial-3-chat.md").read_text())
    session = next(
        each["text"]
        for each in blocks
        if "linkspan chat" in each["text"] and each["kind"] == "console"
    )
    return drawn(session.partition("\n> yes")[0])


def main() -> None:
    """Take all pictures."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "chat.svg").write_text(chat())
    with (
        serving(DOCS / "tutorial-1-server.md", "ferries.py") as url,
        chromium() as browser,
    ):
        page = browser.new_page(
            viewport={"width": 760, "height": 1200}, color_scheme="light"
        )
        page.goto(url)
        tool = page.locator(
            ".item", has=page.get_by_role("heading", name="departures", exact=True)
        )
        tool.locator("> summary").click()
        tool.locator("li[data-name=port]").locator("textarea, input").fill("Oban")
        tool.get_by_role("button", name="Call", exact=True).click()
        tool.get_by_text("18:00").first.wait_for()
        page.evaluate("document.activeElement.blur()")
        page.evaluate(
            "port => { document.querySelector('pre code, pre').textContent = `http://127.0.0.1:${port}/mcp` }",
            PORT,
        )
        end = tool.evaluate("element => element.getBoundingClientRect().bottom")
        page.screenshot(
            path=PICTURES / "tutorial-server.png",
            clip={"x": 0, "y": 0, "width": 760, "height": end + 30},
        )


def workbench() -> None:
    """Take the picture of the workbench, with a crash on its call."""
    with TemporaryDirectory() as folder, chromium() as browser:
        for block in BLOCK.finditer((DOCS / "tutorial-1-server.md").read_text()):
            write_file(block, Path(folder), PORT)
        command = [
            sys.executable,
            "-m",
            "linkspan",
            "dev",
            "--no-open",
            "--no-history",
            "--port",
            str(reserve_port()),
            "ferries.py",
        ]
        with subprocess.Popen(
            command, cwd=folder, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            url = process.stderr.readline().split()[-1]
            page = browser.new_page(
                viewport={"width": 1280, "height": 640}, color_scheme="light"
            )
            page.goto(url)
            page.locator("#list .row").first.click()
            page.locator("#work textarea").first.fill("Atlantis")
            page.locator("#work form button[type=submit]").click()
            page.locator("#work .out .good, #work .out .bad").first.wait_for()
            page.evaluate("document.activeElement.blur()")
            page.screenshot(path=PICTURES / "dev.png")
            process.terminate()


if __name__ == "__main__":
    main()
    workbench()
