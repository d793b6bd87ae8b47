"""Flavours as fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compat_kit import served


@pytest.fixture
def mcp1() -> Iterator[None]:
    with served("mcp1"):
        yield


@pytest.fixture
def mcp2() -> Iterator[None]:
    with served("mcp2"):
        yield


@pytest.fixture(params=["fastmcp3", "fastmcp4"])
def fast(request: pytest.FixtureRequest) -> Iterator[str]:
    with served(request.param):
        yield request.param
