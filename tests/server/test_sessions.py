"""Which session a request came in, and that the end of a session is known."""

from __future__ import annotations

import pytest

from linkspan import Context, MemoryTransport, RegistrationError, Server, SyncClient
from over_http import serving


def served() -> tuple[Server, list[str | None], list[str]]:
    """Return a server, the sessions that its calls came in, and those that have ended."""
    server, seen, ended = Server("shop"), list[str | None](), list[str]()

    @server.tool
    def look(ctx: Context) -> None:
        seen.append(ctx.session_id)

    @server.on_session_end
    def end(session: str) -> None:
        ended.append(session)

    return server, seen, ended


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
def test_a_connection_is_a_session_that_ends_with_it(era: str) -> None:
    server, seen, ended = served()
    for _ in range(2):
        with SyncClient(server, protocol_version=era) as client:
            client.call_tool("look")
            client.call_tool("look")
    assert len({*seen}) == 2
    assert seen[::2] == ended


def test_a_handshake_client_has_a_session_over_http_and_a_modern_one_has_none() -> None:
    server, seen, ended = served()
    with serving(server.asgi()) as url:
        with SyncClient(url, protocol_version="2025-11-25") as client:
            client.call_tool("look")
            client.call_tool("look")
        with SyncClient(url, protocol_version="2026-07-28") as client:
            client.call_tool("look")
    assert seen[0] is not None
    assert seen == [seen[0], seen[0], None]
    assert ended == [seen[0]]


def test_a_function_that_fails_at_the_end_of_a_session_stops_no_other() -> None:
    server, _, ended = served()

    @server.on_session_end
    def fail(session: str) -> None:
        raise ValueError("not mine")

    @server.on_session_end
    def last(session: str) -> None:
        ended.append("last")

    with MemoryTransport(server):
        pass
    assert ended[-1] == "last"


def test_a_mounted_server_learns_the_end_of_sessions() -> None:
    server, seen, ended = served()
    outer = Server("outer")
    mounted = outer.mount(server)
    with SyncClient(outer) as client:
        client.call_tool("look")
    assert seen == ended
    mounted.remove()
    with SyncClient(outer):
        pass
    assert len(ended) == 1


def test_an_async_function_is_refused() -> None:
    async def end(session: str) -> None: ...

    with pytest.raises(RegistrationError, match="end is async"):
        Server("shop").on_session_end(end)
