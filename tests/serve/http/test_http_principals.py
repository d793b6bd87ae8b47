"""Who asks, as a middleware in front of the endpoint says: what identifies is the principal, and nothing else is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from http_faces import Bare, Face
from http_talk import call
from http_world import World

Serve = Callable[..., Face]
NUMBER = UUID("12345678-1234-5678-1234-567812345678")


class Starlette:
    """A user as Starlette has it: only some of them have an identity."""

    username = "mia"
    display_name = "Mia"
    is_authenticated = True

    @property
    def identity(self) -> str:
        raise NotImplementedError


KNOWN: list[tuple[Any, str | None]] = [
    ("mia", "mia"),
    ("", None),
    (None, None),
    (7, "7"),
    (0, "0"),
    (NUMBER, str(NUMBER)),
    (Starlette(), "mia"),
    (SimpleNamespace(identity=7), "7"),
    (SimpleNamespace(identity=NUMBER, username="mia"), str(NUMBER)),
    (SimpleNamespace(identity=None, username="mia"), "mia"),
    (SimpleNamespace(identity=""), None),
    (SimpleNamespace(identity="mia", is_authenticated=False), None),
    (SimpleNamespace(is_authenticated=False), None),
]
UNKNOWN: list[tuple[Any, str]] = [
    (True, "is a bool, which identifies no user"),
    ({"sub": "mia"}, "is a dict, which identifies no user"),
    (b"mia", "is a bytes, which identifies no user"),
    (SimpleNamespace(display_name="Mia"), "set it to a str, int or UUID, or to an object whose attribute `identity`"),
    (SimpleNamespace(identity={"sub": "mia"}), ".identity is a dict: set `identity` to a str, int or UUID"),
    (SimpleNamespace(username=True), ".username is a bool: set `username` to a str, int or UUID"),
]


def as_user(face: Face, user: Any) -> Face:
    """Let every request come from `user`."""
    if isinstance(face, Bare):
        pytest.skip("the bare machine is given the principal itself")
    plain = face.open

    def open_as(*arguments: Any, **options: Any) -> Any:
        return plain(*arguments, **options | {"principal": user})

    face.open = open_as  # type: ignore[method-assign]
    return face


@pytest.mark.parametrize(("user", "principal"), KNOWN, ids=lambda each: repr(each).split(" object at")[0])
def test_what_identifies_a_user_is_the_principal(user: Any, principal: str | None, serve: Serve) -> None:
    """SEC-24."""
    face = as_user(serve(World().server), user)
    assert call(face, "facts").json()["result"]["structuredContent"]["principal"] == principal


@pytest.mark.parametrize(("user", "reason"), UNKNOWN, ids=lambda each: repr(each))
def test_a_user_who_cannot_be_told_from_others_is_refused(
    user: Any, reason: str, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-24: taken for nobody, such users would share their sessions and states."""
    face = as_user(serve(World().server), user)
    with caplog.at_level(logging.WARNING):
        answer = call(face, "facts").whole()
    assert answer.status == 500
    assert answer.json()["error"]["code"] == -32603
    assert "Mia" not in answer.json()["error"]["message"]
    (line,) = [
        record.getMessage()
        for record in caplog.records
        if "identifies" in record.getMessage() or "set `" in record.getMessage()
    ]
    assert reason in line
