"""What a server needs from outside, and what it shows of a request. Types alone: nothing here runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, Required, TypedDict

if TYPE_CHECKING:
    from linkspan.core.call import Lifespan
    from linkspan.server.lifespan import LifespanPlan
    from linkspan.server.limits import CallLimits, IsolatedCall, Isolation, Limited
    from linkspan.server.request_state import RequestStateKeys
    from linkspan.server.steps import Steps
    from linkspan.server.telemetry import Telemetry


class Protection(Protocol):
    """What `auth=` takes: `linkspan.Protected`, which says whose tokens are good."""

    @property
    def secret_headers(self) -> Sequence[str]:
        """The headers that carry credentials: no setting shows them to handlers."""
        ...


class SharedState(Protocol):
    """What `store=` takes besides a URL: a `linkspan.stores.Store`, which has more operations than these."""

    def secret(self, name: str) -> bytes:
        """Return 32 random bytes, the same for every process."""
        ...

    def publish(self, channel: str, data: bytes) -> None:
        """Send data to all who are subscribed now, in every process."""
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


class OnceValue(Protocol):
    """A value of `ctx.once` that all processes have in common."""

    @property
    def is_there(self) -> bool:
        """Whether the function has run; if not, this process has the right to run it."""
        ...

    @property
    def value(self) -> object:
        """What it returned."""
        ...

    def keep(self, value: object) -> bool:
        """Keep what it returned; return whether other processes can have it. Raises: LinkspanError."""
        ...

    def give_up(self) -> None:
        """Let it run again. Raises: LinkspanError."""
        ...


class TaskOfCall(Protocol):
    """A coroutine in a task of its own. Any thread."""

    async def until_question(self, *, wake: bool) -> bool:
        """Wait until the coroutine asks, or has ended; return whether it asks. With `wake`, let it go on first.

        Cancelled, cancel the coroutine and wait for its end. Raises: RuntimeError if its event loop is gone.
        """
        ...

    async def pause(self) -> None:
        """Wait, inside of the coroutine, until it may go on."""
        ...

    def result(self) -> object:
        """Return its value once it has ended. Raises: what it raised."""
        ...

    def cancel_in(self, seconds: float, on_late: Callable[[], object]) -> None:
        """Cancel it after `seconds` in which it did not go on, and call `on_late`; at once if they are 0."""
        ...


class Sharing(Protocol):
    """What one server shares with the other processes that serve its clients."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes can see what is in the store."""
        ...

    def check(self) -> None:
        """Check what `store=` and `store_key=` were given. Raises: LinkspanError."""
        ...

    def open(self) -> None:
        """Open the store, if one was given, so that a problem shows at the start. Raises: LinkspanError."""
        ...

    def by_workers(self) -> AbstractContextManager[object]:
        """Share with processes that are forked within the block. Raises: LinkspanError where they cannot."""
        ...

    def publish(self, data: bytes) -> None:
        """Send data to the other processes, in order, without waiting. Never raises."""
        ...

    def listen(self, receive: Callable[[bytes | None], object]) -> None:
        """Call `receive` from now on, in a thread, with what others publish, and with None where something may be missing."""
        ...

    def claim_value(self, chain: str, key: str) -> OnceValue:
        """Return a value of `ctx.once` in a chain of rounds, or the right to make it; blocks while another process makes it.

        Raises: LocalProtocolError, RemoteProtocolError.
        """
        ...

    def keys(self) -> RequestStateKeys:
        """Return what seals `requestState` in all processes. Raises: RemoteProtocolError if the store cannot be reached."""
        ...

    @property
    def is_listening(self) -> bool:
        """Whether what others publish arrives."""
        ...

    def wait_until_listening(self) -> None:
        """Wait, within bounds, until what others publish arrives."""
        ...


class FileSource(Protocol):
    """A file that a resource is read from."""

    @property
    def mime_type(self) -> str:
        """By the end of its name."""
        ...

    def read(self) -> bytes | None:
        """Return what is in it now; None where it is gone. It reads the disk."""
        ...


class System(Protocol):
    """Where time and chance come from: pure packages have none of their own."""

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds that never go back."""
        ...

    @property
    def wall_clock(self) -> Callable[[], float]:
        """Seconds since 1970."""
        ...

    @property
    def random(self) -> Callable[[int], bytes]:
        """Unguessable bytes, as many as asked for."""
        ...

    @property
    def lock(self) -> Callable[[], AbstractContextManager[object]]:
        """A new lock between threads, which its owner may take again."""
        ...

    def file(self, path: str | PathLike[str]) -> FileSource:
        """Find a file. Raises: OSError if there is none."""
        ...

    def off_the_loop(self, run: Callable[[], object]) -> None:
        """Run an author's hook that does not raise: here, or in a thread of its own where an event loop would wait for it."""
        ...

    @property
    def forks(self) -> Callable[[], int]:
        """How many forks led to this process: the connections of another number are the parent's."""
        ...

    def later(self, awaitable: Awaitable[object]) -> None:
        """Await something in the background. It must not raise."""
        ...

    def drive(self, steps: Steps) -> object:
        """Take steps to their end and return the value of the last; where an event loop runs here, return an awaitable of it."""
        ...

    def in_thread(self, function: Callable[[], object]) -> Awaitable[object]:
        """Run a function that may block in a thread, for the running event loop; give its outcome.

        A waiter that is cancelled waits for the end of the function all the same, and is cancelled then.
        """
        ...

    def limited(self, limits: CallLimits) -> Limited:
        """Return what runs the calls of a tool within its limits."""
        ...

    def telemetry(self) -> Telemetry | None:
        """Return what traces and measures requests, if the application has chosen that for its process."""
        ...

    def lifespan(self, plan: LifespanPlan) -> Lifespan:
        """Return what enters and leaves a lifespan in this process."""
        ...

    def isolate(self, isolation: Isolation) -> IsolatedCall:
        """Return what runs the calls of a tool in processes of their own."""
        ...

    def hold(self, run: Callable[[], object], on_lost: Callable[[BaseException], object]) -> TaskOfCall:
        """Run a coroutine function in a task of its own, which other calls wait for; where an event loop runs.

        `on_lost` receives what it raises after its call has ended.
        """
        ...

    def share(self, awaitable: Awaitable[object]) -> Callable[[], Awaitable[object]]:
        """Start something on the running event loop that no request's cancellation ends; each call gives its outcome.

        Raises: RuntimeError where no event loop runs.
        """
        ...


class DescribedMount(Protocol):
    """What is mounted in a server, as far as the instructions of that describe it."""

    def section(self) -> str | None:
        """Return its instructions below its name, if it has any."""
        ...


class InstrumentationData(TypedDict, total=False):
    """The instrumentation of one request. Names and URIs are present only if something was found under them."""

    method: Required[str]
    tool_name: NotRequired[str]
    prompt_name: NotRequired[str]
    resource_uri: NotRequired[str]
    error: NotRequired[str]
    duration: NotRequired[float]
    """Seconds, by a monotonic clock."""
    server_context: NotRequired[Mapping[str, Any]]
    """Only with `instrument_server_context`: it may hold secrets."""
