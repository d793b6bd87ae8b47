"""The finder, the table of names and what stands for the others."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from compat_kit import served

from linkspan.habits import AUTH, PACKAGE
from linkspan_compat import finder, flavours
from linkspan_compat.errors import NotServed
from linkspan_compat.names import line_instead, modules, named_line
from linkspan_compat.pages import PAGES, page_with_names, part_for


@pytest.mark.parametrize("flavour", ["mcp1", "mcp2"])
def test_all_names_of_the_table_exist(flavour):
    with served(flavour):
        for name, table in list(modules().items()):
            found = importlib.import_module(name)
            missing = [each for each in table.names if not hasattr(found, each)]
            assert not missing, (name, missing)


def test_names_are_visible_to_vars(mcp1):
    import mcp

    assert {"ClientSession", "StdioServerParameters", "Tool", "types"} <= vars(mcp).keys()
    assert "ClientSession" in dir(mcp)


def test_the_types_are_loaded_by_nobody_who_does_not_touch_them():
    code = """
import linkspan_compat.install, sys
from mcp.server.fastmcp import FastMCP, Context
from mcp.server import Server
from fastmcp import FastMCP as Fast
server, fast = FastMCP("x"), Fast("y")
@server.tool()
def add(a: int) -> int: return a
@fast.prompt
def ask(): return "x"
assert "pydantic" not in sys.modules and "mcp_types" not in sys.modules, sorted(sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr == ""


def test_an_unknown_name_is_an_import_error_of_python(mcp1):
    with pytest.raises(ImportError, match="cannot import name 'Nonsense'"):
        from mcp.server import Nonsense  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'mcp\.nonsense'"):
        import mcp.nonsense  # noqa: F401


def test_a_known_name_that_is_not_served_fails_when_it_is_used(mcp2):
    from mcp.server.apps import Apps

    assert Apps | None  # in a hint it may stand
    with pytest.raises(NotServed, match=r"mcp\.server\.apps\.Apps is not served .*test_compat_names\.py:\d+"):
        Apps()
    with pytest.raises(NotServed, match="write for Linkspan: "):
        _ = Apps.register


def test_what_stands_for_a_login_is_no_placeholder():
    refused = {name for table in modules().values() for name, each in table.names.items() if each.kind == "refused"}
    assert {"OAuthProxy", "OAuthProvider", "GitHubProvider", "GoogleProvider"} <= refused
    placeholders = {
        name
        for module, table in modules().items()
        for name, each in table.names.items()
        if each.kind == "placeholder" and "server.auth" in module
    }
    assert not {each for each in placeholders if each.endswith(("Provider", "Verifier", "Proxy"))}


def test_each_line_to_write_is_that_of_the_pages():
    assert line_instead("FastMCP") == PACKAGE["FastMCP"]
    assert line_instead("OAuthProxy") == AUTH["OAuthProxy"]
    unserved = [n for t in modules().values() for n, e in t.names.items() if e.kind in ("refused",)]
    assert all(line_instead(each) != line_instead("no such name") for each in unserved)


def test_the_real_package_must_not_be_there_already():
    code = "import mcp, linkspan_compat.install"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "import linkspan_compat.install before it, as the first line" in done.stderr


def test_one_package_may_be_the_real_one():
    finder.uninstall()
    assert finder.CompatFinder(["fastmcp"]).find_spec("mcp") is None
    assert finder.CompatFinder(["fastmcp"]).find_spec("fastmcp.server") is not None


@pytest.mark.parametrize(
    ("source", "version"),
    [
        ("from mcp.types import Tool\nTool(name='a', inputSchema={})", "1"),
        ("from mcp.types import Tool\nTool(name='a', input_schema={})", "2"),
        ("from mcp.shared.exceptions import McpError", "1"),
        ("from mcp import MCPError", "2"),
        ("@server.list_tools()\nasync def tools(): ...", "1"),
        ("Server('x', on_list_tools=tools)", "2"),
    ],
)
def test_the_words_of_a_program_say_its_version(tmp_path, source, version):
    program = tmp_path / "program.py"
    program.write_text(
        f"import linkspan_compat.install\nfrom linkspan_compat.flavours import sdk_version\nprint(sdk_version())\n'''{source}'''"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == version


@pytest.mark.parametrize(
    ("requirement", "version"),
    [
        ("fastmcp>=2.0", None),
        ("fastmcp (<4,>=2)", "3"),
        ("fastmcp<3", "2"),
        ("fastmcp==3.4.10", "3"),
        ("fastmcp~=4.1", "4"),
    ],
)
def test_a_requirement_says_the_version_of_fastmcp(requirement, version):
    assert flavours._newest_allowed(f"Requires-Dist: {requirement}; python_version > '3'") == version


def test_an_unknown_flavour_is_refused():
    with pytest.raises(ValueError, match="there is no flavour 'mcp3'"):
        flavours.choose("mcp3")


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_have_the_names_of_the_table(page):
    text = (Path(__file__).parent.parent.parent / "docs" / page).read_text(encoding="utf-8")
    assert page_with_names(text, PAGES[page]) == text, "run python -m linkspan_compat.pages docs"


def test_a_placeholder_and_the_page_have_the_same_line(mcp2):
    from mcp.server.mcpserver import Resolve

    with pytest.raises(NotServed) as caught:
        Resolve(1)
    line = named_line("Resolve")
    assert line is not None
    assert line in str(caught.value)
    assert line.partition(",")[0].removesuffix(", which") in part_for("mcp")


@pytest.mark.parametrize(("flavour", "package"), [("mcp1", "fastmcp"), ("mcp2", "mcpserver")])
def test_the_module_of_prompts_has_the_types_that_it_imports(flavour, package, request):
    request.getfixturevalue(flavour)
    from mcp import types

    base = importlib.import_module(f"mcp.server.{package}.prompts.base")
    assert (base.TextContent, base.ContentBlock) == (types.TextContent, types.ContentBlock)
