"""What holds for every test of the clients: it leaves no process behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from wild import descendants, gone


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = descendants().keys()
    yield
    left = {pid: command for pid, command in descendants().items() if pid not in before}
    assert gone(set(left)), f"still there: {left}"
