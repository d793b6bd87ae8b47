"""What a person sees of a server whose file raises: first what was wrong, then where in their own file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from linkspan import SyncClient
from linkspan.flows.client_errors import ClientError, ConnectError, ProcessEnd, ServerOrigin

SOURCE = """
from linkspan import Server
server = Server("shop")
@server.tool
def buy() -> str: return "hat"
def again() -> None:
    @server.tool({given})
    def buy() -> str: return "hat"
again()
server.run()
"""
WRONG = {
    "": "linkspan.errors.DuplicateNameError: There is already a tool 'buy'",
    "enabled=False": "TypeError: tool() has no 'enabled': use server.disable(name)",
    "name='a b'": "linkspan.errors.RegistrationError: 'a b' cannot name a tool",
}


def written(tmp_path: Path, given: str) -> str:
    file = tmp_path / "linkspan" / "shop.py"  # a folder of the name of ours is the author's
    file.parent.mkdir()
    file.write_text(SOURCE.format(given=given))
    return str(file)


@pytest.mark.parametrize("given", WRONG)
@pytest.mark.parametrize("how", ["python", "linkspan run"])
def test_an_error_of_registration_in_a_child_begins_with_its_last_line(tmp_path: Path, given: str, how: str) -> None:
    file = written(tmp_path, given)
    with pytest.raises(ConnectError) as failed:
        SyncClient([sys.executable, file] if how == "python" else file).connect()
    told = [line for line in str(failed.value).splitlines() if line.startswith("  stderr: ")]
    assert told[0].startswith(f"  stderr: {WRONG[given]}")
    frames = [line for line in told if "  File " in line]
    assert len(frames) == 2
    assert all(file in line for line in frames)
    assert "in again" in frames[1]
    assert len(told) <= 7
    assert "Traceback" in failed.value.stderr, "the whole is still there"


@pytest.mark.parametrize("given", WRONG)
def test_linkspan_run_shows_the_authors_frames_only(tmp_path: Path, given: str) -> None:
    file = written(tmp_path, given)
    ended = subprocess.run(
        [sys.executable, "-m", "linkspan", "run", file], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert ended.returncode == 1
    lines = ended.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith(WRONG[given])
    assert [line for line in lines if line.startswith("  File ") and file not in line] == []


def test_frames_of_ours_stay_where_the_fault_may_be_ours(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text("from linkspan.wire.redaction import neutral\nneutral(3)\n")
    ended = subprocess.run(
        [sys.executable, "-m", "linkspan", "run", str(file)], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert "redaction.py" in ended.stderr
    assert ended.stderr.splitlines()[1].endswith('odd.py", line 2, in <module>')


TRACEBACK = """starting
Traceback (most recent call last):
  File "/a/one.py", line 1, in <module>
    raise ValueError
ValueError

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<frozen importlib._bootstrap>", line 1, in _load
{frames}RuntimeError: two
lines
"""


def test_of_a_long_traceback_the_last_frames_follow_what_was_raised() -> None:
    frames = "".join(f'  File "/a/{number}.py", line {number}, in f\n    f()\n' for number in range(20))
    error = ClientError("it ended", ServerOrigin("a"), ending=ProcessEnd(stderr=TRACEBACK.format(frames=frames)))
    assert [line.removeprefix("  stderr: ") for line in str(error).splitlines()[1:]] == [
        "RuntimeError: two",
        "lines",
        *(line for number in (17, 18, 19) for line in (f'  File "/a/{number}.py", line {number}, in f', "    f()")),
    ]


@pytest.mark.parametrize(
    "stderr", ["one\ntwo", "Traceback (most recent call last):", "Traceback (most recent call last):\n  x"]
)
def test_other_last_words_stay_as_they_are(stderr: str) -> None:
    error = ClientError("it ended", ServerOrigin("a"), ending=ProcessEnd(stderr=stderr))
    told = [line.removeprefix("  stderr: ") for line in str(error).splitlines()[1:]]
    assert told == [line for line in stderr.splitlines() if "\n" not in stderr or not line.startswith("Traceback")]
