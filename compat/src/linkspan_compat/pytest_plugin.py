"""A plugin for pytest: `pytest -p linkspan_compat.pytest_plugin`, or `linkspan_compat = true` in its configuration.

Tests that were written for `mcp` or FastMCP then run on Linkspan, unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["pytest_addoption", "pytest_load_initial_conftests"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--linkspan-compat`, and a setting of the same name."""
    group = parser.getgroup("linkspan-compat")
    group.addoption(
        "--linkspan-compat",
        nargs="?",
        const="",
        metavar="FLAVOUR",
        help="run tests for mcp and FastMCP on Linkspan; FLAVOUR is mcp1, mcp2, fastmcp2, fastmcp3 or fastmcp4",
    )
    parser.addini("linkspan_compat", "run tests for mcp and FastMCP on Linkspan", type="bool", default=False)


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Serve the names before any test is imported."""
    flavour = early_config.known_args_namespace.linkspan_compat
    if flavour is None and not early_config.getini("linkspan_compat"):
        return
    from linkspan_compat import finder, flavours

    finder.install()
    if flavour:
        flavours.choose(flavour)
