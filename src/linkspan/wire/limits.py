"""Every bound that a peer can run into, by name, with its default."""

from __future__ import annotations

import msgspec

__all__ = ["DEFAULT_LIMITS", "Limits"]


class Limits(msgspec.Struct, frozen=True):
    """Bounds on what one peer may make us hold or do (MSG-60).

    Raises: ValueError for a bound below 1, because a bound of 0 would not mean "unlimited".
    """

    max_line_bytes: int = 16 * 1024 * 1024
    """One message, in bytes. A longer one is refused and the connection goes on. HTTP bodies have `max_body_bytes`."""

    max_depth: int = 256
    """Arrays and objects inside each other, in one message."""

    max_batch: int = 1000
    """Messages in one JSON-RPC batch (only one revision has batches)."""

    max_running: int = 1024
    """Calls at work on one connection. At the bound further requests wait on a byte stream, and are refused over HTTP.

    As many more may wait for a handshake client's answers; at that bound no more questions are asked.
    For a client: questions of its server that are at work; more are refused."""

    max_held_bytes: int = 16 * 1024 * 1024
    """Requests on a byte stream that wait because `max_running` calls are at work: their lines, and 1 KiB for each.

    Beyond, requests are refused, and notifications with a handler are dropped."""

    max_subscriptions: int = 1000
    """Open `subscriptions/listen` requests and subscribed resources, each, on one connection."""

    max_rounds: int = 16
    """Rounds of questions to the user that one request may need."""

    input_timeout: float = 600.0
    """Seconds that a handshake client has to answer one server request."""

    max_request_state_bytes: int = 64 * 1024
    """A sealed `requestState`."""

    max_once: int = 10_000
    """Requests whose `ctx.once` values are remembered, each as long as its `requestState` is valid. The oldest go first."""

    max_principals: int = 64
    """For a client: principals that calls name by `auth=` or `headers=` whose lists, and handshake sessions, are kept.

    The oldest go first."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")


DEFAULT_LIMITS = Limits()
