"""What a bridge remembers of a server: what it offered last, so that a host has its answer before the server has started.

One file for each target, login and principal, readable by its owner only.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from linkspan.flows.client_errors import ClientError
from linkspan.host.memory import Pins
from linkspan.revisions.agreement import Agreement
from linkspan.runtime.shared_files import write_private
from linkspan.types.base import JSON, Implementation, JSONObject
from linkspan.types.messages import Tool
from linkspan.types.methods import ListSpec
from linkspan.wire.values import from_builtins, to_builtins

_ONE_PROCESS: Final = (
    "If it needs a handshake: its session belongs to one process, so leave out --workers, or serve it with a bridge of one "
    "process, and name the URL of that"
)
_MAX_BYTES = 16 * 1024 * 1024


class RememberedServer(msgspec.Struct, frozen=True):
    """What a server said of itself, and what it offered."""

    info: dict[str, JSON] | None = None
    instructions: str | None = None
    offers: list[str] = []
    extensions: dict[str, JSON] = {}
    lists: dict[str, list[dict[str, JSON]]] = {}


def state_home() -> Path:
    """Return the directory of what bridges remember, whether it exists or not."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "linkspan" / "bridge"


def file_for(url: str | None, *about: str) -> Path:
    """Return the file for a target: its name begins with a mark of the URL, by which `forget` finds it."""
    marks = [hashlib.sha256("\0".join(each).encode()).hexdigest()[:16] for each in ((url or "",), about)]
    return state_home() / f"{'-'.join(marks)}.json"


def forget(url: str) -> None:
    """Forget what is remembered of a URL: the login is gone."""
    mark = file_for(url).name.partition("-")[0]
    for path in state_home().glob(f"{mark}-*.json"):
        with suppress(OSError):
            path.unlink()


def load(path: Path) -> RememberedServer | None:
    """Return what is remembered in a file; None if that is nothing, or damaged."""
    with suppress(OSError, msgspec.MsgspecError):
        if path.stat().st_size <= _MAX_BYTES:
            return msgspec.json.decode(path.read_bytes(), type=RememberedServer)
    return None


def save(path: Path, known: RememberedServer) -> None:
    """Remember a server. A file that cannot be written is no problem: the next start waits for the server."""
    with suppress(OSError):
        write_private(path, [msgspec.json.encode(known).decode()])


class Companion:
    """Remembers one server for a bridge, and shows the definitions of its tools that were pinned."""

    def __init__(
        self,
        path: Path | None,
        introduce: Any,
        pins: Pins | None,
        key: str,
        specs: Mapping[str, ListSpec[Any, Any]],
        receive: Callable[[Sequence[Any]], object],
        *,
        has_workers: bool = False,
    ) -> None:
        """`introduce(info, instructions)` receives what the server says of itself; None for one of several servers.

        Keys of pins begin with `key`. `specs` are the lists that the server may offer, by method; `receive` receives its tools.
        With workers, no server of the handshake era is served.
        """
        self.introduces: bool = introduce is not None
        self.changes: dict[str, str] = {}
        """How tools differ from the definitions that were pinned, by their names."""
        self._changed: dict[str, Tool] = {}
        self._path = path
        self._introduce = introduce
        self._pins = pins
        self._key = key
        self._specs = specs
        self._receive = receive
        self._has_workers = has_workers
        self._answered = threading.Event()
        """Set once the server has listed what it offers, or could not."""
        self._is_compared = False
        self._known = load(path) if path is not None else None
        if self._known is not None and introduce is not None:
            info = from_builtins(self._known.info, Implementation) if self._known.info else None
            introduce(info, self._known.instructions)

    def remembered(self) -> Mapping[str, Sequence[Any]] | None:
        """Return what the server offered before; None if that is not known."""
        if self._known is None:
            return None
        lists, specs = self._known.lists, self._specs
        with suppress(msgspec.ValidationError):
            found = {m: [from_builtins(each, specs[m].item) for each in lists[m]] for m in lists if m in specs}
            return self._shown(found)
        return None

    def offers(self, kind: str) -> bool | None:
        """Return whether the server offered a capability before; None if that is not known."""
        return None if self._known is None else kind in self._known.offers

    @property
    def extensions(self) -> JSONObject | None:
        """What the server announced of extensions before, by their ids; None if that is not known."""
        return None if self._known is None else self._known.extensions

    def failed(self, error: ClientError) -> str:
        """Receive why lists did not come; return what to do where a server cannot be served with several workers."""
        self._answered.set()
        return _ONE_PROCESS if self._has_workers and error.phase == "negotiate" else ""

    def received(self, agreement: Agreement | None, lists: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        """Remember what the server offers, and return it with the definitions of tools that were pinned."""
        if agreement is not None:
            capabilities = agreement.capabilities
            offers = [each for each in capabilities.__struct_fields__ if getattr(capabilities, each) is not None]
            written = {method: [to_builtins(each) for each in found] for method, found in lists.items()}
            info = to_builtins(agreement.server_info) if agreement.server_info is not None else None
            known = RememberedServer(info, agreement.instructions, offers, capabilities.extensions or {}, written)
            if self._introduce is not None:
                self._introduce(agreement.server_info, agreement.instructions)
            if self._path is not None and known != self._known:
                save(self._path, known)
            self._known = known
        shown = self._shown(lists)
        self._is_compared = True
        self._answered.set()
        return shown

    def compared(self, seconds: float) -> bool:
        """Return whether definitions were compared with those that are pinned; wait some seconds for the server."""
        if not self._is_compared:
            self._answered.wait(seconds)
        return self._is_compared

    def accept(self, name: str, change: str) -> None:
        """Pin a tool as it is defined now, if it still differs by the `change` that was shown."""
        tool = self._changed.get(name)
        if tool is not None and self._pins is not None and self.changes.get(name) == change:
            self._pins.pin(f"{self._key}/{name}", tool)
            del self.changes[name]

    def _shown(self, lists: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        found = self._as_pinned(lists)
        self._receive(found.get("tools/list", ()))
        return found

    def _as_pinned(self, lists: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
        pins = self._pins
        if pins is None or "tools/list" not in lists:
            return lists
        shown: list[Tool] = []
        changes: dict[str, str] = {}
        self._changed = {}
        for tool in lists["tools/list"]:
            definition = pins.definition(f"{self._key}/{tool.name}", tool)
            if definition.change:
                changes[tool.name] = definition.change
                self._changed[tool.name] = tool
            else:
                pins.pin(f"{self._key}/{tool.name}", tool)
            shown.append(definition.tool if definition.change else tool)
        self.changes = changes
        return {**lists, "tools/list": shown}
