"""Many clients: a group of servers with one catalogue."""

__all__: list[str] = []
