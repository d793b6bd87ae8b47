"""How a client reaches a server: a process over stdio, a URL, or a server in the same process."""
