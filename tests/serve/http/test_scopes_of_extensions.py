"""Scopes of items that an extension lists."""

from __future__ import annotations

from http_faces import Wsgi
from http_talk import body, mirror

from linkspan import SyncClient
from linkspan.auth.protection import Protected
from notebook import Note, notebook
from tokens import RESOURCE, jwt, token


def test_scopes_of_an_item_are_asked_of_the_token() -> None:
    server = notebook(auth=Protected(RESOURCE, verify=jwt()))
    server.items("notes/list").add(Note("diary"), scopes=["notes:private"])
    face = Wsgi(server)

    def get(**claims: str) -> int:
        request = body("notes/get", {"name": "diary"})
        own = {"authorization": f"Bearer {token(**claims)}"}
        return face.ask("POST", {**mirror(request), **own}, request).status

    assert get() == 403
    assert get(scope="notes:private") == 200
    with SyncClient(server) as client:  # in memory there are no tokens
        assert client.request("notes/get", {"name": "diary"})
