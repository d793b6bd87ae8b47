"""The page for people, opened in a headless Chromium: a real server process, a real browser, nothing in between."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from page_server import NASTY, TOOLS

from http_browser import chromium
from linkspan import Image, Server
from over_http import serving

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[peers]'")

PATIENCE = 45_000
DOT = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
"""A PNG of one pixel."""


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
            process.communicate(timeout=60)


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
    return [
        re.sub(r", after \d+ ms", "", each) for each in shown.locator("> p, > pre, > strong, > .tree").all_inner_texts()
    ]


def test_a_person_sees_the_tools_fills_the_form_and_reads_the_result(page: Any) -> None:
    assert page.title() == "Ferry desk"
    assert page.locator("#tools h3").all_inner_texts() == TOOLS
    form = item(page, "find")
    fill(form, port="Ullapool – Ùlapul", most="3")  # a header takes no letter beyond ASCII (HDR-4)
    press(form, "Add an item")
    page.keyboard.type("Lewis")  # the new field has the focus
    form.get_by_label("kind").select_option("bike")
    form.get_by_label("direct").check()
    press(form, "Call")
    said = result(form)
    assert said[0] == "Done"
    answer = '{ port: "Ullapool – Ùlapul" kind: "bike" most: 3 direct: true stops: [ "Lewis" ] fare: null }'
    assert [re.sub(r"\s+", " ", each) for each in said[1:]] == [answer]


def test_what_is_left_empty_is_left_out_and_what_is_no_json_is_not_sent(page: Any) -> None:
    form = item(page, "find")
    fill(form, port="Oban", fare="{bike: 3}")
    form.get_by_label("kind").select_option("car")
    press(form, "Call")
    wrong = form.locator("textarea:invalid")
    assert "not JSON" in wrong.evaluate("node => node.validationMessage")
    fill(form, fare="")
    press(form, "Call")
    assert "fare: null" in result(form)[-1]
    assert "most: 5" in result(form)[-1]


def test_a_form_can_be_edited_as_json_and_back_and_nothing_typed_is_lost(page: Any) -> None:
    form = item(page, "find")
    fill(form, port="Oban", most="3")
    press(form, "Edit as JSON")
    whole = form.get_by_label("The arguments as JSON")
    assert json.loads(whole.input_value()) == {"port": "Oban", "most": 3, "direct": False}
    whole.fill('{"port": "Oban",\n "stops": [}')
    press(form, "Edit as a form")
    assert "This is not JSON yet: see line 2, column 12" in form.get_by_role("alert").inner_text()
    whole.fill('{"port": "Mallaig", "stops": ["Skye", "Rum"], "kind": "bike"}')
    press(form, "Edit as a form")
    assert form.locator("li[data-name=port] textarea").input_value() == "Mallaig"
    assert [each.input_value() for each in form.locator("li[data-name=stops] textarea").all()] == ["Skye", "Rum"]
    press(form, "Edit as JSON")
    whole.fill('{"port": "Oban", "kind": "bike", "beside": 1}')
    press(form, "Edit as a form")
    assert "no place for all of this" in form.get_by_role("alert").inner_text()
    press(form, "Call")
    assert "beside" in result(form)[1]


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
    form.get_by_label("seats").fill("7")
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


def test_a_required_text_that_is_empty_is_sent_by_the_second_press_only(page: Any) -> None:
    form = item(page, "prices")
    press(form, "Call")
    assert form.locator(".warn").inner_text() == "This is required and empty. Press again to send an empty text."
    assert form.locator(".fields textarea").evaluate("node => node === document.activeElement")
    assert form.locator(".out").inner_text() == ""
    press(form, "Call")
    assert result(form) == ["Done"]
    assert form.locator(".warn").count() == 0


def test_records_are_shown_as_a_table(page: Any) -> None:
    form = item(page, "prices")
    fill(form, port="Oban")
    press(form, "Call")
    assert result(form) == ["Done"]
    rows = [row.locator("th, td").all_inner_texts() for row in form.locator("table tr").all()]
    assert rows == [["kind", "price", "from"], ["car", "31.5", "Oban"], ["bike", "4", "Oban"]]


def test_markdown_is_shown_as_such_and_stays_harmless(page: Any) -> None:
    form = item(page, "guide")
    press(form, "Call")
    assert result(form) == ["Done"]
    prose = form.locator(".prose")
    assert prose.locator("h4").inner_text() == "Crossing"
    assert prose.locator("strong").inner_text() == "early"
    assert prose.locator("li").all_inner_texts() == [NASTY, "[no](javascript:alert(1))", "[broken](https://[)"]
    link = prose.get_by_role("link")
    assert (link.get_attribute("href"), link.get_attribute("rel")) == ("https://maps.example/7", "noopener noreferrer")
    assert page.locator("img").count() == 0


def test_a_token_and_headers_go_with_each_request_and_not_into_the_history(page: Any) -> None:
    sent: list[dict[str, str]] = []
    page.on("request", lambda request: sent.append(request.headers))
    page.locator(".sending > summary").click()
    page.get_by_label("Token", exact=True).fill("secret-7")
    page.get_by_label("Headers, one on each line").fill("X-Team: blue\n\nX-Trace:1")
    form = item(page, "guide")
    press(form, "Call")
    assert result(form) == ["Done"]
    assert (sent[0]["authorization"], sent[0]["x-team"], sent[0]["x-trace"]) == ("Bearer secret-7", "blue", "1")
    page.locator("#history summary").first.click()
    history = page.locator("#history").inner_text()
    assert "tools/call guide" in history
    assert '"resultType": "complete"' in history
    assert "secret-7" not in page.content()
    page.get_by_label("Headers, one on each line").fill("nonsense")
    press(form, "Call")
    assert result(form) == ['Write a header as "Name: value", not "nonsense"']


def test_a_filter_shows_what_has_its_words(page: Any) -> None:
    page.keyboard.press("/")
    page.keyboard.type("tides today")
    assert page.get_by_text("1 found").is_visible()
    assert page.locator(".item:visible h3").all_inner_texts() == ["tides://today"]
    page.locator("#filter").fill("")
    assert page.locator(".item:visible").count() == len(page.locator(".item").all())


def test_links_install_the_server_at_the_address_that_the_browser_knows(page: Any, url: str) -> None:
    page.locator("#connect summary", has_text="VS Code").click()
    link = page.get_by_role("link", name="Install in VS Code")
    entry = json.loads(unquote(link.get_attribute("href").removeprefix("vscode:mcp/install?")))
    assert entry == {"name": "ferry-desk", "type": "http", "url": url}
    page.locator("#connect summary", has_text="Cursor").click()
    assert not link.is_visible()  # one is open at a time
    config = page.get_by_role("link", name="Install in Cursor").get_attribute("href").partition("&config=")[2]
    assert json.loads(b64decode(unquote(config))) == {"url": url}


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
    for name in ("port", "kind", "most", "direct", "fare"):
        field = form.locator(f"li[data-name={name}]").locator("input, select, textarea")
        assert field.evaluate("node => node.labels[0].innerText").startswith(name)
    assert form.get_by_role("group", name="stops").count() == 1
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


def test_a_call_needs_no_mouse(page: Any) -> None:
    def press_until(key: str, is_there: str) -> None:
        for _ in range(40):
            if page.evaluate(is_there):
                return
            page.keyboard.press(key)
        raise AssertionError(f"{is_there} is not reached with {key}")

    press_until("Tab", "document.activeElement.closest('.item')?.dataset.value === 'prices'")
    page.keyboard.press("Enter")
    press_until("Tab", "document.activeElement.tagName === 'TEXTAREA'")
    page.keyboard.type("Oban")
    page.keyboard.press("Enter")
    form = page.locator(".item[data-value=prices]")
    form.locator(".good").wait_for()
    press_until("Tab", "document.activeElement.getAttribute('aria-label') === 'Table'")
    assert form.get_by_role("region", name="Table").get_by_role("row").count() == 3


def test_many_tools_are_grouped_and_an_image_is_shown(browser: Any) -> None:
    many = Server("many")
    for number in range(200):
        many.define_tool(name=f"{('orders', 'stock')[number % 2]}_{number}", handler=lambda: 7)
    many.define_tool(name="picture", handler=lambda: Image(DOT))
    with serving(many.asgi(path="/mcp", page=True)) as where:
        page = browser.new_page()
        page.goto(where)
        groups = page.locator(".group")
        assert [each.strip() for each in groups.locator("> summary").all_inner_texts()] == ["orders 100", "stock 100"]
        assert groups.locator(".item:visible").count() == 0
        page.keyboard.press("/")
        page.keyboard.type("stock 19")
        assert page.locator(".item:visible").count() == int(page.locator("#left").inner_text().split()[0]) == 7
        page.keyboard.press("Control+A")
        page.keyboard.type("picture")
        form = item(page, "picture")
        press(form, "Call")
        form.locator(".out img").wait_for()
        assert page.evaluate("document.querySelector('.out img').naturalWidth") == 1
        page.close()


BOATS = """from linkspan import Server

server = Server("boats")


@server.tool
def sail(port: str, {more}seats: int = 1) -> str:
    return port


@server.tool
def {name}(port: str) -> str:
    return port
"""


def test_the_page_follows_its_file_and_keeps_what_was_typed(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "boats.py"
    file.write_text(BOATS.format(more="", name="berth"))
    command = [sys.executable, "-m", "linkspan", "run", "--http", "--port", "0", "--reload", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        context = browser.new_context()
        context.set_default_timeout(PATIENCE)
        try:
            page = context.new_page()
            page.goto(process.stdout.readline().strip())
            page.locator("#news[data-follows]").wait_for(state="attached")
            form = item(page, "sail")
            fill(form, port="Oban")
            file.write_text(BOATS.format(more="", name="moor").replace("return port", "return port +"))
            page.locator("#news .bad", has_text="the server ended").wait_for()
            assert "SyntaxError" in page.locator("#news pre").inner_text()
            assert form.locator("li[data-name=port]").locator("textarea, input").input_value() == "Oban"
            file.write_text(BOATS.format(more="", name="moor"))
            page.get_by_role("heading", name="moor", exact=True).wait_for()
            assert page.get_by_role("heading", name="berth", exact=True).count() == 0
            assert page.get_by_text("The server runs again.").count() == 1
            assert form.locator("li[data-name=port]").locator("textarea, input").input_value() == "Oban"
            file.write_text(BOATS.format(more="car: bool = False, ", name="moor"))
            form.locator("li[data-name=car]").wait_for()
            press(form, "Call")
            assert result(form)[0] == "Done"
        finally:
            context.close()
            process.terminate()
            process.wait(60)
