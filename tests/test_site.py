"""The site of the documents: it builds without a warning, has every public name, and its search finds what newcomers ask."""

from __future__ import annotations

import inspect
import pkgutil
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import linkspan

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((ROOT / "examples").rglob("*.py"))]
IMPORT = re.compile(r"^ *from (linkspan[\w.]*) import (?:([^(\n#]+)|\(([^)]+)\))", re.MULTILINE)

QUESTIONS = {
    "breaking change": "contracts",
    "lock file": "contracts",
    "doctor": "doctor",
    "what the protocol requires": "check",
    "requirement ids": "requirements",
    "au-c40": "requirements",
    "does not work in Claude": "doctor",
    "lint": "contracts",
    "install": "installation",
    "pip": "installation",
    "uv": "installation",
    "extras": "installation",
    "inspector": "dev",
    "workbench": "dev",
    "copy as curl": "dev",
    "langchain": "with-langchain",
    "openai-agents": "with-openai-agents",
    "pydantic-ai": "with-pydantic-ai",
    "claude agent sdk": "with-claude-agent-sdk",
    "serverless": "serverless",
    "vercel": "serverless",
    "websocket": "not-here",
    "first server": "tutorial-1-server",
    "async def tool": "tools",
    "optional parameter": "arguments",
    "wrong arguments": "arguments",
    "pydantic model": "arguments",
    "pictures": "results",
    "return a file": "results",
    "large result": "results",
    "raise an error": "tool-errors",
    "incident": "tool-errors",
    "ask the user": "asking",
    "confirmation": "asking",
    "resource template": "resources",
    "prompt arguments": "prompts",
    "completion": "prompts",
    "report progress": "context",
    "cancelled": "context",
    "dependencies": "dependencies",
    "database connection": "lifespan",
    "middleware": "around-a-call",
    "rate limit": "around-a-call",
    "timeout of a tool": "tool-limits",
    "hide a tool": "visibility",
    "mount a server": "mounting",
    "mcp-remote": "bridge",
    "policy for each person": "gateway",
    "answer tools/list": "whole-methods",
    "entry points": "plugins",
    "list changed notification": "changes",
    "offer a skill": "skills",
    "show a chart": "apps",
    "openapi document": "openapi",
    "from_fastapi": "openapi",
    "fastapi": "frameworks",
    "flask": "frameworks",
    "django": "frameworks",
    "docker": "deployment",
    "nginx": "deployment",
    "systemd": "deployment",
    "lambda": "serverless",
    "load balancer": "deployment",
    "gunicorn workers": "http",
    "allowed hosts": "http",
    "cors": "http",
    "oauth": "authorization",
    "client credentials": "authorization",
    "api key": "protecting-a-server",
    "keycloak": "keycloak",
    "authorization servers tried": "logins",
    "reconnect": "client",
    "retry": "client",
    "deadline": "client-errors",
    "stop a call": "client-errors",
    "elicitation": "answering",
    "sampling": "answering",
    "many servers": "many-servers",
    "ollama": "models",
    "claude desktop": "command-line",
    "reload": "command-line",
    "variables in mcp.json": "configuration",
    "pytest fixture": "testing",
    "mock a server": "testing",
    "breakpoint": "debugging",
    "log messages": "debugging",
    "jupyter": "notebooks",
    "record": "tracing",
    "opentelemetry": "telemetry",
    "prometheus": "telemetry",
    "mcpserver": "coming-from-mcp",
    "fastmcp": "coming-from-fastmcp",
    "unchanged": "other-sdks",
    "ls-106": "errors",
    "list of limits": "limits",
    "deprecation": "versions",
    "typescript": "coming-from-typescript",
    "ruby": "coming-from-ruby",
    "vulnerability": "security",
}
"""What newcomers type, and the page that answers it."""

ASKED = {
    "mock sampling in tests": "testing answering",
    "hide parameter from llm": "dependencies arguments mounting",
    "docker image": "deployment",
    "token expired refresh automatically": "authorization client",
    "get request headers in a tool": "context http",
    "access http headers": "context http client",
    "session 404 multi worker": "http stores deployment",
    "sticky sessions": "http stores deployment",
    "horizontal scaling": "deployment http stores",
    "stateless mode": "http stores bridge protocol",
    "server disconnected": "debugging doctor client-errors errors",
    "tool not showing up": "doctor debugging visibility",
    "how to return markdown": "results tools",
    "base64 image": "results",
    "tool timeout": "tool-limits client-errors",
    "cancel a running tool": "context client-errors tasks",
    "global state between calls": "lifespan context stores",
    "dependency injection": "dependencies",
    "list of enums": "arguments",
    "required field missing": "arguments",
    "get user id": "context protecting-a-server",
    "jwt validation": "protecting-a-server authorization",
    "google login": "protecting-a-server logins authorization",
    "refresh token": "authorization client",
    "mount in fastapi": "frameworks",
    "reverse proxy": "deployment http bridge",
    "docker compose": "deployment",
    "env variable in config": "configuration",
    "npx not found": "configuration doctor errors",
    "connect from python script": "client tutorial-2-client",
    "sync client": "client tutorial-2-client",
    "call tool without llm": "client command-line testing tutorial-2-client",
    "use with local model": "models host",
    "retry failed call": "client client-errors",
    "mock tool in tests": "testing",
    "debug in vscode": "debugging dev doctor",
    "see the json messages": "debugging tracing dev",
    "metrics": "telemetry",
    "audit log": "around-a-call telemetry tracing",
    "dynamic resources": "resources changes",
    "subscribe to resource": "changes resources client",
    "send notification to client": "changes context",
    "ask for missing parameter": "asking answering",
    "approve before calling": "asking host answering command-line",
    "how do I stream partial results from a tool": "context results",
    "Attempted to exit cancel scope in a different task": "client lifespan notebooks",
    "server hangs on windows": "debugging errors client doctor",
    "print statement corrupts json rpc": "debugging errors transports server",
    "run server in background thread": "notebooks server testing",
    "add custom endpoint /health": "deployment http frameworks",
    "return pydantic model from tool": "results",
    "tool with no arguments": "tools arguments",
    "how to limit response size": "limits tool-limits results",
    "pass secrets to server env": "configuration command-line client",
    "oauth with github": "protecting-a-server logins authorization",
    "validate token audience": "protecting-a-server keycloak",
    "scope required for one tool": "protecting-a-server visibility",
    "two tools with same name": "tools errors mounting",
    "rename tool": "mounting tools openapi",
    "tool name too long": "contracts tools openapi doctor",
    "convert rest api to mcp": "openapi",
    "swagger": "openapi",
    "exclude endpoints from openapi": "openapi",
    "use mcp tools with claude api": "host with-claude-agent-sdk models",
    "gpt function calling format": "host models",
    "gemini rejects schema": "contracts host doctor models",
    "stop infinite tool loop": "host limits chat",
    "token usage count": "host chat dev contracts",
    "conversation memory": "host chat",
    "save chat history": "chat host",
    "how to get client name and version": "context server",
    "detect client capabilities": "asking context",
    "list roots": "asking answering context",
    "server sends progress notifications": "context",
    "progress callback in client": "client-errors client",
    "pagination of list tools": "server client tools",
    "pagination cursor list tools": "client",
    "how to limit which tools a client can see": "visibility",
    "sync function blocks event loop": "tools",
    "add icon to tool": "tools server",
    "tool annotations readonly destructive": "tools",
    "mark tool as read only": "tools",
    "change log level": "debugging context",
    "log to file": "debugging",
    "send traces to jaeger": "telemetry",
    "correlation id": "telemetry context around-a-call debugging",
    "run on port 8080": "http command-line server",
    "https certificate": "deployment http client",
    "self signed certificate client error": "client errors",
    "corporate proxy": "client",
    "connection refused": "errors client-errors",
    "how to shut down gracefully": "http lifespan deployment",
    "SIGTERM": "http lifespan deployment",
    "share state between workers": "stores",
    "use redis": "stores engines",
    "postgres store": "stores",
    "resume interrupted task after restart": "tasks engines stores",
    "cancel background task": "tasks",
    "difference between tool and resource": "resources prompts tools",
    "binary resource pdf": "resources",
    "watch file for changes and notify": "changes",
    "autocomplete argument values": "prompts",
    "prompt with image": "prompts",
    "inspect server interactively": "dev command-line",
    "call a tool from bash": "command-line",
    "generate typed client": "contracts",
    "detect breaking change in ci": "contracts",
    "is my server spec compliant": "check",
    "test with claude desktop": "command-line doctor configuration",
    "asyncio event loop already running": "notebooks client",
    "flask wsgi": "frameworks",
    "mount two servers in one app": "frameworks mounting",
    "per user tools": "visibility protecting-a-server",
    "prevent dns rebinding": "http security limits",
    "sse deprecated": "http coming-from-fastmcp protocol not-here",
    "supported python versions": "versions installation",
    "what is new": "changelog versions",
    "connect client with mcp_settings.json": "many-servers configuration client",
    "authenticate with our own api key system": "protecting-a-server",
    "combined fastapi app 401": "frameworks protecting-a-server",
    "can this be dockerized and deployed to the cloud": "deployment serverless",
    "bad request no valid session id provided": "http errors deployment",
    "unknown session id 400 instead of 404": "http errors protocol",
    "307 temporary redirect /mcp/": "http doctor frameworks",
    "forward x-api-key header on tool use": "openapi mounting context",
    "in-memory client for tests": "testing",
    "how to automate testing of a tool on the command line": "command-line testing",
    "working example streamable http": "http tutorial-4-deploy",
    "localhost binding in docker unreachable": "deployment http",
    "list of allowed values for a parameter": "arguments",
    "my tool needs the logged-in user's email": "context protecting-a-server",
    "send an image back to the model": "results",
    "ctrl-c does not stop server": "http lifespan errors deployment",
    "run sync library inside async tool": "tools tool-limits",
    "how do I keep a websocket connection to an exchange open for all tools": "lifespan dependencies",
    "llm passes list as string": "arguments",
    "too many tools confuse the model": "host visibility",
    "claude does not see my prompts": "prompts doctor",
    "read csv file from disk as resource": "resources",
    "get notified when a resource changes": "changes client answering",
    "ask claude to summarize text inside my tool": "asking",
    "share the code of tools between two servers": "tutorial-5-three-files mounting",
    "block tools that delete things unless admin": "visibility protecting-a-server dependencies around-a-call",
    "log every tool call with duration": "around-a-call telemetry",
    "server works locally but not behind load balancer": "deployment http stores doctor",
    "uvx command not found in claude desktop": "configuration doctor errors",
    "pass env vars to stdio server from python client": "client configuration",
    "client hangs forever waiting for response": "client-errors debugging limits client",
    "how to know whether the call was executed when the connection broke": "client-errors",
    "talk to several mcp servers with one agent": "many-servers host",
    "gpt-4o agent with mcp tools": "host models with-openai-agents tutorial-3-chat chat",
    "convert langgraph tools": "with-langchain",
    "azure ad authentication": "protecting-a-server logins",
    "refresh access token without user interaction": "authorization",
    "progress of a job that runs for an hour": "tasks context",
    "worker crashed, job lost": "engines tasks stores",
    "migrate existing mcp sdk v1 server": "coming-from-mcp other-sdks",
    "ValueError: Invalid Host header": "http errors deployment",
    "how to add a favicon or logo to my server": "server tools",
    "return several images at once": "results",
    "datetime argument arrives as string": "arguments",
    "let the user pick one of three options": "asking answering",
    "tool visible only after login": "visibility protecting-a-server",
    "retry policy for flaky upstream": "client client-middleware client-errors mounting",
    "sqlalchemy session in tools": "dependencies lifespan",
    "okta sso for internal tools": "protecting-a-server logins",
    "pytest hangs with my mcp server": "testing debugging",
    "json logs to stdout in docker": "debugging deployment telemetry",
    "which port does it use by default": "http command-line limits",
    "upload a pdf to a tool": "arguments not-here",
    "kubernetes readiness probe": "deployment",
    "vscode copilot cannot start server": "doctor debugging configuration command-line",
    "client for old sse servers": "client http protocol bridge",
    "cancel button should stop the tool": "context client-errors tasks tool-limits",
    "how many tokens do my tools cost": "contracts dev host",
    "typescript client generated from python server": "contracts coming-from-typescript",
    "expose my django models": "frameworks",
    "limit each customer to 100 calls per minute": "around-a-call gateway tool-limits",
    "store conversation state between requests": "stores context chat host",
    "add my server to claude code": "command-line configuration page",
    "secret must not appear in logs": "security tracing debugging telemetry",
    "server that forwards to another server and filters its tools": "mounting gateway bridge",
    "run celery tasks from a tool": "engines tasks",
    "dataclass as return type": "results",
    "what happens when the client disconnects": "context http tasks client-errors",
    "elicitation not supported by client fallback": "asking",
    "speed compared to fastmcp": "figures coming-from-fastmcp",
    "custom json-rpc method": "extensions whole-methods",
    "map widget in chatgpt": "apps",
    "agent skills folder": "skills",
    "does it run on windows": "versions installation",
    "device code flow without browser": "authorization",
    "test oauth protected server": "testing protecting-a-server",
    "convert graphql or grpc api": "openapi not-here transports",
    "ollama agent loop": "models host chat",
    "record a session and replay in tests": "tracing testing",
    "mcp error -32602 invalid params": "errors arguments",
    "how do i make a tool": "tools tutorial-1-server server",
    "return an image from a tool": "results",
    "@mcp.prompt": "prompts",
    "FastMCP.from_openapi": "openapi other-sdks coming-from-fastmcp",
    "mount server on another server": "mounting",
    "ctx.report_progress": "context",
    "elicit user input": "asking",
    "stdio vs http": "server http",
    "claude desktop config": "configuration command-line",
    "test my server without network": "testing",
    "bearer token auth": "protecting-a-server authorization",
    "connection closed error -32000": "debugging doctor errors",
    "method not found -32601": "errors",
    "address already in use": "errors http",
    "resource template uri with parameters": "resources",
    "logging to client": "context",
    "lifespan database connection": "lifespan",
    "streamablehttp_client": "coming-from-mcp client",
    "stateless_http": "http coming-from-fastmcp",
    "sampling create_message": "asking",
    "pydantic model as tool argument": "arguments",
    "rate limiting": "around-a-call",
    "add mcp to fastapi app": "frameworks",
    "CORS error browser inspector": "http",
    "421 misdirected request invalid host header": "http",
    "print breaks stdio json parse error": "debugging server",
    "timeout tool call takes too long": "tool-limits client-errors",
    "hide tools from some users": "visibility",
    "chat with openai model": "chat tutorial-3-chat",
    "autentication google login": "protecting-a-server",
    "structured output schema": "results",
    "hot reload": "dev command-line",
    "docker deploy": "deployment",
    "long running job background task": "tasks",
    "roots": "asking answering",
    "convert stdio server to http": "bridge",
    "create new tool with decorator": "tools",
    "tool name conflict two servers": "many-servers mounting",
    "how to see logs in claude desktop": "debugging",
    "write unit tests for mcp tools": "testing",
    'mcp.run(transport="streamable-http")': "http coming-from-mcp coming-from-fastmcp",
    "ClientSession initialize call_tool": "coming-from-mcp client",
    "pass authorization header from client": "client authorization",
    "SSE transport support": "http protocol not-here",
    "return error to llm": "tool-errors",
    "optional parameters default none": "arguments",
    "ENOENT uvx spawn error": "configuration doctor errors",
    "resource subscriptions": "changes resources",
    "session terminated 404": "http errors",
    "limit output tokens": "tool-limits results limits host",
    "upload file to server": "not-here arguments",
    "deploy to aws": "deployment serverless",
    "github oauth": "protecting-a-server",
    "progres bar": "context",
    "multiple users different api keys": "protecting-a-server gateway",
    "ValidationError field required": "arguments",
    "python version": "installation versions",
    "what does this library do": "index tutorial-1-server protocol",
    "async tool": "tools",
    "access database in tool": "lifespan dependencies",
    "list_tools returns empty": "doctor debugging visibility changes",
    "call another api with httpx": "dependencies lifespan openapi",
    "401 unauthorized": "protecting-a-server authorization debugging",
    "set server name and version": "server",
    "ctx.elicit": "asking",
    "session.call_tool timeout": "client-errors client",
    "remove a tool at runtime": "changes tools",
    "image upload": "arguments not-here results",
    "caching tool results": "around-a-call",
    "proxy remote server": "mounting bridge",
    "no module named": "installation errors configuration",
    "kubernetes health check": "deployment",
    "cursor mcp.json": "configuration command-line",
    "env vars": "configuration",
    "agent loop with anthropic": "host models",
    "structuredContent vs content": "results",
    "read env variable in server": "configuration deployment server",
    "tool docstring not shown": "tools doctor arguments",
    "websocket transport": "not-here transports",
    "return dict from tool": "results",
    "send message to client while running": "context changes",
    "nested pydantic input": "arguments",
    "sampling handler": "answering",
    "run tests in ci": "testing contracts",
    "unit test async client": "testing client",
    "server icon": "server",
    "get session id": "context",
    "handle exceptions globally": "around-a-call tool-errors",
    "expose swagger api": "openapi",
    "azure entra": "protecting-a-server logins",
    "memory usage": "figures tool-limits limits",
    "multi tenant": "gateway visibility protecting-a-server",
    "inspecter": "dev",
    "retries exponential backoff": "client models client-middleware",
    "session not found": "http errors",
}
"""Questions as people ask them in public threads, and the pages that answer each."""


SPHINX = "import gc, runpy; gc.disable(); runpy.run_module('sphinx', run_name='__main__', alter_sys=True)"
"""`python -m sphinx`, where 40% of the time would go into looking for garbage."""
pytestmark = pytest.mark.timeout(600)  # the site takes half a minute of a quiet machine


def conf() -> Any:
    spec = spec_from_file_location("docs_conf", DOCS / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    shown = re.findall(r"^\.\. (?:auto\w+|py:data):: ([\w.]+)$", conf().api(), re.MULTILINE)
    assert sorted(shown) == sorted(f"{path}.{name}" for path, names in conf().public().items() for name in names)


def test_every_package_with_names_is_public() -> None:
    found = {name for _, name, is_package in pkgutil.walk_packages(linkspan.__path__, "linkspan.") if is_package}
    named = {path for path in found if getattr(import_module(path), "__all__", ())}
    assert named - {"linkspan.client"} <= set(conf().MODULES)  # the names of that one are in linkspan, too


def test_what_the_pages_and_the_examples_import_is_on_the_page_of_the_api() -> None:
    public = {(path, name) for path, names in conf().public().items() for name in names}
    public |= {(path, name) for path in conf().MODULES for name in linkspan.__all__}
    used = {
        (path, name.partition(" as ")[0])
        for page in PAGES
        for path, *lists in IMPORT.findall(page.read_text())
        for name in re.findall(r"\w+(?: as \w+)?", " ".join(lists))
    }
    assert {each for each in used if each[0].startswith("linkspan.")} - public == set()


def test_every_public_name_has_a_docstring_of_its_own() -> None:
    assert [
        each for path, names in conf().public().items() for name in names for each in undocumented(path, name)
    ] == []


def undocumented(path: str, name: str) -> Iterator[str]:
    """Yield what has no docstring: a name, or a public member of a class."""
    module = import_module(path)
    value = getattr(module, name)
    if not inspect.isclass(value):
        found = inspect.getdoc(value) if inspect.isroutine(value) else conf().data_docstring(name, module)
        yield from () if found else (f"{path}.{name}",)
        return
    members = {each: member for each, member in vars(value).items() if not each.startswith("_")}
    wanted = [each for each, member in members.items() if callable(member) or isinstance(member, property)]
    if not value.__doc__:
        yield f"{path}.{name}"
    yield from (f"{path}.{name}.{each}" for each in wanted if not inspect.getdoc(getattr(value, each)))


def test_every_page_has_a_chapter() -> None:
    chapters = {name for names in conf().ORDER.values() for name in names}
    pages = {page.stem for page in DOCS.glob("*.md")} - {"index"} | {"decisions/index"}
    assert chapters == pages


LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|\b(?:href|src)=\"([^\"]+)\"")
TEXTS = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")})


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub and the site make them from headings."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    repeated = {f"{slug}-{number}" for slug, count in found.items() for number in range(1, count + 1)}
    return {*found, *repeated, *re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)}


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    links = [next(filter(None, found)) for found in LINK.findall(text)]
    broken: list[str] = []
    for link in links:
        path, _, anchor = link.partition("#")
        if ":" in path:
            continue  # elsewhere
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by the command that the documents name. Any warning fails it."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed: pip install '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--keep-going", "-q", str(DOCS), str(out)]
    done = subprocess.run([sys.executable, "-c", SPHINX, *options], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return out


def test_the_site_needs_nothing_from_elsewhere(site: Path) -> None:
    loaded = r"""<(?:script|img|link)\b[^>]*(?:src|href)="(https?:[^"]+)"""
    foreign = {found for page in site.rglob("*.html") for found in re.findall(loaded, page.read_text())}
    assert {each for each in foreign if "img.shields.io" not in each} == set()


@pytest.fixture(scope="module")
def searching(site: Path) -> Iterator[Any]:
    """The page of the search, in a browser."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[peers]'")
    from http_browser import chromium

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(site))

        def log_message(self, format: str, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server, chromium() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page(base_url=f"http://127.0.0.1:{server.server_port}/")
        page.add_init_script("window.fetch = () => new Promise(() => {})")  # of each hit's page, for a line of it
        yield page
        server.shutdown()


SHOWN = "all => all.map(each => [each.textContent, each.getAttribute('href')])"
FOUND = "question => Search._performSearch(...Search._parseQuery(question)).reverse().map(hit => hit[0])"


def shown(searching: Any, question: str) -> list[tuple[str, str]]:
    """Return the titles and links of the hits that the page shows, in their order."""
    searching.goto(f"search.html?q={question.replace(' ', '+')}")
    searching.locator(".search-summary:not(:has-text('Searching'))").wait_for(state="attached")
    return [(title, link) for title, link in searching.locator("ul.search > li > a").evaluate_all(SHOWN)]


@pytest.fixture(scope="module")
def search(searching: Any) -> Any:
    """A search field: returns the pages of the hits, in their order."""
    shown(searching, "tool")
    return lambda question: list(dict.fromkeys(searching.evaluate(FOUND, question)))


def test_a_hit_leads_to_the_section(searching: Any) -> None:
    hits = shown(searching, "421 misdirected request")
    assert (
        "Serving HTTP > Allowed hosts and origins: 421 and 403",
        "http.html#allowed-hosts-and-origins-421-and-403",
    ) in hits[:3]


def test_a_name_of_the_api_comes_first(searching: Any) -> None:
    assert shown(searching, "SyncClient")[0][1] == "api.html#linkspan.SyncClient"


def test_the_search_forgives_a_letter(search: Any) -> None:
    assert "testing" in search("pytets")[:3]
    assert "protecting-a-server" in search("authentcation")[:3]


def test_a_usual_word_finds_pages_before_a_member_of_that_name(searching: Any) -> None:
    for word in ("oauth", "roots", "middleware"):
        links = [link for _, link in shown(searching, word)[:4]]
        assert [link.startswith("api.html") for link in links] == [False, False, False, True]
    assert shown(searching, "OAuth")[0][1] == "api.html#linkspan.auth.OAuth"


def test_an_error_code_and_an_option_are_wanted(search: Any) -> None:
    assert search("method not found -32601")[0] == "errors"
    assert search("--workers") == search("workers") != []
    assert search("-v verbose") == search("v verbose")


def test_an_abbreviation_is_the_word_that_it_stands_for(search: Any) -> None:
    assert search("env of a server") == search("environment of a server")
    assert search("messages of an LLM") == search("msg of a model") != []


def test_a_name_counts_whole(search: Any) -> None:
    assert "with-openai-agents" in search("openai agents")[:3]
    assert "apps" not in search("chat with gpt")[:3]


def test_a_word_with_a_minus_is_not_wanted(search: Any) -> None:
    assert "with-langchain" in search("langchain tools")
    assert "with-langchain" not in search("tools -langchain")


def test_the_search_finds_what_newcomers_ask_among_the_first_three(search: Any) -> None:
    found = {question: search(question)[:3] for question in QUESTIONS}
    assert {question: pages for question, pages in found.items() if QUESTIONS[question] not in pages} == {}


def test_the_search_finds_what_people_ask_in_their_own_words(search: Any) -> None:
    found = {question: search(question)[:3] for question in ASKED}
    missed = {question: pages for question, pages in found.items() if not {*ASKED[question].split()} & {*pages}}
    assert len(missed) <= len(ASKED) // 20, missed
