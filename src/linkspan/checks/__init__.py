"""What the protocol requires of any server, looked at from outside: it needs nothing of the server but to be reached."""
