"""Views that a server offers, and the tools that they belong to, as clients of both eras see them."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from linkspan import Context, RegistrationError, Server, SyncClient
from linkspan.apps import Apps, Csp, read_view, supports_ui

PAGE = "<!doctype html><title>Tides</title><p>12"
ERAS = pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
URI = "ui://tides/chart.html"


def tides(**options: Any) -> tuple[Server, Apps]:
    apps = Apps()
    server = Server("tides", extensions=[apps])
    chart = apps.view(URI, PAGE, **options)

    @server.tool(meta=chart.tool())
    def show(ctx: Context) -> str:
        return "with a view" if supports_ui(ctx) else "12 high waters"

    @server.tool(meta=chart.tool(visibility=["app"]))
    def refresh() -> str:
        return "13"

    return server, apps


@ERAS
def test_a_tool_names_its_view_and_clients_with_a_handshake_get_the_older_key_too(revision: str) -> None:
    with SyncClient(tides()[0], protocol_version=revision) as client:
        found = {each.name: each.meta for each in client.list_tools()}
    flat = {"ui/resourceUri": URI} if revision < "2026" else {}
    assert found == {
        "show": {"ui": {"resourceUri": URI}, **flat},
        "refresh": {"ui": {"resourceUri": URI, "visibility": ["app"]}, **flat},
    }


@ERAS
def test_a_tool_learns_whether_the_client_shows_views(revision: str) -> None:
    for extensions, text in (([], "12 high waters"), ([Apps()], "with a view")):
        with SyncClient(tides()[0], protocol_version=revision, extensions=extensions) as client:
            assert client.call_tool("show").text == text
            assert client.server_capabilities is not None
            assert client.server_capabilities.extensions == {"io.modelcontextprotocol/ui": {}}


@ERAS
def test_a_view_is_a_resource_with_its_policy_in_the_list_and_in_its_content(revision: str) -> None:
    csp = Csp(connect=["https://api.example.com"], resources=["https://*.example.com"])
    server, _ = tides(csp=csp, permissions=["camera"], border=False, domain="tides.example.com")
    ui = {
        "csp": {"connectDomains": ["https://api.example.com"], "resourceDomains": ["https://*.example.com"]},
        "permissions": {"camera": {}},
        "prefersBorder": False,
        "domain": "tides.example.com",
    }
    with SyncClient(server, protocol_version=revision) as client:
        (listed,) = client.list_resources()
        assert (listed.mime_type, listed.meta) == ("text/html;profile=mcp-app", {"ui": ui})
        (content,) = client.read_resource(URI).contents
        assert (content.text, content.mime_type, content.meta) == (PAGE, "text/html;profile=mcp-app", {"ui": ui})
        view = read_view(URI, client.read_resource(URI), listed)
    assert (view.csp.as_meta(), view.permissions, view.prefers_border, view.ignored) == (
        ui["csp"],
        ["camera"],
        False,
        [],
    )


def test_a_view_is_read_from_its_file_each_time(tmp_path: Path) -> None:
    file = tmp_path / "view.html"
    file.write_text(PAGE)
    apps = Apps()
    apps.view(URI, path=file)
    with SyncClient(Server(extensions=[apps])) as client:
        file.write_text("<!DOCTYPE html>\n<p>new")
        assert client.read_resource(URI).contents[0].text == "<!DOCTYPE html>\n<p>new"


def test_a_function_may_make_a_view() -> None:
    apps = Apps()
    server = Server("tides", extensions=[apps])

    async def page(ctx: Context) -> str:
        return f"<!doctype html><p>{ctx.protocol_version}"

    apps.view(URI, page)
    with SyncClient(server) as client:
        assert client.read_resource(URI).contents[0].text.endswith("2026-07-28")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"uri": "https://example.com/"}, "begins with ui://"),
        ({"html": "<p>no doctype"}, "HTML5"),
        ({"html": "<!doctype html>" + "x" * 5 * 2**20}, "more than 5242880 bytes"),
        ({"html": None}, "html= or path="),
        ({"html": None, "path": "/none.html"}, "cannot be read"),
        ({"permissions": ["usb"]}, "permissions are among"),
    ],
)
def test_a_view_that_hosts_would_not_show_is_refused_at_registration(options: dict[str, Any], problem: str) -> None:
    given = {"uri": URI, "html": PAGE, **options}
    with pytest.raises(RegistrationError, match=problem):
        Apps().view(given.pop("uri"), given.pop("html"), **given)


@pytest.mark.parametrize(
    "origin",
    [
        "example.com",
        "https://example.com/path",
        "https://a.com; script-src *",
        "*",
        "https://*",
        "'self'",
        "data:",
        "https://a b",
    ],
)
def test_only_origins_are_a_policy(origin: str) -> None:
    with pytest.raises(RegistrationError, match="write a list of origins"):
        Csp(connect=[origin])
    with pytest.raises(RegistrationError, match="write a list of origins"):
        Csp(resources=origin)  # a text is not a list


@pytest.mark.parametrize(
    ("meta", "problem"),
    [
        ({"ui": {"resourceUri": "ui://none"}}, "there is no view ui://none"),
        ({"ui": {"resourceUri": "https://example.com"}}, "does not begin with ui://"),
        ({"ui": {"resourceUri": "ui://text"}}, "is of the type 'text/html'"),
        ({"ui": {"visibility": "app"}}, "visibility is 'app'"),
        ({"ui": {"visibility": []}}, "visibility is"),
        ({"ui": {"csp": {}}}, "belong to the view"),
        ({"ui": "ui://x"}, "not an object"),
    ],
)
def test_a_tool_that_says_nonsense_of_its_view_is_logged_when_it_is_first_listed(
    meta: dict[str, Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = tides()
    server.define_tool("odd", handler=lambda: "1", meta=meta)
    server.define_resource("ui://text", text=PAGE, mime_type="text/html")
    with SyncClient(server) as client, caplog.at_level(logging.WARNING, "linkspan.server"):
        for _ in range(2):
            client.request("tools/list")
    (said,) = (each.getMessage() for each in caplog.records)
    assert said.startswith("tool 'odd': ")
    assert problem in said


def test_views_of_a_mounted_server_stay_views() -> None:
    outer = Server("outer", extensions=[Apps()])
    outer.mount(tides()[0], "t")
    with SyncClient(outer, protocol_version="2025-11-25") as client:
        (tool, *_) = client.list_tools()
        assert (tool.name, (tool.meta or {})["ui/resourceUri"]) == ("t_show", URI)
        assert client.read_resource(URI).contents[0].text == PAGE


def test_a_visibility_that_is_no_list_is_refused() -> None:
    _, apps = tides()
    view = apps.view("ui://tides/other.html", PAGE)
    for bad in ("app", [], ["user"]):
        with pytest.raises(RegistrationError, match="visibility="):
            view.tool(visibility=bad)  # type: ignore[arg-type]


def test_importing_linkspan_loads_nothing_of_apps() -> None:
    code = "import sys, linkspan; linkspan.Server; linkspan.SyncClient; linkspan.Host; "
    code += "print([m for m in sys.modules if m.startswith('linkspan.apps')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
