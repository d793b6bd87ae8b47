"""The shell that ends servers whose client was killed: it goes with them, and signals no group that may be another's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from linkspan.runtime import process as processes

pytestmark = pytest.mark.skipif(os.name == "nt", reason="process groups are POSIX")

IGNORES_TERM = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
SLEEPS = "import time; print(flush=True); time.sleep(60)"
PATIENT = 600
"""Looks that take longer than any test."""


@contextlib.contextmanager
def group(code: str = SLEEPS) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def shell(looks: int) -> Iterator[subprocess.Popen[bytes]]:
    """The guard, started by itself. It looks so many times, a tenth of a second apart, before it asks, and before it kills."""
    script = processes._SCRIPT.replace("'1 2 3 4 5 6 7 8 9 10'", f"'{'1 ' * looks}'")
    assert script != processes._SCRIPT
    with subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield process
        process.kill()


def reap(guarding: subprocess.Popen[bytes], *groups: str) -> None:
    """Close its pipe, as the end of the client does, and wait for its end."""
    assert guarding.stdin is not None
    guarding.stdin.write("".join(f"+ {each}\n" for each in groups).encode())
    guarding.stdin.close()
    assert guarding.wait(60) == 0 or groups


def named(process: subprocess.Popen[bytes]) -> str:
    return f"{process.pid}:{processes._start_time(process.pid)}"


def test_it_goes_at_once_when_nothing_is_left() -> None:
    with group() as gone, shell(PATIENT) as guarding:
        name = named(gone)
        gone.kill()
        gone.wait()
        reap(guarding, name)


def test_it_goes_as_soon_as_the_last_one_ends_by_itself() -> None:
    with group("import sys; print(flush=True); sys.stdin.read()") as ending, shell(PATIENT) as guarding:
        assert guarding.stdin is not None
        assert ending.stdin is not None
        guarding.stdin.write(f"+ {named(ending)}\n".encode())
        guarding.stdin.close()
        ending.stdin.close()
        assert ending.wait(60) == 0, "it had its time to end"
        began = time.monotonic()
        guarding.wait(100)
        assert time.monotonic() - began < 30  # not the minute of its patience


def test_a_group_that_was_given_the_number_of_one_that_ended_is_left_alone() -> None:
    with group() as other, shell(PATIENT) as guarding:
        reap(guarding, f"{other.pid}:1")
        assert other.poll() is None


@pytest.mark.parametrize(("code", "ending"), [(SLEEPS, signal.SIGTERM), (IGNORES_TERM, signal.SIGKILL)])
@pytest.mark.parametrize("known", [True, False], ids=["with start time", "without"])
def test_what_is_left_is_asked_to_end_and_then_ended(code: str, ending: int, known: bool) -> None:
    with group(code) as left, shell(looks=2) as guarding:
        reap(guarding, named(left) if known else f"{left.pid}:")
        assert left.wait(60) == -ending


def test_members_without_their_first_process_are_ended() -> None:
    code = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]); print(p.pid, flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        name = named(first)
        lines = [first.stdout.readline(), first.stdout.readline()]
        member = max(int(each) for each in lines if each.strip())
        first.wait()
        with shell(looks=2) as guarding:
            reap(guarding, name)
        give_up = time.monotonic() + 60
        while _alive(member):
            assert time.monotonic() < give_up
            time.sleep(0.02)


def _alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_group_is_released_before_its_number_can_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int | None] = []
    running = processes.Child([sys.executable, "-c", SLEEPS], os.environ, None)

    really_release = processes.release_group

    def release(number: int) -> None:
        collected.append(running._process.returncode)
        really_release(number)

    monkeypatch.setattr(processes, "release_group", release)
    running.reap()
    running.close_pipes()
    assert collected == [None]


def test_a_server_that_does_not_end_is_asked_before_it_is_killed() -> None:
    """STDIO-4: first its input ends, then SIGTERM, then SIGKILL."""
    says = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print(flush=True); time.sleep(60)"
    running = processes.Child([sys.executable, "-c", says], os.environ, None)
    os.read(running.stdout, 1)
    running.stop(0.1)
    running.close_pipes()
    assert running.exit_code() == 7
