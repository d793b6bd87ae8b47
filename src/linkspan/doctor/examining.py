"""A whole examination: of a server that is a command or at a URL, of a host's configuration, or of a bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Final

from linkspan.auth.network import is_local
from linkspan.checks.web import OutOfTime, Web
from linkspan.client.config import config_path
from linkspan.contract.snapshot import Snapshot
from linkspan.doctor.configs import OF_FILES, config, unread
from linkspan.doctor.listing import listed, structured
from linkspan.doctor.logins import OF_LOGINS, logins
from linkspan.doctor.profiles import DoctorProfile
from linkspan.doctor.speaking import OF_URLS, first_answer, speaking
from linkspan.doctor.verdicts import Verdict, settled, skipped

_PATIENCE: Final = 35.0
"""Seconds for all requests to a URL."""


def of_url(
    url: str,
    headers: Mapping[str, str],
    hosts: Mapping[str, DoctorProfile],
    *,
    named: bool = True,
    register: bool = False,
) -> list[Verdict]:
    """Examine how a server at a URL is reached, and how people log in; with `register`, as clients that are left behind.

    If the hosts were not `named`, those that connect from the internet do not count for a server on this machine.
    """
    if not named and is_local(url):
        hosts = {name: each for name, each in hosts.items() if not each.public}
    found: list[Verdict] = []
    try:
        for each in _of_url(url, headers, hosts, register):
            found.append(each)  # what was found before the time is up counts
    except OutOfTime:
        seen = {each.id for each in found}
        found += [
            skipped(id, "the server is slow: no time was left") for id in (*OF_URLS, *OF_LOGINS) if id not in seen
        ]
    return settled(found)


def _of_url(
    url: str, headers: Mapping[str, str], hosts: Mapping[str, DoctorProfile], register: bool
) -> Iterator[Verdict]:
    """Yield what is found at a URL. Raises: OutOfTime."""
    began = monotonic()
    yield from speaking(Web(url, headers, seconds=_PATIENCE), hosts)
    left = _PATIENCE - (monotonic() - began)
    bare = Web(url, seconds=left)  # how to log in is in the answer to a request without a token
    first = first_answer(bare)
    if first.status:
        yield from logins(bare, first, hosts, register=register)
    else:
        yield from (skipped(id, first.problem) for id in OF_LOGINS)


def of_list(
    snapshot: Snapshot, hosts: Mapping[str, DoctorProfile], called: Mapping[str, bool] = MappingProxyType({})
) -> list[Verdict]:
    """Examine what a server lists; `called` are tools that did not fail, and whether they returned structured content."""
    return settled([*listed(snapshot, hosts), *structured(snapshot, called)])


def of_host(name: str, host: DoctorProfile, home: Path, workspace: Path) -> list[Verdict]:
    """Examine the configuration files of a host, of the person and of the folder `workspace`."""
    return settled([*_of_host(name, host, home, workspace)])


def _of_host(name: str, host: DoctorProfile, home: Path, workspace: Path) -> Iterator[Verdict]:
    files = [config_path(host.title, workspace=each) for each in (False, True)]
    found = [each for each in files if each is not None and each.is_file()]
    for each in found:
        yield from config(each, host)
    if not found:
        yield from (skipped(id, f"{host.title} has no configuration here") for id in OF_FILES if id != "D39")
    yield from unread(name, home, workspace)
