"""Files that several processes read and replace, where a file in use can neither be read nor replaced."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from linkspan.runtime import shared_files
from linkspan.runtime.shared_files import read_shared, remove_shared, replace_shared, wait_for_lock


class InUse:
    """Refuses the first calls of a function, as Windows does while another process has the file open."""

    def __init__(self, function: Any, refusals: int) -> None:
        self._function = function
        self.left = refusals

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise PermissionError(13, "The process cannot access the file because it is being used by another process")
        return self._function(*arguments, **more)


class Windows:
    """What the module sees of `os` on Windows."""

    name = "nt"
    replace = staticmethod(os.replace)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> type[Windows]:
    monkeypatch.setattr(shared_files, "os", Windows)
    return Windows


def test_a_file_in_use_is_read_replaced_and_removed_a_moment_later(
    windows: type[Windows], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, path = tmp_path / "draft", tmp_path / "file"
    draft.write_text("new")
    path.write_text("old")
    monkeypatch.setattr(Path, "read_bytes", InUse(lambda: b"old", 3))
    assert read_shared(path) == b"old"
    monkeypatch.setattr(windows, "replace", InUse(os.replace, 3))
    replace_shared(draft, path)
    assert path.read_text() == "new"
    remove_shared(path)
    assert not path.exists()


def test_a_file_that_may_not_be_changed_is_an_error(
    windows: type[Windows], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "_LONGEST_MOMENT", 0.05)
    monkeypatch.setattr(windows, "replace", InUse(os.replace, 1_000_000))
    with pytest.raises(PermissionError):
        replace_shared(tmp_path / "draft", tmp_path / "file")


@pytest.mark.skipif(sys.platform == "win32", reason="there the error means that the file is in use")
def test_elsewhere_nothing_is_tried_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = InUse(os.replace, 2)
    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(PermissionError):
        replace_shared(tmp_path / "draft", tmp_path / "file")
    assert refused.left == 1


def test_a_lock_is_waited_for_with_a_bound(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    try:
        wait_for_lock(first, 0.0)
        with pytest.raises(TimeoutError, match="another process"):
            wait_for_lock(second, 0.05)
    finally:
        os.close(first)
    wait_for_lock(second, 60.0)
    os.close(second)
