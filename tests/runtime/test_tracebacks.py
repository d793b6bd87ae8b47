"""What the author of a server sees of a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable

from linkspan import Server
from linkspan.runtime.tracebacks import author_frames


def raised(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def names(text: str) -> list[str]:
    return [line.rpartition(", in ")[2] for line in text.splitlines() if line.lstrip(" |").startswith("File ")]


def broken(text: str) -> object:
    return json.loads(text)


def test_frames_of_libraries_are_counted_and_those_of_the_author_stay() -> None:
    shown = author_frames(raised(lambda: broken("{")))
    assert names(shown) == ["raised", "<lambda>", "broken"]
    assert "  ... 3 frames of json left out\n" in shown
    assert "return json.loads(text)" in shown


def test_causes_contexts_groups_and_notes_are_shown() -> None:
    def handle() -> None:
        try:
            broken("{")
        except ValueError as error:
            second = RuntimeError("second")
            second.add_note("a note")
            raise ExceptionGroup("several", [second, KeyError("third")]) from error

    shown = author_frames(raised(handle))
    assert "json.decoder.JSONDecodeError" in shown
    assert "direct cause" in shown
    for each in ("RuntimeError: second", "a note", "KeyError: 'third'"):
        assert each in shown


def test_a_deep_recursion_is_short() -> None:
    def even(number: int) -> int:
        return odd(number - 1)

    def odd(number: int) -> int:
        return even(number - 1)

    shown = author_frames(raised(lambda: even(0)))
    assert "RecursionError" in shown
    assert len(names(shown)) == 30
    assert " frames left out\n" in shown


def test_frames_of_ours_are_left_out_of_a_refusal() -> None:
    refused = author_frames(raised(lambda: Server("x").tool(name="a b")(lambda: 1)))
    assert names(refused) == ["raised", "<lambda>"]


def test_a_file_that_cannot_be_read_names_its_line_only() -> None:
    shown = author_frames(raised(lambda: compile("x = (", "broken.py", "exec")))
    assert 'File "broken.py", line 1' in shown


def test_where_no_frame_is_the_authors_the_last_one_stays() -> None:
    error = raised(lambda: json.loads("["))
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_next is not None
    error.__traceback__ = error.__traceback__.tb_next.tb_next
    assert len(names(author_frames(error))) == 1
