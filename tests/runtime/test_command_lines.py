"""Commands of Windows: which file a name stands for, and what `cmd.exe` is given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkspan.runtime.command_lines import find_program, split_windows_line, windows_command


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (r"C:\Python\python.exe C:\ferries\server.py", [r"C:\Python\python.exe", r"C:\ferries\server.py"]),
        (r'"C:\Program Files\node.exe" --name="two words" ""', [r"C:\Program Files\node.exe", "--name=two words", ""]),
        (r'a "say \"hi\"" "ends\\" b\\', ["a", 'say "hi"', "ends\\", r"b\\"]),
        ("  it's \t  plain  ", ["it's", "plain"]),
        ("", []),
    ],
)
def test_a_line_is_split_as_programs_on_windows_do(line: str, words: list[str]) -> None:
    assert split_windows_line(line) == words


def test_a_quote_that_is_not_closed_is_an_error() -> None:
    with pytest.raises(ValueError, match="closing quotation"):
        split_windows_line('python "server.py')


@given(st.lists(st.text(st.characters(exclude_characters="\0\r\n"))))
def test_what_subprocess_joins_is_split_again(words: list[str]) -> None:
    from subprocess import list2cmdline

    plain = [word for word in words if not re.search(r"[^\S \t]", word)]  # programs split at blanks and tabs only
    assert split_windows_line(list2cmdline(plain)) == plain


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with programs; the current directory is another one, with a program that nobody asked for."""
    folder, here = tmp_path / "bin", tmp_path / "here"
    for place, names in ((folder, ("npx", "npx.cmd", "uvx.exe", "tool.v2.exe")), (here, ("npx.cmd", "mine.exe"))):
        place.mkdir()
        for name in names:
            (place / name).touch()
    monkeypatch.chdir(here)
    return folder


def test_a_name_is_looked_up_by_path_and_pathext_and_never_in_the_current_directory(folder: Path) -> None:
    env = {"PATH": f"relative;.;;{folder}"}
    found = {name: find_program(name, env, None) for name in ("npx", "uvx", "uvx.exe", "tool.v2", "mine", "absent")}
    files = {"npx": "npx.cmd", "uvx": "uvx.exe", "uvx.exe": "uvx.exe", "tool.v2": "tool.v2.exe"}
    assert found == {**{name: str(folder / file) for name, file in files.items()}, "mine": None, "absent": None}
    assert find_program("npx", {**env, "PATHEXT": ".exe"}, None) is None
    (folder / "uvx.exe.com").touch()
    assert find_program("uvx.exe", env, None) == str(folder / "uvx.exe"), "the file of this name comes first"


def test_a_name_with_a_directory_is_looked_up_from_that_of_the_server(folder: Path) -> None:
    assert find_program("./uvx", {"PATH": ""}, str(folder)) == str(folder / "uvx.exe")
    assert find_program(str(folder / "npx.cmd"), {"PATH": ""}, None) == str(folder / "npx.cmd")
    assert find_program("./uvx", {"PATH": str(folder)}, None) is None


def test_a_program_is_started_as_it_is(folder: Path) -> None:
    assert windows_command(["uvx", "a & b"], {"PATH": str(folder)}, None) == [str(folder / "uvx.exe"), "a & b"]
    with pytest.raises(FileNotFoundError):
        windows_command(["absent"], {"PATH": str(folder)}, None)


def batch(folder: Path, *arguments: str) -> str:
    line = windows_command(["npx", *arguments], {"PATH": str(folder), "SYSTEMROOT": r"C:\Windows"}, None)
    assert isinstance(line, str)
    start = rf'"C:\Windows\System32\cmd.exe" /d /e:on /v:off /s /c ""{folder / "npx.cmd"}"'
    assert line.startswith(start)
    assert line.endswith('"')
    return line[len(start) : -1].strip()


@pytest.mark.parametrize(
    ("argument", "word"),
    [
        ("-y", "-y"),
        ("@scope/name@1.2", "@scope/name@1.2"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a&calc", '"a&calc"'),
        ('"&calc', '"""&calc"'),
        ("ends\\", '"ends\\\\"'),
        ('a\\"b', '"a\\\\""b"'),
        ("%PATH%", '"%%cd:~,%PATH%%cd:~,%"'),
    ],
)
def test_an_argument_of_a_batch_file_is_one_word(argument: str, word: str, folder: Path) -> None:
    assert batch(folder, argument) == word


@pytest.mark.parametrize("argument", ["a\nb", "a\rb", "a\0b"])
def test_what_no_batch_file_can_get_is_refused(argument: str, folder: Path) -> None:
    with pytest.raises(ValueError, match="line break"):
        batch(folder, argument)


@given(st.text(st.characters(exclude_characters="\0\r\n")))
def test_no_argument_leaves_its_quotes(argument: str) -> None:
    from linkspan.runtime.command_lines import _batch_word

    word = _batch_word(argument)
    quoted, dangerous = False, set("&|<>^()%!\"' \t;,=")
    for letter in word.replace("%%cd:~,%", ""):
        if letter == '"':
            quoted = not quoted
        else:
            assert quoted or letter not in dangerous
    assert not quoted
