"""nginx and Caddy in front of a server, configured as the page about deployment shows, where they are installed."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from certificates import write_certificate
from linkspan import ClientError, Context, Server, SyncClient
from linkspan.cli.main import main
from linkspan.cli.run import load_server
from linkspan.client.transports import http_connections
from over_http import serving

pytestmark = pytest.mark.timeout(120)

EXAMPLE = Path(__file__).parents[2] / "examples" / "everything.py"
PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
NAME = "mcp.example.com"
NGINX = """daemon off;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
{}
}}
"""
CADDY = """{{
    admin off
    skip_install_trust
    auto_https disable_redirects
}}
{}
"""


FORWARDED = ("x-forwarded-for", "x-forwarded-proto")


class Proxy(NamedTuple):
    """A proxy that runs, and what trusts its certificate."""

    port: int
    trust: ssl.SSLContext
    certificate: Path
    """What signs its certificate, as PEM."""

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/mcp"


def block(language: str, first_line: str) -> str:
    """Return the block of the page that begins with a line."""
    found = re.search(rf"^```{language}\n({re.escape(first_line)}\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def nginx_command(program: str, folder: Path, port: int, upstream: str) -> tuple[list[str], Path]:
    """Return the command that runs nginx as the page shows, and its certificate."""
    write_certificate(folder / "fullchain.pem", folder / "privkey.pem", "localhost")
    text = block("nginx", "server {").replace(f"/etc/letsencrypt/live/{NAME}", str(folder)).replace(NAME, "localhost")
    text = text.replace("listen 443", f"listen 127.0.0.1:{port}").replace("127.0.0.1:8000", upstream)
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(user + NGINX.format(text))
    return [program, "-p", f"{folder}/", "-c", "nginx.conf"], folder / "fullchain.pem"


def caddy_command(program: str, folder: Path, port: int, upstream: str) -> tuple[list[str], Path]:
    """Return the command that runs Caddy as the page shows, and the certificate of its authority."""
    text = block("text", f"{NAME} {{").replace("127.0.0.1:8000", upstream).replace(NAME, f"https://localhost:{port}")
    (folder / "Caddyfile").write_text(CADDY.format(text))
    authority = folder / "caddy" / "pki" / "authorities" / "local" / "root.crt"
    return [program, "run", "--config", str(folder / "Caddyfile")], authority


COMMANDS = {"nginx": nginx_command, "caddy": caddy_command}


def trusting(certificate: Path, port: int, process: subprocess.Popen[bytes], log: Path) -> ssl.SSLContext:
    """Wait until the proxy answers, and return what trusts its certificate."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up and process.poll() is None:
        try:
            trust = ssl.create_default_context(cafile=certificate)
            with socket.create_connection(("127.0.0.1", port)) as plain:
                trust.wrap_socket(plain, server_hostname="localhost").close()
        except OSError:
            time.sleep(0.02)
        else:
            return trust
    pytest.fail(f"the proxy does not serve: {log.read_text()}")


going_on = threading.Event()


def make_server() -> Server:
    server = Server("ferries", "1.0.0")

    @server.tool
    def wait(ctx: Context) -> str:
        """Report progress, and wait until the client has seen it."""
        ctx.progress(1, total=2)
        return "seen" if going_on.wait(60) else "held back"

    @server.tool
    def go_on() -> None:
        """Let the other tool go on."""
        going_on.set()

    @server.tool
    def length(text: str) -> int:
        """Return the length of a text."""
        return len(text)

    @server.tool
    def header(name: str, ctx: Context) -> str:
        """Return a header of the request."""
        return ctx.headers.get(name, "")

    return server


@contextmanager
def behind(name: str, server: Server, folder: Path) -> Iterator[Proxy]:
    """Run a proxy in front of a server, until the end of the block; skip the test where the proxy is not installed."""
    program = shutil.which(name, path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed")
    port = free_port()
    with serving(server.asgi(allowed_hosts=["localhost"], metrics="/metrics")) as url:
        upstream = url.removeprefix("http://").removesuffix("/mcp")
        command, certificate = COMMANDS[name](program, folder, port, upstream)
        environ = {**os.environ, "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)}
        log = folder / "log"
        with log.open("w") as stderr, subprocess.Popen(command, cwd=folder, env=environ, stderr=stderr) as process:
            try:
                yield Proxy(port, trusting(certificate, port, process, log), certificate)
            finally:
                process.terminate()


@pytest.fixture(scope="module", params=COMMANDS)
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with behind(request.param, make_server(), tmp_path_factory.mktemp(request.param)) as found:
        yield found


def test_a_call_brings_its_host_and_the_address_of_its_caller(proxy: Proxy) -> None:
    with SyncClient(proxy.url, ssl=proxy.trust) as client:
        read = {name: client.call_tool("header", {"name": name}).text for name in ("host", *FORWARDED)}
    assert read.pop("host").split(":")[0] == "localhost"
    assert read == {"x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "https"}


def test_progress_arrives_while_the_call_runs(proxy: Proxy) -> None:
    going_on.clear()
    with SyncClient(proxy.url, ssl=proxy.trust) as client:
        result = client.call_tool("wait", on_progress=lambda *_: client.call_tool("go_on"))
    assert result.text == "seen"


def test_a_large_body_passes_and_one_that_is_too_large_is_refused(proxy: Proxy) -> None:
    with SyncClient(proxy.url, ssl=proxy.trust) as client:
        assert client.call_tool("length", {"text": "x" * 4_000_000}).structured == {"result": 4_000_000}
        with pytest.raises(
            ClientError
        ):  # 413, of the proxy or the server; or the connection, refused while it was sent
            client.call_tool("length", {"text": "x" * 4_300_000})


@pytest.mark.parametrize(("host", "path", "status"), [("evil.example", "/mcp", 421), ("localhost", "/metrics", 404)])
def test_other_hosts_and_the_numbers_are_not_served(proxy: Proxy, host: str, path: str, status: int) -> None:
    with closing(http.client.HTTPSConnection("localhost", proxy.port, context=proxy.trust, timeout=60)) as connection:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        # Caddy does not ask the server about other hosts: its answer is empty.
        assert answer.status == status or (answer.status, answer.read()) == (200, b"")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_doctor_finds_no_fault_of_a_server_behind_a_proxy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The way there, what answers where a login would be described, sessions, streams and the list.

    An earlier test of this process may have read the certificates of the system.
    """
    with behind(name, load_server(str(EXAMPLE)), tmp_path) as proxy:
        monkeypatch.setenv("SSL_CERT_FILE", str(proxy.certificate))
        monkeypatch.setattr(http_connections, "_default_context", http_connections._default_context.__wrapped__)
        status = main(["doctor", "--json", proxy.url])
    found = json.loads(capsys.readouterr().out)["verdicts"]
    wrong = {each["id"]: each for each in found if each["level"] in ("fault", "warning")}
    assert (status, wrong.keys()) == (0, {"D48", "D50"}), (
        wrong
    )  # its tools have no titles, and are not those of deep research
    assert {each["id"] for each in found if each["level"] == "ok"} >= {
        "D03",
        "D08",
        "D09",
        "D10",
        "D22",
        "D24",
        "D25",
        "D40",
    }
