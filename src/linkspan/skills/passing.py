"""The skills of mounted servers elsewhere, for a server that has none of its own: a bridge."""

from __future__ import annotations

from linkspan.core.extension import Extension, ExtensionMethod
from linkspan.errors import INVALID_PARAMS, RemoteProtocolError, clipped
from linkspan.revisions.neutral import Outcome, Request
from linkspan.server.items import Items
from linkspan.server.places import Place
from linkspan.skills.directories import read_directory
from linkspan.skills.shapes import EXTENSION_ID, SKILLS, DirectoryParams, DirectoryResult, GetSkillParams


class PassedSkills:
    """Lists the skills of mounted servers, as a value of `extensions=`. What they say is passed on as it is."""

    def __init__(self) -> None:
        """Begin without a server."""
        self._items: Items | None = None
        self.extension = Extension(
            id=EXTENSION_ID,
            server={"directoryRead": True},  # directories are made of the entries
            lists=(SKILLS,),
            methods={
                "skills/get": ExtensionMethod(params=GetSkillParams, begin=_unknown, about=SKILLS, cached=True),
                "resources/directory/read": ExtensionMethod(params=DirectoryParams, begin=self._list, among=SKILLS),
            },
            attach=self._attach,
            needs_declaration=False,  # only servers declare it
            in_handshakes=True,
            passes_on=True,
        )

    def _attach(self, place: Place) -> None:
        self._items = place.items(SKILLS.method)

    def _list(self, request: Request) -> DirectoryResult:
        assert self._items is not None
        assert isinstance(request.params, DirectoryParams)
        return read_directory(self._items.usable(request), request.params)


def _unknown(request: Request) -> Outcome:
    """Refuse an entry that no mounted server serves: there are no others."""
    return RemoteProtocolError(INVALID_PARAMS, f"Unknown skill: {clipped(request.target or '')}")
