"""Serve one of the servers of transcripts over stdio: `python serve.py basic`."""

import sys

from servers import SERVERS

if __name__ == "__main__":
    SERVERS[sys.argv[1]]().run()
