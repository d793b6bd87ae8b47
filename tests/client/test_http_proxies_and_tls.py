"""The way to a URL: the system's proxies, and certificates of one's own."""

from __future__ import annotations

import base64
import datetime
import http.client
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from linkspan import ConnectError, Server, SyncClient
from over_http import serving

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


@pytest.mark.parametrize("value", ["127.0.0.1", "*", "localhost,127.0.0.1"])
def test_hosts_that_need_no_proxy_are_reached_without(
    value: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
    monkeypatch.setenv("no_proxy", value)
    with serving(server.asgi()) as url:
        assert call(url) == "reached"
    assert proxy.seen == []


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
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_file, key_file


def test_a_certificate_of_ones_own_is_trusted_by_a_context_that_knows_it_and_by_no_other(
    certificate: tuple[Path, Path],
) -> None:
    known = ssl.create_default_context(cafile=str(certificate[0]))
    with serving(server.asgi(), ssl_certfile=certificate[0], ssl_keyfile=certificate[1]) as url:
        secure = url.replace("http:", "https:")
        with SyncClient(secure, ssl=known) as client:
            assert client.call_tool("reached").text == "reached"
        with pytest.raises(ConnectError, match="no secure connection") as caught:
            call(secure)
    assert caught.value.hint is not None
    assert "ssl=" in caught.value.hint
