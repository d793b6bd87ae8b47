"""Serve one of the servers of transcripts over stdio: `python serve.py basic`.

`python serve.py --prepared 3` has all modules already: for each request on the socket 3, which is the name of a server and the
descriptors of its stdin and stdout, it forks a process that serves, and answers with its exit status.
"""

import os
import socket
import sys

from servers import SERVERS


def wanted(requests: socket.socket) -> str:
    """Return the name of a server in a process of its own, whose stdin and stdout are those of the request."""
    import asyncio  # noqa: F401  # the server is forked with all that it may need

    import linkspan.serve.event_loop
    import linkspan.serve.stdio  # noqa: F401

    while True:
        name, descriptors, _, _ = socket.recv_fds(requests, 1024, 2)
        if not name:
            sys.exit()
        process = os.fork()
        if not process:
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            requests.close()
            return name.decode()
        for descriptor in descriptors:
            os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        requests.sendall(f"{status}\n".encode())


if __name__ == "__main__":
    name = sys.argv[1]
    if name == "--prepared":
        name = wanted(socket.socket(fileno=int(sys.argv[2])))
    SERVERS[name]().run()
