"""The way to a URL: the system's proxies, and certificates of one's own."""

from __future__ import annotations

import asyncio
import base64
import http.client
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from certificates import write_certificate
from linkspan import ClientError, ConnectError, Server, SyncClient, Timeouts
from linkspan.client.targets import resolve
from linkspan.client.transports.http_loops import LoopPool, Routes
from linkspan.client.transports.proxies import find_proxy, is_exempt
from over_http import serving
from raw_http import RawServer
from raw_http import http as http_answer

server = Server("far")


@server.tool
def reached() -> str:
    """Say that the call came through."""
    return "reached"


class Proxy(ThreadingHTTPServer):
    """A forward proxy that remembers what went through it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.seen: list[tuple[str, str | None]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Passing(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.server.seen.append((self.path, self.headers.get("proxy-authorization")))
        target = urlsplit(self.path)
        assert target.hostname is not None
        behind = http.client.HTTPConnection("127.0.0.1", target.port)
        body = self.rfile.read(int(self.headers["content-length"]))
        behind.request("POST", target.path, body, dict(self.headers))
        answer = behind.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        self.send_header("content-type", answer.headers["content-type"])
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        behind.close()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def call(url: str) -> str:
    with SyncClient(url, era="modern") as client:
        return client.call_tool("reached").text


def test_the_proxy_of_the_environment_is_used_and_gets_its_own_password(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://ada:lovelace@{proxy.address}")
    with serving(server.asgi()) as url:
        assert call(url) == "reached"
    assert {path for path, _ in proxy.seen} == {url}
    assert {who for _, who in proxy.seen} == {f"Basic {base64.b64encode(b'ada:lovelace').decode()}"}


@pytest.mark.parametrize("value", ["127.0.0.1", "*", "localhost,127.0.0.1", "127.0.0.0/8", "127.0.0.1:PORT"])
def test_hosts_that_need_no_proxy_are_reached_without(
    value: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
    with serving(server.asgi()) as url:
        monkeypatch.setenv("no_proxy", value.replace("PORT", str(urlsplit(url).port)))
        assert call(url) == "reached"
    assert proxy.seen == []


@pytest.mark.parametrize(
    ("no_proxy", "exempt", "others"),
    [
        ("", [], ["a.example"]),
        ("*", ["a.example", "10.0.0.1", "::1"], []),
        ("a.example", ["a.example", "b.a.example"], ["xa.example", "example"]),
        (".a.example", ["a.example", "b.a.example"], ["xa.example"]),
        ("*.a.example", ["b.a.example"], ["xa.example"]),
        (" A.Example , b.example", ["a.example", "b.example"], ["c.example"]),
        ("a.example:443", ["a.example"], []),
        ("a.example:80", [], ["a.example"]),
        ("10.0.0.0/8", ["10.1.2.3"], ["11.0.0.1", "10.example"]),
        ("10.9.9.9/8", ["10.1.2.3"], ["11.0.0.1"]),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.2"]),
        ("10.0.0.1:443,10.0.0.2:80", ["10.0.0.1"], ["10.0.0.2"]),
        ("::1", ["::1"], ["::2"]),
        ("[::1]", ["::1"], ["::2"]),
        ("[::1]:443", ["::1"], []),
        ("[::1]:80", [], ["::1"]),
        ("fd00::/8", ["fd00::1"], ["fe80::1", "10.0.0.1"]),
        (",:443, ,[", [], ["a.example"]),
    ],
)
def test_no_proxy_names_hosts_addresses_and_networks_each_with_a_port_or_without(
    no_proxy: str, exempt: list[str], others: list[str]
) -> None:
    assert [is_exempt(host, 443, no_proxy) for host in (*exempt, *others)] == [True] * len(exempt) + [False] * len(
        others
    )


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({"ALL_PROXY": "http://all:1"}, "http://all:1"),
        ({"all_proxy": "all:1"}, "http://all:1"),
        ({"ALL_PROXY": "http://all:1", "https_proxy": "http://one:1"}, "http://one:1"),
        ({"ALL_PROXY": "http://all:1", "http_proxy": "http://other:1"}, "http://all:1"),
        ({"ALL_PROXY": "http://all:1", "NO_PROXY": "far.example:443"}, ""),
        ({"http_proxy": "http://other:1"}, ""),
    ],
)
def test_the_proxy_of_all_schemes_is_used_where_that_of_one_is_not_named(
    names: dict[str, str], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert find_proxy("https", "far.example", 443) == found


def test_a_proxy_that_is_gone_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Proxy() as gone:
        address = gone.address
    monkeypatch.setenv("http_proxy", f"http://ada:lovelace@{address}")
    with serving(server.asgi()) as url, pytest.raises(ConnectError, match="cannot be reached") as caught:
        call(url)
    assert "lovelace" not in str(caught.value)


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of our own for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    write_certificate(certificate_file, key_file, "127.0.0.1")
    return certificate_file, key_file


def test_a_certificate_of_ones_own_is_trusted_by_a_context_that_knows_it_and_by_no_other(
    certificate: tuple[Path, Path],
) -> None:
    known = ssl.create_default_context(cafile=str(certificate[0]))
    with serving(server.asgi(), ssl_certfile=certificate[0], ssl_keyfile=certificate[1]) as url:
        secure = url.replace("http:", "https:")
        with SyncClient(secure, ssl=known) as client:
            assert client.call_tool("reached").text == "reached"
        with pytest.raises(ConnectError, match="the TLS handshake failed") as caught:
            call(secure)
    assert caught.value.hint is not None
    assert "ssl=" in caught.value.hint


# What others could see.


def _warnings(url: str, caplog: pytest.LogCaptureFixture, **options: Any) -> list[str]:
    """Call through a client whose requests reach `url` nowhere; return the warnings about it."""
    caplog.clear()
    timeouts = Timeouts(connect=2.0, close=0.2)
    for _ in range(2):
        with caplog.at_level("WARNING", "linkspan"), pytest.raises(ClientError):
            SyncClient(url, timeouts=timeouts, retry="never", **options).call_tool("reached")
    return [each.getMessage() for each in caplog.records if "unencrypted" in each.getMessage()]


def test_a_token_that_goes_over_plain_http_is_a_warning_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    said = "auth= sends its token to http://far.example/one unencrypted, where anyone on the way can read it: use https"
    assert _warnings("http://far.example/one?key=secret", caplog, auth="token") == [said]
    assert len(_warnings("http://far.example/two", caplog, headers={"Authorization": "Basic x"})) == 1
    assert _warnings("http://far.example/three", caplog) == []
    assert _warnings("https://far.example/four", caplog, auth="token") == []


def test_a_token_for_this_machine_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    for host in ("localhost", "127.0.0.1", "127.8.9.1", "[::1]", "a.localhost"):
        assert _warnings(f"http://{host}:9/mcp", caplog, auth="token") == [], host


def test_a_server_process_does_not_get_the_password_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://ada:love@la/ce@proxy.example:3128/")
    monkeypatch.setenv("HTTPS_PROXY", "ada:lovelace@proxy.example:3128")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "a@b,c")
    command = [sys.executable, "-c", "pass"]
    target = resolve(command).command
    assert target is not None
    seen = {name: value for name, value in target.env.items() if "proxy" in name.lower()}
    assert seen == {
        "http_proxy": "http://proxy.example:3128/",
        "HTTPS_PROXY": "proxy.example:3128",
        "https_proxy": "http://proxy.example:3128",
        "no_proxy": "a@b,c",
    }
    given = resolve(command, env={"http_proxy": "http://ada:lovelace@proxy.example"}).command
    assert given is not None
    assert given.env["http_proxy"] == "http://ada:lovelace@proxy.example"


def test_a_header_that_comes_twice_keeps_both_values() -> None:
    """RFC 9110, section 5.3: a server may offer several challenges."""
    twice = ["WWW-Authenticate: Bearer realm=a", "www-authenticate: DPoP algs=b", "X-Same: 1", "x-same: 1"]

    async def ask(url: str) -> tuple[str, str]:
        port = LoopPool(Routes(None, 5.0), asyncio.get_running_loop())
        try:
            async with port.send("POST", url, {}, b"{}") as reply:
                return reply.headers["www-authenticate"], reply.headers["x-same"]
        finally:
            await port.close()

    with RawServer({"answer": [http_answer(401, headers=twice)]}) as server_:
        assert asyncio.run(ask(server_.url)) == ("Bearer realm=a, DPoP algs=b", "1")
