"""What the page draws of what happens: the newest, in a bounded number, and in view as long as the person looks at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benches import Desk, desk
from http_browser import chromium
from linkspan import Context, Server

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[peers]'")

PATIENCE = 60_000


def talker() -> Server:
    server = Server("talker")

    @server.tool
    async def talk(count: int, ctx: Context) -> str:
        """Log many messages."""
        for number in range(count):
            ctx.info(f"entry {number} of {count}")
        return "done"

    return server


@pytest.fixture
def bench() -> Iterator[Desk]:
    with desk(talker()) as found:
        yield found


@pytest.fixture
def page(bench: Desk) -> Iterator[Any]:
    with chromium() as browser:
        opened = browser.new_page(viewport={"width": 1300, "height": 800})
        opened.set_default_timeout(PATIENCE)
        opened.goto(bench.server.url)
        opened.locator("#list .row").first.wait_for()
        yield opened
        opened.close()


def logged(page: Any, bench: Desk, count: int) -> None:
    """Let the server log, and wait until the last entry is drawn."""
    assert bench.call("talk", {"count": count})["state"] == "done"
    page.locator("#panel-Log .line", has_text=f"entry {count - 1} of {count}").last.wait_for(state="attached")


def is_at_end(page: Any, name: str = "Log") -> bool:
    return bool(
        page.evaluate(
            "(name) => { const panel = document.getElementById(`panel-${name}`);"
            " return panel.scrollTop + panel.clientHeight >= panel.scrollHeight - 2 }",
            name,
        )
    )


def test_the_log_follows_what_is_new_while_the_person_looks_at_its_end(page: Any, bench: Desk) -> None:
    logged(page, bench, 80)
    assert is_at_end(page)
    panel = page.locator("#panel-Log")
    panel.evaluate("(panel) => panel.scrollTo(0, 300)")
    logged(page, bench, 81)
    assert panel.evaluate("(panel) => panel.scrollTop") == 300  # what is read stays where it is
    panel.evaluate("(panel) => panel.scrollTo(0, panel.scrollHeight)")
    logged(page, bench, 82)
    assert is_at_end(page)
    page.get_by_role("tab", name="Messages").click()
    logged(page, bench, 83)
    page.get_by_role("tab", name="Log").click()
    assert is_at_end(page)
    logged(page, bench, 84)
    assert is_at_end(page)


def test_a_message_that_was_opened_stays_in_view(page: Any, bench: Desk) -> None:
    logged(page, bench, 80)
    page.get_by_role("tab", name="Messages").click()
    rows = page.locator("#panel-Messages details")
    rows.nth(20).locator("summary").click()
    rows.nth(20).locator("pre").wait_for()
    before = page.locator("#panel-Messages").evaluate("(panel) => panel.scrollTop")
    logged(page, bench, 81)
    assert page.locator("#panel-Messages").evaluate("(panel) => panel.scrollTop") == before
    assert '"entry ' in rows.nth(20).inner_text()


def test_of_thousands_of_entries_the_newest_are_drawn_and_the_others_counted(page: Any, bench: Desk) -> None:
    logged(page, bench, 3_000)
    for name in ("Log", "Messages"):
        assert page.locator(f"#panel-{name} .line").count() <= 500
        assert "earlier entries are not drawn" in page.locator(f"#panel-{name} > p").text_content()
    page.get_by_label("Filter what happened").fill("entry 2999 of")
    assert page.locator("#panel-Log .line:visible").count() == 1
    page.get_by_role("tab", name="Messages").click()
    assert page.locator("#panel-Messages .line:visible").count() == 1  # its text is in what is not opened


def test_twenty_thousand_lines_on_stderr_are_drawn_in_part(tmp_path: Any) -> None:
    file = tmp_path / "loud.py"
    file.write_text(
        "import sys\nfrom linkspan import Server\nserver = Server('loud')\n@server.tool\ndef shout() -> str:\n"
        "    sys.stderr.write(''.join(f'line {number}\\n' for number in range(20_000)))\n    return 'done'\n"
    )
    with desk(str(file), file=str(file)) as bench, chromium() as browser:
        page = browser.new_page(viewport={"width": 1300, "height": 800})
        page.set_default_timeout(PATIENCE)
        page.goto(bench.server.url)
        page.locator("#list .row").first.wait_for()
        assert bench.call("shout")["state"] == "done"
        page.locator("#panel-Log .line", has_text="line 19999").last.wait_for(state="attached")
        shown = page.locator("#panel-Log").inner_text().splitlines()
        assert len(shown) < 2_500
        assert any("not drawn" in each for each in shown)
        page.close()
