"""The site: these pages, a page with all public names, and a search. `python -m sphinx docs build/site` builds it.

Pages stay Markdown that reads well by itself. The texts of the API are the docstrings, which are Markdown, too.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import linkspan

sys.path.insert(0, str(Path(__file__).parent))
from finding import find_index

project = "Linkspan"
author = "the authors of Linkspan"
release = version = linkspan.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
# Links to files of the repository, such as ../examples; and the type `bytes`, which is taken for properties of that name.
suppress_warnings = ["myst.xref_missing", "ref.python"]
html_theme = "furo"
html_title = f"Linkspan {release}"
html_copy_source = False
html_static_path = ["site.css", "site.js", "favicon.svg"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "favicon.svg"
html_search_scorer = str(Path(__file__).with_name("search-order.js"))
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
autodoc_class_signature = "separated"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True

ORDER = {
    "Start": [
        "installation",
        "tutorial-1-server",
        "tutorial-2-client",
        "tutorial-3-chat",
        "tutorial-4-deploy",
        "tutorial-5-three-files",
    ],
    "How to: servers": [
        "server",
        "tools",
        "arguments",
        "results",
        "tool-errors",
        "asking",
        "resources",
        "prompts",
        "context",
        "dependencies",
        "lifespan",
        "around-a-call",
        "tool-limits",
        "visibility",
        "mounting",
        "openapi",
        "bridge",
        "gateway",
        "changes",
        "tasks",
        "engines",
        "skills",
        "apps",
        "extensions",
        "whole-methods",
        "plugins",
    ],
    "How to: serving": [
        "http",
        "frameworks",
        "deployment",
        "serverless",
        "protecting-a-server",
        "keycloak",
        "page",
        "stores",
        "transports",
        "telemetry",
    ],
    "How to: clients and hosts": [
        "client",
        "client-errors",
        "answering",
        "client-middleware",
        "many-servers",
        "authorization",
        "host",
        "models",
        "chat",
        "configuration",
        "command-line",
    ],
    "How to: finding out": [
        "dev",
        "testing",
        "contracts",
        "check",
        "doctor",
        "debugging",
        "tracing",
        "notebooks",
    ],
    "Together with": [
        "with-langchain",
        "with-openai-agents",
        "with-pydantic-ai",
        "with-claude-agent-sdk",
        "not-here",
    ],
    "Coming from": [
        "other-sdks",
        "coming-from-fastmcp",
        "coming-from-mcp",
        "coming-from-typescript",
        "coming-from-ruby",
    ],
    "Reference": [
        "api",
        "command-line-reference",
        "limits",
        "errors",
        "error-texts",
        "protocol",
        "figures",
        "logins",
        "requirements",
    ],
    "Inside": [
        "architecture",
        "words",
        "decisions/index",
        "contributing",
        "security",
        "versions",
        "roadmap",
        "changelog",
    ],
}
"""The chapters of the site. A page that is in none of them comes last."""

GROUPS = {
    "linkspan.extensions": "Servers",
    "linkspan.server": "Servers",
    "linkspan.serve": "Serving",
    "linkspan.auth": "Protecting servers",
    "linkspan.client": "Clients",
    "linkspan.host": "Hosts and models",
    "linkspan.flows": "What clients return and raise",
    "linkspan.errors": "Errors of servers",
    "linkspan.skills": "Skills",
    "linkspan.apps": "Apps",
    "linkspan.openapi": "From APIs",
    "linkspan.testing": "Testing",
    "": "Values of the protocol",
}
"""The parts of the page with all names, by where a name is defined."""


MODULES: dict[str, tuple[str, ...] | None] = {
    "linkspan.apps": None,
    "linkspan.auth": None,
    "linkspan.openapi": None,
    "linkspan.skills": None,
    "linkspan.extensions.engine": ("TaskEngine", "run_task"),
    "linkspan.stores": None,
    "linkspan.engines": None,
    "linkspan.testing": None,
    "linkspan.client.config": ("InputWanted", "known_configs", "read_config"),
    "linkspan.client.host_formats": ("HostFormat",),
    "linkspan.host.attachments": ("prompt_messages", "resource_parts"),
    "linkspan.host.consent": ("Approval", "Verdict"),
    "linkspan.host.conversation": (
        "CallEnded",
        "CallProgressed",
        "CallStarted",
        "TurnBounds",
        "TurnEnded",
    ),
    "linkspan.host.dialects": None,
    "linkspan.host.dialects.openai": ("OpenAIDialect",),
    "linkspan.host.memory": ("Memory",),
    "linkspan.host.messages": (
        "AssistantMessage",
        "Finished",
        "Message",
        "Model",
        "ModelError",
        "ModelEvent",
        "ModelRequest",
        "Opaque",
        "Text",
        "TextDelta",
        "ToolAnswer",
        "ToolMessage",
        "ToolSpec",
        "ToolUse",
        "Usage",
        "UserMessage",
    ),
    "linkspan.host.models": (
        "Backoff",
        "ModelTimeouts",
        "SdkModel",
        "UnusableModel",
        "open_model",
    ),
    "linkspan.host.scripted": ("Reply", "ScriptedModel", "last_words", "use"),
    "linkspan.types.messages": (
        "CallToolParams",
        "CompleteParams",
        "CompleteResult",
        "Completion",
        "GetPromptParams",
        "GetPromptResult",
        "ListParams",
        "ListPromptsResult",
        "ListResourceTemplatesResult",
        "ListResourcesResult",
        "ListToolsResult",
        "ReadResourceParams",
        "ReadResourceResult",
        "SetLevelParams",
        "SubscribeParams",
    ),
    "linkspan.wire.redaction": ("neutral",),
    "linkspan.revisions": ("LATEST", "LEGACY", "MODERN", "supported_versions"),
}
"""What is imported from below `linkspan`: all names of a package, or those of a module that the pages use."""


def public() -> dict[str, list[str]]:
    """Return the public names by the module that they are imported from, each once."""
    found = {"linkspan": list(linkspan.__all__)}
    for path, names in MODULES.items():
        found[path] = [
            name
            for name in names or import_module(path).__all__
            if name not in linkspan.__all__
        ]
    return found


def api() -> str:
    """Return the page with all public names."""
    found: dict[str, list[str]] = {title: [] for title in GROUPS.values()}
    for name in linkspan.__all__:
        home = getattr(getattr(linkspan, name), "__module__", None) or ""
        if home == "linkspan":  # the name that people import it by
            home = "linkspan.server"
        title = next(
            title for prefix, title in GROUPS.items() if home.startswith(prefix)
        )
        found[title].append(name)
    parts = [
        "# The API\n\nImport names from `linkspan`, or from the module that the heading names.\n"
    ]
    for title, names in found.items():
        if names:
            parts += [
                f"\n## {title}\n\n```{{eval-rst}}\n",
                *map(directive, sorted(names)),
                "```\n",
            ]
    for path, names in public().items():
        if path != "linkspan":
            module = import_module(path)
            shown = [directive(name, module) for name in sorted(names)]
            parts += [
                f"\n## {path}\n\n{first_line(module)}\n\n```{{eval-rst}}\n",
                *shown,
                "```\n",
            ]
    return "".join(parts)


def first_line(module: ModuleType) -> str:
    """Return what a module is, in the words of its docstring."""
    return (inspect.getdoc(module) or "").partition("\n")[0]


def directive(name: str, module: ModuleType = linkspan) -> str:
    """Return what shows one name of a module."""
    value = getattr(module, name)
    if inspect.isclass(value):
        public = {
            getattr(linkspan, each)
            for each in linkspan.__all__
            if inspect.isclass(getattr(linkspan, each))
        }
        own = [
            each
            for each, member in inspect.getmembers(value, inspect.isclass)
            if member in public
        ]
        more = (
            f"   :exclude-members: {', '.join(own)}\n" if own else ""
        )  # they have their own places
        more += (
            ""
            if issubclass(value, Exception)
            else "   :inherited-members: Struct, dict, object\n"
        )
        return f".. autoclass:: {module.__name__}.{name}\n   :members:\n{more}\n"
    if inspect.isroutine(value):
        return f".. autofunction:: {module.__name__}.{name}\n\n"
    lines = data_docstring(name, module).splitlines()
    to_rst(None, "data", name, value, None, lines)
    return "\n   ".join((f".. py:data:: {module.__name__}.{name}", "", *lines)) + "\n\n"


def data_docstring(name: str, module: ModuleType) -> str:
    """Return the string that follows an assignment, from the module of the package that makes it."""
    value = getattr(module, name)
    for path in (
        module.__name__,
        *sorted(each for each in sys.modules if each.startswith("linkspan.")),
    ):
        if getattr(sys.modules[path], name, None) is not value:
            continue
        body = ast.parse(inspect.getsource(sys.modules[path])).body
        for node, after in itertools.pairwise(body):
            targets = (
                [node.target]
                if isinstance(node, ast.AnnAssign)
                else getattr(node, "targets", ())
            )
            is_it = any(
                isinstance(target, ast.Name) and target.id == name for target in targets
            )
            if (
                is_it
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                return str(after.value.value)
    return ""


def to_rst(
    _app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Turn a docstring into reStructuredText: names in backticks are code, and no other sign means anything."""
    out: list[str] = []
    for line in lines:
        is_code = line.startswith("    ")
        if is_code and (not out or not out[-1].startswith("    ")):
            out += ["", ".. code-block:: python", ""]
        if is_code:
            out.append(line)
            continue
        spans = re.split(r"(`[^`]+`)", line)
        out.append(
            "".join(
                f"`{each}`" if each.startswith("`") else escaped(each) for each in spans
            )
        )
    lines[:] = out


def escaped(text: str) -> str:
    """Return a text in which no character has a meaning for reStructuredText."""
    return re.sub(r"([*|_\\`])", r"\\\1", re.sub(r"^([+#]|\d+\.)(?= )", r"\\\1", text))


ERRORS = re.compile(
    r"[A-Z]\w*(?:Error|Lost|Timeout|Stopped|Response|Required|Unavailable|Refused|Failed|Closed|Failure)|refuse"
)
"""The names of what makes an error."""


def template(node: ast.expr) -> str | None:
    """Return a text of the sources; `…` stands for what is filled in. None for what is not a text."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…"
            for part in node.values
        )
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (
            re.sub(r"(?<!\{)\{\w*\}(?!\})", "…", node.value)
            .replace("{{", "{")
            .replace("}}", "}")
        )
    return None


def texts_of_errors() -> dict[str, set[tuple[str, str]]]:
    """Return the texts that make errors, with the names of these, by package."""
    home = Path(linkspan.__path__[0])
    found: dict[str, set[tuple[str, str]]] = {}
    for path in sorted(home.rglob("*.py")):
        package = path.relative_to(home).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(
                node.func, ast.Name | ast.Attribute
            ):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            texts = (
                [template(each) for each in node.args] if ERRORS.fullmatch(name) else []
            )
            found.setdefault(package, set()).update(
                (name, text) for text in texts if text and " " in text
            )
    return {package: texts for package, texts in found.items() if texts}


def error_texts() -> str:
    """Return the tables of all texts of errors."""
    parts: list[str] = []
    for package, texts in texts_of_errors().items():
        shown = (
            text.replace("`", "'").replace("|", "\\|").replace("\n", " ").strip()
            for _, text in sorted(texts)
        )
        lines = [
            f"| `{name}` | `{text}` |"
            for (name, _), text in zip(sorted(texts), shown, strict=True)
        ]
        parts += [
            f"\n## {package}\n\n| error | text |\n|---|---|\n",
            "\n".join(lines),
            "\n",
        ]
    return "".join(parts)


def changelog(path: Path) -> str:
    """Return the changelog, with links from where it is shown."""
    return re.sub(r"\]\(docs/", "](", path.read_text())


def contents(pages: Path) -> str:
    """Return the chapters for the side of each page."""
    parts: list[str] = []
    known = {each for names in ORDER.values() for each in names}
    more = sorted(
        each.stem
        for each in pages.glob("*.md")
        if each.stem not in known and each.stem != "index"
    )
    for title, names in {**ORDER, "More": more}.items():
        if names:
            entries = "\n".join(entry(pages / f"{name}.md") for name in names)
            parts.append(
                f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n"
            )
    return "".join(parts)


def entry(page: Path) -> str:
    """Return what a page is called in the list at the side: its title up to a colon, but for the tutorials."""
    name = page.stem if page.stem != "index" else "decisions/index"
    title = page.read_text().partition("\n")[0].removeprefix("# ")
    short = title if title.startswith("Tutorial") else title.partition(": ")[0]
    return f"{short} <{name}>"


def complete(app: Any, docname: str, source: list[str]) -> None:
    """Give the pages that are made here their contents."""
    if docname == "index":
        source[0] += contents(Path(app.srcdir))
    elif docname == "api":
        source[0] = api()
    elif docname == "changelog":
        source[0] = changelog(Path(app.srcdir).parent / "CHANGELOG.md")
    elif docname == "error-texts":
        source[0] += error_texts()
    elif docname == "decisions/index":
        names = sorted(
            each.stem for each in Path(app.srcdir, "decisions").glob("0*.md")
        )
        source[0] += "\n```{toctree}\n:maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"


def llms(pages: Path) -> tuple[str, str]:
    """Return what models read of the site: a list of the pages by chapter, and all of them in one text."""
    home = (pages / "index.md").read_text()
    first = home.split("\n\n")[1]
    parts = [f"# {project}\n\n> {first}\n"]
    texts = [home]
    for title, names in ORDER.items():
        parts.append(f"\n## {title}\n\n")
        for name in names:
            text = (pages / f"{name}.md").read_text()
            heading = text.partition("\n")[0].removeprefix("# ")
            parts.append(f"- [{heading}]({name}.html)\n")
            texts.append(text)
    return "".join(parts), "\n\n".join(texts)


def write_llms(app: Any, problem: Exception | None) -> None:
    """Write both beside the pages of the site."""
    if problem is None and app.builder.name == "html":
        for name, text in zip(
            ("llms.txt", "llms-full.txt"), llms(Path(app.srcdir)), strict=True
        ):
            (Path(app.outdir) / name).write_text(text)


def write_finding(app: Any) -> None:
    """Write what the search looks through beside the scripts of the site."""
    if app.builder.name != "html":
        return
    pages = Path(app.srcdir)
    names = [each for chapter in ORDER.values() for each in chapter if each != "api"]
    names += sorted(f"decisions/{each.stem}" for each in pages.glob("decisions/0*.md"))
    made = {
        "changelog": lambda: changelog(pages.parent / "CHANGELOG.md"),
        "error-texts": lambda: (pages / "error-texts.md").read_text() + error_texts(),
    }
    texts = [
        (name, made[name]() if name in made else (pages / f"{name}.md").read_text())
        for name in ("index", *names)
    ]
    static = Path(app.outdir, "_static")
    static.mkdir(parents=True, exist_ok=True)
    (static / "finding-index.js").write_text(
        f"var FindingIndex = {find_index(texts)};\n", encoding="utf-8"
    )


def load_finding(
    app: Any, pagename: str, _template: str, _context: Any, _doctree: Any
) -> None:
    """Load it where the search is, and nowhere else."""
    if pagename == "search":
        app.add_js_file("finding-index.js")


def setup(app: Any) -> None:
    """Connect the above to the builder."""
    app.connect("build-finished", write_llms)
    app.connect("source-read", complete)
    app.connect("builder-inited", write_finding)
    app.connect("html-page-context", load_finding)
    app.connect("autodoc-process-docstring", to_rst)
