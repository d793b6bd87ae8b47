"""The views of mounted servers elsewhere, for a server that has none of its own: a bridge."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from linkspan.apps.policy import EXTENSION_ID, MIME_TYPE, view_uri
from linkspan.apps.serving import with_flat_keys
from linkspan.core.extension import Extension
from linkspan.server.places import Place
from linkspan.types.base import Wire
from linkspan.types.messages import ListToolsResult, Tool
from linkspan.types.methods import TOOL_LIST


class PassedApps:
    """Passes on the views of mounted servers, as a value of `extensions=`."""

    def __init__(self) -> None:
        """Begin without a server."""
        self._place: Place | None = None
        self._is_naming = False
        self.extension = Extension(
            id=EXTENSION_ID, server={}, client={"mimeTypes": [MIME_TYPE]}, attach=self._attach, passes_on=True
        )

    def received(self, tools: Iterable[Wire]) -> None:
        """Receive the tools of a server: once one of them has a view, lists name it as a client with a handshake reads it."""
        if self._is_naming or not any(isinstance(each, Tool) and view_uri(each) is not None for each in tools):
            return
        self._is_naming = True
        assert self._place is not None
        self._place.server.middleware(only=[TOOL_LIST.method])(_name_views)

    def _attach(self, place: Place) -> None:
        self._place = place


def _name_views(call: Any) -> Generator[None, Any, Any]:
    result = yield
    is_plain = call.context.peer.revision.extends_by_request or not isinstance(result, ListToolsResult)
    return result if is_plain else with_flat_keys(result)
