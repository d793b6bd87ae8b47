"""`linkspan init [DIR]`: a small project that runs: a server, its test, a README and a pyproject.toml."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shlex import quote
from typing import Final
from urllib.parse import unquote, urlsplit

from linkspan._version import __version__
from linkspan.cli.main import parser_for
from linkspan.cli.terminal import dump
from linkspan.types.base import JSONObject, is_object
from linkspan.wire.redaction import neutral

_EXAMPLES: Final = """examples:
  linkspan init ferries             # a server that a host starts, over stdio
  linkspan init ferries --http      # a server at a URL
  linkspan init ferries --auth      # a server at a URL that needs a login"""


def main(arguments: Sequence[str]) -> int:
    """`linkspan init [DIR]`: write the files of a project, and return the exit status. Nothing is overwritten."""
    parser = parser_for("linkspan init", "Begin a project: a server with a test that runs.", _EXAMPLES)
    parser.add_argument("dir", metavar="DIR", nargs="?", default=".", help="where (default: here); made if needed")
    kinds = parser.add_mutually_exclusive_group()
    over_http, over_login = "a server at a URL", "a server at a URL, for clients that are logged in"
    kinds.add_argument("--http", dest="kind", action="store_const", const="http", default="stdio", help=over_http)
    kinds.add_argument("--auth", dest="kind", action="store_const", const="auth", help=over_login)
    parser.add_argument(
        "--json", action="store_true", help="one JSON document on stdout: what was written, or the error"
    )
    options = parser.parse_args(list(arguments))
    folder = Path(options.dir)
    files = _files(options.kind, _name(folder))
    try:
        there = [each for each in files if (folder / each).exists()]
        if there:
            problem = f"{folder} has {', '.join(there)} already, and nothing is overwritten: choose another directory"
            raise FileExistsError(problem)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        problem = str(error) if error.strerror is None else f"{folder} cannot be written: {error.strerror}"
        parser.error(problem)
    if options.json:
        print(dump({"directory": str(folder.resolve()), "files": [*files]}))
        return 0
    print(neutral(f"Written to {folder}: {', '.join(files)}"))
    enter = "" if options.dir == "." else f"cd {quote(options.dir)} && "
    print(neutral(f"Try it: {enter}python -m pytest && linkspan dev"))
    return 0


def _name(folder: Path) -> str:
    """Return the name of the project in a directory."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    return name if name not in ("", "linkspan") else "my-server"  # a project cannot depend on its own name


def _source() -> str | None:
    """Return the URL from which Linkspan was installed, as a requirement names it; None for a package index (PEP 610)."""
    try:
        record = distribution("linkspan").read_text("direct_url.json")
    except PackageNotFoundError:  # imported from a clone
        clone = Path(__file__).resolve().parents[3]
        return clone.as_uri() if (clone / "pyproject.toml").is_file() else None
    if record is None:
        return None
    found: JSONObject = json.loads(record)
    url = str(found["url"])
    path = re.sub(r"^/(?=[A-Za-z]:)", "", unquote(urlsplit(url).path))  # before the drive of Windows
    if url.startswith("file:") and not Path(path).exists():
        return None
    if is_object(vcs := found.get("vcs_info")):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f"{url}#subdirectory={found['subdirectory']}" if "subdirectory" in found else url


def _dependencies(extras: str) -> dict[str, str]:
    """Return what a project needs, in its pyproject.toml: Linkspan from where this one comes."""
    release, source = f"linkspan{extras}>={__version__}", _source()
    if source is None:
        return {"DEPENDENCIES": f'["{release}"]', "HATCH": ""}
    origin = f'["linkspan{extras} @ {source}"]  # as it is installed here; from a package index: "{release}"'
    return {"DEPENDENCIES": origin, "HATCH": "\n[tool.hatch.metadata]\nallow-direct-references = true\n"}


def _files(kind: str, name: str) -> dict[str, str]:
    """Return the files of a project: what is common, and what differs by its kind."""
    more = _KINDS[kind]
    facts = {"NAME": name, **{key: text.replace("{NAME}", name) for key, text in more.items()}}
    facts |= _dependencies(more["EXTRAS"])
    return {file: re.sub(r"\{([A-Z]+)\}", lambda found: facts[found[1]], text) for file, text in _COMMON.items()}


_COMMON: Final = {
    "server.py": '''"""An MCP server with a tool, a resource and a prompt."""

{IMPORTS}

{SERVER}


@server.tool(title="Count words", annotations={"read_only_hint": True})
def count_words(text: str, longer_than: int = 0) -> int:
    """Count the words of a text.

    Args:
        text: The text.
        longer_than: Count only words with more letters than this.
    """
    if longer_than < 0:
        raise ToolError("longer_than must be 0 or more")
    return sum(len(word) > longer_than for word in text.split())


@server.resource("words://{word}")
def describe(word: str) -> str:
    """Describe a word."""
    return f"{word} has {len(word)} letters."


@server.prompt
def shorten(text: str) -> str:
    """Make a text shorter."""
    return f"Shorten this text, and keep its meaning:\\n\\n{text}"

{MORE}
if __name__ == "__main__":
    server.run({RUN})
''',
    "test_server.py": '''"""The server as its clients see it: in memory, without a process or a port."""

{TESTIMPORTS}import pytest

from linkspan import SyncClient
from linkspan.testing import client_fixture
from server import server

client = client_fixture(server)


@pytest.mark.parametrize(("longer_than", "count"), [(0, 4), (3, 2)])
def test_words_are_counted(client: SyncClient, longer_than: int, count: int) -> None:
    result = client.call_tool("count_words", {"text": "the ferry to Dover", "longer_than": longer_than})
    assert result.decode(int) == count


def test_a_wrong_argument_is_explained_to_the_model(client: SyncClient) -> None:
    result = client.call_tool("count_words", {"text": "", "longer_than": -1})
    assert (result.is_error, result.text) == (True, "longer_than must be 0 or more")


def test_a_word_can_be_read(client: SyncClient) -> None:
    assert client.read_resource("words://ferry").contents[0].text == "ferry has 5 letters."


def test_the_prompt_contains_the_text(client: SyncClient) -> None:
    message = client.get_prompt("shorten", {"text": "A long story."}).messages[0]
    assert message.content.text.endswith("A long story.")
{TEST}''',
    "pyproject.toml": """[project]
name = "{NAME}"
version = "0.1.0"
description = "An MCP server."
readme = "README.md"
requires-python = ">=3.11"
dependencies = {DEPENDENCIES}

[project.optional-dependencies]
dev = ["pytest>=8"]

[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
only-include = ["server.py"]
{HATCH}
[tool.pytest.ini_options]
pythonpath = ["."]
""",
    "README.md": """# {NAME}

An MCP server, made with `linkspan init`.

```
python -m venv .venv && . .venv/bin/activate
pip install -e '.[dev]'
```

Or with uv:

```
uv sync --extra dev --compile-bytecode && . .venv/bin/activate
```

Then:

```
pytest                                                   # the tests
linkspan dev                                             # see it in the browser while you write it
linkspan list server.py                                  # what it offers
linkspan call server.py count_words text="one two"       # call a tool
{USE}
```
{READ}""",
}

_SERVED: Final = """

@pytest.fixture
def url() -> Iterator[str]:
    with make_server("127.0.0.1", 0, server.wsgi()) as web:
        thread = Thread(target=web.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{web.server_port}/mcp"
        web.shutdown()
        thread.join()

"""
_OVER_HTTP: Final = {
    "MORE": """
app = server.asgi()  # for uvicorn, hypercorn, granian, FastAPI, Starlette; server.wsgi() for gunicorn, Flask, Django

""",
    "RUN": '"http", port=8000',
    "EXTRAS": "[http]",
    "USE": "python server.py                                         # serve it at http://127.0.0.1:8000/mcp",
}
_STDLIB: Final = "from collections.abc import Iterator\nfrom threading import Thread\n"

_KINDS: Final[dict[str, dict[str, str]]] = {
    "stdio": {
        "IMPORTS": "from linkspan import Server, ToolError",
        "SERVER": 'server = Server("{NAME}", version="0.1.0", instructions="Counts words, and describes them.")',
        "MORE": "",
        "RUN": "",
        "EXTRAS": "",
        "TESTIMPORTS": "",
        "TEST": "",
        "USE": "linkspan install claude-desktop server.py                # or cursor, vscode, codex, zed, ...",
        "READ": "",
    },
    "http": {
        "IMPORTS": "from linkspan import Server, ToolError",
        "SERVER": 'server = Server("{NAME}", version="0.1.0", instructions="Counts words, and describes them.")',
        **_OVER_HTTP,
        "TESTIMPORTS": f"{_STDLIB}from wsgiref.simple_server import make_server\n\n",
        "TEST": _SERVED
        + """
def test_it_is_served_over_http(url: str) -> None:
    with SyncClient(url) as client:
        assert [tool.name for tool in client.list_tools()] == ["count_words"]
""",
        "READ": "",
    },
    "auth": {
        "IMPORTS": "import os\n\nfrom linkspan import Protected, Server, ToolError",
        "SERVER": """URL = os.environ.get("SERVER_URL", "http://127.0.0.1:8000/mcp")  # as clients write it
ISSUER = os.environ.get("ISSUER", "https://login.example.com")  # the authorization server whose tokens are accepted

server = Server(
    "{NAME}",
    version="0.1.0",
    instructions="Counts words, and describes them.",
    auth=Protected(URL, issuer=ISSUER),
)""",
        **_OVER_HTTP,
        "EXTRAS": "[auth,http]",
        "TESTIMPORTS": f"{_STDLIB}from urllib.error import HTTPError\nfrom urllib.request import Request, urlopen\n"
        "from wsgiref.simple_server import make_server\n\n",
        "TEST": _SERVED
        + """
def test_without_a_token_the_answer_names_where_to_log_in(url: str) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    ping = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    with pytest.raises(HTTPError) as refused:
        urlopen(Request(url, data=ping, headers=headers))
    assert refused.value.code == 401
    assert "resource_metadata=" in refused.value.headers["WWW-Authenticate"]
""",
        "READ": """
Over HTTP, every request needs an access token. Two variables of the environment name what is expected:

| variable | is |
|---|---|
| `SERVER_URL` | the URL of this server, exactly as clients write it |
| `ISSUER` | the authorization server, exactly as its metadata name it |

`linkspan login URL` logs in, as every host does; `linkspan call` in this directory needs no token.
""",
    },
}
"""What differs between the kinds of projects."""
