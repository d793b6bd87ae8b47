"""Views of tools at the workbench: what a person sees of them in Chromium, and what their host names serve."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benches import Desk, desk
from http_browser import chromium
from linkspan import Context, Server
from linkspan.apps import Apps, supports_ui

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
VIEW = """<!doctype html><title>counter</title><p id="count"></p><button id="add">add</button><a>docs</a><script>
let id = 1;
const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const request = (method, params) => send({ id: ++id, method, params });
addEventListener("message", ({ data }) => {
  const { method, params, result, error } = data;
  if (data.id === 1) send({ method: "ui/notifications/initialized" });
  else if (method === "ui/notifications/tool-result") document.querySelector("p").textContent = params.structuredContent.result;
  else if (method === "ui/notifications/host-context-changed") document.querySelector("p").textContent = params.theme;
  else if (method === "ui/resource-teardown") send({ id: data.id, result: {} });
  else if (result || error) document.querySelector("p").textContent = error ? error.message : "added";
});
document.querySelector("button").onclick = () => request("tools/call", { name: "add", arguments: { number: 2 } });
document.querySelector("a").onclick = () => request("ui/open-link", { url: "https://docs.example/" });
send({ id: 1, method: "ui/initialize", params: { protocolVersion: "2026-01-26", appInfo: { name: "v", version: "1" },
  appCapabilities: {} } });
</script>"""


def counter() -> Server:
    """Make a server with a view that shows a number, and that adds to it."""
    apps = Apps()
    server = Server("counter", extensions=[apps])
    view = apps.view("ui://counter/count.html", VIEW)
    numbers = [1]

    @server.tool(meta=view.tool(), annotations={"read_only_hint": True})
    def count() -> int:
        return sum(numbers)

    @server.tool(meta=view.tool(visibility=["app"]))
    def add(number: int) -> int:
        numbers.append(number)
        return sum(numbers)

    @server.tool
    def shows(ctx: Context) -> bool:
        return supports_ui(ctx)

    @server.tool(meta={"ui": {"resourceUri": "ui://counter/missing.html"}})
    def lost() -> int:
        return 1

    return server


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def bench() -> Iterator[Desk]:
    with desk(counter()) as found:
        yield found


def shown(browser: Any, bench: Desk, tool: str) -> tuple[Any, Any]:
    """Call a tool on the page; return the page, and the document of the view."""
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    page.set_default_timeout(45_000)
    page.goto(bench.server.url)
    page.locator("#list .row", has=page.locator(f"code:text-is('{tool}')")).click()
    page.locator("#work article form button[type=submit]").click()
    return page, page.frame_locator("div:not([hidden]) > .view iframe").frame_locator("iframe")


def test_a_view_shows_the_result_and_what_it_wants_is_asked(browser: Any, bench: Desk) -> None:
    page, view = shown(browser, bench, "count")
    view.locator("p", has_text="1").wait_for()
    page.get_by_role("button", name="theme").click()
    view.locator("p", has_text="light").or_(view.locator("p", has_text="dark")).wait_for()
    view.locator("button").click()
    question = page.locator(".asked", has_text="The view asks")
    assert 'Call the tool add, which may change something, with {"number":2}?' in question.inner_text()
    question.get_by_role("button", name="Decline").click()
    view.get_by_text("the user did not allow it").wait_for()
    view.locator("button").click()
    page.locator(".asked").get_by_role("button", name="Allow").click()
    view.get_by_text("added").wait_for()
    view.locator("a").click()
    page.locator(".asked a", has_text="docs.example").wait_for()
    page.get_by_role("button", name="Reload the view").click()  # ends the question, too
    page.locator(".asked").wait_for(state="detached")
    page.close()


def test_a_view_that_cannot_be_shown_says_why(browser: Any, bench: Desk) -> None:
    page, _ = shown(browser, bench, "lost")
    page.locator("[aria-label=View] .bad").wait_for()
    assert page.locator("#work .out .good").count() == 1
    page.close()


def test_views_are_declared_to_the_server_unless_that_is_taken_away(bench: Desk) -> None:
    assert bench.call("shows")["result"]["structuredContent"] == {"result": True}
    with desk(counter()) as other:
        other.ask("declare", views=False)
        other.until(lambda: other.bench.state()["generation"] == 2 and other.bench.state()["status"] == "ready")
        assert other.call("shows")["result"]["structuredContent"] == {"result": False}


def test_the_map_of_ferries_tells_what_the_model_would_hear(browser: Any) -> None:
    sys.path.insert(0, str(EXAMPLES))
    try:
        from ferry_map import server
    finally:
        sys.path.remove(str(EXAMPLES))
    with desk(server) as bench:
        page, view = shown(browser, bench, "ferries")
        view.locator("circle.ferry").nth(2).click()
        page.locator("#panel-Log", has_text="The user has chosen the ferry Isle of Mull").wait_for()
        page.close()


def test_a_save_shows_the_view_anew(browser: Any, tmp_path: Path) -> None:
    file, html = tmp_path / "one.py", tmp_path / "one.html"
    html.write_text(VIEW.replace("<p ", "<h1>before</h1><p "))
    file.write_text(
        "from pathlib import Path\nfrom linkspan import Server\nfrom linkspan.apps import Apps\napps = Apps()\n"
        "server = Server('one', extensions=[apps])\n"
        "view = apps.view('ui://one/x.html', path=Path(__file__).with_suffix('.html'))\n"
        "@server.tool(meta=view.tool())\ndef count() -> int:\n    return 41\n"
    )
    with desk(str(file), file=str(file), watched=[str(html)]) as bench:
        page, view = shown(browser, bench, "count")
        view.locator("p", has_text="41").wait_for()
        html.write_text(VIEW.replace("<p ", "<h1>after</h1><p "))
        view.locator("h1", has_text="after").wait_for()
        page.close()


def test_the_name_of_a_view_serves_the_view_and_nothing_else(bench: Desk) -> None:
    made = bench.call("count")
    name = bench.ask("view", id=made["id"], theme="light")["name"]
    at_view = {"Host": f"{name}:{bench.server.port}"}
    status, headers, body = bench.send("GET", "/view", None, at_view)
    assert (status, b"counter" in body) == (200, True)
    assert "default-src 'none'" in headers["content-security-policy"]
    for method, path in (("GET", "/api/state"), ("GET", "/bench.js"), ("POST", "/api/restart"), ("GET", "/view?x")):
        assert bench.send(method, path, b"{}" if method == "POST" else None, at_view)[::2] == (404, b"")
    for host in ("localhost", "evil.localhost", "127.0.0.1.localhost"):
        status, _, body = bench.send("GET", "/api/state", None, {"Host": f"{host}:{bench.server.port}"})
        assert status in (403, 404)
        assert body == b""
    assert bench.send("GET", "/view", None)[0] == 404  # the host of the page serves no view
    bench.ask("view-close", name=name)
    assert bench.send("GET", "/view", None, at_view)[0] == 404


def test_seventeen_views_close_the_first(bench: Desk) -> None:
    made = bench.call("count")
    names = [bench.ask("view", id=made["id"], theme="dark")["name"] for _ in range(17)]
    assert bench.ask("view-says", name=names[0], text="{}")["closed"] is True
    hello = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    assert bench.ask("view-says", name=names[1], text=hello)["messages"] == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


@pytest.mark.parametrize("number", [0, 99_999])
def test_only_a_call_that_has_ended_has_a_view(bench: Desk, number: int) -> None:
    body = f'{{"id": {number}, "theme": "dark"}}'.encode()
    assert bench.send("POST", "/api/view", body)[0] == 422
