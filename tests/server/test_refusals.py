"""What is refused with a sentence that says what to write: numbers that end no arithmetic, methods without an instance."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import wraps
from pathlib import Path
from types import SimpleNamespace as Bound
from typing import Annotated, Any
from uuid import UUID

import pytest

from linkspan import RegistrationError, Server

SERVER = Server()


@SERVER.tool
def price(amount: Decimal, discounts: list[Decimal] | None = None) -> str:
    return str(amount)


def call(**arguments: Any) -> Any:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "price", "arguments": arguments}}
    return SERVER.handle(request)["result"]


@pytest.mark.parametrize(
    "number", ["NaN", "-nan", "sNaN", "Infinity", "-inf", "1e999999999", "1e-999999999", "9" * 1002]
)
def test_a_decimal_is_a_number_that_arithmetic_can_take(number: str) -> None:
    for arguments in ({"amount": number}, {"amount": "1", "discounts": [number]}):
        found = call(**arguments)
        assert found["isError"] is True
        assert "must be a decimal number" in found["content"][0]["text"]


@pytest.mark.parametrize(
    ("given", "number"), [("12.50", "12.50"), (12, "12"), (0.1, "0.1"), ("-1e1000", "-1E+1000"), ("0e-1000", "0E-1000")]
)
def test_other_decimals_pass(given: Any, number: str) -> None:
    assert call(amount=given)["content"][0]["text"] == number


def answer(hint: Any, value: object) -> str:
    def take(it: Any) -> str:
        return repr(it)

    take.__annotations__ = {"it": hint, "return": str}
    server = Server()
    server.tool(take)
    params = {"name": "take", "arguments": {"it": value}}
    reply = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    return str(reply["result"]["content"][0]["text"]).removeprefix("take: it ")


DAY, NOON = date(2026, 1, 1), datetime(2026, 1, 1, 12, tzinfo=UTC)
GT, LE = Bound(gt=1), Bound(le=Decimal("10.5"))


@pytest.mark.parametrize(
    ("hint", "value", "said"),
    [
        (Annotated[Decimal, GT], "1", 'must be more than 1, got the string "1"'),
        (Annotated[Decimal, GT], "1.00001", "Decimal('1.00001')"),
        (Annotated[Decimal, GT, LE], 10.5, "Decimal('10.5')"),
        (Annotated[Decimal, GT, LE], "10.51", 'must be at most 10.5, got the string "10.51"'),
        (Annotated[Decimal | None, GT], "1", 'must be more than 1, got the string "1"'),
        (Annotated[Annotated[Decimal, "A price."], Bound(multiple_of=0.05)], "0.15", "Decimal('0.15')"),
        (Annotated[Decimal, Bound(multiple_of=0.05)], "0.16", 'must be a multiple of 0.05, got the string "0.16"'),
        (Annotated[Decimal, Bound(max_digits=4)], "0120.50", "Decimal('120.50')"),
        (Annotated[Decimal, Bound(max_digits=4)], "120.51", 'must have at most 4 digits, got the string "120.51"'),
        (Annotated[Decimal, Bound(decimal_places=2)], "0.001", 'must have at most 2 decimal places, got the string "0.001"'),
        (Annotated[Decimal, Bound(decimal_places=2)], "1E+2", "Decimal('1E+2')"),
        (Annotated[date, Bound(ge=DAY)], "2025-12-31", 'must be at least 2026-01-01, got the string "2025-12-31"'),
        (Annotated[bytes, Bound(min_length=2)], "aGk=", "b'hi'"),
        (Annotated[bytes, Bound(min_length=3)], "aGk=", "must have at least 3 characters, got 2"),
        (Annotated[date, Bound(ge=DAY)], "2026-01-01", "datetime.date(2026, 1, 1)"),
        (Annotated[datetime, Bound(lt=NOON)], "2026-01-01T11:00:00", "must be less than 2026-01-01 12:00:00+00:00"),
        (Annotated[timedelta, Bound(le=timedelta(hours=1))], "PT61M", 'must be at most 1:00:00, got the string "PT61M"'),
    ],
)  # fmt: skip
def test_decimals_and_times_have_bounds(hint: Any, value: object, said: str) -> None:
    assert answer(hint, value).startswith(said)


def test_pydantics_bounds_of_a_decimal_are_taken() -> None:
    field = pytest.importorskip("pydantic").Field
    assert (
        answer(Annotated[Decimal, field(gt=1, max_digits=3)], "12.34")
        == 'must have at most 3 digits, got the string "12.34"'
    )
    assert answer(Annotated[Decimal, field(gt=1, max_digits=3)], "1.23") == "Decimal('1.23')"


def test_bounds_of_a_decimal_are_in_the_schema_in_words() -> None:
    server = Server()

    @server.tool
    def pay(amount: Annotated[Decimal, GT, LE], tip: Annotated[Decimal, GT, "In EUR."]) -> None: ...

    reply = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert reply["result"]["tools"][0]["inputSchema"]["properties"] == {
        "amount": {"type": "string", "description": "must be more than 1; must be at most 10.5"},
        "tip": {"type": "string", "description": "In EUR."},
    }


@pytest.mark.parametrize(
    ("hint", "problem"),
    [
        (Annotated[date, Bound(ge=5)], "the bound ge of a date must be a date, not 5"),
        (Annotated[date, Bound(ge=NOON)], "the bound ge of a date must be a date, not datetime.datetime"),
        (
            Annotated[date, Bound(multiple_of=5)],
            "the bound multiple_of does not apply to a date: leave it out",
        ),
        (Annotated[Decimal, Bound(gt="one")], "the bound gt of a Decimal must be a Decimal, not 'one'"),
        (Annotated[int, Bound(max_digits=5)], "the bound max_digits does not apply to an integer"),
        (Annotated[Decimal, Bound(min_length=5)], "the bound min_length does not apply to a Decimal"),
        (Annotated[Path, Bound(min_length=5)], "the bound min_length does not apply to a path"),
        (Annotated[UUID, Bound(pattern="^0")], "the bound pattern does not apply to a UUID"),
    ],
)
def test_a_bound_that_does_not_fit_is_refused(hint: Any, problem: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(problem)):
        answer(hint, None)


class Shop:
    """Has a method of every kind."""

    def order(self, item: str) -> str:
        return f"one {item}"

    @wraps(order)
    def wrapped(self, item: str) -> str:
        return self.order(item)

    @classmethod
    def close(cls, item: str) -> str:
        return f"closed {item}"

    @staticmethod
    def greet(item: str) -> str:
        return f"hello {item}"


@pytest.mark.parametrize("register", ["tool", "prompt", "resources_read_handler", "completion_handler"])
@pytest.mark.parametrize("method", [Shop.order, Shop.wrapped, vars(Shop)["close"].__func__])
def test_a_method_without_its_instance_is_refused(register: str, method: Any) -> None:
    with pytest.raises(RegistrationError, match=r"Shop\.\w+ takes '(self|cls)'.* as in server\.tool\(instance\."):
        getattr(Server(), register)(method)


@pytest.mark.parametrize("method", [Shop().order, Shop.close, Shop.greet])
def test_a_bound_method_and_a_static_one_are_tools(method: Any) -> None:
    server = Server()
    server.tool(method)
    (tool,) = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["result"]["tools"]
    assert list(tool["inputSchema"]["properties"]) == ["item"]
