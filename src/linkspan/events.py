"""What a machine tells its driver. Values, no logic."""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeVar

import msgspec

__all__ = ["CallCancelled", "CallReady", "Event"]

CallT = TypeVar("CallT")


class CallReady(msgspec.Struct, Generic[CallT], frozen=True):
    """Run this call, then hand its value to `finish` or its exception to `fail`."""

    call: CallT


class CallCancelled(msgspec.Struct, Generic[CallT], frozen=True):
    """Stop this call if it can be stopped. Its result is discarded."""

    call: CallT


Event: TypeAlias = CallReady[CallT] | CallCancelled[CallT]
