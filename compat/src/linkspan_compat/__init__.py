"""Programs that were written for `mcp` 1, `mcp` 2 and FastMCP 2 to 4 run on Linkspan, unchanged.

`linkspan exec NAME` runs one; `import linkspan_compat.install`, as a first line, serves the names in a program.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
