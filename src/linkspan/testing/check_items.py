"""The tests of `pytest --linkspan-check`: one for each requirement of the protocol and each revision that is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest

from linkspan.checks.peer import CheckedPeer, PeerUnreachable, Transport
from linkspan.checks.requirement import CheckOutcome, Requirement, applying
from linkspan.checks.running import look, opened, revisions
from linkspan.checks.targets import opener
from linkspan.client.targets import resolve
from linkspan.revisions import Revision


class CheckedServer:
    """The server of a run of pytest. It is started once for each revision, when the first test needs it."""

    def __init__(self, target: str) -> None:
        """Raises: UnusableTarget."""
        resolved = resolve(target)
        self.transport: Transport = "http" if resolved.url is not None else "stdio"
        self._open = opener(resolved, {}, {})
        self._peers: dict[str, CheckedPeer | PeerUnreachable] = {}

    def look(self, each: Requirement, revision: Revision) -> CheckOutcome:
        """Look whether it meets a requirement. Raises: PeerUnreachable if it does not speak the revision."""
        found = self._peer(revision)
        if isinstance(found, PeerUnreachable):
            raise found
        outcome = look(each, found)
        if not found.alive():
            found.close()
            del self._peers[revision.date]
        return outcome

    def _peer(self, revision: Revision) -> CheckedPeer | PeerUnreachable:
        if revision.date not in self._peers:
            try:
                self._peers[revision.date] = opened(self._open, revision)
            except PeerUnreachable as problem:
                self._peers[revision.date] = problem
        return self._peers[revision.date]

    def speaks(self) -> bool:
        """Return whether it speaks one of the revisions."""
        return any(not isinstance(self._peer(each), PeerUnreachable) for each in revisions())

    def close(self) -> None:
        """End it."""
        for each in self._peers.values():
            if isinstance(each, CheckedPeer):
                each.close()
        self._peers.clear()


SERVER: Final = pytest.StashKey[CheckedServer]()


class CheckItem(pytest.Item):
    """A test of one requirement in one revision."""

    def __init__(
        self, *, server: CheckedServer, requirement: Requirement, revision: Revision, **others: object
    ) -> None:
        super().__init__(**others)  # type: ignore[arg-type]
        self._server = server
        self._requirement = requirement
        self._revision = revision

    def runtest(self) -> None:
        """Look whether the server meets it; what the protocol only recommends is an expected failure."""
        try:
            found = self._server.look(self._requirement, self._revision)
        except PeerUnreachable as problem:
            if self._server.speaks():
                pytest.skip(str(problem))
            pytest.fail(str(problem), pytrace=False)
        if found.level == "skip":
            pytest.skip(found.evidence)
        if found.level == "warn":
            pytest.xfail(f"{found.words}: {found.evidence}")
        if found.level == "fail":
            pytest.fail(f"{found.words}: {found.evidence}\n{found.source}", pytrace=False)

    def reportinfo(self) -> tuple[str, None, str]:
        """Return where it is: in no file."""
        return "linkspan-check", None, self.name


def items(session: pytest.Session, target: str) -> Iterator[CheckItem]:
    """Yield the tests of a server. Raises: UnusableTarget."""
    server = CheckedServer(target)
    session.stash[SERVER] = server
    for revision in revisions():
        for each in applying(revision.era, server.transport):
            name = f"linkspan-check[{each.id}-{revision.date}]"
            yield CheckItem.from_parent(  # pyright: ignore[reportUnknownMemberType]
                session, name=name, nodeid=name, server=server, requirement=each, revision=revision
            )


def finish(session: pytest.Session) -> None:
    """End the server."""
    with suppress(KeyError):
        session.stash[SERVER].close()
