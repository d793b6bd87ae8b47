"""The page for people, as HTML: who gets it, what is in it, and what it may do in a browser."""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from io import BytesIO
from typing import Any

import msgspec
import pytest
from http_page import HERE, Got, get
from page_server import NASTY, TOOLS, server

from linkspan import Server
from linkspan.core.http_checks import HttpPolicy
from linkspan.serve.http import make_endpoint
from linkspan.serve.wsgi import WsgiApp

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class Reader(HTMLParser):
    """What a browser without a script sees: the tags, their attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""  # of what is shown: not of script and style
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None:
            self.text += data


def page_of(one: Server, url: str = "http://127.0.0.1:8000/mcp") -> str:
    return one.page(url).body.decode()


def test_a_browser_gets_a_page() -> None:
    got = get(server, BROWSER)
    assert (got.status, got.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert got.body.startswith(b"<!doctype html>\n")


@pytest.mark.parametrize(
    "accept", ["text/html", "TEXT/HTML;q=0.9", "application/json, text/html"], ids=["alone", "weighed", "with others"]
)
def test_whoever_names_html_is_a_browser(accept: str) -> None:
    assert get(server, accept).status == 200


@pytest.mark.parametrize(
    "accept", [None, "*/*", "text/*", "application/json", "text/event-stream", "text/event-stream, text/html"]
)
def test_clients_that_may_not_open_a_stream_get_no_page_instead(accept: str | None) -> None:
    got = get(server, accept)
    assert (got.status, got.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("page", [False, None])
def test_the_page_is_off_with_one_argument_and_off_unless_somebody_said_where_the_server_is(page: bool | None) -> None:
    assert get(server, BROWSER, HttpPolicy(page=page)).status == 405


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Forwarded", "Via"])
def test_the_page_of_a_server_on_loopback_is_not_shown_through_a_proxy(name: str) -> None:
    assert get(server, BROWSER, HttpPolicy(page="direct")).status == 200
    assert get(server, BROWSER, HttpPolicy(page="direct"), **{name.lower(): "for"}).status == 405
    assert get(server, BROWSER, HttpPolicy(page=True), **{name.lower(): "for"}).status == 200


def test_a_word_that_means_no_page_is_refused() -> None:
    with pytest.raises(ValueError, match="page must be True, False, 'direct' or None, got 'no'"):
        HttpPolicy(page="no")  # type: ignore[arg-type]


def test_a_get_within_a_session_is_never_a_page() -> None:
    got = get(server, BROWSER, **{"mcp-session-id": "unknown"})
    assert got.status == 404
    assert b"<html" not in got.body


def test_head_is_refused_as_everything_that_is_not_for_clients() -> None:
    endpoint = make_endpoint(server, HttpPolicy(page=True))
    refusal = endpoint.gate.admit("HEAD", {"accept": BROWSER, "host": "127.0.0.1"}, HERE)
    assert Got.of(refusal).status == 405


def test_a_page_is_for_hosts_that_are_served_only() -> None:
    got = get(server, BROWSER, HttpPolicy(page=True, allowed_hosts=["127.0.0.1"]), host="evil.example")
    assert got.status == 421


@pytest.mark.parametrize(
    ("hosts", "origin"),
    [
        (["desk.example"], "https://desk.example"),
        (["desk.example"], "https://desk.example:8443"),
        (["desk.example:8443"], "https://desk.example:8443"),
        (["[::1]:8000"], "http://[::1]:8000"),
    ],
)
def test_the_forms_of_a_page_may_talk_to_their_own_server(hosts: list[str], origin: str) -> None:
    endpoint = make_endpoint(server, HttpPolicy(page=True, allowed_hosts=hosts))
    headers = {"host": origin.partition("://")[2], "origin": origin, "content-type": "application/json"}
    assert endpoint.gate.admit("POST", headers, HERE) == headers
    refusal = endpoint.gate.admit("POST", headers | {"origin": "https://evil.example:8443"}, HERE)
    assert Got.of(refusal).status == 403


def test_wsgi_has_the_page_too() -> None:
    said: list[Any] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/mcp", "HTTP_ACCEPT": BROWSER, "HTTP_HOST": "desk.example"}
    body = b"".join(WsgiApp(make_endpoint(server, HttpPolicy(page=True)))(environ, lambda *start: said.append(start)))
    assert said[0][0] == "200 OK"
    assert ("content-length", str(len(body))) in said[0][1]
    assert b"http://desk.example/mcp" in body


def test_the_page_may_run_its_own_script_talk_to_its_own_server_and_nothing_else() -> None:
    headers = get(server, BROWSER).headers
    policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
    hashes = r"'sha256-[A-Za-z0-9+/]{43}='"
    assert re.fullmatch(hashes, policy.pop("script-src"))
    assert re.fullmatch(hashes, policy.pop("style-src"))
    assert policy == {
        "default-src": "'none'",
        "connect-src": "'self'",
        "img-src": "data:",
        "media-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "page",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["vary"] == "accept"


def test_a_page_for_another_origin_still_says_who_may_read_it() -> None:
    got = get(server, BROWSER, HttpPolicy(page=True, cors=["https://app.example"]), origin="https://app.example")
    assert got.headers["access-control-allow-origin"] == "https://app.example"


def test_nothing_of_the_page_is_anywhere_else() -> None:
    tags = Reader(page_of(server)).tags
    assert {tag for tag, _ in tags} & {"img", "iframe", "object", "embed", "base", "form"} == set()
    assert [attributes for tag, attributes in tags if tag == "link"] == [{"rel": "icon", "href": "data:,"}]
    assert [attributes for tag, attributes in tags if tag in ("script", "style")] == [{}, {}]
    assert all(attributes["href"].startswith("#") for tag, attributes in tags if tag == "a" and attributes["href"])


def test_the_page_is_small() -> None:
    assert len(page_of(Server("empty"))) < 60_000


def test_whatever_an_author_wrote_is_text() -> None:
    one = Server(NASTY, NASTY, title=NASTY, description=NASTY, instructions=NASTY, website_url="javascript:alert(1)")

    schema = {
        "type": "object",
        "properties": {NASTY: {"type": "string", "description": NASTY, "default": NASTY, "enum": [NASTY]}},
        "required": [NASTY],
    }
    one.define_tool("nasty", title=NASTY, description=NASTY, input_schema=schema, handler=lambda: "")
    one.resource("nasty://x", name=NASTY, title=NASTY, description=NASTY, mime_type=NASTY)(lambda: "")
    one.resource("nasty://{x}", name=NASTY, title=NASTY, description=NASTY, mime_type=NASTY)(lambda x: "")
    one.prompt(name="nasty", title=NASTY, description=NASTY)(lambda: "")
    found = Reader(page_of(one, f'http://x/"{NASTY}'))
    assert [tag for tag, _ in found.tags if tag in ("img", "script")] == ["script"]
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
    assert found.text.count(NASTY) >= 20
    assert "javascript:" not in page_of(one)


def test_the_page_reads_well_without_its_script() -> None:
    text = re.sub(r"\s+", " ", Reader(page_of(server)).text)
    for said in [
        "Ferry desk",
        "ferry desk · version 2.1.0",
        "Look before you book.",
        "find Find ferries read-only",
        "Find ferries that leave a port.",
        "port string required Where to leave from.",
        'kind "car" | "bike" required',
        "most integer = 5 How many to list.",
        '"x-mcp-header": "Port"',
        "Output schema",
        "tides://today tides text/plain High and low water today.",
        "tides://{day}",
        "plan Plan a crossing.",
        "start text required",
    ]:
        assert said in text


def test_a_server_without_anything_says_so() -> None:
    assert "Nothing is offered here yet." in page_of(Server("empty"))


def test_every_page_of_a_list_is_shown() -> None:
    one = Server("many", page_size=2)
    for number in range(5):
        one.tool(name=f"tool_{number}")(lambda: "")
    assert re.findall(r'data-value="(\w+)"', page_of(one)) == [f"tool_{number}" for number in range(5)]


def test_what_is_hidden_from_lists_is_hidden_from_the_page() -> None:
    one = Server("shy", capabilities={"tools": None})
    one.tool(name="hidden")(lambda: "")
    assert "hidden_tool" not in page_of(one)
    assert "Nothing is offered here yet." in page_of(one)


def connecting(page: str) -> dict[str, str]:
    """What to copy for each client."""
    found = re.findall(
        r"<summary>([^<]+)</summary>\n[^<]*(?:<a [^>]*>[^<]*</a>[^<]*)?<div class=\"line\"><pre[^>]*>(.*?)</pre>",
        page,
        re.S,
    )
    return {client: html.unescape(re.sub(r"<[^>]+>", "", lines)) for client, lines in found}


def test_people_can_copy_what_connects_a_client() -> None:
    url = "https://desk.example/mcp"
    lines = connecting(page_of(server, url))
    entries = {name: msgspec.json.decode(text) for name, text in lines.items() if text.startswith("{")}
    assert entries == {
        "Cursor": {"mcpServers": {"ferry-desk": {"url": url}}},
        "VS Code": {"servers": {"ferry-desk": {"type": "http", "url": url}}},
        "mcp.json": {"mcpServers": {"ferry-desk": {"type": "http", "url": url}}},
    }
    assert lines["Claude Code"] == f"claude mcp add --transport http ferry-desk {url}"
    assert lines["Claude Desktop"] == f"linkspan install --bridge claude-desktop {url} --name ferry-desk"
    assert lines["Terminal"] == f"linkspan list {url}"
    assert f'SyncClient("{url}")' in lines["Python"]


def test_the_request_for_curl_is_answered_with_the_tools() -> None:
    command = connecting(page_of(server, "http://127.0.0.1:8000/mcp"))["curl"].replace("\\\n", "")
    _, url, *rest = shlex.split(command)
    options = list(zip(rest[::2], rest[1::2], strict=True))
    body = next(value for name, value in options if name == "-d").encode()
    headers = dict(value.split(": ", 1) for name, value in options if name == "-H")
    environ: dict[str, Any] = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    environ |= {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/mcp",
        "HTTP_HOST": "127.0.0.1:8000",
        "wsgi.input": BytesIO(body),
    }
    environ |= {"CONTENT_TYPE": headers["content-type"], "CONTENT_LENGTH": str(len(body))}
    answer = b"".join(server.wsgi()(environ, lambda *_: None))
    assert [each["name"] for each in msgspec.json.decode(answer)["result"]["tools"]] == TOOLS
    assert url == "http://127.0.0.1:8000/mcp"


def test_an_address_cannot_be_a_command() -> None:
    lines = connecting(page_of(server, "http://x/$(reboot);'\" &"))
    assert lines["Terminal"] == """linkspan list 'http://x/$(reboot);'"'"'" &'"""


def test_serving_clients_loads_nothing_of_the_page() -> None:
    code = "import sys, linkspan; linkspan.Server('x').asgi(page=True); print('linkspan.server.page' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
