"""Which types run code of the author when a value is read: those must not be read under a lock, or on an event loop."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import typing
import uuid
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pytest

from linkspan.schema.build import runs_author_code
from linkspan.schema.parameters import compile_parameters

attrs = pytest.importorskip("attrs")
pydantic = pytest.importorskip("pydantic")


@dataclasses.dataclass
class Plain:
    a: int
    b: list[str] = dataclasses.field(default_factory=list)
    next: Plain | None = None


@dataclasses.dataclass
class Checked:
    a: int

    def __post_init__(self) -> None:
        pass


@dataclasses.dataclass
class Made:
    a: str = dataclasses.field(default_factory=lambda: "x")


@dataclasses.dataclass(init=False)
class Own:
    a: int

    def __init__(self, a: int) -> None:
        self.a = a


@dataclasses.dataclass
class Holder:
    inner: dict[str, Checked]


class Row(NamedTuple):
    a: int


class Keys(TypedDict):
    a: Plain


class Packed(msgspec.Struct):
    a: int


class Colour(enum.Enum):
    RED = "red"


class Lenient(enum.Enum):
    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> Any:
        return cls.RED


@attrs.define
class Attrs:
    a: int


class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    a: int


@pytest.mark.parametrize(
    "hint",
    [int, str | None, list[int], Plain, Keys, Row, Packed, Colour, Any, datetime.date, uuid.UUID, typing.Literal["a"],
     Annotated[int, msgspec.Meta(ge=0)], dict[str, list[Plain]]],
    ids=str,
)  # fmt: skip
def test_no_code_of_the_author_runs(hint: Any) -> None:
    assert not runs_author_code(hint)


@pytest.mark.parametrize(
    "hint",
    [Checked, Made, Own, Holder, Lenient, Attrs, Model, list[Model], Checked | None, tuple[Annotated[Checked, "x"], ...],
     Annotated[int, pydantic.AfterValidator(abs)]],
    ids=str,
)  # fmt: skip
def test_code_of_the_author_runs(hint: Any) -> None:
    assert runs_author_code(hint)


def test_a_function_runs_it_where_one_parameter_does() -> None:
    def take(a: int, b: Checked) -> None: ...

    def leave(a: int, b: Plain) -> None: ...

    assert (compile_parameters(take).runs_code, compile_parameters(leave).runs_code) == (True, False)
