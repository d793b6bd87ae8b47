"""A run: each requirement in each revision that a server speaks, and what is said in the end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, TypeAlias

from linkspan.checks import calling, lists, messages, pipes, posts
from linkspan.checks.findings import NotApplicable, Unmet
from linkspan.checks.peer import CheckedPeer, CommandPeer, PeerUnreachable
from linkspan.checks.requirement import CheckOutcome, Level, Requirement, applying
from linkspan.revisions import LATEST, LATEST_LEGACY, Revision
from linkspan.text import counted
from linkspan.wire.redaction import neutral, redact

LEVELS: Final[tuple[Level, ...]] = ("fail", "warn", "skip", "pass")
REQUIRING: Final = (calling, lists, messages, pipes, posts)
"""The modules of the requirements."""
OpenPeer: TypeAlias = Callable[[Revision], CheckedPeer]


def revisions() -> tuple[Revision, ...]:
    """Return the revisions that a server is looked at in: the newest, and the newest with a handshake."""
    return (LATEST, LATEST_LEGACY)


def run(open_peer: OpenPeer, only: Collection[str] = ()) -> Iterator[CheckOutcome]:
    """Yield what is found about a server; `only` are ids. Raises: PeerUnreachable if it speaks none of the revisions."""
    reasons: list[str] = []
    for revision in revisions():
        try:
            yield from run_one(open_peer, revision, only)
        except PeerUnreachable as problem:
            reasons.append(f"{revision.date}: {problem}")
    if len(reasons) == len(revisions()):
        raise PeerUnreachable("; ".join(reasons))


def run_one(open_peer: OpenPeer, revision: Revision, only: Collection[str] = ()) -> Iterator[CheckOutcome]:
    """Yield what is found in one revision. Raises: PeerUnreachable if the server does not speak it."""
    peer = opened(open_peer, revision)
    lost = ""
    try:
        for each in applying(revision.era, peer.transport, only):
            if not lost and not peer.alive():
                peer.close()
                try:
                    peer = opened(open_peer, revision)
                except PeerUnreachable as problem:
                    lost = f"the server cannot be started again: {problem}"
            yield _outcome(each, revision, each.wrong, lost) if lost else look(each, peer)
    finally:
        peer.close()


def opened(open_peer: OpenPeer, revision: Revision) -> CheckedPeer:
    """Return a server that has been greeted. Raises: PeerUnreachable."""
    peer = open_peer(revision)
    try:
        peer.open()
    except (PeerUnreachable, Unmet) as problem:
        peer.close()
        last = peer.last_words if isinstance(peer, CommandPeer) else ""
        raise PeerUnreachable(f"{problem}; stderr: {last}" if last else str(problem)) from problem
    return peer


def look(each: Requirement, peer: CheckedPeer) -> CheckOutcome:
    """Look whether a server meets one requirement."""
    level: Level = "pass"
    evidence = ""
    try:
        each.check(peer)
    except NotApplicable as why:
        level, evidence = "skip", str(why)
    except (Unmet, PeerUnreachable) as problem:
        level, evidence = each.wrong, str(problem)
    return _outcome(each, peer.revision, level, evidence)


def _outcome(each: Requirement, revision: Revision, level: Level, evidence: str) -> CheckOutcome:
    return CheckOutcome(
        each.id,
        revision.date,
        level,
        each.words,
        " ".join(neutral(redact(evidence)).split()),
        each.page(revision),
    )


def counts(found: Sequence[CheckOutcome]) -> str:
    """Return the last line of a report."""
    failed, warned, left_out, passed = (sum(each.level == level for each in found) for level in LEVELS)
    asked = failed + warned + passed
    return f"{passed} of {asked} passed, {failed} failed, {counted(warned, 'warning')} ({left_out} not applicable)"
