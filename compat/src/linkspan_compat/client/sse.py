"""The transport of 2024 as a channel: messages come as events of one stream, and are posted to where its first event says.

Requests are those of httpx, which programs for this transport have: its headers, logins, proxies and TLS count as they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from urllib.parse import urljoin

from linkspan import Limits
from linkspan.auth.network import origin_of
from linkspan.wire.framing import EventReader

__all__ = ["SseChannel", "connects_over_sse"]

_LONGEST: Final = Limits().max_line_bytes


class SseChannel:
    """One session with a server; messages in both directions are texts."""

    def __init__(self, client: Any, response: Any) -> None:
        """Read the stream `response` of `client`, an `httpx.AsyncClient`; `open` comes first."""
        self._client = client
        self._response = response
        self._events = self._read()
        self._address = ""

    async def open(self, url: str) -> None:
        """Take the address to post to. Raises: ValueError for one of another origin, and where there is none."""
        async for event, data in self._events:
            if event == "endpoint":
                self._address = urljoin(url, data)
                break
        if origin_of(self._address) is None or origin_of(self._address) != origin_of(url):
            raise ValueError(f"the server at {url} names no address of its own to post to")

    async def _read(self) -> AsyncIterator[tuple[str, str]]:
        reader = EventReader(_LONGEST)
        async for part in self._response.aiter_bytes():
            for found in reader.receive_data(part):
                yield found.event, found.data

    async def send(self, message: str) -> None:
        """Post one message. Raises: httpx.HTTPError."""
        headers = {"content-type": "application/json"}
        answer = await self._client.post(self._address, content=message.encode(), headers=headers)
        answer.raise_for_status()

    async def _messages(self) -> AsyncIterator[str]:
        async for event, data in self._events:
            if event == "message":
                yield data

    def __aiter__(self) -> AsyncIterator[str]:
        return self._messages()

    async def close(self) -> None:
        """Close the stream and its client."""
        await self._response.aclose()
        await self._client.aclose()


def connects_over_sse(url: str, make_client: Callable[[], Any]) -> Any:
    """Return what connects to the stream at `url`; `make_client` gives an `httpx.AsyncClient` for each connection."""

    async def open_channel() -> SseChannel:
        client = make_client()
        try:
            request = client.build_request(
                "GET", url, headers={"accept": "text/event-stream", "cache-control": "no-store"}
            )
            response = await client.send(request, stream=True)
            response.raise_for_status()
            channel = SseChannel(client, response)
            await channel.open(url)
        except BaseException:
            await client.aclose()
            raise
        return channel

    def connect(**callbacks: Any) -> Any:
        from linkspan import Client

        return Client(open_channel, **callbacks)

    return connect
