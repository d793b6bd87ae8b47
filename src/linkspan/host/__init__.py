"""Many clients: a group of servers with one catalogue."""
