"""Chromium without a window: the one of this machine, else playwright's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync"]


@contextmanager
def chromium(*options: str) -> Iterator[Any]:
    """Start it with more options; a test that cannot have it is skipped with the reason."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install '.[peers]'")
    with api.sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, NAMES)), None) or playwright.chromium.executable_path
        if not os.path.exists(found):
            pytest.skip("there is no Chromium: install it, or run `playwright install chromium`")
        as_root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        try:
            browser = playwright.chromium.launch(executable_path=found, args=[*QUIET, *as_root, *options])
        except api.Error as problem:
            pytest.skip(f"Chromium does not start: {problem.message.splitlines()[0]}")
        yield browser
        browser.close()
