"""The fixtures for pytest, as a user would write them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from linkspan import Client, Server, SyncClient
from linkspan.testing import async_client_fixture, client_fixture


def counter() -> Server:
    server = Server("counter")
    count = 0

    @server.tool
    async def step() -> int:
        nonlocal count
        count += 1
        return count

    return server


client = client_fixture(counter)
shared = client_fixture(counter(), scope="module")
legacy = client_fixture(counter, era="legacy")
on_any_loop = async_client_fixture(counter, scope="module")


def test_a_client_is_connected(client: SyncClient) -> None:
    assert client.call_tool("step").decode(int) == 1


def test_each_test_gets_a_server_of_its_own_from_a_function(client: SyncClient) -> None:
    assert client.call_tool("step").decode(int) == 1


@pytest.mark.parametrize("expected", [1, 2])
def test_a_wider_scope_shares_it(shared: SyncClient, expected: int) -> None:
    assert shared.call_tool("step").decode(int) == expected


def test_options_are_those_of_the_client(legacy: SyncClient) -> None:
    assert legacy.protocol_version == "2025-11-25"


@pytest.mark.parametrize("expected", [1, 2])
def test_an_async_client_may_be_used_on_one_loop_after_the_other(on_any_loop: Client, expected: int) -> None:
    async def run() -> Any:
        return (await on_any_loop.call_tool("step")).decode(int)

    assert asyncio.run(run()) == expected
