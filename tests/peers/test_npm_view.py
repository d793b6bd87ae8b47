"""A view that is written with the official package for views, in Chromium: the whole life of it."""

from __future__ import annotations

from npm_servers import INSTALLING, apps_script

from benches import desk
from http_browser import chromium
from linkspan import Server, SyncClient
from linkspan.apps import Apps, Preview
from linkspan.apps.bridge import ToolWish, ViewClosed, ViewResized
from view_pages import opened, serving, until

pytestmark = INSTALLING

PAGE = """<!doctype html><title>view</title><div id="log"></div><button>refresh</button>
<script type="module">
PACKAGE
const log = (text) => {
  document.querySelector("#log").append(Object.assign(document.createElement("p"), { textContent: text }));
};
const app = new App({ name: "npm view", version: "1.0.0" }, {});
app.ontoolinput = (params) => log(`input ${params.arguments.year}`);
app.ontoolresult = (result) => log(`result ${result.structuredContent.result}`);
app.onhostcontextchanged = (context) => log(`theme ${context.theme}`);
app.onteardown = async () => ({});
document.querySelector("button").onclick = async () => {
  const result = await app.callServerTool({ name: "refresh", arguments: {} });
  log(`refreshed ${result.structuredContent.result}`);
};
await app.connect();
log(`connected to ${app.getHostVersion().name}`);
</script>"""


def page_of(script: str) -> str:
    """Return the page with the package in it, whose exports are names of the page."""
    body, _, exports = script.rpartition("export{")
    names = dict(
        each.split(" as ")[::-1] if " as " in each else (each, each) for each in exports.split("}")[0].split(",")
    )
    return PAGE.replace("PACKAGE", f"{body}\nconst App = {names['App']};")


def test_the_official_view_greets_gets_its_call_calls_a_tool_grows_changes_its_theme_and_ends() -> None:
    apps = Apps()
    server = Server("tides", extensions=[apps])
    view = apps.view("ui://tides/npm.html", page_of(apps_script()))

    @server.tool(meta=view.tool())
    def show(year: int) -> list[int]:
        return [year]

    @server.tool(meta=view.tool(visibility=["app"]))
    def refresh() -> list[int]:
        return [7]

    with chromium() as browser, serving() as pages, SyncClient(server) as client:
        tool = next(each for each in client.list_tools() if each.name == "show")
        result = client.call_tool("show", {"year": 2026})
        preview = Preview.open(client, tool, {"year": 2026}, result, allow=lambda _: True)
        page = opened(browser, pages, preview)
        frame = page.frame_locator("iframe").frame_locator("iframe")
        for text in ("connected to linkspan", "input 2026", "result 2026"):
            frame.get_by_text(text).wait_for()
        frame.get_by_role("button").click()
        frame.get_by_text("refreshed 7").wait_for()
        assert any(isinstance(each, ToolWish) for each in preview.happened)
        assert any(isinstance(each, ViewResized) for each in preview.happened)
        post = "(messages) => messages.forEach((each) => view.post(each))"
        page.evaluate(post, preview.show(lambda bridge: bridge.change_context(theme="dark")))
        frame.get_by_text("theme dark").wait_for()
        page.evaluate(post, preview.show(lambda bridge: bridge.tear_down()))
        until(page, lambda: any(isinstance(each, ViewClosed) for each in preview.happened))
        assert preview.bridge.is_closed


def test_the_official_view_is_shown_at_the_workbench() -> None:
    apps = Apps()
    server = Server("tides", extensions=[apps])
    view = apps.view("ui://tides/npm.html", page_of(apps_script()))

    @server.tool(meta=view.tool())
    def show(year: int) -> list[int]:
        return [year]

    @server.tool(meta=view.tool(visibility=["app"]), annotations={"read_only_hint": True})
    def refresh() -> list[int]:
        return [7]

    with desk(server) as bench, chromium() as browser:
        page = browser.new_page()
        page.goto(bench.server.url)
        page.locator("#list .row", has=page.locator("code:text-is('show')")).click()
        page.locator("#work li[data-name=year] input").fill("2026")
        page.locator("#work article form button[type=submit]").click()
        frame = page.frame_locator(".view iframe").frame_locator("iframe")
        for text in ("connected to linkspan", "input 2026", "result 2026"):
            frame.get_by_text(text).wait_for()
        frame.get_by_role("button").click()
        frame.get_by_text("refreshed 7").wait_for()
        page.get_by_role("button", name="theme").click()
        frame.get_by_text("theme ").wait_for()
        page.locator("#list .row", has=page.locator("code:text-is('refresh')")).click()
        page.locator("#panel-Log", has_text="closed: closed").wait_for()  # it was asked to save what it has
