"""Jobs that take long, as tasks: the client gets an id, and asks for the result later.

Run it with `linkspan run --http examples/long_job.py`. With `LIBRARY_STORE=sqlite:////tmp/library.db` tasks survive a restart.
"""

import asyncio
import os
import time
from typing import Annotated

from linkspan import Ask, Context, Server, Task, ToolError

SHELVES = {"fiction": 40, "travel": 25, "maps": 10}  # books on each

server = Server(
    "library",
    instructions="Counting shelves takes a while: it goes on as a task.",
    store=os.environ.get("LIBRARY_STORE"),
)


# A call that is done within half a second is answered at once. Counting changes nothing, so a server that dies may count again.


@server.tool(task=Task(after=0.5, poll=0.2), annotations={"readOnlyHint": True})
def count_books(shelf: str, ctx: Context) -> int:
    """Count the books on a shelf, one by one."""
    if shelf not in SHELVES:
        raise ToolError(f"There is no shelf {shelf!r}; there are {', '.join(SHELVES)}")
    counted = 0
    for counted in range(1, SHELVES[shelf] + 1):
        ctx.raise_if_cancelled()  # a plain function has to look; a coroutine is stopped where it awaits
        ctx.progress(counted, total=SHELVES[shelf], message=f"{counted} of {SHELVES[shelf]} books")
        time.sleep(0.02)
    return counted


# Moving a shelf is not repeated: if the server dies meanwhile, the task fails and says that it may have been carried out.


@server.tool(task=True)
async def move_shelf(shelf: str, to: Annotated[str, Ask("Which room does it go to?")], ctx: Context) -> str:
    """Move a shelf. The room is asked for before the task begins, the rest while it runs."""
    if SHELVES.get(shelf, 0) > 20 and not ctx.ask("heavy", bool, f"{shelf} is heavy. Move it all the same?"):
        return f"{shelf} stays where it is"
    await asyncio.sleep(0.5)
    return f"{shelf} is in the {to} now"


if __name__ == "__main__":
    server.run()
