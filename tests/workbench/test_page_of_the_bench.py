"""The workbench in a headless Chromium, as its user sees it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_bench import SOURCE, harbour

from benches import Desk, desk
from http_browser import chromium
from linkspan import Context, Server
from linkspan.testing.recorder import read_transcript

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[peers]'")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def bench() -> Iterator[Desk]:
    with desk(harbour()) as found:
        yield found


@pytest.fixture
def page(browser: Any, bench: Desk) -> Iterator[Any]:
    """The page, just opened. Whatever the browser complains of fails the test."""
    context = browser.new_context(viewport={"width": 1300, "height": 800})
    context.set_default_timeout(20_000)
    opened, complaints = context.new_page(), []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(bench.server.url)
    opened.locator("#list .row").first.wait_for()
    yield opened
    context.close()
    assert complaints == []


def choose(page: Any, name: str) -> None:
    page.locator("#list .row", has=page.locator(f"code:text-is('{name}')")).click()
    page.locator("#work h2 code", has_text=name).wait_for()


def test_a_tool_is_called_and_everything_that_happened_is_shown(page: Any) -> None:
    assert "#t=" not in page.url  # the key is not in what a screenshot or a history shows
    choose(page, "tide")
    page.locator("#work li[data-name=port] textarea").fill("Oban")
    page.keyboard.press("Enter")
    page.locator("#work .out .good").wait_for()
    assert "port: " in page.locator("#work .out .tree").inner_text()
    page.get_by_role("tab", name="Messages").click()
    row = page.locator("#panel-Messages details", has_text="tools/call").last
    assert re.search(r"[\d.]+ ms · [\d,]+ bytes", row.locator(".facts").inner_text())
    page.get_by_role("tab", name="History").click()
    assert "tide" in page.locator("#panel-History").inner_text()
    page.locator("#work").get_by_role("button", name="pytest").click()
    page.locator("#work pre", has_text="def test_tide() -> None:").wait_for()


def test_a_question_appears_where_the_person_works(page: Any) -> None:
    choose(page, "book")
    page.locator("#work li[data-name=date] textarea").fill("today")
    page.locator("#work article form button[type=submit]").click()
    page.locator(".asked", has_text="How many seats?").wait_for()
    page.locator(".asked input").fill("3")
    page.get_by_role("button", name="Answer").click()
    page.locator("#work .out", has_text="3 seats on today").wait_for()
    assert page.locator(".asked").count() == 0


def test_both_eras_are_compared(page: Any) -> None:
    choose(page, "tide")
    page.locator("#work li[data-name=port] textarea").fill("Mull")
    page.get_by_label("Revision").select_option("both")
    page.locator("#work article form button[type=submit]").click()
    page.get_by_text("Both answers say the same.").wait_for()
    assert page.locator(".pair h3").all_inner_texts()[0].endswith(", 2026-07-28")


def test_what_the_schema_refuses_can_be_sent_on_purpose(page: Any) -> None:
    choose(page, "tide")
    page.get_by_role("button", name="Edit as JSON").click()
    page.get_by_label("The arguments as JSON").fill('{"port": 5}')
    page.locator("#work article form button[type=submit]").click()
    page.locator("#work .out .bad").first.wait_for()
    assert "port" in page.locator("#work .out").inner_text()


def test_a_reload_of_the_page_shows_what_happened_before(page: Any, bench: Desk) -> None:
    made = bench.call("tide", {"port": "Rum"})
    page.reload()
    page.locator("#list .row").first.wait_for()
    page.get_by_role("tab", name="Messages").click()
    page.locator("#panel-Messages details", has_text="tools/call").first.wait_for()
    page.get_by_role("tab", name="History").click()
    page.locator("#panel-History", has_text="Rum").wait_for()
    assert made["state"] == "done"


def test_what_was_agreed_on_is_shown_and_what_happened_is_cleared_and_saved(page: Any, tmp_path: Path) -> None:
    page.locator("summary", has_text="Connection").click()
    shown = page.locator("header .menu[open]").inner_text()
    assert '"listChanged": true' in shown
    assert '"revision": "2026-07-28"' in shown
    page.locator("summary", has_text="Connection").click()
    page.locator("#panel-Log", has_text="ready").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save").click()
    download.value.save_as(tmp_path / "dev.transcript")
    assert [each.side for each in read_transcript(tmp_path / "dev.transcript")][:2] == ["client", "server"]
    page.get_by_role("button", name="Clear").click()
    assert page.locator("#panel-Log").inner_text() == ""


def test_a_phone_shows_one_pane_at_a_time_without_scrolling_sideways(browser: Any, bench: Desk) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 640}, is_mobile=True, color_scheme="dark")
    page = context.new_page()
    page.goto(bench.server.url)
    page.locator("#list .row").first.click()
    for pane in ("Offers", "Call", "Happened"):
        page.get_by_role("button", name=pane, exact=True).click()
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.locator("main > section:visible").count() == 1
    context.close()


def test_the_whole_task_needs_no_mouse(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("tide")
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.className") != "row":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("#work li[data-name=port] textarea").wait_for()
    for _ in range(40):
        if page.evaluate("document.activeElement.tagName") == "TEXTAREA":
            break
        page.keyboard.press("Tab")
    page.keyboard.type("Skye")
    page.keyboard.press("Enter")
    page.locator("#work .out .good").wait_for()


def test_a_save_shows_what_changed_and_keeps_what_was_typed(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "ferries.py"
    file.write_text(SOURCE)
    with desk(str(file), file=str(file)) as found:
        page = browser.new_page()
        page.goto(found.server.url)
        choose(page, "departures")
        page.locator("#work li[data-name=port] textarea").fill("Oban")
        more = "\n@server.tool\ndef fares() -> int:\n    return 4\n"
        file.write_text(SOURCE.replace("port: str", "port: str, day: str = 'today'") + more)
        page.locator("#list .mark.plus").wait_for()
        page.locator("#work li[data-name=day]").wait_for()
        assert page.locator("#work li[data-name=port] textarea").input_value() == "Oban"
        file.write_text(SOURCE + "\n(((")
        page.locator(".problem", has_text="SyntaxError").wait_for()
        file.write_text(SOURCE)
        page.locator(".state.ready").wait_for()
        page.close()


def test_a_task_shows_its_state_asks_and_is_cancelled_and_a_resource_tells_of_changes(browser: Any) -> None:
    server = Server("jobs", store="memory:")
    levels = {"tide": "low"}

    @server.tool(task=True)
    async def bake(ctx: Context) -> str:
        """Bake bread."""
        return f"{await ctx.ask('count', int, 'How many loaves?')} loaves"

    @server.tool(task=True)
    async def sleep() -> None:
        """Sleep for long."""
        try:
            await asyncio.sleep(600)
        finally:
            levels["sleep"] = "over"

    @server.resource("tide://now")
    def tide() -> str:
        """The tide."""
        return levels["tide"]

    with desk(server) as found:
        page = browser.new_page()
        page.set_default_timeout(40_000)
        page.goto(found.server.url)
        choose(page, "bake")
        page.locator("#work article form button[type=submit]").click()
        page.locator(".asked input").fill("3")
        page.get_by_role("button", name="Answer").click()
        page.locator("#work .out", has_text="3 loaves").wait_for()
        choose(page, "sleep")
        page.locator("#work article form button[type=submit]").click()
        page.locator("#work .out", has_text="working").wait_for()
        page.get_by_role("button", name="Cancel the task").click()
        page.locator("#work .out", has_text="Stopped").wait_for()
        found.until(lambda: levels.get("sleep") == "over")
        choose(page, "tide://now")
        page.get_by_role("button", name="Subscribe").click()
        page.get_by_role("button", name="Unsubscribe").wait_for()
        found.until(lambda: server.notify_resource_updated("tide://now") or found.events("changed"))
        page.locator("#panel-Log", has_text="tide://now has changed").wait_for()
        page.close()


def test_without_its_key_the_page_shows_nothing(browser: Any, bench: Desk) -> None:
    page = browser.new_page()
    page.goto(bench.server.url.partition("#")[0])
    page.get_by_text("Open the address that the terminal shows").wait_for()
    assert "harbour" not in page.content()
    page.close()
