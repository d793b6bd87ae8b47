"""A server that tells which process it is."""

import os

from linkspan import Server

server = Server("pid")
server.define_tool(name="pid", handler=os.getpid)

if __name__ == "__main__":
    server.run()
