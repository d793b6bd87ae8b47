"""What holds for the rows of the source documents: each begins with a configuration that nobody has touched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from linkspan import Server, reset_configuration


@pytest.fixture(autouse=True)
def _fresh_configuration() -> Iterator[None]:
    yield
    reset_configuration()
    Server.protocol_version = None
