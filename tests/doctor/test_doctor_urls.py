"""A server at a URL: each fault is named by its id and by no other."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from threading import Event, Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import pytest

from linkspan.checks import web
from linkspan.doctor import examining
from linkspan.doctor.examining import of_url
from linkspan.doctor.profiles import DoctorProfile
from linkspan.doctor.verdicts import Verdict

HOST = DoctorProfile("A host", date(2026, 11, 24), "here", ("url",), user_agent="a-host/1", audience="claude")
HOSTS = {"a-host": HOST}


class Sent(NamedTuple):
    """A request that the server got."""

    method: str
    path: str
    headers: Mapping[str, str]
    message: Any


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str] = {}
    body: Any = b""


Way = Callable[[Sent], Reply | None]
JSON = {"Content-Type": "application/json"}


def answer(sent: Sent) -> Reply:
    """Answer as a good server does that needs no login."""
    if sent.path != "/mcp":
        return Reply(404)
    if sent.method == "POST" and "id" in sent.message:
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        body = {"jsonrpc": "2.0", "id": sent.message["id"], "result": result}
        return Reply(200, {**JSON, "Mcp-Session-Id": "s1"} if sent.message["method"] == "initialize" else JSON, body)
    return Reply({"POST": 202, "DELETE": 204, "OPTIONS": 204}.get(sent.method, 405))


class Site:
    """A server whose answers a test changes."""

    way: Way = staticmethod(lambda _: None)  # type: ignore[assignment]
    url = ""


@pytest.fixture(scope="module")
def served() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_form = self.headers.get("Content-Type") == "application/x-www-form-urlencoded"
            message = dict(parse_qsl(data.decode())) if is_form else json.loads(data or b"null")
            sent = Sent(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, message)
            reply = site.way(sent) or answer(sent)
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_DELETE = do_OPTIONS = do_POST

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        site.url = f"http://127.0.0.1:{server.server_port}/mcp"
        yield site
        server.shutdown()


@pytest.fixture
def site(served: Site) -> Iterator[Site]:
    served.way = lambda _: None
    yield served
    served.way = lambda _: None


def wrong(found: list[Verdict]) -> list[str]:
    return sorted(each.id for each in found if each.level in ("fault", "warning"))


# Without a login.


def to(method: str, reply: Reply, *, path: str = "/mcp", **needs: str) -> Way:
    """Return a way that gives one answer to a method; `needs` are headers that the request must have."""
    wanted = {key.replace("_", "-"): value for key, value in needs.items()}

    def way(sent: Sent) -> Reply | None:
        fits = all(sent.headers.get(key) == value for key, value in wanted.items())
        return reply if (sent.method, sent.path) == (method, path) and fits else None

    return way


def later(status: int) -> Way:
    return lambda sent: Reply(status) if sent.method == "POST" and sent.message.get("method") == "ping" else None


def slow(sent: Sent) -> Reply | None:
    if sent.method == "GET" and sent.path == "/mcp":
        time.sleep(0.6)
    return None


ALLOWED = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "content-type"}
ALL_ALLOWED = {**ALLOWED, "Access-Control-Allow-Headers": "content-type, mcp-protocol-version, authorization"}
OPEN: list[tuple[str, Way]] = [
    ("D04", to("POST", Reply(403, {"cf-mitigated": "challenge"}), user_agent="a-host/1")),
    ("D05", to("POST", Reply(307, {"Location": "/mcp/"}))),
    ("D06", to("POST", Reply(307, {"Location": "http://other.example/mcp"}))),
    ("D07", to("POST", Reply(421, {}, b"Invalid Host header"))),
    ("D08", to("GET", Reply(200, {"Content-Type": "text/html"}, b"<html>"))),
    ("D09", slow),
    ("D10", later(404)),
    ("D22", to("GET", Reply(403), path="/.well-known/oauth-protected-resource/mcp")),
    (
        "D22",
        to("GET", Reply(200, {"Content-Type": "text/html"}, b"<html>"), path="/.well-known/oauth-protected-resource"),
    ),
    ("D23", to("OPTIONS", Reply(401, {"WWW-Authenticate": "Bearer"}))),
    ("D23", to("OPTIONS", Reply(204, ALLOWED))),
    ("D23", to("OPTIONS", Reply(204, ALL_ALLOWED))),  # without the exposed session id
    ("D24", to("POST", Reply(406), accept="text/event-stream, application/json")),
    ("D25", to("POST", Reply(404))),
    ("D25", to("POST", Reply(200, {"Content-Type": "text/html"}, b"<html>"))),
]


def test_a_good_server_has_no_fault(site: Site) -> None:
    found = of_url(site.url, {}, HOSTS)
    assert wrong(found) == []
    site.way = to("GET", Reply(200, {"Content-Type": "text/event-stream"}, b": hello\n\n"))
    assert wrong(of_url(site.url, {}, HOSTS)) == []


@pytest.mark.parametrize(("id", "way"), OPEN)
def test_each_fault_without_a_login_is_named_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch, id: str, way: Way
) -> None:
    monkeypatch.setattr(web, "_WAIT", 0.3)
    site.way = way
    assert wrong(of_url(site.url, {}, HOSTS)) == [id]


ADDRESSES = [("D01", {"ports": (443,)}), ("D02", {"public": True})]


@pytest.mark.parametrize(("id", "limits"), ADDRESSES)
def test_each_fault_of_an_address_is_named_alone(site: Site, id: str, limits: Any) -> None:
    host = DoctorProfile("Far", date(2026, 11, 24), "here", ("url",), **limits)
    assert wrong(of_url(site.url, {}, {"far": host})) == [id]


def test_the_address_and_its_port_are_judged_for_hosts_on_the_internet(site: Site) -> None:
    remote = DoctorProfile("Far", date(2026, 11, 24), "here", ("url",), ports=(443,), public=True)
    assert wrong(of_url(site.url, {}, {"far": remote})) == ["D01", "D02"]
    assert wrong(of_url(site.url, {}, {"far": remote}, named=False)) == []


def test_what_does_not_answer_is_one_fault(site: Site) -> None:
    assert wrong(of_url(site.url.replace("http:", "https:"), {}, HOSTS)) == ["D03"]
    assert wrong(of_url("http://127.0.0.1:9/mcp", {}, HOSTS)) == ["D25"]


def test_an_answer_that_never_ends_is_cut(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part comes in time, and the last one never does."""
    monkeypatch.setattr(web, "_LONGEST", 0.3)
    stop = Event()

    def drip(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
            while not stop.wait(0.02):
                connection.sendall(b"X-More: 1\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=lambda: drip(listener.accept()[0]))
        thread.start()
        found = web.Web(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp").post({})
        stop.set()
        thread.join()
    assert (found.status, found.problem) == (0, "no whole answer within 0 s")


def test_a_slow_server_is_left_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not looked for is skipped, and is no fault."""
    now = [0.0]
    for each in (web, examining):
        monkeypatch.setattr(each, "monotonic", lambda: now[0])

    def way(sent: Sent) -> Reply | None:
        now[0] += 4.9
        return None

    site.way = way
    found = {each.id: each for each in of_url(site.url, {}, HOSTS)}
    assert (now[0] < 45, wrong([*found.values()])) == (True, [])
    assert (found["D25"].level, found["D23"].level, found["D12"].level) == ("ok", "skipped", "skipped")


# With a login.


class Login:
    """What a protected server and its authorization server publish."""

    def __init__(self, site: Site, path: str = "") -> None:
        base = site.url.removesuffix("/mcp")
        self.issuer = base + path
        self.challenge = f'Bearer resource_metadata="{base}/.well-known/oauth-protected-resource/mcp"'
        self.resource: Any = {"resource": site.url, "authorization_servers": [self.issuer]}
        self.at = f"/.well-known/oauth-authorization-server{path}"
        self.server: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "registration_endpoint": f"{base}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
        }

    def __call__(self, sent: Sent) -> Reply | None:
        if sent.path == "/mcp" and sent.method != "OPTIONS" and "authorization" not in sent.headers:
            return Reply(401, {"WWW-Authenticate": self.challenge})
        if sent.path == "/.well-known/oauth-protected-resource/mcp" and self.resource is not None:
            return Reply(200, JSON, self.resource)
        return Reply(200, JSON, self.server) if sent.path == self.at else None


def no_metadata(login: Login) -> None:
    login.challenge, login.resource = "Bearer", None


def members(**changed: Any) -> Callable[[Login], None]:
    def change(login: Login) -> None:
        login.server = {key: each for key, each in {**login.server, **changed}.items() if each is not None}

    return change


def appended(login: Login) -> None:
    login.at = "/realms/a/.well-known/openid-configuration"


LOGINS: list[tuple[str, str, Callable[[Login], None]]] = [
    ("D11", "", no_metadata),
    ("D11", "", lambda login: setattr(login, "challenge", "Bearer")),
    ("D12", "", lambda login: login.resource.update(resource="https://other.example/mcp")),
    ("D13", "/realms/a", appended),
    ("D13", "", lambda login: setattr(login, "at", "/nowhere")),
    ("D14", "", members(issuer="https://other.example")),
    ("D14", "", lambda login: login.resource.update(authorization_servers=[])),
    ("D14", "", lambda login: login.resource.update(authorization_servers=["http://other.example"])),
    ("D15", "", members(token_endpoint="http://127.0.0.1/oauth2/token")),
    ("D16", "", members(code_challenge_methods_supported=None)),
    ("D20", "", members(grant_types_supported=["authorization_code"])),
]


@pytest.mark.parametrize("path", ["", "/realms/a"])
def test_a_good_login_has_no_fault(site: Site, path: str) -> None:
    site.way = Login(site, path)
    assert wrong(of_url(site.url, {}, HOSTS)) == []
    assert wrong(of_url(site.url, {"Authorization": "Bearer secret-token"}, HOSTS)) == []


@pytest.mark.parametrize(("id", "path", "change"), LOGINS)
def test_each_fault_of_a_login_is_named_alone(site: Site, id: str, path: str, change: Callable[[Login], None]) -> None:
    login = Login(site, path)
    change(login)
    site.way = login
    assert wrong(of_url(site.url, {}, HOSTS)) == [id]


def test_a_token_goes_to_the_server_alone_and_into_no_report(site: Site) -> None:
    seen: list[Sent] = []
    login = Login(site)

    def way(sent: Sent) -> Reply | None:
        seen.append(sent)
        return login(sent)

    site.way = way
    found = of_url(site.url, {"Authorization": "Bearer secret-token-1234"}, HOSTS)
    with_token = {each.path for each in seen if "authorization" in each.headers}
    assert "secret-token" not in repr(found)
    assert with_token == {"/mcp"}
    assert not any(each.method == "POST" and each.path != "/mcp" for each in seen), "nothing is registered"
    assert not any((each.message or {}).get("method") == "tools/call" for each in seen)


def test_a_page_asks_without_the_token_before_it_posts(site: Site) -> None:
    def way(sent: Sent) -> Reply | None:
        refused = sent.method == "OPTIONS" and "authorization" not in sent.headers
        return Reply(401, {"WWW-Authenticate": "Bearer"}) if refused else None

    site.way = way
    assert wrong(of_url(site.url, {"Authorization": "Bearer secret-token"}, HOSTS)) == ["D23"]


# With clients that are registered.


class Registry(Login):
    """A login where programs register, and what a good one answers them."""

    refused: tuple[str, ...] = ()
    """Redirect URIs that are not registered."""
    form_only = False
    """Whether a client's id is read from the form only."""
    knows_documents = True
    ways: tuple[str, ...] = ("none", "client_secret_post", "client_secret_basic")
    """How clients authenticate that are registered."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.left: set[str] = set()
        self.server["client_id_metadata_document_supported"] = True
        self.server["token_endpoint_auth_methods_supported"] = ["none", "client_secret_basic"]

    def __call__(self, sent: Sent) -> Reply | None:
        path, _, query = sent.path.partition("?")
        match sent.method, path:
            case "POST", "/register":
                if set(self.refused) & set(sent.message["redirect_uris"]):
                    return Reply(400, JSON, {"error": "invalid_redirect_uri"})
                if sent.message["token_endpoint_auth_method"] not in self.ways:
                    return Reply(400, JSON, {"error": "invalid_client_metadata"})
                client = f"c{len(self.left)}"
                self.left.add(client)
                here = self.issuer + f"/clients/{client}"
                forget = {"registration_client_uri": here, "registration_access_token": "secret-of-registration"}
                return Reply(201, JSON, {"client_id": client, "client_secret": "secret-of-client", **forget})
            case "DELETE", _ if path.startswith("/clients/"):
                assert sent.headers["authorization"] == "Bearer secret-of-registration"
                self.left.discard(path.rpartition("/")[2])
                return Reply(204)
            case "GET", "/authorize":
                document = "https%3A%2F%2Fa-host.example%2Fclient.json" in query
                known = self.knows_documents or not document
                return Reply(200, {"Content-Type": "text/html"}, b"<form>") if known else Reply(400)
            case "POST", "/token":
                assert sent.headers["authorization"].startswith("Basic ")
                if self.form_only and "client_id" not in sent.message:
                    return Reply(401, JSON, {"error": "invalid_client"})
                return Reply(400, JSON, {"error": "invalid_grant"})
        return super().__call__(sent)


WEB = DoctorProfile(
    "A host", date(2026, 11, 24), "here", ("url",),
    redirect_uris=("a-host://back", "https://a-host.example/back"), client_document="https://a-host.example/client.json",
)  # fmt: skip
REGISTERED: list[tuple[str, Callable[[Registry], object]]] = [
    ("D17", lambda login: setattr(login, "ways", ("client_secret_post", "client_secret_basic"))),
    ("D17", lambda login: setattr(login, "ways", ("none", "client_secret_basic"))),
    ("D18", lambda login: setattr(login, "refused", ("a-host://back",))),
    ("D19", lambda login: setattr(login, "knows_documents", False)),
    ("D21", lambda login: setattr(login, "form_only", True)),
]


def registered(site: Site, login: Registry) -> list[Verdict]:
    site.way = login
    return of_url(site.url, {}, {"a-host": WEB}, register=True)


def test_a_good_registry_has_no_fault_and_clients_are_deleted(site: Site) -> None:
    login = Registry(site)
    found = registered(site, login)
    assert (wrong(found), login.left) == ([], set())
    assert {each.level for each in found if each.id in ("D17", "D18", "D19", "D21")} == {"ok"}


@pytest.mark.parametrize(("id", "change"), REGISTERED)
def test_each_fault_of_a_registry_is_named_alone(site: Site, id: str, change: Callable[[Registry], object]) -> None:
    login = Registry(site)
    change(login)
    found = registered(site, login)
    assert wrong(found) == [id]
    assert "secret-of" not in repr(found)
    site.way = login
    assert wrong(of_url(site.url, {}, {"a-host": WEB})) == [], "nothing is registered unless that is asked for"


def test_clients_without_a_secret_may_be_served_that_are_not_announced(site: Site) -> None:
    """As FastMCP and Keycloak do."""
    login = Registry(site)
    login.server["token_endpoint_auth_methods_supported"] = ["client_secret_post", "client_secret_basic"]
    assert wrong(registered(site, login)) == []
    assert wrong(of_url(site.url, {}, {"a-host": WEB})) == []


def test_a_refused_registration_names_the_redirect_uri(site: Site) -> None:
    login = Registry(site)
    login.refused = ("https://a-host.example/back",)
    found = next(each for each in registered(site, login) if each.id == "D18")
    assert (found.hurts, found.cure) == (("A host",), "let clients register https://a-host.example/back")
    assert "invalid_redirect_uri" in found.evidence


# Two faults at once.

OF_ADDRESSES = ("D01", "D02", "D03", "D05", "D06", "D07", "D25")
"""Nothing more can be said of such a server."""
APART = [each for each in OPEN if each[0] not in OF_ADDRESSES]


@pytest.mark.parametrize("number", range(len(APART)))
def test_two_faults_are_both_named(site: Site, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(web, "_WAIT", 0.3)
    (one, first), (other, second) = APART[number], APART[(number + 3) % len(APART)]
    site.way = lambda sent: first(sent) or second(sent)
    assert wrong(of_url(site.url, {}, HOSTS)) == sorted({one, other})


CHANGES = [each for each in LOGINS if each[1] == "" and each[0] in ("D12", "D15", "D16", "D20")]


@pytest.mark.parametrize(("one", "other"), [*combinations(range(len(CHANGES)), 2)])
def test_two_faults_of_a_login_are_both_named(site: Site, one: int, other: int) -> None:
    login = Login(site)
    for each in (one, other):
        CHANGES[each][2](login)
    site.way = login
    assert wrong(of_url(site.url, {}, HOSTS)) == sorted({CHANGES[one][0], CHANGES[other][0]})
