"""What a person sees of calls on the page of the workbench: in a headless Chromium."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import linkspan
from benches import Desk, desk
from http_browser import chromium
from linkspan import Context, Server

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
    expected = (
        "the server responded with a status of 4",  # what is refused on purpose, such as a call without its secrets
        "net::ERR_CONNECTION_REFUSED",  # of the page, when the workbench of the test has ended
    )
    assert [each for each in complaints if not any(words in each for words in expected)] == []


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
            row.locator("summary").first.click()
            row.locator("pre").nth(1).wait_for()
            assert row.inner_text().count(str(LARGE)) >= 3

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


class TestAgain:
    """A call is made again with what the page does not have: the answers, and the secrets."""

    def test_the_answers_are_used_again_where_the_person_says_so(self, opened: Any) -> None:
        server, booked = Server("desk"), list[int]()

        @server.tool(annotations={"read_only_hint": True})
        async def book(ctx: Context) -> str:
            booked.append(await ctx.ask("seats", int, "How many seats?"))
            return f"{booked[-1]} seats"

        with desk(server) as bench:
            page = opened(bench)
            choose(page, "book")
            send(page)
            page.locator(".asked input").fill("3")
            page.get_by_role("button", name="Answer", exact=True).click()
            page.locator("#work .out .good").wait_for()
            page.locator("summary", has_text="What you answered (1)").click()
            assert "How many seats?" in page.locator("#work .out .tree").last.inner_text()
            page.locator("#work").get_by_role("button", name="Again, same answers").click()
            bench.until(lambda: booked == [3, 3])
            page.get_by_role("tab", name="History").click()
            page.locator("#panel-History").get_by_role("button", name="Again", exact=True).first.click()
            page.locator(".asked input").fill("4")
            page.get_by_role("button", name="Answer", exact=True).click()
            bench.until(lambda: booked == [3, 3, 4])

    def test_a_secret_of_an_earlier_day_is_asked_for(self, opened: Any, tmp_path: Path) -> None:
        server, entered, history = Server("desk"), list[Any](), tmp_path / "calls.jsonl"

        @server.tool(annotations={"read_only_hint": True})
        def enter(user: str, password: str) -> str:
            entered.append((user, password))
            return "in"

        with desk(server, history=history) as bench:
            page = opened(bench)
            made = bench.call("enter", {"user": "ann", "password": "geheim-1"})
            bench.until(history.exists)
            page.get_by_role("tab", name="History").click()
            page.locator("#panel-History").get_by_role("button", name="Again", exact=True).click()
            bench.until(lambda: len(entered) == 2)
            assert made["state"] == "done"
        with desk(server, history=history) as bench:
            page = opened(bench)
            page.get_by_role("tab", name="History").click()
            page.locator("#panel-History").get_by_role("button", name="Again", exact=True).first.click()
            page.get_by_text("Secrets are not kept: give password again.").wait_for()
            assert page.locator("#work li[data-name=user] textarea").input_value() == "ann"
            field = page.locator("#work li[data-name=password] textarea")
            assert field.input_value() == ""
            assert field.evaluate("(each) => each === document.activeElement")
            page.keyboard.type("geheim-2")
            page.keyboard.press("Enter")
            bench.until(lambda: len(entered) == 3)
            assert entered == [("ann", "geheim-1")] * 2 + [("ann", "geheim-2")]

    def test_a_resource_of_a_template_is_edited_in_the_form_of_the_template(self, opened: Any) -> None:
        server = Server("tides")

        @server.resource("tide://{port}")
        def tide_of(port: str) -> str:
            return f"high in {port}"

        with desk(server) as bench:
            page = opened(bench)
            choose(page, "tide://{port}")
            page.locator("#work li[data-name=port] textarea").fill("Oban")
            send(page)
            page.locator("#work .out", has_text="high in Oban").wait_for()
            page.locator("#work li[data-name=port] textarea").fill("Mull")
            page.get_by_role("tab", name="History").click()
            page.locator("#panel-History").get_by_role("button", name="Edit").click()
            assert page.locator("#work li[data-name=port] textarea").input_value() == "Oban"


class TestForms:
    """A form sends what a person has put into it."""

    def test_an_optional_object_that_nobody_touched_is_left_out(self, opened: Any) -> None:
        server, got = Server("forms"), list[Any]()
        contact = {
            "type": "object",
            "properties": {
                "mail": {"type": "string", "format": "email"},
                "name": {"type": "object", "properties": {"first": {"type": "string"}}, "required": ["first"]},
                "loud": {"type": "boolean", "default": False},
            },
            "required": ["mail", "name"],
        }
        schema = {
            "type": "object",
            "properties": {
                "port": {"type": "string"},
                "contact": contact,
                "other": {"anyOf": [contact, {"type": "null"}]},
            },
            "required": ["port"],
        }

        def handler(**given: Any) -> str:
            got.append(given)
            return "ok"

        server.define_tool(name="go", input_schema=schema, handler=handler)
        with desk(server) as bench:
            page = opened(bench)
            choose(page, "go")
            form = page.locator("#work article form")
            form.locator("> ul > li[data-name=port] textarea").fill("Oban")
            send(page)
            bench.until(lambda: got == [{"port": "Oban"}])
            inner = form.locator("> ul > li[data-name=contact]")
            inner.locator("li[data-name=first] textarea").fill("Ann")
            send(page)  # what has been begun needs the rest
            page.locator("#work [role=alert]", has_text="mail").wait_for()
            inner.locator("li[data-name=mail] input").fill("ann@example.com")
            send(page)
            whole = {"mail": "ann@example.com", "name": {"first": "Ann"}, "loud": False}
            bench.until(lambda: got[1:] == [{"port": "Oban", "contact": whole}])
            inner.locator("li[data-name=first] textarea").fill("")
            inner.locator("li[data-name=mail] input").fill("")
            send(page)
            bench.until(lambda: got[2:] == [{"port": "Oban"}])
            page.get_by_role("button", name="Edit as JSON").click()
            page.get_by_label("The arguments as JSON").fill(
                '{"port": "Oban", "other": {"mail": "", "name": {"first": ""}}}'
            )
            send(page)  # what is written is meant
            bench.until(lambda: got[3:] == [{"port": "Oban", "other": {"mail": "", "name": {"first": ""}}}])


class TestCompare:
    """Two calls are compared: their names, their times, and what differs."""

    def test_the_places_that_differ_are_listed_and_both_calls_are_named(self, opened: Any) -> None:
        server = Server("tides")

        @server.tool(annotations={"read_only_hint": True})
        def tide(port: str) -> dict[str, Any]:
            return {"port": port, "days": ["mon", *(["tue"] if port == "Mull" else []), "wed"], "rope": f"a\n{port}\nc"}

        @server.tool(annotations={"read_only_hint": True})
        def sink(depth: int) -> float:
            return 1 / depth

        with desk(server) as bench:
            page = opened(bench)
            calls = [bench.call("tide", {"port": port}) for port in ("Oban", "Mull", "Oban")]
            failed = bench.call("sink", {"depth": 0})
            page.get_by_role("tab", name="History").click()
            rows = page.locator("#panel-History > .line")
            rows.nth(3).get_by_role("button", name="Compare …").click()
            rows.nth(2).get_by_role("button", name=f"Compare with #{calls[0]['id']} tide").press("Enter")
            page.get_by_text("The answers differ in 3 places.").wait_for()
            heading = page.locator("#work h2", has_text="compared with").inner_text()
            assert heading.startswith(f"#{calls[0]['id']} tide, ")
            assert f"compared with #{calls[1]['id']} tide" in heading
            assert page.locator(".pair h3").nth(0).inner_text().startswith(f"First: #{calls[0]['id']} tide, ")
            table = page.get_by_role("region", name="What the answers differ in")
            assert table.locator("tbody th").all_inner_texts() == [
                "structuredContent.port",
                "structuredContent.days[1]",
                "structuredContent.rope",
            ]
            assert [each.strip() for each in table.locator("del").all_inner_texts()] == ["Oban", "− Oban"]
            assert [each.strip() for each in table.locator("ins").all_inner_texts()] == ["Mull", "tue", "+ Mull"]
            assert (
                page.get_by_role("region", name="What the calls differ in").locator("tbody th").inner_text()
                == "arguments.port"
            )

            rows.nth(3).get_by_role("button", name="Compare …").press("Enter")
            assert (
                page.evaluate("document.activeElement.textContent") == "Do not compare"
            )  # the keyboard is where it was
            rows.nth(1).get_by_role("button", name="Compare with").click()
            page.get_by_text("Both answers say the same.").wait_for()
            assert page.get_by_role("region", name="What the answers differ in").count() == 0
            rows.nth(3).get_by_role("button", name="Compare …").click()
            rows.nth(0).get_by_role("button", name="Compare with").click()
            page.get_by_text(re.compile("The answers differ in . places")).wait_for()
            assert failed["is_error"]

    def test_nothing_is_the_same_before_both_have_ended(self, opened: Any) -> None:
        server, go_on = Server("slow"), threading.Event()

        @server.tool(annotations={"read_only_hint": True})
        def slow(ctx: Context) -> str:
            if ctx.protocol_version < "2026":
                go_on.wait(60)
            return "done"

        with desk(server) as bench:
            page = opened(bench)
            choose(page, "slow")
            page.get_by_label("Revision").select_option("both")
            send(page)
            page.get_by_text("Waiting for the other answer").wait_for()
            assert page.get_by_text("Both answers say the same.").count() == 0
            go_on.set()
            page.get_by_text("Both answers say the same.").wait_for()


class TestWords:
    """What the page says of a call."""

    def test_an_empty_result_is_said_to_be_empty(self, opened: Any) -> None:
        server = Server("empty")
        server.define_tool(name="nothing", handler=lambda: None)
        server.define_tool(name="blank", handler=lambda: "")
        said = []
        with desk(server) as bench:
            page = opened(bench)
            for name in ("nothing", "blank"):
                choose(page, name)
                send(page)
                page.locator("#work .out .good").wait_for()
                said.append(page.locator("#work .out").inner_text())
        assert "The result is empty. It has no content." in said[0]
        assert "An empty text." in said[1]

    def test_a_call_says_that_it_waits_for_an_answer(self, opened: Any) -> None:
        server = Server("desk")

        @server.tool
        async def poem(ctx: Context) -> str:
            return str(await ctx.sample("A poem about the sea"))

        with desk(server) as bench:
            page = opened(bench)
            choose(page, "poem")
            page.get_by_label("Revision").select_option("2025-11-25")
            send(page)
            page.get_by_text("The call waits for your answer to the question above.").wait_for()
            assert page.locator("#work progress:visible").count() == 0
            texts = page.locator(".asked strong").evaluate_all("all => all.map((each) => each.parentElement.tagName)")
            assert texts == ["FORM", "P"]  # "play the model" and "user" are two lines
            assert page.get_by_role("button", name="Save", exact=True).count() == 0
            page.get_by_role("button", name="Stop the call").click()
            page.locator("#work .out", has_text="Stopped").wait_for()

    def test_the_history_is_filtered(self, opened: Any) -> None:
        server = Server("tides")
        for name in ("tide", "fare"):
            server.define_tool(name=name, handler=lambda: "x")
        with desk(server) as bench:
            page = opened(bench)
            bench.call("tide")
            bench.call("fare")
            page.get_by_role("tab", name="History").click()
            rows = page.locator("#panel-History .row")
            rows.nth(1).wait_for()
            page.get_by_label("Filter what happened").fill("FARE")
            assert rows.locator("code").all_inner_texts() == ["fare"]
            bench.call("tide")
            bench.call("fare")
            rows.nth(1).wait_for()
            assert rows.locator("code").all_inner_texts() == ["fare", "fare"]
            page.get_by_label("Filter what happened").fill("nothing like it")
            page.get_by_text("No call fits the filter.").wait_for()
            assert page.locator("#happened").get_by_text("only this call").is_hidden()

    def test_a_call_that_is_made_from_the_history_is_shown_with_its_name(self, opened: Any) -> None:
        server = Server("tides")
        server.define_tool(name="tide", handler=lambda: "high", annotations={"readOnlyHint": True})
        with desk(server) as bench:
            page = opened(bench)
            bench.call("tide")
            page.get_by_role("tab", name="History").click()
            page.locator("#panel-History").get_by_role("button", name="Again").click()
            page.locator("#work .out .good").wait_for()
            assert "tide" in page.locator("#work .out h2").inner_text()
