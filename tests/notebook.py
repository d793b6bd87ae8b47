"""A server with a list of an extension: notes, which have names and are read by them."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from linkspan import Extension, ExtensionMethod, ListSpec, Params, Server, Wire


class Note(Wire, frozen=True):
    name: str
    title: str | None = None


class ListNotesResult(Wire, frozen=True):
    notes: list[Note]
    next_cursor: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class GetNoteParams(Params, frozen=True, kw_only=True):
    named_by: ClassVar[str | None] = "name"
    name: str


NOTES = ListSpec(method="notes/list", noun="note", key="name", capability="notes", item=Note, result=ListNotesResult)


def get(request: Any) -> Raw:
    if request.params.name == "broken":
        raise RuntimeError("a secret of the author")
    return Raw(json.dumps({"text": f"the note {request.params.name}"}).encode())


EXTENSION = Extension(
    id="com.example/notes",
    server={},
    client={},
    lists=(NOTES,),
    methods={"notes/get": ExtensionMethod(params=GetNoteParams, begin=get, about=NOTES)},
    needs_declaration=False,
    in_handshakes=True,
)


def notebook(**options: Any) -> Server:
    server = Server("notebook", extensions=[EXTENSION], **options)
    for name in ("milk", "bread", "broken"):
        server.items("notes/list").add(Note(name, title=name.upper()))
    return server
