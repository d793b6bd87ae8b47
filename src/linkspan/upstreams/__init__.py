"""Servers elsewhere, mounted in a server: what they offer is listed for each caller, and served by clients of our own.

server.mount("https://example.com/mcp", "shop")
  |
  v
mounting.Upstream      a source of items: finds the caller of a request
  |
  v
callers.UpstreamCaller         one caller's client, lists and view; nothing of it is another caller's
  |
  v
items.UpstreamItem     begins a request about one item
  |
  v
relaying.RelayedRequest         one request upstream, with its progress, its questions and its end
"""
