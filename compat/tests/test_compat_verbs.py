"""What users type: `exec`, `exec --check`, `run --as`, the first line of a program, and the plugin of pytest."""

import subprocess
import sys

import pytest

from linkspan import ConnectError, SyncClient

LINKSPAN = (sys.executable, "-m", "linkspan")

ONE = """
import sys
from mcp.server.fastmcp import FastMCP
server = FastMCP("one")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

@server.tool()
def arguments() -> list[str]:
    return sys.argv[1:]

if __name__ == "__main__":
    server.run()
"""
TWO = ONE.replace("mcp.server.fastmcp import FastMCP", "mcp.server.mcpserver import MCPServer as FastMCP")
BOTH = """
from mcp.types import Tool
print(sorted(Tool(name="a", inputSchema={}).model_dump(exclude_none=True)))
"""
UNSERVED = """
from mcp.server.fastmcp import FastMCP
from mcp.server.apps import Apps
from fastmcp.server.auth import OAuthProxy
import mcp.nonsense
"""


@pytest.fixture
def program(tmp_path):
    def write(code, name="program.py"):
        path = tmp_path / name
        path.write_text(code)
        return str(path)

    return write


def run(*command, **options):
    """Run a command to its end; return the status, what it printed and what it complained of."""
    done = subprocess.run([*command], capture_output=True, text=True, check=False, timeout=60, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("code", [ONE, TWO])
def test_exec_runs_a_file_with_its_arguments(program, code):
    with SyncClient([*LINKSPAN, "exec", program(code), "--depth", "3"]) as client:
        assert client.call_tool("add", {"a": 2, "b": 3}).structured == {"result": 5}
        assert client.call_tool("arguments").structured == {"result": ["--depth", "3"]}


def test_exec_runs_the_script_of_a_command(program, tmp_path):
    lines = [
        f"#!{sys.executable}",
        "import re",
        "import sys",
        f"sys.path.insert(0, {str(tmp_path)!r})",
        "from one import server",
    ]
    script = program("\n".join([*lines, "sys.exit(server.run())"]), "one-server")
    program(ONE, "one.py")
    with SyncClient([*LINKSPAN, "exec", script]) as client:
        assert [each.name for each in client.list_tools()] == ["add", "arguments"]


def test_exec_of_nothing_says_what_to_install():
    status, printed, complaint = run(*LINKSPAN, "exec", "no-such-server")
    assert (status, printed) == (2, "")
    assert "there is no command 'no-such-server' here: install its package beside linkspan-compat" in complaint


def test_check_names_what_is_not_served_without_running_it(program):
    status, printed, _ = run(*LINKSPAN, "exec", "--check", program(UNSERVED + "raise SystemExit('it ran')"))
    assert status == 1
    assert printed.splitlines() == [
        "program.py:3  mcp.server.apps.Apps: not served; write for Linkspan: see the pages on coming from mcp and from FastMCP",
        "program.py:4  fastmcp.server.auth.OAuthProxy: a server with it refuses to start over HTTP; write for Linkspan: "
        + printed.splitlines()[1].partition("Linkspan: ")[2],
        "program.py:5  mcp.nonsense: there is no such name in the module",
        printed.splitlines()[-1],
    ]
    assert printed.endswith(": 4 names of mcp and FastMCP in 1 files, 3 of them not served\n")
    assert run(*LINKSPAN, "exec", "--check", program(ONE, "fine.py"))[0] == 0
    assert run(*LINKSPAN, "exec", "--check", "no-such-server")[0] == 2


@pytest.mark.parametrize(
    ("flavour", "member"), [("mcp1", "inputSchema"), ("mcp2", "input_schema"), ("fastmcp3", "inputSchema")]
)
def test_run_as_takes_the_version_by_hand(program, flavour, member):
    status, printed, complaint = run(*LINKSPAN, "run", program(BOTH), "--as", flavour)
    assert (status, printed) == (0, f"{[member, 'name']}\n"), complaint


def test_run_as_names_the_flavours_that_there_are(program):
    status, _, complaint = run(*LINKSPAN, "run", program(BOTH), "--as", "mcp7")
    assert status == 2
    assert "there is no flavour 'mcp7': use mcp, mcp1, mcp2, fastmcp" in complaint


def test_the_first_line_of_a_program_serves_the_names(program):
    with SyncClient([sys.executable, program("import linkspan_compat.install\n" + ONE)]) as client:
        assert client.call_tool("add", {"a": 2, "b": 3}).structured == {"result": 5}


def test_a_package_that_is_kept_is_the_installed_one(program):
    code = "import fastmcp, mcp\nprint(fastmcp.__spec__.origin, mcp.__spec__.origin)"
    status, printed, complaint = run(
        *LINKSPAN, "exec", "--keep", "fastmcp", program("import mcp\nprint(mcp.__spec__.origin)")
    )
    assert (status, printed) == (0, "linkspan-compat\n"), complaint
    status, printed, _ = run(
        *LINKSPAN, "exec", "--keep", "mcp", program("import mcp_types\nprint(mcp_types.__spec__.origin)")
    )
    assert printed != "linkspan-compat\n", code


def test_the_types_of_mcp_2_are_served_under_their_own_name(program):
    code = """
import mcp_types, mcp.types
from mcp_types.version import LATEST_MODERN_VERSION, LATEST_PROTOCOL_VERSION, is_version_at_least
assert mcp_types.Tool is mcp.types.Tool and "input_schema" in mcp_types.Tool.model_fields
assert LATEST_PROTOCOL_VERSION == LATEST_MODERN_VERSION and is_version_at_least(LATEST_MODERN_VERSION, LATEST_MODERN_VERSION)
"""
    assert run(*LINKSPAN, "exec", program(code)) == (0, "", "")


@pytest.mark.parametrize("arguments", [["--linkspan-compat=mcp1"], ["-o", "linkspan_compat=true"]])
def test_the_plugin_of_pytest_serves_the_names(program, tmp_path, arguments):
    program(
        "import mcp\nfrom mcp.server.fastmcp import FastMCP\n"
        "def test_it(): assert mcp.__spec__.origin == 'linkspan-compat' and FastMCP('x').name == 'x'",
        "test_program.py",
    )
    plain = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(tmp_path)]
    status, printed, _ = run(sys.executable, "-m", "pytest", *plain, *arguments, cwd=tmp_path)
    assert (status, "1 passed" in printed) == (0, True), printed


def test_where_a_server_wants_another_version_the_error_offers_exec(program):
    failing = program("raise ModuleNotFoundError(\"No module named 'mcp.server.fastmcp'\")")
    with (
        pytest.raises(ConnectError, match=r"put `linkspan exec` in front of its command.*\[LS-121\]"),
        SyncClient([sys.executable, failing]),
    ):
        pass
    status, _, complaint = run(*LINKSPAN, "call", "add", "--", sys.executable, failing)
    assert status == 3
    assert "put `linkspan exec` in front of its command" in complaint


def test_exec_loads_neither_the_metadata_of_distributions_nor_pydantic(program):
    code = "import sys\nfrom mcp.server.fastmcp import FastMCP\nFastMCP('a')\n"
    code += "print({'importlib.metadata', 'pydantic'} & {*sys.modules})"
    assert run(*LINKSPAN, "exec", program(code)) == (0, "set()\n", "")


SECURE = """
import asyncio, sys, threading
from mcp.server.fastmcp import FastMCP
server = FastMCP("secure")

@server.tool()
async def look() -> list[str]:
    from pydantic import BaseModel, SecretStr
    before = [each for each in ("_ssl", "_hashlib") if each in sys.modules]
    import secrets, ssl
    scope = {}
    exec("from secrets import *", scope)
    assert SecretStr("a") == SecretStr("a") and len(secrets.token_hex()) == len(scope["token_hex"]()) == 64
    names, begin = [], threading.Barrier(8)

    def use():
        begin.wait()
        names.append(type(ssl.create_default_context()).__name__)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    try:
        await asyncio.open_connection("127.0.0.1", 1, ssl=ssl.create_default_context())
    except OSError as error:
        names.append(type(error).__name__)
    protocol = asyncio.sslproto.SSLProtocol.__name__
    return [*before, *sorted({*names}), protocol, type(ssl).__name__, str("create_default_context" in dir(ssl))]

server.run()
"""


def test_exec_loads_openssl_with_the_first_use(program):
    with SyncClient([*LINKSPAN, "exec", program(SECURE)]) as client:
        found = client.call_tool("look").structured["result"]
    assert found == ["ConnectionRefusedError", "SSLContext", "SSLProtocol", "module", "True"]
