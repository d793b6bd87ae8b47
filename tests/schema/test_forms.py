from __future__ import annotations

import dataclasses
import datetime
import enum
from typing import Annotated, Any, Literal, TypedDict

import annotated_types
import msgspec
import pydantic
import pytest

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import Format
from linkspan.schema.forms import compile_form
from linkspan.schema.problems import ArgumentsInvalid
from linkspan.types.base import UNSET


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Booking:
    """A booking.

    Attributes:
        seats: How many.
    """

    name: str
    seats: Annotated[int, annotated_types.Interval(ge=1, lt=9)] = 2
    menu: list[Colour] = dataclasses.field(default_factory=list)
    day: datetime.date | None = None


class Contact(TypedDict):
    email: Annotated[str, Format("email")]


class Flat(pydantic.BaseModel):
    count: int = pydantic.Field(3, ge=1)
    size: Literal["s", "l"]


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("hint", "default", "schema", "answer", "value"),
    [
        (int, UNSET, {"type": "integer"}, 1.0, 1),
        (float, 1.5, {"type": "number", "default": 1.5}, 2, 2.0),
        (bool, UNSET, {"type": "boolean"}, True, True),
        (str, UNSET, STRING, "a", "a"),
        (
            Annotated[str, Format("email"), "Yours"],
            UNSET,
            {**STRING, "description": "Yours", "format": "email"},
            "a@b",
            "a@b",
        ),
        (Annotated[str, msgspec.Meta(max_length=3)], UNSET, {**STRING, "maxLength": 3}, "abc", "abc"),
        (datetime.date, UNSET, {**STRING, "format": "date"}, "2026-07-28", datetime.date(2026, 7, 28)),
        (datetime.time, UNSET, STRING, "10:00:00", datetime.time(10)),
        (Colour, Colour.RED, {**STRING, "enum": ["red", "green"], "default": "red"}, "green", Colour.GREEN),
        (Level, Level.LOW, {**STRING, "enum": ["1", "2"], "default": "1"}, "2", Level.HIGH),
        (Literal["a", "b"], UNSET, {**STRING, "enum": ["a", "b"]}, "b", "b"),
        (list[Colour], UNSET, {"type": "array", "items": {**STRING, "enum": ["red", "green"]}}, ["red"], [Colour.RED]),
        (set[Literal["a"]], UNSET, {"type": "array", "items": {**STRING, "enum": ["a"]}}, ["a"], {"a"}),
    ],
)
def test_a_single_value_without_a_name_is_called_value(
    hint: Any, default: Any, schema: Any, answer: Any, value: Any
) -> None:
    form = compile_form(hint, default=default)
    required = {} if default is not UNSET else {"required": ["value"]}
    assert form.json_schema == {"type": "object", "properties": {"value": schema}, **required}
    assert form.decode({"value": answer, "other": 1}) == value
    if default is not UNSET:
        assert form.decode({}) == default


def test_an_optional_value_may_be_left_out() -> None:
    form = compile_form(int | None, message="How many?")
    assert form.json_schema == {
        "type": "object",
        "properties": {"value": {"type": "integer", "description": "How many?"}},
    }
    assert (form.decode({}), form.decode({"value": None}), form.decode({"value": 3})) == (None, None, 3)


def test_a_flat_class_is_a_form() -> None:
    form = compile_form(Booking)
    assert form.json_schema == {
        "type": "object",
        "properties": {
            "name": STRING,
            "seats": {"type": "integer", "description": "How many.", "minimum": 1, "maximum": 8, "default": 2},
            "menu": {"type": "array", "items": {**STRING, "enum": ["red", "green"]}, "default": []},
            "day": {**STRING, "format": "date"},
        },
        "required": ["name"],
    }
    assert form.decode({"name": "Ann"}) == Booking("Ann")
    assert form.decode({"name": "Ann", "menu": ["red"], "day": "2026-07-28"}) == Booking(
        "Ann", menu=[Colour.RED], day=datetime.date(2026, 7, 28)
    )
    with pytest.raises(ArgumentsInvalid) as caught:
        form.decode({"seats": 9, "menu": ["blue"]})
    assert str(caught.value) == (
        'name is missing; seats must be less than 9, got 9; menu[0] must be one of "red" or "green", got the string "blue"'
    )


def test_a_default_for_the_whole_form_fills_its_fields() -> None:
    form = compile_form(Booking, default=Booking("Bob", 4))
    assert form.json_schema["properties"]["name"] == {**STRING, "default": "Bob"}
    assert "required" not in form.json_schema
    assert form.decode({"seats": 5}) == Booking("Bob", 5)


def test_other_flat_classes_are_forms_too() -> None:
    assert compile_form(Contact).decode({"email": "a@b"}) == {"email": "a@b"}
    form = compile_form(Flat)
    assert form.json_schema == {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1, "default": 3},
            "size": {**STRING, "enum": ["s", "l"]},
        },
        "required": ["size"],
    }
    assert form.decode({"size": "s"}) == Flat(size="s")
    with pytest.raises(ArgumentsInvalid, match="count must be at least 1, got 0"):
        form.decode({"size": "s", "count": 0})


@pytest.mark.parametrize(
    "hint", [dict, list[int], list[str], list[Booking], dict[str, int], Any, int | str, tuple[int, int], None]
)
def test_what_is_not_flat_is_refused(hint: Any) -> None:
    with pytest.raises(RegistrationError, match="seats: a form asks for plain values only"):
        compile_form(hint, name="seats")


def test_the_field_of_a_single_value_has_the_name_of_what_is_asked_for() -> None:
    form = compile_form(int, field="seats")
    assert form.json_schema == {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}
    assert form.decode({"seats": 2, "value": 3}) == 2
    with pytest.raises(ArgumentsInvalid, match="seats"):
        form.decode({"value": 3})
