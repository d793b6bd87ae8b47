"""A server of ours over stdio, with the skills of a folder and a generated one; with `mounted`, in another one."""

import sys

from linkspan import Server
from linkspan.skills import Skills

skills = Skills(sys.argv[1])


@skills.skill("reports/daily", description="Today's figures")
def daily() -> str:
    return "# 12 ferries"


server = Server("ours", extensions=[skills])
if "mounted" in sys.argv:
    outer = Server("outer", extensions=[Skills()])
    outer.mount(server, "inner")
    server = outer
server.run()
