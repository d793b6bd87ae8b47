"""The files of one directory: as resources for people to attach, and as tools for the model to search and read.

`linkspan run examples/files.py -- ~/notes` serves that directory; without it, the directory of this file.
"""

import sys
from pathlib import Path
from typing import Any

from linkspan import Context, Server, ToolError

ROOT = next((Path(each).resolve() for each in sys.argv[1:] if Path(each).is_dir()), Path(__file__).resolve().parent)
LARGEST = 1_000_000

server = Server("files", version="1.0.0", instructions=f"The files below {ROOT.name}. Search before you read.")
server.files("files://", ROOT)


def inside(name: str) -> Path:
    """Return the path of a file that may be read."""
    path = (ROOT / name).resolve()
    if not path.is_relative_to(ROOT) or not path.is_file():
        raise ToolError(f"There is no file {name!r} here")
    return path


@server.tool(annotations={"read_only_hint": True})
def search(text: str, ctx: Context, most: int = 20) -> list[dict[str, Any]]:
    """Find the lines that have a text, in all files.

    Args:
        text: What to look for; upper and lower case are the same.
        most: How many lines to return.
    """
    found: list[dict[str, Any]] = []
    files = sorted(path for path in ROOT.rglob("*") if path.is_file() and path.stat().st_size < LARGEST)
    for number, path in enumerate(files):
        ctx.raise_if_cancelled()
        ctx.progress(number, total=len(files), message=path.name)
        name = path.relative_to(ROOT).as_posix()
        for at, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if text.lower() in line.lower():
                found.append({"file": name, "line": at, "text": line.strip()[:200]})
                if len(found) == most:
                    return found
    return found


@server.tool(annotations={"read_only_hint": True})
def read(file: str, first: int = 1, count: int = 100) -> str:
    """Read lines of a file.

    Args:
        file: Its name, as `search` returns it.
        first: The number of the first line.
        count: How many lines.
    """
    lines = inside(file).read_text(errors="replace").splitlines()
    return "\n".join(lines[first - 1 : first - 1 + count])


if __name__ == "__main__":
    server.run()
