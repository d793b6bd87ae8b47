"""A DPoP proof that one process has seen is refused by all others: two workers, and endpoints that share a store."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from http_faces import Asgi, Face, Http, Wsgi
from http_talk import body, mirror

from linkspan import Context, Server
from linkspan.auth import Protected
from linkspan.stores import MemoryStore, StoreError
from tokens import ISSUER, JWKS, RESOURCE, bound, jwt, proof

SERVER = f"""
import json, os, sys
from linkspan import Server
from linkspan.auth import Jwt, Protected

server = Server("files", auth=Protected({RESOURCE!r}, verify=Jwt({ISSUER!r}, keys=json.loads(sys.argv[1]))))

@server.tool
def pid() -> int:
    return os.getpid()

server.run("http", port=0, workers=2)
"""


def request(given: str, text: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the headers and the message of a call."""
    message = body("tools/call", {"name": "pid", "arguments": {}})
    return {**mirror(message), "authorization": f"DPoP {given}", "dpop": text}, message


class Caller:
    """A client on one connection, and so at one worker."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def call(self, given: str, text: str) -> tuple[int, int | None]:
        """Call the tool; return the status, and the process that has answered."""
        headers, message = request(given, text)
        headers["content-type"] = "application/json"
        self.connection.request("POST", "/mcp", json.dumps(message), headers)
        response = self.connection.getresponse()
        found = json.loads(response.read())
        return response.status, found["result"]["structuredContent"]["result"] if response.status == 200 else None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need a system that can fork")
def test_a_proof_is_good_at_one_worker_only(tmp_path: Path) -> None:
    (tmp_path / "files.py").write_text(SERVER)
    command = [sys.executable, str(tmp_path / "files.py"), json.dumps(JWKS)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            first_line = process.stderr.readline()
            found = re.search(r":(\d+)/mcp", first_line)
            assert found is not None, first_line
            given, callers = bound(), dict[int | None, Caller]()
            with ExitStack() as connections:
                while len(callers) < 2:
                    caller = Caller(int(found[1]))
                    connections.callback(caller.connection.close)
                    status, pid = caller.call(given, proof(given))
                    assert status == 200
                    callers.setdefault(pid, caller)
                first, second = callers.values()
                for _ in range(5):
                    text = proof(given)
                    assert [each.call(given, text)[0] for each in (first, second, first)] == [200, 401, 401]
        finally:
            process.terminate()
            process.communicate(timeout=60)


def protected(store: Any) -> Server:
    server = Server("files", auth=Protected(RESOURCE, verify=jwt()), store=store)

    @server.tool
    def pid(ctx: Context) -> int:
        return os.getpid()

    return server


class SlowStore(MemoryStore):
    """A store that is shared and not quick, as those of other machines."""

    quick = False


class Elsewhere:
    """A store that is not one in memory, for what asks."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("kind", [Asgi, Wsgi, Http])
@pytest.mark.parametrize("store", [MemoryStore, SlowStore])
def test_a_proof_is_good_at_one_of_several_endpoints(kind: type[Face], store: type[MemoryStore]) -> None:
    shared = Elsewhere(store())
    faces, given = [kind(protected(shared)) for _ in range(2)], bound()

    def call(face: Face, text: str) -> int:
        headers, message = request(given, text)
        return face.ask("POST", headers, message).status

    for first, second in (faces, faces[::-1]):
        text = proof(given)
        assert [call(each, text) for each in (first, second, first)] == [200, 401, 401]
    for face in faces:
        face.stop()


@pytest.mark.parametrize("kind", [Asgi, Wsgi, Http])
def test_a_store_with_a_fault_fails_the_request_and_no_other(
    kind: type[Face], caplog: pytest.LogCaptureFixture
) -> None:
    faults = [RuntimeError("hunter2"), RuntimeError("hunter2")]

    class Faulty(Elsewhere):
        def put(self, key: str, *arguments: Any, **options: Any) -> int | None:
            if key.startswith("proof/") and faults:
                raise faults.pop()
            return self._store.put(key, *arguments, **options)

    face, given = kind(protected(Faulty(MemoryStore()))), bound()
    statuses = []
    for _ in range(3):
        headers, message = request(given, proof(given))
        statuses.append(face.ask("POST", headers, message).status)
    assert statuses == [500, 500, 200]
    assert "noting a proof raised RuntimeError" in caplog.text
    face.stop()


@pytest.mark.parametrize("kind", [Asgi, Wsgi, Http])
def test_no_proof_is_good_while_the_store_cannot_be_reached(kind: type[Face], caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Elsewhere):
        def put(self, key: str, *arguments: Any, **options: Any) -> int | None:
            if key.startswith("proof/"):
                raise StoreError("the store is gone")
            return self._store.put(key, *arguments, **options)

    face, given = kind(protected(Broken(MemoryStore()))), bound()
    for _ in range(2):  # with a token that is new, and with one that is known
        headers, message = request(given, proof(given))
        response = face.ask("POST", headers, message)
        assert (response.status, response.headers["retry-after"]) == (503, "5")
    assert "proofs that other processes have seen cannot be looked up: the store is gone" in caplog.text
    face.stop()
