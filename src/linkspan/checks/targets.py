"""From the target of a client to a server as the checks speak to it."""

from __future__ import annotations

from collections.abc import Mapping

from linkspan.checks.peer import CheckedPeer, CommandPeer, WebPeer, environment_of
from linkspan.checks.running import OpenPeer
from linkspan.checks.web import Web
from linkspan.client.targets import Target, UnusableTarget
from linkspan.revisions import Revision
from linkspan.types.base import JSONObject


def opener(target: Target, headers: Mapping[str, str], calls: Mapping[str, JSONObject]) -> OpenPeer:
    """Return what opens a server in a revision: `headers` go to a URL, `calls` are arguments of tools that may be called.

    Raises: UnusableTarget if it is neither a command nor a URL.
    """
    url, command = target.url, target.command
    if url is not None:
        web = Web(url, {**target.headers, **headers})
        return lambda revision: WebPeer(web, revision, calls)
    if command is None:
        raise UnusableTarget("the target is neither a command nor a URL: name a file, a command or a URL")

    def start(revision: Revision) -> CheckedPeer:
        return CommandPeer(command.argv, environment_of(target.environment), command.cwd, revision, calls)

    return start
