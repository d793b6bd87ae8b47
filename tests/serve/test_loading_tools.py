"""`server.load(folder)`: files register what is decorated in them; what is wrong with a file is told with its name and line."""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
from pathlib import Path

import pytest

import linkspan
from linkspan import DuplicateNameError, RegistrationError, Server, SyncClient
from linkspan.runtime.watching import Watch

can_link = pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `tools` in the current directory."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "tools"
    folder.mkdir()
    return folder


def write(folder: Path, **files: str) -> None:
    """Write Python files; `__` in a name is a slash."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"import linkspan\n{text}")


def tool(name: str, body: str = "return 1") -> str:
    """Return the source of a tool in three lines."""
    return f"@linkspan.tool\ndef {name}() -> int:\n    {body}\n"


def names(server: Server) -> list[str]:
    with SyncClient(server) as client:
        return [each.name for each in client.list_tools()]


def refused(server: Server, folder: str | Path = "tools/") -> RegistrationError:
    with pytest.raises(RegistrationError) as caught:
        server.load(folder)
    return caught.value


def test_files_register_what_is_decorated_in_them_in_the_order_of_their_names(tools: Path) -> None:
    write(tools, b=tool("second") + tool("third"), a=tool("first"), sub__c=tool("fourth"))
    server = Server()
    server.load("tools/")
    assert names(server) == ["first", "second", "third", "fourth"]


def test_what_begins_with_an_underscore_or_a_dot_is_left_out_and_can_be_imported(tools: Path) -> None:
    write(
        tools,
        _shared=tool("hidden") + "RATE = 7\n",
        a=f"from ._shared import RATE\n{tool('rate', 'return RATE')}",
        _folder__b=tool("b"),
        sub__c=f"from .._shared import RATE\n{tool('twice', 'return 2 * RATE')}",
    )
    (tools / ".git").mkdir()
    (tools / ".git" / "d.py").write_text("raise SystemExit")
    (tools / ".a.py").write_text("raise SystemExit")
    (tools / "notes.txt").write_text("no Python")
    server = Server()
    server.load("tools/")
    assert names(server) == ["rate", "twice"]
    with SyncClient(server) as client:
        assert client.call_tool("twice").structured == {"result": 14}


def test_a_file_that_another_one_imports_runs_once(tools: Path) -> None:
    write(tools, a=f"from .b import again\n{tool('here', 'return again()')}", b=tool("again"))
    server = Server()
    server.load("tools/")
    assert names(server) == ["here", "again"]


def test_decorators_take_the_keywords_of_the_methods_and_give_the_function_back(tools: Path) -> None:
    write(
        tools,
        a="""
@linkspan.tool("find", title="Find a room", annotations={"read_only_hint": True})
def function(city: str) -> str: return city
assert function("Oban") == "Oban"

@linkspan.tool(name="count", tags={"beta"})
async def counted() -> int: return 3

@linkspan.prompt
def plan(city: str) -> str: return f"Plan a day in {city}"

@linkspan.prompt("pack", title="Pack")
def packing() -> str: return "Pack"

@linkspan.resource("rooms://all", mime_type="text/plain")
def rooms() -> str: return "12"

@linkspan.resource("rooms://{number}", name="room")
def room(number: int) -> str: return f"room {number}"

linkspan.resource("rooms://notes", path="notes.txt", name="notes")
""",
    )
    Path("notes.txt").write_text("Mind the step")
    server = Server()
    server.load("tools/")
    server.disable("beta")
    with SyncClient(server) as client:
        (found,) = client.list_tools()
        assert (found.name, found.title) == ("find", "Find a room")
        assert [each.name for each in client.list_prompts()] == ["plan", "pack"]
        assert [client.read_resource(f"rooms://{each}").contents[0].text for each in ("all", "7", "notes")] == [
            "12",
            "room 7",
            "Mind the step",
        ]


def test_without_a_server_a_keyword_is_checked_where_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"tool.*titel"):
        linkspan.tool(titel="x")  # pyright: ignore[reportCallIssue, reportUnknownMemberType]
    with pytest.raises(RegistrationError, match=r"write @resource\('docs://test_"):
        linkspan.resource(test_without_a_server_a_keyword_is_checked_where_it_is_written)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_two_folders_may_have_files_of_one_name(tools: Path, tmp_path: Path) -> None:
    (tmp_path / "more" / "tools").mkdir(parents=True)
    write(tools, a=tool("near"))
    write(tmp_path / "more" / "tools", a=tool("far", "return 2"))
    server = Server()
    server.load("tools/")
    server.load(tmp_path / "more" / "tools")
    with SyncClient(server) as client:
        assert [client.call_tool(each).structured for each in ("near", "far")] == [{"result": 1}, {"result": 2}]


def test_a_folder_that_is_loaded_twice_is_refused_by_the_names(tools: Path) -> None:
    write(tools, a=tool("once"))
    server = Server()
    server.load("tools/")
    problem = refused(server)
    assert isinstance(problem, DuplicateNameError)
    assert str(problem).startswith(f"{os.path.join('tools/', 'a.py')}:2: ")
    other = Server()
    other.load("tools/")
    assert names(server) == names(other) == ["once"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\nx = {}['key']\n", "3: KeyError: 'key'"),
        ("def broken(\n", "2: SyntaxError: '(' was never closed"),
        ("x = 1\nraise SystemExit\n", "3: SystemExit"),
        ("\n" + tool("good") + "@linkspan.tool\ndef bad(x: 'Missing') -> int:\n    return 1\n", "6: "),
        ("\n" + tool("good") + tool("good"), "6: "),
        ("@linkspan.tool(nam='x')\ndef bad() -> int:\n    return 1\n", "2: TypeError: tool"),
        ("import no_such_module\n", "2: ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_a_broken_file_is_refused_with_its_name_and_line_or_left_out_whole(
    tools: Path, source: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tools, a=tool("before"), b=source, c=tool("after"))
    path = os.path.join("tools/", "b.py")
    server = Server()
    assert str(refused(server)).startswith(f"{path}:{said}")
    server = Server()
    with caplog.at_level(logging.WARNING):
        server.load("tools/", broken="skip")
    assert names(server) == ["before", "after"]
    (message,) = caplog.messages
    assert message.startswith(f"{path}:{said}")
    assert message.endswith("; the server does without this file")


def test_the_cause_of_a_refusal_has_the_frames_of_the_file(tools: Path) -> None:
    write(tools, a="def fail():\n    raise OSError('disk')\nfail()\n")
    problem = refused(Server())
    assert str(problem) == f"{os.path.join('tools/', 'a.py')}:3: OSError: disk"
    assert isinstance(problem.__cause__, OSError)


def test_a_tool_that_fails_has_the_path_of_its_file_in_the_traceback(
    tools: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tools, a=tool("fail", "return {}['key']"))
    server = Server()
    server.load("tools/")
    with SyncClient(server) as client:
        assert client.call_tool("fail").is_error
    assert f'{tools / "a.py"}", line 4, in fail' in caplog.text


@can_link
def test_no_link_leads_out_of_the_folder(tools: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "elsewhere", stolen="raise SystemExit('it ran')\n")
    for link, target in (("link.py", "elsewhere/stolen.py"), ("folder", "elsewhere"), ("gone.py", "nowhere.py")):
        (tools / link).symlink_to(tmp_path / target)
        assert f"{tools / link} is a link that leads out" in str(refused(Server()))
        server = Server()
        server.load("tools/", broken="skip")
        assert str(tools / link) in caplog.text
        (tools / link).unlink()


@can_link
def test_a_link_inside_the_folder_is_followed_to_a_file_and_not_to_a_folder(tools: Path) -> None:
    write(tools, _versions__second=tool("versioned"), sub__a=tool("a"))
    (tools / "current.py").symlink_to(tools / "_versions" / "second.py")
    (tools / "sub" / "up").symlink_to(tools)
    server = Server()
    server.load("tools/")
    assert names(server) == ["versioned", "a"]


@can_link
def test_the_folder_itself_may_be_a_link(tools: Path, tmp_path: Path) -> None:
    write(tools, a=tool("a"))
    (tmp_path / "link").symlink_to(tools)
    server = Server()
    server.load("link")
    assert names(server) == ["a"]


def test_a_folder_that_is_not_there_is_refused_with_where_it_was_looked_for(tools: Path) -> None:
    text = str(refused(Server(), "plugins/"))
    assert text.startswith("load('plugins/'): ")
    assert str(tools.parent) in text
    assert "load(Path(__file__).with_name('plugins'))" in text
    absolute = os.path.abspath(os.sep + "no such folder")
    assert str(refused(Server(), absolute)) == (
        f"load({absolute!r}): this is no folder that can be read: {os.strerror(errno.ENOENT)}"
    )
    with pytest.raises(RegistrationError, match="write broken='refuse' or broken='skip'"):
        Server().load("tools/", broken="ignore")  # pyright: ignore[reportArgumentType]


def test_what_registers_nothing_is_warned_of(tools: Path, caplog: pytest.LogCaptureFixture) -> None:
    Server().load("tools/")
    assert "there is no file in this folder" in caplog.text
    write(tools, a="def forgotten() -> int:\n    return 1\n")
    Server().load("tools/")
    assert f"{os.path.join('tools/', 'a.py')} registers nothing" in caplog.text


def test_a_tool_that_is_loaded_runs_in_a_process_of_its_own(tools: Path) -> None:
    write(tools, a="import os\n" + tool("pid", "return os.getpid()").replace(".tool", ".tool(isolated=True)"))
    server = Server()
    server.load("tools/")
    with SyncClient(server) as client:
        structured = client.call_tool("pid").structured
        assert isinstance(structured, dict)
        assert structured["result"] != os.getpid()


def test_loading_leaves_the_path_of_modules_alone(tools: Path) -> None:
    write(tools, a=tool("a"))
    before = [*sys.path]
    Server().load("tools/")
    assert sys.path == before
    assert "a" not in sys.modules


@pytest.mark.parametrize(
    "argument", ['"tools/"', 'Path(__file__).with_name("tools")', 'Path(__file__).parent / "tools"']
)
def test_a_reloading_server_watches_the_files_that_it_loads(
    argument: str, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", print)
    write(tools, a="from ._shared import x\n", sub__b="def broken(", _shared="x = 1\n")
    file = tools.parent / "server.py"
    file.write_text(
        f"from pathlib import Path\nfrom linkspan import Server\nserver = Server()\nserver.load({argument})\n"
    )
    watch = Watch(str(file))
    assert watch.changed() is None
    for name in ("a.py", "_shared.py", "new.py", os.path.join("sub", "b.py"), os.path.join("sub", "c.py")):
        (tools / name).write_text("x = 22 + 20\n")
        assert watch.changed() == os.path.join("tools", name)
    (tools / "a.py").unlink()
    assert watch.changed() == os.path.join("tools", "a.py")
    assert watch.changed() is None
