"""The site: these pages, a page with all public names, and a search. `python -m sphinx docs build/site` builds it.

Pages stay Markdown that reads well by itself. The texts of the API are the docstrings, which are Markdown, too.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import linkspan
import linkspan.auth

project = "Linkspan"
author = "the authors of Linkspan"
release = version = linkspan.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository, such as ../examples
html_theme = "furo"
html_title = f"Linkspan {release}"
html_copy_source = False
html_search_scorer = str(Path(__file__).with_name("search-order.js"))
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
autodoc_class_signature = "separated"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True

ORDER = {
    "Start": ["server", "client", "host", "chat", "command-line"],
    "How to": [
        "lifespan",
        "around-a-call",
        "http",
        "authorization",
        "protecting-a-server",
        "page",
        "stores",
        "transports",
        "tracing",
        "telemetry",
        "models",
        "configuration",
    ],
    "Coming from": ["coming-from-fastmcp", "coming-from-mcp"],
    "Reference": ["api", "figures", "requirements"],
    "Inside": ["architecture", "words", "contributing", "decisions/index"],
}
"""The chapters of the site. A page that is in none of them comes last."""

GROUPS = {
    "linkspan.server": "Servers",
    "linkspan.serve": "Serving",
    "linkspan.auth": "Protecting servers",
    "linkspan.client": "Clients",
    "linkspan.host": "Hosts and models",
    "linkspan.flows": "What clients return and raise",
    "linkspan.errors": "Errors of servers",
    "linkspan.testing": "Testing",
    "": "Values of the protocol",
}
"""The parts of the page with all names, by where a name is defined."""


def api() -> str:
    """Return the page with all public names."""
    found: dict[str, list[str]] = {title: [] for title in GROUPS.values()}
    for name in linkspan.__all__:
        home = getattr(getattr(linkspan, name), "__module__", None) or ""
        if home == "linkspan":  # the name that people import it by
            home = "linkspan.server"
        title = next(title for prefix, title in GROUPS.items() if home.startswith(prefix))
        found[title].append(name)
    parts = ["# The API\n\nAll names are in `linkspan`, and are loaded when they are first used.\n"]
    for title, names in found.items():
        if names:
            parts += [f"\n## {title}\n\n```{{eval-rst}}\n", *map(directive, sorted(names)), "```\n"]
    more = [name for name in linkspan.auth.__all__ if name not in linkspan.__all__]
    shown = [directive(name, linkspan.auth) for name in more if inspect.isclass(getattr(linkspan.auth, name))]
    parts += ["\n## Authorization\n\nThese names are in `linkspan.auth`.\n\n```{eval-rst}\n", *shown, "```\n"]
    return "".join(parts)


def directive(name: str, module: ModuleType = linkspan) -> str:
    """Return what shows one name of a module."""
    value = getattr(module, name)
    if inspect.isclass(value):
        public = {getattr(linkspan, each) for each in linkspan.__all__ if inspect.isclass(getattr(linkspan, each))}
        own = [each for each, member in vars(value).items() if inspect.isclass(member) and member in public]
        more = f"   :exclude-members: {', '.join(own)}\n" if own else ""  # they have their own places
        more += "" if issubclass(value, Exception) else "   :inherited-members: Struct, dict, object\n"
        return f".. autoclass:: {module.__name__}.{name}\n   :members:\n{more}\n"
    kind = "autofunction" if inspect.isroutine(value) else "autodata"
    return f".. {kind}:: {module.__name__}.{name}\n\n"


def to_rst(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
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
        out.append("".join(f"`{each}`" if each.startswith("`") else escaped(each) for each in spans))
    lines[:] = out


def escaped(text: str) -> str:
    """Return a text in which no character has a meaning for reStructuredText."""
    return re.sub(r"([*|_\\`])", r"\\\1", re.sub(r"^([+#]|\d+\.)(?= )", r"\\\1", text))


def contents(pages: Path) -> str:
    """Return the chapters for the side of each page."""
    parts: list[str] = []
    known = {each for names in ORDER.values() for each in names}
    more = sorted(each.stem for each in pages.glob("*.md") if each.stem not in known and each.stem != "index")
    for title, names in {**ORDER, "More": more}.items():
        if names:
            parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(names) + "\n```\n")
    return "".join(parts)


def complete(app: Any, docname: str, source: list[str]) -> None:
    """Give the pages that are made here their contents."""
    if docname == "index":
        source[0] += contents(Path(app.srcdir))
    elif docname == "api":
        source[0] = api()
    elif docname == "decisions/index":
        names = sorted(each.stem for each in Path(app.srcdir, "decisions").glob("0*.md"))
        source[0] += "\n```{toctree}\n:maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"


def setup(app: Any) -> None:
    """Connect the above to the builder."""
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", to_rst)
