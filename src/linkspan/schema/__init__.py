"""From type hints to JSON Schema and a decoder, once, at registration. Pure functions: no I/O, no clock, no threads.

Tools: https://modelcontextprotocol.io/specification/2026-07-28/server/tools.
"""

from __future__ import annotations
