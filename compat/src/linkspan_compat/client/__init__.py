"""Clients of `mcp`: sessions and transports."""
