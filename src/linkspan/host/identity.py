"""Which tool that is, for what is remembered of it: what a person allowed holds for this server, and for no other of its name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from linkspan.client.errors import Origin
from linkspan.wire.redaction import is_secret_name

__all__ = ["tool_key"]

_DIGITS = 16


def tool_key(origin: Origin, directory: str | None, environment: Mapping[str, str], tool: str) -> str:
    """Return a key for a tool. Another command or URL under the same name is another server.

    So is the same command in another directory, where `python server.py` may be anything, or with other variables, such as
    a path to load from. What a variable holds that is a secret does not count: tokens change, and have no place in a file.
    """
    variables = {name: None if is_secret_name(name) else value for name, value in sorted(environment.items())}
    where = json.dumps([origin.command, origin.url, directory, *([variables] if variables else [])])
    mark = hashlib.sha256(where.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{origin.server} {mark}/{tool}"
