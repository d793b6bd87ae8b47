"""What a person sees of calls on the page of the workbench: in a headless Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import linkspan
from benches import Desk, desk
from http_browser import chromium
from linkspan import Server

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[peers]'")

LARGE = 9007199254740993
"""The first whole number that a number of JavaScript cannot be."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens the page of a workbench. Whatever the browser complains of fails the test."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def visit(bench: Desk) -> Any:
        contexts.append(context := browser.new_context(viewport={"width": 1300, "height": 900}))
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(bench.server.url)
        page.locator("#list .row").first.wait_for()
        return page

    yield visit
    for each in contexts:
        each.close()
    assert complaints == []


def choose(page: Any, name: str) -> None:
    page.locator("#list .row", has=page.locator(f"code:text-is('{name}')")).click()
    page.locator("#work h2 code", has_text=name).wait_for()


def send(page: Any) -> None:
    page.locator("#work article form button[type=submit]").click()


class TestWholeNumbers:
    """A whole number is what it was, however large: in what is sent, in what comes back, and in what is kept."""

    def test_a_large_one_is_sent_and_shown_as_it_is(self, opened: Any) -> None:
        server, seen = Server("numbers"), list[Any]()

        @server.tool(annotations={"read_only_hint": True})
        def twice(number: int, more: list[int] | None = None) -> dict[str, Any]:
            seen.append((number, more))
            return {"number": number, "after": number + 1, "rows": [{"n": number}, {"n": 2**64}]}

        with desk(server) as bench:
            page = opened(bench)
            choose(page, "twice")
            page.locator("#work li[data-name=number] input").fill(str(LARGE))
            send(page)
            page.locator("#work .out .good").wait_for()
            shown = page.locator("#work .out").inner_text()
            assert f"{LARGE}" in shown
            assert f"{LARGE + 1}" in shown
            assert f"{2**64}" in shown
            page.get_by_role("tab", name="Messages").click()
            row = page.locator("#panel-Messages details", has_text="tools/call").last
            assert row.evaluate("(each) => each.textContent").count(str(LARGE)) >= 3

            page.get_by_role("button", name="Edit as JSON").click()
            area = page.get_by_label("The arguments as JSON")
            assert str(LARGE) in area.input_value()
            area.fill(f'{{"number": {LARGE}, "more": [{-LARGE}, 1]}}')
            page.get_by_role("button", name="Edit as a form").click()
            assert page.locator("#work li[data-name=number] input").input_value() == str(LARGE)
            send(page)
            bench.until(lambda: len(seen) == 2)
            page.locator("#work .out .good").wait_for()
            page.locator("#work .out").get_by_role("button", name="Again", exact=True).click()
            bench.until(lambda: len(seen) == 3)
            assert seen == [(LARGE, None), (LARGE, [-LARGE, 1]), (LARGE, [-LARGE, 1])]

    def test_json_is_read_and_written_in_one_place(self) -> None:
        scripts = [*Path(linkspan.__file__).parent.rglob("assets/*.js")]
        assert len(scripts) > 8
        found = {each.name for each in scripts if re.search(r"\bJSON\.(parse|stringify)|\.json\(", each.read_text())}
        assert found == {"json.js"}
