"""Faces for the tests of the HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from http_faces import FACES, Asgi, Bare, Face, Http, OnALoop, Scattered

from linkspan import Server


@pytest.fixture
def _opened() -> Iterator[list[Face]]:
    faces: list[Face] = []
    yield faces
    for face in faces:
        face.stop()


@pytest.fixture(params=FACES)
def serve_one(request: pytest.FixtureRequest, _opened: list[Face]) -> Callable[..., Face]:
    """Serve a server in one process, through each face in turn: for what is bounded in each process."""

    def start(server: Server, **policy: Any) -> Face:
        _opened.append(FACES[request.param](server, **policy))
        return _opened[-1]

    return start


@pytest.fixture(params=[*FACES.values(), Scattered], ids=[*FACES, "three"])
def serve(request: pytest.FixtureRequest, _opened: list[Face]) -> Callable[..., Face]:
    """Serve a server through each face in turn, and in three processes."""

    def start(server: Server, **policy: Any) -> Face:
        _opened.append(request.param(server, **policy))
        return _opened[-1]

    return start


@pytest.fixture
def asgi(_opened: list[Face]) -> Callable[..., Asgi]:
    """Serve a server, or an application, through ASGI."""

    def start(server: Server | None, app: Any = None, **policy: Any) -> Asgi:
        face = Asgi(server, app, **policy)
        _opened.append(face)
        return face

    return start


@pytest.fixture(params=[Asgi, Http])
def on_a_loop(request: pytest.FixtureRequest, _opened: list[Face]) -> OnALoop:
    """Serve a server through each of the faces that have an event loop, and clients that go, stall or do not read."""

    def start(server: Server, **policy: Any) -> Asgi | Http:
        _opened.append(face := request.param(server, **policy))
        return face

    return start


@pytest.fixture(params=[Bare, Scattered])
def bare(request: pytest.FixtureRequest) -> Callable[..., Bare]:
    """Serve a server without any I/O: in one process, and in three that share the sessions."""
    face: type[Bare] = request.param
    return face


@pytest.fixture
def one_process() -> Callable[..., Bare]:
    """Serve a server in one process, without any I/O."""
    return Bare
