"""What holds for every test of the clients: it leaves no process behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from wild import descendants, gone

from linkspan.client import probing as known_eras


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = descendants().keys()
    yield
    left = {pid: command for pid, command in descendants().items() if pid not in before}
    assert gone(set(left)), f"still there: {left}"


@pytest.fixture(autouse=True)
def no_era_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_eras, "_known", {})  # ports are used again by other servers
