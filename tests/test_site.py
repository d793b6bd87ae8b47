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
}
"""Forty questions as people ask them in public threads, and the pages that answer each."""


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
def search(site: Path) -> Iterator[Any]:
    """A search field: returns the pages of the hits, in their order."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[peers]'")
    from http_browser import chromium

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(site))

        def log_message(self, format: str, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server, chromium() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page()
        page.add_init_script("window.fetch = () => new Promise(() => {})")  # of each hit's page, for a line of it

        def hits(question: str) -> list[str]:
            page.goto(f"http://127.0.0.1:{server.server_port}/search.html?q={question.replace(' ', '+')}")
            page.locator(".search-summary:not(:has-text('Searching'))").wait_for(state="attached")
            links = page.locator("ul.search > li > a").evaluate_all("all => all.map(each => each.getAttribute('href'))")
            return list(dict.fromkeys(link.partition(".html")[0] for link in links))

        yield hits
        server.shutdown()


def test_the_search_finds_what_newcomers_ask_among_the_first_three(search: Any) -> None:
    found = {question: search(question)[:3] for question in QUESTIONS}
    assert {question: pages for question, pages in found.items() if QUESTIONS[question] not in pages} == {}


def test_the_search_finds_what_people_ask_in_their_own_words(search: Any) -> None:
    found = {question: search(question)[:3] for question in ASKED}
    missed = {question: pages for question, pages in found.items() if not {*ASKED[question].split()} & {*pages}}
    assert len(missed) <= 2, missed
