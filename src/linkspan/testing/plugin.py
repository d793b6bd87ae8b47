"""The plugin of pytest: a client of the project's server, its contract, its snapshots, its crashes, and checks of the protocol.

pytest loads it in each run of each project that has Linkspan installed.
Law: nothing of Linkspan is imported before a test uses it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import pytest

if TYPE_CHECKING:
    import pluggy

    from linkspan.client.client import Client
    from linkspan.client.sync_client import SyncClient

_TARGET: Final = "linkspan_target"
_LOCK: Final = "linkspan_lock_file"
_NO_TARGET: Final = (
    "name the server to test in the configuration of pytest: linkspan_target = server.py (a command, a URL)"
)
_INCIDENTS: Final = pytest.StashKey[list[logging.LogRecord]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the settings."""
    group = parser.getgroup("linkspan", "the contract of an MCP server")
    modes = ("check", "update", "off")
    group.addoption(
        "--linkspan-lock", choices=modes, default="check", help="what mcp_lock does with the lock (default: check)"
    )
    shots = "write what mcp_snapshot gets, instead of comparing it"
    group.addoption("--linkspan-snapshot", choices=("check", "update"), default="check", help=shots)
    group.addoption(
        "--linkspan-check",
        action="store_true",
        help="test what the protocol requires of the server of linkspan_target, too",
    )
    parser.addini(_TARGET, "the server of the fixtures mcp, amcp and mcp_lock: a file, a command or a URL", default="")
    parser.addini(_LOCK, "the file of mcp_lock", default="tools.lock")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--linkspan-check`, add a test for each requirement of the protocol."""
    if config.getoption("--linkspan-check"):
        from linkspan.testing import check_items

        items += check_items.items(session, _target(config))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the server of `--linkspan-check`."""
    if session.config.getoption("--linkspan-check"):
        from linkspan.testing import check_items

        check_items.finish(session)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, None, None]:
    """Keep the incidents that are logged while a test runs."""
    kept, logger = _Incidents(), logging.getLogger("linkspan")
    item.stash[_INCIDENTS] = kept.records
    logger.addHandler(kept)
    yield
    logger.removeHandler(kept)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
    """Show for each incident of a failed test the author's lines that led to it."""
    outcome = yield
    report = outcome.get_result()
    if report.failed and (records := item.stash.get(_INCIDENTS, None)):
        report.sections += [(f"incident {getattr(each, 'incident', '')}", _description(each)) for each in records]


class _Incidents(logging.Handler):
    """Keeps the log records of crashes of servers, in this process and in those that a client has started."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record that has the id of an incident."""
        if getattr(record, "incident", None) is not None:
            self.records.append(record)


def _description(record: logging.LogRecord) -> str:
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return record.getMessage()
    from linkspan.runtime.tracebacks import author_frames

    return f"{record.getMessage()}\n{author_frames(error)}"


def _target(config: pytest.Config) -> str:
    """Return the target, with the path of a file below the folder of the configuration."""
    target: str = config.getini(_TARGET)
    if not target:
        raise pytest.UsageError(_NO_TARGET)
    path, colon, name = target.rpartition(":") if target.rpartition(":")[0].endswith(".py") else (target, "", "")
    file = config.rootpath / path
    return f"{file}{colon}{name}" if path.endswith(".py") and file.is_file() else target


@pytest.fixture
def mcp(pytestconfig: pytest.Config) -> Iterator[SyncClient]:
    """A client that is connected to the server of `linkspan_target`."""
    from linkspan.client.sync_client import SyncClient

    with SyncClient(_target(pytestconfig)) as client:
        yield client


@pytest.fixture
def amcp(pytestconfig: pytest.Config) -> Iterator[Client]:
    """The same for async tests. It connects at its first call, on the loop of the test, whichever plugin runs that."""
    from linkspan.client.client import Client

    client = Client(_target(pytestconfig))
    yield client
    client.close_now()


@pytest.fixture
def mcp_lock(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Callable[..., None]:
    """A function that compares the server with its lock, and fails the test if a change breaks clients.

    `mcp_lock(fail_on="risky")` fails for less. With `--linkspan-lock=update` the lock is written; in CI it never is.
    """

    def check(*, fail_on: Literal["breaking", "risky", "additive"] = "breaking", resources: bool = False) -> None:
        mode = str(pytestconfig.getoption("--linkspan-lock"))
        if mode == "off":
            pytest.skip("--linkspan-lock=off")
        from linkspan.contract.comparing import LEVELS, changes, summary
        from linkspan.contract.snapshot import InvalidLock, read, written
        from linkspan.contract.taking import take

        client: SyncClient = request.getfixturevalue("mcp")
        found = take(client, resources=resources)
        file = pytestconfig.rootpath / pytestconfig.getini(_LOCK)
        if not file.exists() or mode == "update":
            if "CI" in os.environ:
                pytest.fail(
                    f"{file.name} is not written in CI: run pytest --linkspan-lock=update and commit it", pytrace=False
                )
            _write(file, written(found))
            return
        try:
            before = read(file.read_text("utf-8"), file.name)
        except InvalidLock as problem:
            pytest.fail(str(problem), pytrace=False)
        all_changes = changes(before, found)
        failing = [each for each in all_changes if LEVELS.index(each.level) <= LEVELS.index(fail_on)]
        if failing:
            lines = [f"{each.level.upper():8}  {each.place}: {each.words}  [{each.code}]" for each in failing]
            how = "if that is intended: pytest --linkspan-lock=update"
            pytest.fail("\n".join([*lines, summary(all_changes, before, found), how]), pytrace=False)

    return check


@pytest.fixture
def mcp_snapshot(pytestconfig: pytest.Config, request: pytest.FixtureRequest) -> Callable[[object], None]:
    """A function that compares a result with the one that was kept for this test, in `__snapshots__` beside its file.

    Ids, times, digests and secrets are masked. `--linkspan-snapshot=update` writes them anew; the first run of a test writes
    its own, but not in CI.
    """
    count = 0

    def check(result: object) -> None:
        nonlocal count
        count += 1
        from linkspan.testing.snapshots import difference, shown

        test = f"{request.node.name}-{count}"
        file = (
            Path(request.node.path).parent
            / "__snapshots__"
            / f"{_file_name(request.node.path.stem)}-{_file_name(test)}.json"
        )
        text = shown(result)
        if pytestconfig.getoption("--linkspan-snapshot") == "update" or not file.exists():
            if "CI" in os.environ:
                pytest.fail(f"{file.name} is not written in CI: run the test once and commit the file", pytrace=False)
            _write(file, text)
            return
        if lines := difference(file.read_text("utf-8"), text):
            how = "if that is intended: pytest --linkspan-snapshot=update"
            pytest.fail("\n".join([f"the result differs from {file.name}:", *lines, how]), pytrace=False)

    return check


def _file_name(text: str) -> str:
    return "".join(each if each.isalnum() or each in "-_." else "_" for each in text)[:100]


def _write(file: Path, text: str) -> None:
    """Write a file as a whole, also if processes of pytest-xdist do so at once."""
    file.parent.mkdir(exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text(text, "utf-8", newline="\n")
    part.replace(file)
