"""The pages of `linkspan dev` and of a server over HTTP, judged by axe-core: nothing on them shuts anybody out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from listening import listening
from npm_servers import INSTALLING, axe_script

from benches import desk
from http_browser import chromium

pytestmark = INSTALLING
SOURCE = '''
from typing import Literal
from linkspan import Context, Server

server = Server("harbour", "2.0.0", instructions="Ask for the tide first.")

@server.tool(annotations={"read_only_hint": True})
def tide(port: str, kind: Literal["high", "low"] = "high", days: int = 1,
         raw: bool = False, more: dict[str, int] | None = None) -> dict[str, object]:
    """Say when the tide is high."""
    return {"port": port, "days": [{"day": each, "at": "07:30"} for each in range(days)]}

@server.tool
async def book(ctx: Context, date: str) -> str:
    """Book a ferry."""
    return f"{await ctx.ask('seats', int, 'How many seats?')} seats on {date}"

@server.tool
def sink(depth: int) -> int:
    """Fail."""
    return 1 // depth

@server.resource("tide://{port}")
def tide_of(port: str) -> str:
    """The tide of one port."""
    return f"high in {port}"

@server.prompt
def plan(start: str) -> str:
    """Plan a crossing."""
    return f"# From {start}"
'''
RUN = "async () => (await axe.run({resultTypes: ['violations']}))"
Scheme = Literal["light", "dark"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("axe") / "harbour.py"
    path.write_text(SOURCE)
    return str(path)


class Judged:
    """A page, and what axe-core has against it at each place where it was asked."""

    def __init__(self, browser: Any, scheme: Scheme, width: int) -> None:
        self._script = axe_script()
        self._context = browser.new_context(  # the policy of our pages lets no script in
            color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True
        )
        self._context.set_default_timeout(60_000)
        self.page = self._context.new_page()
        self.against: list[str] = []

    def judge(self, where: str) -> None:
        self.page.evaluate(self._script)
        found = self.page.evaluate(RUN)
        assert len(found["passes"]) > 5  # it has looked
        self.against += [
            f"{where}: {each['id']} {node['target']}: {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def close(self) -> None:
        self._context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1300), ("dark", 1300), ("light", 360)])
def test_the_workbench_shuts_nobody_out(browser: Any, file: str, scheme: Scheme, width: int) -> None:
    judged = Judged(browser, scheme, width)
    page = judged.page

    def choose(name: str) -> None:
        if width < 900:
            page.get_by_role("button", name="Offers", exact=True).click()
        page.locator("#list .row", has=page.locator(f"code:text-is('{name}')")).click()
        page.locator("#work h2 code", has_text=name).wait_for()

    with desk(file, file=file) as found:
        page.goto(found.server.url)
        page.locator("#list .row").first.wait_for()
        judged.judge("the list")
        for menu in ("Declared", "Connection"):
            page.locator("summary", has_text=menu).click()
            judged.judge(menu)
            page.locator("summary", has_text=menu).click()
        choose("tide")
        page.locator("#work li[data-name=port] textarea").fill("Oban")
        page.locator("#work article form button[type=submit]").click()
        page.locator("#work .out .good").wait_for()
        judged.judge("a result")
        page.locator("#work").get_by_role("button", name="pytest").click()
        page.get_by_role("button", name="Edit as JSON").click()
        judged.judge("the arguments as JSON")
        choose("sink")
        page.locator("#work li[data-name=depth] input").fill("0")
        page.locator("#work article form button[type=submit]").click()
        page.locator("#work .out .bad").first.wait_for()
        judged.judge("a crash")
        choose("plan")
        judged.judge("a prompt")
        choose("book")
        page.locator("#work li[data-name=date] textarea").fill("today")
        page.locator("#work article form button[type=submit]").click()
        page.locator(".asked input").wait_for()
        judged.judge("a question")
        page.locator(".asked input").fill("3")
        page.get_by_role("button", name="Answer").click()
        page.locator("#work .out .good").wait_for()
        if width < 900:
            page.get_by_role("button", name="Happened", exact=True).click()
        for tab in ("Messages", "HTTP", "History", "Log"):
            page.get_by_role("tab", name=tab).click()
            judged.judge(tab)
        page.get_by_role("tab", name="History").click()
        page.get_by_role("button", name="Compare …").last.click()
        page.get_by_role("button", name="Compare with").first.click()
        page.locator(".pair").wait_for()
        judged.judge("a comparison")
    judged.close()
    assert judged.against == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1300), ("dark", 360)])
def test_the_page_of_a_server_shuts_nobody_out(browser: Any, file: str, scheme: Scheme, width: int) -> None:
    judged = Judged(browser, scheme, width)
    page = judged.page
    command = [sys.executable, "-m", "linkspan", "run", "--http"]
    with listening(lambda port: [*command, "--port", str(port), file]) as url:
        page.goto(url)
        page.get_by_text("Ask for the tide first.").wait_for()
        judged.judge("the page")
        for name in ("tide", "book"):
            found = page.locator(".item", has=page.get_by_role("heading", name=name, exact=True))
            found.locator("> summary").click()
            found.locator("li[data-name] textarea").first.fill("Oban")
            found.get_by_role("button", name="Call", exact=True).click()
        page.locator("li[data-name=port]").first.wait_for()
        page.get_by_role("button", name="Decline").wait_for()
        page.locator(".item [role=status] > .good").first.wait_for()
        judged.judge("a result and a question")
    judged.close()
    assert judged.against == []
