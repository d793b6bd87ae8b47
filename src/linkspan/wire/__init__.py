"""Bytes to values and back: JSON-RPC messages, line framing, limits. Pure functions and small value types."""
