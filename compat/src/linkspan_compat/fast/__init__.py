"""FastMCP, versions 2 to 4: the server of decorated functions, its context, middleware and client."""
