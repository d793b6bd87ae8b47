"""Servers as people use them: over stdio, ASGI, WSGI, HTTP, in memory, or one message at a time. I/O happens here."""
