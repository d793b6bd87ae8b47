"""What is refused with a sentence that says what to write: numbers that end no arithmetic, methods without an instance."""

from __future__ import annotations

from decimal import Decimal
from functools import wraps
from typing import Any

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
