"""A complete server without any I/O: what is offered, what it means to call it, and what it answers."""
