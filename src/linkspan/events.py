"""What a machine tells its driver. Values, no logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

import msgspec

__all__ = ["CallCancelled", "CallReady", "Event", "HookReady"]

CallT = TypeVar("CallT")


class CallReady(msgspec.Struct, Generic[CallT], frozen=True):
    """Run this call, then hand its value to `finish` or its exception to `fail`."""

    call: CallT


class CallCancelled(msgspec.Struct, Generic[CallT], frozen=True):
    """Stop this call if it can be stopped. Its result is discarded."""

    call: CallT


class HookReady(msgspec.Struct, frozen=True, eq=False):
    """Hand this hook of the author's to `run_hook`, off the event loop. No client waits for it."""

    hook: Callable[[], object]


Event: TypeAlias = CallReady[CallT] | CallCancelled[CallT] | HookReady
