"""What a machine tells its driver. Values, no logic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

__all__ = ["CallCancelled", "CallReady", "Event"]

CallT = TypeVar("CallT")


@dataclass(frozen=True, slots=True)
class CallReady(Generic[CallT]):
    """Run this call, then hand its value to `finish` or its exception to `fail`."""

    call: CallT


@dataclass(frozen=True, slots=True)
class CallCancelled(Generic[CallT]):
    """Stop this call if it can be stopped. Whatever comes of it is thrown away."""

    call: CallT


Event: TypeAlias = CallReady[CallT] | CallCancelled[CallT]
