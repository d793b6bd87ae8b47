"""The page for people, opened in a headless Chromium: a real server process, a real browser, nothing in between."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_browser import chromium
from page_server import NASTY

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[peers]'")

pytestmark = pytest.mark.timeout(60)

PATIENCE = 10_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server process, and where it is."""
    server = Path(__file__).parent / "page_server.py"
    with subprocess.Popen([sys.executable, str(server)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[3].rstrip(",")
        finally:
            process.terminate()
            process.communicate(timeout=20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium."""
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Any, url: str) -> Iterator[Any]:
    """The page, just opened. Whatever the browser complains of fails the test."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    opened, complaints = context.new_page(), []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(url)
    yield opened
    context.close()
    assert complaints == []


def item(page: Any, name: str) -> Any:
    """Open the part of the page about one tool, resource or prompt."""
    found = page.locator(".item", has=page.get_by_role("heading", name=name, exact=True))
    found.locator("> summary").click()
    return found


def fill(form: Any, **values: str) -> None:
    for name, value in values.items():
        form.locator(f"li[data-name={name}]").locator("textarea, input").fill(value)


def press(form: Any, button: str) -> None:
    form.get_by_role("button", name=button, exact=True).click()


def result(form: Any) -> Any:
    """What the server answered, when it has: the text of each block, and the status before it."""
    shown = form.get_by_role("status")
    shown.locator("> .good, > .bad").wait_for()
    return [re.sub(r", after \d+ ms", "", each) for each in shown.locator("> p, > pre, > strong").all_inner_texts()]


def test_a_person_sees_the_tools_fills_the_form_and_reads_the_result(page: Any) -> None:
    assert page.title() == "Ferry desk"
    assert page.locator("#tools h3").all_inner_texts() == ["find", "book", "pay", "nasty", "wait"]
    form = item(page, "find")
    fill(form, port="Ullapool – Ùlapul", most="3", stops='["Lewis"]')  # a header takes no letter beyond ASCII (HDR-4)
    form.get_by_label("kind").select_option("bike")
    form.get_by_label("direct").check()
    press(form, "Call")
    said = result(form)
    assert said[0] == "Done"
    answer = (
        '{ "port": "Ullapool – Ùlapul", "kind": "bike", "most": 3, "direct": true, "stops": [ "Lewis" ], "fare": null }'
    )
    assert re.sub(r"\s+", " ", said[-1]) == answer
    assert "Structured content" in form.inner_text()


def test_what_is_left_empty_is_left_out_and_what_is_no_json_is_not_sent(page: Any) -> None:
    form = item(page, "find")
    fill(form, port="Oban", fare="{bike: 3}")
    form.get_by_label("kind").select_option("car")
    press(form, "Call")
    wrong = form.locator("textarea:invalid")
    assert "not JSON" in wrong.evaluate("node => node.validationMessage")
    fill(form, fare="")
    press(form, "Call")
    assert '"fare": null' in result(form)[-1]
    assert '"most": 5' in result(form)[-1]


def test_the_server_asks_and_the_person_answers(page: Any) -> None:
    form = item(page, "book")
    fill(form, ferry="Isle of Mull")
    form.get_by_label("ferry").press("Enter")
    form.get_by_text("How many seats?").wait_for()
    page.keyboard.type("3")  # the field has the focus
    press(form, "Answer")
    assert result(form) == ["info: the captain nods", "Done", "3 seats on Isle of Mull"]


def test_an_error_of_the_tool_and_a_refusal_are_shown_as_such(page: Any) -> None:
    form = item(page, "book")
    fill(form, ferry="Isle of Mull")
    press(form, "Call")
    form.get_by_label("Your answer").fill("7")
    press(form, "Answer")
    assert result(form)[1:] == ["The tool reports an error", "Only 4 seats are left"]
    press(form, "Call")
    press(form, "Decline")
    said = result(form)
    assert said[0] == "The tool reports an error"
    assert "declined" in said[1]


def test_a_page_that_the_server_wants_opened_is_shown_with_its_host_and_opened_by_nobody_else(page: Any) -> None:
    """ELI-10."""
    form = item(page, "pay")
    press(form, "Call")
    link = form.get_by_role("link", name="Open a page of bank.example")
    assert (link.get_attribute("href"), link.get_attribute("rel")) == (
        "https://bank.example/pay/7",
        "noopener noreferrer",
    )
    assert form.get_by_text("https://bank.example/pay/7", exact=True).is_visible()
    press(form, "Done")
    assert result(form) == ["Done", "Thank you"]
    assert len(page.context.pages) == 1


def test_a_call_shows_its_progress_and_can_be_stopped(page: Any) -> None:
    form = item(page, "wait")
    press(form, "Call")
    form.get_by_text("waiting · 1").wait_for()
    press(form, "Stop")
    assert result(form) == ["Stopped"]
    assert form.get_by_role("button", name="Call", exact=True).is_enabled()


def test_resources_templates_and_prompts_can_be_tried_too(page: Any) -> None:
    form = item(page, "tides://today")
    press(form, "Read")
    assert result(form) == ["Done", "High 04:12, low 10:31"]
    form = item(page, "tides://{day}")
    fill(form, uri="tides://friday")
    press(form, "Read")
    assert result(form) == ["Done", "High on friday at noon"]
    form = item(page, "plan")
    fill(form, start="Mallaig")
    press(form, "Get")
    assert result(form) == ["Done", "user", "Plan a crossing from Mallaig to Oban."]


def test_whatever_a_server_says_stays_text(page: Any) -> None:
    form = item(page, "nasty")
    press(form, "Call")
    assert result(form) == ["Done", NASTY]
    assert page.locator("img").count() == 0
    assert page.title() == "Ferry desk"


def test_every_field_has_a_name_and_the_result_is_announced(page: Any) -> None:
    form = item(page, "find")
    for name in ("port", "kind", "most", "direct", "stops", "fare"):
        field = form.locator(f"li[data-name={name}]").locator("input, select, textarea")
        assert field.evaluate("node => node.labels[0].innerText").startswith(name)
    described = form.locator("li[data-name=port] textarea").get_attribute("aria-describedby")
    assert page.locator(f"#{described}").inner_text() == "Where to leave from."
    assert form.locator(".out").get_attribute("aria-live") == "polite"


def test_a_phone_shows_everything_without_scrolling_sideways(browser: Any, url: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 640}, is_mobile=True, color_scheme="dark")
    page = context.new_page()
    page.goto(url)
    for summary in page.locator(".item > summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 27)"
    context.close()


def test_without_a_script_the_page_can_be_read(browser: Any, url: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(url)
    page.locator("summary", has_text="find").click()
    assert page.get_by_text("Where to leave from.", exact=True).is_visible()
    assert page.get_by_text("With JavaScript you could also try").is_visible()
    assert page.locator("form").count() == 0
    context.close()
