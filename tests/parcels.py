"""An extension made up for tests: calls of `ship` become parcels, which clients find and listen for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from linkspan import Server
from linkspan.core.call import Call, Hook
from linkspan.core.extension import Extension, ExtensionMethod, ListenMember, missing_extension
from linkspan.core.flow import Flow, ListenFor, Receive, RequestSpec, ValueReader
from linkspan.core.waiting import ServerChange
from linkspan.errors import INVALID_PARAMS, RemoteProtocolError
from linkspan.flows.requesting import request
from linkspan.flows.state import CallOptions, ClientState
from linkspan.revisions.neutral import Outcome, Request
from linkspan.types.messages import CallToolParams, Params
from linkspan.wire.jsonrpc import encode

PARCELS = "com.example/parcels"


class ParcelParams(Params, frozen=True, kw_only=True):
    """Which parcel."""

    named_by: ClassVar[str | None] = "parcel_id"
    parcel_id: str


def find(request: Request) -> Outcome | Call:
    """Find a parcel: at once, or in a call of its own."""
    params = request.params
    assert isinstance(params, ParcelParams)
    if params.parcel_id == "lost":
        raise RemoteProtocolError(INVALID_PARAMS, "Unknown parcel: lost")
    if params.parcel_id == "broken":
        raise RuntimeError("a secret of the author")
    found = Raw(encode({"parcelId": params.parcel_id, "status": "on its way"}))
    return Hook(request, lambda: found) if params.parcel_id == "far" else found


def ship(request: Request, begin: Callable[[], Outcome | Call]) -> Outcome | Call:
    """Answer a call of `ship` with a parcel."""
    params = request.params
    assert isinstance(params, CallToolParams)
    if params.name not in ("ship", "ship_abroad"):
        return begin()
    if not EXTENSION.declared_by(request.peer):
        if params.name == "ship_abroad":
            raise missing_extension(PARCELS)
        return begin()
    return Raw(encode({"resultType": "parcel", "parcelId": "p1"}))


def unpack(state: ClientState, spec: RequestSpec, raw: Raw, began: float, options: CallOptions) -> Flow[Raw]:
    """Wait for the parcel, and return what a client makes of it."""
    parcel = msgspec.json.decode(raw)["parcelId"]
    reader: ValueReader = yield ListenFor({"parcelIds": (parcel,)})
    heard: list[Any] = []
    while not heard or heard[-1] is None:
        heard.append((yield Receive(10.0, reader, options.stopper)))
    reader.close()
    status = msgspec.json.decode(heard[-1].params)["status"]
    asked = RequestSpec("parcels/find", encode({"parcelId": parcel}), timeout=5.0)
    found = yield from request(state, asked)
    text = f"{status}, {msgspec.json.decode(found.result)['status']}, {reader.acknowledged}"
    return Raw(encode({"content": [{"type": "text", "text": text}], "resultType": "complete"}))


EXTENSION = Extension(
    id=PARCELS,
    server={"express": True},
    client={},
    methods={"parcels/find": ExtensionMethod(params=ParcelParams, begin=find)},
    listen={"parcelIds": ListenMember(honoured=lambda _, wanted: [each for each in wanted if each != "lost"])},
    around_call=ship,
    results={"parcel": unpack},
)

COLOURS = Extension(id="com.example/colours", server={"dark": True}, client={"dark": False})
"""One that has settings only."""


def arrived(parcel_id: str) -> ServerChange:
    """Return the change that those who listen for a parcel are notified of."""
    params = Raw(encode({"parcelId": parcel_id, "status": "arrived"}))
    return ServerChange("notifications/parcels", member="parcelIds", value=parcel_id, params=params)


def shop() -> Server:
    """Ship things."""
    server = Server("shop", "1.0.0", extensions=[EXTENSION, COLOURS])

    @server.tool
    def ship(what: str) -> str:
        return f"shipped {what}"

    @server.tool
    def ship_abroad(what: str) -> str:
        return f"shipped {what}"

    @server.tool
    def hand_over(what: str) -> str:
        return f"handed over {what}"

    return server
