"""Servers of `mcp`: the lowlevel `Server` and, on it, FastMCP of version 1 and `MCPServer` of version 2."""
