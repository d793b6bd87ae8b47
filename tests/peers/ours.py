"""Our clients, for tests against other people's servers: one way to use both faces, and a place for what comes unasked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from linkspan import Client, SyncClient, Timeouts

__all__ = ["Heard", "Ours"]

PATIENCE = 40.0


class Heard:
    """What came in without being asked for, in order. Waiting for something has an end."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._news = threading.Condition()

    def __call__(self, item: Any) -> None:
        with self._news:
            self.items.append(item)
            self._news.notify_all()

    def wait_for(self, fits: Callable[[Any], bool]) -> Any:
        with self._news:
            assert self._news.wait_for(lambda: any(map(fits, self.items)), PATIENCE), self.items
            return next(filter(fits, self.items))


class Ours:
    """A client of either face. `do` takes one step with it, and waits for what comes of it.

    `answers` are what the user, the model and the host say: the test sets them.
    """

    def __init__(self, face: str, target: Any, **options: Any) -> None:
        self.face = face
        self.logs, self.stderr, self.events = Heard(), Heard(), Heard()
        self.questions: list[Any] = []
        self.answers: dict[str, Any] = {}
        self._runner = asyncio.Runner()
        kind = SyncClient if face == "sync" else Client
        self.client: Any = kind(
            target,
            on_log=self.logs,
            on_stderr=self.stderr,
            on_event=self.events,
            elicitation=self._answer("form"),
            sampling=self._answer("text"),
            roots=lambda: self.answers["roots"],
            timeouts=Timeouts(close=0.3),  # some of them do not end when their input does
            **options,
        )

    def do(self, step: Callable[[Any], Any]) -> Any:
        if self.face == "sync":
            found = step(self.client)
            return [*found] if hasattr(found, "__next__") else found
        return self._runner.run(self._do(step))

    def wait_for(self, heard: Heard, fits: Callable[[Any], bool]) -> Any:
        """Wait for something in `heard`. An async client calls back on its event loop, which has to run for that."""

        async def wait() -> None:
            async with asyncio.timeout(PATIENCE):
                while not any(map(fits, heard.items)):
                    await asyncio.sleep(0.01)

        if self.face == "async":
            self._runner.run(wait())
        return heard.wait_for(fits)

    async def _do(self, step: Callable[[Any], Any]) -> Any:
        found = step(self.client)
        if hasattr(found, "__aiter__"):
            return [each async for each in found]
        return await found

    def changes(self, trigger: Callable[[Any], Any], count: int, *uris: str, **kinds: bool) -> list[Any]:
        """Listen, make something happen, and return what was heard."""
        if self.face == "sync":
            with self.client.listen(*uris, **kinds) as changes:
                trigger(self.client)
                return [next(changes) for _ in range(count)]

        async def listen() -> list[Any]:
            async with asyncio.timeout(PATIENCE), self.client.listen(*uris, **kinds) as changes:
                await trigger(self.client)
                return [await anext(changes) for _ in range(count)]

        return self._runner.run(listen())

    def close(self) -> None:
        self.client.close_now()
        self._runner.close()

    def _answer(self, kind: str) -> Callable[[Any], Any]:
        def answer(asked: Any) -> Any:
            self.questions.append(asked)
            return self.answers[kind]

        return answer
