"""The contract of a server with its clients: what it lists, kept in a file, compared, judged, and written as typed code."""
