"""Two principals behind one bridge, at once: calls, reads, lists, questions, cancellations, changes. Nothing may cross.

    python bench/soak_bridge.py                             # 1,000 calls of each principal, in all four pairs of eras
    python bench/soak_bridge.py --calls 200 --pair legacy modern

The server behind the bridge has a token for each of them, and tools, resources and answers of their own for each. It writes down
the headers of every request. Status 1, with what was wrong, if a result or a change is another's; if a request brings the other's
token, or anything that a caller sent; if a token, key, cookie or session id is in what the bridge writes: its stderr, recording
and metrics, and errors; or if a cancelled call does not end at its server, or not exactly once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import uvicorn

from linkspan import ClientError, Context, Grant, Server, Stopper, SyncClient
from linkspan.auth import ApiKeys, Protected

Era = Literal["modern", "legacy"]
ERAS: tuple[Era, ...] = ("modern", "legacy")
NAMES = ("alice", "bob")


def digest(key: str) -> str:
    """Return a key as lists of keys have it."""
    return hashlib.sha256(key.encode()).hexdigest()


class Behind:
    """The server behind the bridge."""

    def __init__(self) -> None:
        self.tokens = {name: f"token-{name}-{secrets.token_hex(8)}" for name in NAMES}
        self.secrets = {name: f"secret-{name}-{secrets.token_hex(8)}" for name in NAMES}
        self.seen: list[dict[str, str]] = []
        self.sessions: set[str] = set()
        self.began: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        grants = {digest(token): Grant("behind", name) for name, token in self.tokens.items()}
        self.server = Server("behind", auth=Protected("http://127.0.0.1/mcp", verify=[ApiKeys(grants)]))
        self._offer()
        self._app: Any = self.server.asgi()

    def _offer(self) -> None:
        server = self.server

        @server.tool
        def who(nonce: str, ctx: Context) -> str:
            return f"{self.secrets[name_of(ctx)]} {nonce}"

        @server.tool
        def doubt(nonce: str, ctx: Context) -> str:
            mine = self.secrets[name_of(ctx)]
            return f"{mine} {nonce} {ctx.ask('sure', str, f'{mine} {nonce}?')}"

        @server.tool
        async def hang(nonce: str, ctx: Context) -> str:
            import asyncio

            self.began[nonce] += 1
            ctx.progress(1, message=self.secrets[name_of(ctx)])
            try:
                await asyncio.sleep(60)
            finally:
                self.ended[nonce] += 1
            return "late"

        @server.tool
        def fail(ctx: Context) -> str:
            raise RuntimeError(self.secrets[name_of(ctx)])

        @server.resource("secret://mine")
        def mine(ctx: Context) -> str:
            return self.secrets[name_of(ctx)]

        for name in NAMES:
            server.tool(name=f"only_{name}", when=lambda ctx, name=name: name_of(ctx) == name)(lambda: "mine")

        @server.tool(when=lambda ctx: name_of(ctx) == "alice")
        def now_and_then() -> str:
            return "there"

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        """Write down the headers of a request, and the session ids that are given, and serve it."""
        if scope["type"] == "http":
            self.seen.append({name.decode(): value.decode() for name, value in scope["headers"]})

        async def sent(message: Any) -> None:
            for name, value in message.get("headers", ()):
                if name.lower() == b"mcp-session-id":
                    self.sessions.add(value.decode())
            await send(message)

        await self._app(scope, receive, sent)

    @contextmanager
    def listening(self) -> Iterator[str]:
        """Serve until the end of the block; give the URL."""
        config = uvicorn.Config(
            self.app, interface="asgi3", port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1
        )
        listener = uvicorn.Server(config)
        thread = threading.Thread(target=listener.run, daemon=True)
        thread.start()
        while not listener.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.servers[0].sockets[0].getsockname()[1]}/mcp"
        finally:
            listener.should_exit = True
            thread.join(5)


def name_of(ctx: Context) -> str:
    """Return who asks."""
    assert ctx.grant is not None
    return str(ctx.grant.subject)


class Bridge:
    """`linkspan bridge --http` with a policy for both."""

    def __init__(self, folder: Path, url: str, behind: Behind, era: Era) -> None:
        self.keys = {name: f"key-{name}-{secrets.token_hex(8)}" for name in NAMES}
        self.record, self.errors, policy = folder / "said.transcript", folder / "stderr", folder / "policy.toml"
        policy.write_text(
            "".join(
                f'[principals.{name}]\nkey = "{digest(key)}"\ntokens = {{ behind = "TOKEN_OF_{name.upper()}" }}\n'
                for name, key in self.keys.items()
            )
        )
        tokens = {f"TOKEN_OF_{name.upper()}": token for name, token in behind.tokens.items()}
        command = [sys.executable, "-m", "linkspan", "bridge", f"behind={url}", "--policy", str(policy), "--era", era]
        command += ["--http", "--port", "0", "--metrics", "--record", str(self.record)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self.errors.open("wb"),
            text=True,
            env=os.environ | tokens | {"XDG_STATE_HOME": str(folder)},
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def metrics(self) -> str:
        """Return what the page for Prometheus says."""
        request = urllib.request.Request(
            self.url.replace("/mcp", "/metrics"), headers={"Authorization": f"Bearer {self.keys['alice']}"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return str(response.read().decode())

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(10)


class Caller:
    """One principal, who calls and reads and is asked."""

    def __init__(self, name: str, bridge: Bridge, behind: Behind, era: Era) -> None:
        self.name, self._behind = name, behind
        self.mine = behind.secrets[name]
        self.problems: list[str] = []
        self.changes: list[Any] = []
        self.errors: list[str] = []
        self.client = SyncClient(
            bridge.url,
            auth=bridge.keys[name],
            era=era,
            headers={"Cookie": f"cookie-{name}=1", "X-Of-Caller": f"header-{name}"},
            elicitation=self._answer,
            on_change=self.changes.append,
        )

    def run(self, calls: int) -> None:
        """Make so many calls."""
        try:
            with self.client:
                for number in range(calls):
                    self._call(number)
        except ClientError as error:
            self.problems.append(f"{self.name}: {error}")

    def _call(self, number: int) -> None:
        nonce, kind = f"{self.name}-{number}", number % 10
        if kind == 7:
            self._expect(nonce, self.client.call_tool("doubt", {"nonce": nonce}).text, f"{self.mine} {nonce} yes")
        elif kind == 8:
            self._cancel(nonce)
        elif kind == 9:
            self._look(number)
        else:
            self._expect(nonce, self.client.call_tool("who", {"nonce": nonce}).text, f"{self.mine} {nonce}")

    def _look(self, number: int) -> None:
        other = NAMES[1 - NAMES.index(self.name)]
        names = [each.name for each in self.client.list_tools()]
        if f"only_{self.name}" not in names or f"only_{other}" in names:
            self.problems.append(f"{self.name}: the list has {names}")
        self._expect("read", self.client.read_resource("secret://mine").contents[0].text, self.mine)
        try:
            self.errors.append(self.client.call_tool("fail").text)
            self.client.call_tool(f"only_{other}")
        except ClientError as error:
            self.errors.append(str(error))
        else:
            self.problems.append(f"{self.name}: a tool of {other} was called")
        if self.name == "alice":
            switch = self._behind.server.disable if number % 20 == 9 else self._behind.server.enable
            switch("now_and_then")

    def _cancel(self, nonce: str) -> None:
        stopper = Stopper()

        def stop(progress: Any) -> None:
            if progress.message != self.mine:
                self.problems.append(f"{self.name}: progress of another call: {progress.message}")
            stopper.stop()

        try:
            self.client.call_tool("hang", {"nonce": nonce}, stopper=stopper, on_progress=stop)
        except ClientError:
            return
        self.problems.append(f"{self.name}: a call was stopped, and has a result")

    def _answer(self, question: Any) -> dict[str, str]:
        if not question.message.startswith(self.mine):
            self.problems.append(f"{self.name} was asked {question.message}")
        return {next(iter(question.requested_schema["properties"])): "yes"}

    def _expect(self, nonce: str, found: str, wanted: str) -> None:
        if found != wanted:
            self.problems.append(f"{self.name}: {nonce} has {found!r}")


def problems_of(calls: int, there: Era, here: Era) -> list[str]:
    """Let both principals make so many calls; return what was wrong."""
    behind = Behind()
    with tempfile.TemporaryDirectory() as name, behind.listening() as url:
        bridge = Bridge(Path(name), url, behind, there)
        callers = [Caller(each, bridge, behind, here) for each in NAMES]
        try:
            threads = [threading.Thread(target=each.run, args=(calls,)) for each in callers]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            written = {"metrics": bridge.metrics()}
        finally:
            bridge.close()
        written |= {"stderr": bridge.errors.read_text(), "recording": bridge.record.read_text()}
    written |= {f"errors of {each.name}": "\n".join(each.errors) for each in callers}
    wrong = [problem for each in callers for problem in each.problems]
    wrong += _wrong_upstream(behind, bridge)
    wrong += [
        f"{what}: has {each}"
        for what, text in written.items()
        for each in _private(behind, bridge, what)
        if each in text
    ]
    alices, bobs = ([change for change in each.changes if change.kind == "tools"] for each in callers)
    wrong += ["alice was not told of a change"] * (calls >= 10 and not alices) + ["bob was told of alice's"] * bool(
        bobs
    )
    end = time.monotonic() + 5
    while behind.ended != behind.began and time.monotonic() < end:
        time.sleep(0.02)
    wrong += [
        f"{each} began {n} times, and ended {behind.ended[each]} times"
        for each, n in behind.began.items()
        if (n, behind.ended[each]) != (1, 1)
    ]
    return wrong


def _private(behind: Behind, bridge: Bridge, what: str) -> list[str]:
    """Return what must not be written in a place. A recording has what was said: results too, but no credentials."""
    found = [*behind.tokens.values(), *bridge.keys.values(), *behind.sessions]
    found += [f"cookie-{each}" for each in NAMES] + [f"header-{each}" for each in NAMES]
    return found if what == "recording" else [*found, *behind.secrets.values()]


def _wrong_upstream(behind: Behind, bridge: Bridge) -> list[str]:
    tokens = {f"Bearer {each}" for each in behind.tokens.values()}
    wrong: list[str] = []
    of_session: dict[str, set[str]] = {}
    for headers in behind.seen:
        token = headers.get("authorization", "")
        if token not in tokens and token:
            wrong.append(f"upstream: a request brought {token}")
        if session := headers.get("mcp-session-id"):
            of_session.setdefault(session, set()).add(token)
        text = json.dumps(headers)
        wrong += [f"upstream: a request brought {each}" for each in re.findall(r"cookie-\w+|header-\w+|key-\w+", text)]
    wrong += [f"upstream: two callers used session {each}" for each, used in of_session.items() if len(used) > 1]
    return wrong


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--pair", nargs=2, choices=ERAS, metavar="ERA", help="of the server behind, and of the callers")
    given = parser.parse_args()
    logging.disable()  # the server behind fails on purpose
    pairs: list[Any] = [given.pair] if given.pair else [(there, here) for there in ERAS for here in ERAS]
    status = 0
    for there, here in pairs:
        began = time.monotonic()
        wrong = problems_of(given.calls, there, here)
        print(f"{there} behind, {here} callers: {len(wrong)} problems, {time.monotonic() - began:.1f} s", flush=True)
        for each in wrong[:20]:
            print(f"  {each}")
        status |= bool(wrong)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
