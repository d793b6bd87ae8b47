"""Make the table of logins: `python bench/logins/table.py` runs every cell and writes docs/logins.md.

`python bench/logins/table.py official Keycloak --client mcp` runs only these servers, or clients, and prints them. A cell is a
login by a process of its own, with a person who fills in whatever forms there are.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import keycloak
from person import sign_in, words_of

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "peers")]

from login_sites import SITES, Serving  # noqa: E402 (in the tests)
from npm_servers import modern_node  # noqa: E402
from oidc_provider import DOCUMENT  # noqa: E402

from linkspan import Context, ExchangeError, Server  # noqa: E402
from linkspan.auth import Introspection, Protected, TokenExchange  # noqa: E402
from over_http import serving  # noqa: E402
from ports import reserve_port  # noqa: E402

PAGE = ROOT / "docs" / "logins.md"
KEPT = keycloak.CACHE / "logins.json"
PATIENCE = 180.0
SCOPES = "mcp:read mcp:write"
CLIENTS = ("Linkspan", "mcp", "FastMCP", "TypeScript 1", "TypeScript 2", "mcp-remote", "Claude Code")
STEPS = ("DCR", "CIMD", "by hand", "refresh", "rotation", "step-up")
NOT_OURS = "the server is not ours"
RUN = (("login", "shout"), ("refresh", "shout"), ("again", "shout"), ("step-up", "write"))
"""What a client does in one run: steps, and the tools that are called in them."""
OURS = ("device", "revoke", "DPoP", "introspect", "exchange")
"""What only our side does here: no other client has it, and the last two are of servers."""


@dataclass
class Site:
    """An MCP server and its authorization server."""

    name: str
    url: str
    scopes: Sequence[str]
    metadata: dict[str, Any]
    use: Callable[[str], None] | None = None
    """Lets the server verify tokens in another way, where it is ours: "jwt" or "introspection"."""


@dataclass
class Run:
    """What one process of a client did."""

    texts: dict[str, dict[str, Any]] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)
    words: str = ""

    def cell(self, step: str, *, pages: int | None = None) -> str:
        """Return "yes", or what was said instead."""
        if step not in self.texts:
            return self.words or "no result"
        if pages is not None and self.pages.get(step, 0) > pages:
            return "logs in again"
        return "yes"


# Clients.


def by_driver(command: Sequence[str], environment: Mapping[str, str]) -> Run:
    """Run a client, and open the pages that it prints."""
    found, pages = Run(), 0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        timer = threading.Timer(PATIENCE, process.kill)
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            with suppress(ValueError):
                said = json.loads(line)
                if "open" in said:
                    pages += 1
                    page = sign_in(said["open"])
                    found.words = words_of(page)
                elif "failed" in said:
                    found.words = found.words if "invalid_" in found.words else said["failed"]
                else:
                    found.texts[said["step"]] = said
                    found.pages[said["step"]], pages = pages, 0
        timer.cancel()
    return found


def log_in(client: str, site: Site, steps: Sequence[tuple[str, str]] = RUN[:1], **given: Any) -> Run:
    """Log in with a client, and do these steps."""
    with tempfile.TemporaryDirectory() as scratch:
        port = given.pop("port", None) or reserve_port()
        given = {"url": site.url, "port": port, "scopes": [*site.scopes], "steps": steps, **given}
        environment = {**os.environ, "XDG_DATA_HOME": scratch, "HOME": scratch}
        match client:
            case "Linkspan":
                return by_driver([sys.executable, str(HERE / "clients/ours.py"), json.dumps(given)], environment)
            case "mcp" | "FastMCP":
                script = str(HERE / "clients/official.py")
                return by_driver([sys.executable, script, json.dumps({**given, "client": client})], environment)
            case "TypeScript 1" | "TypeScript 2":
                options = json.dumps({**given, "client": f"v{client[-1]}"})
                return by_driver(
                    [modern_node(), str(HERE / "clients/typescript.mjs"), str(node_modules()), options], environment
                )
            case "mcp-remote":
                return by_mcp_remote(given, Path(scratch))
            case _:
                return by_claude_code(site.url, Path(scratch))


def node_modules() -> Path:
    """Return the packages of npm, installed where they are missing."""
    home = keycloak.CACHE / "login-clients"
    if not home.exists():
        home.mkdir(parents=True)
        (home / "package.json").write_bytes((HERE / "package.json").read_bytes())
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=home, check=True)
    return home / "node_modules"


def by_mcp_remote(given: Mapping[str, Any], scratch: Path) -> Run:
    """Start mcp-remote for each step: what it keeps is in files."""
    found = Run()
    command = [modern_node(), str(node_modules() / "mcp-remote/dist/proxy.js"), given["url"], str(given["port"])]
    command += ["--host", "127.0.0.1", "--transport", "http-only"]
    if given.get("client_id"):
        known = {name: given[name] for name in ("client_id", "client_secret") if given.get(name)}
        command += ["--static-oauth-client-info", json.dumps(known)]
        command += ["--static-oauth-client-metadata", json.dumps({"token_endpoint_auth_method": given["method"]})]
    if given.get("metadata_url"):
        command += ["--client-metadata-url", given["metadata_url"]]
    before = ""
    for step, tool in given["steps"]:
        if step in ("refresh", "again"):
            for file in scratch.rglob("*_tokens.json"):
                file.write_text(json.dumps({**json.loads(file.read_text()), "access_token": "a-token-that-is-refused"}))
        text, pages, words = _one_call(command, tool, {**os.environ, "HOME": str(scratch), "BROWSER": "true"})
        if text is None:
            found.words = words
            break
        tokens = "".join(
            json.loads(each.read_text()).get("refresh_token", "") for each in scratch.rglob("*_tokens.json")
        )
        found.texts[step] = {"text": text, "rotated": tokens != before, "had": bool(tokens)}
        found.pages[step], before = pages, tokens
    return found


def _one_call(command: Sequence[str], tool: str, environment: Mapping[str, str]) -> tuple[str | None, int, str]:
    """Call a tool through a proxy on stdio; return its text, the number of pages, and what was said otherwise."""
    pages, words = 0, ""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        timer = threading.Timer(PATIENCE / 2, process.kill)
        timer.start()

        def read_log() -> None:
            nonlocal pages, words
            for line in process.stderr or ():
                if re.match(r"https?://\S+client_id=", line.strip()):
                    pages += 1
                    words = words_of(sign_in(line.strip()))
                elif re.match(r"\[\d+\].*[Ee]rror: ", line) or '"error"' in line:
                    words = re.sub(r"^\[\d+\] ", "", line.strip())

        reader = threading.Thread(target=read_log)
        reader.start()
        assert process.stdin is not None
        assert process.stdout is not None
        info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "table", "version": "1"}}
        call = {"name": tool, "arguments": {"text": "hello"}}
        text = None
        try:
            for number, (method, params) in enumerate((("initialize", info), ("tools/call", call))):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                process.stdin.write(json.dumps(message) + "\n")
                process.stdin.flush()
                answer = next(found for each in process.stdout if (found := json.loads(each)).get("id") == number)
                if method == "initialize":
                    process.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
                elif "result" in answer:
                    text = answer["result"]["content"][0]["text"]
                else:
                    words = answer["error"]["message"]
        except (StopIteration, OSError, ValueError):
            words = words or "it ended"
        timer.cancel()
        process.kill()
        reader.join(10)
    return text, pages, words


def by_claude_code(url: str, scratch: Path) -> Run:
    """Log in with Claude Code, then let it refresh."""
    found = Run()
    environment = keycloak.claude_environment(scratch)

    def claude(*arguments: str) -> str:
        return keycloak.at_terminal(shlex.join(["claude", "mcp", *arguments]), scratch, environment)

    claude("add", "--transport", "http", "site", url)
    found.words = " ".join(claude("login", "site").splitlines()[-2:])[-200:]
    if "Connected" not in claude("list"):
        page = (scratch / "page").read_text().strip() if (scratch / "page").exists() else ""
        found.words = page or found.words
        return found
    found.texts["login"] = {}
    file = scratch / ".claude" / ".credentials.json"
    tokens: list[str] = []
    for step in ("refresh", "again"):
        kept = json.loads(file.read_text())
        for each in kept["mcpOAuth"].values():
            tokens.append(each.get("refreshToken", ""))
            each |= {"accessToken": "a-token-that-is-refused", "expiresAt": 1}
        file.write_text(json.dumps(kept))
        said = claude("list")
        if "Connected" not in said:
            found.words = " ".join(said.split())[-200:]
            return found
        now = [each.get("refreshToken", "") for each in json.loads(file.read_text())["mcpOAuth"].values()]
        found.texts[step] = {"rotated": now != tokens[-1:], "had": bool(now[0])}
    return found


# Cells.


def cells_of(site: Site, client: str) -> dict[str, str]:
    """Run the cells of one client at one server."""
    cells = dict.fromkeys(STEPS, "")
    metadata = site.metadata
    if "registration_endpoint" in metadata:
        run = log_in(client, site, RUN)
        cells["DCR"] = run.cell("login")
        if "login" in run.texts:
            kept = run.texts["login"].get("had", True)
            cells["refresh"] = run.cell("refresh", pages=0) if kept else "no refresh token"
            rotated = [run.texts[each].get("rotated") for each in ("refresh", "again") if each in run.texts]
            same = "not offered: the token stays the same" if kept else "no refresh token"
            cells["rotation"] = run.cell("again", pages=0) if any(rotated) else same
            if client != "Claude Code":
                cells["step-up"] = run.cell("step-up")
    else:
        cells["DCR"] = "not offered: no registration_endpoint"
    if client == "Claude Code":
        return cells
    if metadata.get("client_id_metadata_document_supported"):
        cells["CIMD"] = log_in(client, site, metadata_url=DOCUMENT).cell("login")
    else:
        cells["CIMD"] = "not offered: client_id_metadata_document_supported is not true"
    port = reserve_port()
    if (by_hand := register_by_hand(metadata, port)) is not None:
        cells["by hand"] = log_in(client, site, port=port, **by_hand).cell("login")
    return cells


def register_by_hand(metadata: Mapping[str, Any], port: int) -> dict[str, str] | None:
    """Register a client as its administrator would."""
    listed = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    method = "none" if "none" in listed else next(each for each in listed if each.startswith("client_secret_"))
    offline = " offline_access" if "offline_access" in metadata.get("scopes_supported", ()) else ""
    wanted = {
        "client_name": "registered by hand",
        "redirect_uris": [
            f"http://127.0.0.1:{port}/callback",
            f"http://127.0.0.1:{port}/oauth/callback",
        ],  # mcp-remote's
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "scope": SCOPES + offline,
    }
    status, answer = post(metadata["registration_endpoint"], wanted)
    if status not in (200, 201):
        return None
    found = {"client_id": answer["client_id"], "method": answer.get("token_endpoint_auth_method", method)}
    return found | ({"client_secret": answer["client_secret"]} if answer.get("client_secret") else {})


def post(url: str, body: Any) -> tuple[int, Any]:
    """POST JSON."""
    try:
        with urlopen(
            Request(url, json.dumps(body).encode(), {"content-type": "application/json"}), timeout=60
        ) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as refused:
        with refused:
            return refused.code, {}


def cells_of_ours(site: Site) -> dict[str, str]:
    """Run what only our side does."""
    metadata = site.metadata
    cells = {
        "device": "not offered: no device_authorization_endpoint",
        "revoke": "not offered: no revocation_endpoint",
        "DPoP": "not offered: no dpop_signing_alg_values_supported",
        "introspect": NOT_OURS,
        "exchange": NOT_OURS,
    }
    if "device_authorization_endpoint" in metadata:
        cells["device"] = by_device(site)
    if "revocation_endpoint" in metadata:
        cells["revoke"] = revoked(site)
    if "dpop_signing_alg_values_supported" in metadata:
        cells["DPoP"] = log_in("Linkspan", site, dpop=True).cell("login")
    if site.name in ("oidc-provider", "django-oauth-toolkit"):
        cells["introspect"] = "yes"  # its server knows no other way
        cells["exchange"] = "not offered: grant_types_supported has no token exchange"
    if site.use is not None:
        site.use("introspection")
        cells["introspect"] = log_in("Linkspan", site).cell("login")
        site.use("exchange")
        run = log_in("Linkspan", site)
        text = run.texts.get("login", {}).get("text", "")
        cells["exchange"] = "yes" if text == "exchanged" else text or run.words
        site.use("jwt")
    return cells


def by_device(site: Site) -> str:
    """Log in with a code that is entered in another browser."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "XDG_DATA_HOME": scratch, "BROWSER": "true"}
        command = [sys.executable, "-m", "linkspan", "login", site.url, "--device"]
        command += [f"--scope={each}" for each in site.scopes]
        with subprocess.Popen(
            command, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        ) as process:
            timer = threading.Timer(PATIENCE, process.kill)
            timer.start()
            words = ""
            assert process.stderr is not None
            for line in process.stderr:
                urls = re.findall(r"https?://\S*user_code=\S*", line)
                if urls:
                    words = words_of(sign_in(urls[0].rstrip(".,)")))
                elif line.strip():
                    words = line.strip()
            timer.cancel()
        return "yes" if process.returncode == 0 else words


def revoked(site: Site) -> str:
    """Log in with the command line, and out again."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "XDG_DATA_HOME": scratch}
        given = {"url": site.url, "port": reserve_port(), "scopes": [*site.scopes], "steps": RUN[:1]}
        by_driver([sys.executable, str(HERE / "clients/ours.py"), json.dumps(given)], environment)
        command = [sys.executable, "-m", "linkspan", "logout", site.url, "--json"]
        done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=PATIENCE)
        said = json.loads(done.stdout or "{}")
    return "yes" if said.get("loggedOut") and not said.get("notRevoked") else str(said or done.stderr)


# Servers.


@contextmanager
def at_keycloak(*, resource_indicators: bool = False) -> Iterator[Any]:
    """Our server, at a Keycloak that was set up by the commands of docs/keycloak.md."""
    port, url = reserve_port(), ""
    url = f"http://127.0.0.1:{port}/mcp"
    with keycloak.running(reserve_port(), resource_indicators=resource_indicators) as found:
        commands = keycloak.for_the_realm(found.port, url, resource_indicators=resource_indicators, exchange=True)
        more = "MORE=$(kcadm.sh create client-scopes -r staff -i -s name=mcp:write -s protocol=openid-connect)\n"
        more += "kcadm.sh update default-optional-client-scopes/$MORE -r staff -b '{}'\n"
        found.run(commands.replace("files:read", "mcp:read") + more)
        credentials = (found.issuer, "files-server", "a-secret-of-the-server")
        exchange = TokenExchange(*credentials)
        by_jwt = Protected.keycloak(found.issuer, resource=url, scopes=["mcp:read"], exchange=exchange)
        asking = Protected(url, verify=Introspection(*credentials), scopes=["mcp:read"])
        apps = {"jwt": _app(by_jwt), "introspection": _app(asking), "exchange": _app(by_jwt, exchanging=True)}
        way = "jwt"

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await apps[way](scope, receive, send)

        def use(wanted: str) -> None:
            nonlocal way
            way = wanted

        with serving(app, port):
            place = Serving(url, sign_in)
            yield place, use


def _app(auth: Protected, *, exchanging: bool = False) -> Any:
    server = Server("site", auth=auth)

    @server.tool
    async def shout(text: str, ctx: Context) -> str:
        if exchanging:
            try:
                token = await ctx.token_for("files-server", ["mcp:read"])
            except ExchangeError as problem:
                return str(problem)
            return "exchanged" if token.count(".") == 2 else "no token"
        return text.upper()

    @server.tool(scopes=["mcp:write"])
    def write(text: str) -> str:
        return text

    return server.asgi(path="/mcp")


@contextmanager
def site_of(name: str) -> Iterator[Site]:
    """Start a server."""
    if name.startswith("Keycloak"):
        with at_keycloak(resource_indicators=name != "Keycloak") as (found, use):
            yield Site(name, found.url, found.scopes, metadata_of(found.url), use)
        return
    start: Callable[[], AbstractContextManager[Any]] = SITES[name]
    with start() as found:
        yield Site(name, found.url, found.scopes, metadata_of(found.url))


def metadata_of(url: str) -> dict[str, Any]:
    """Return the metadata of the authorization server of an MCP server."""
    parts = urlsplit(url)
    resource = _get(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}")
    issuer = urlsplit(resource["authorization_servers"][0])
    origin, path = f"{issuer.scheme}://{issuer.netloc}", issuer.path.rstrip("/")
    for place in (f"/.well-known/oauth-authorization-server{path}", f"{path}/.well-known/openid-configuration"):
        with suppress(HTTPError):
            return _get(origin + place)
    raise ValueError(f"no metadata of {issuer.geturl()}")


def _get(url: str) -> dict[str, Any]:
    with urlopen(url, timeout=60) as answer:
        return json.loads(answer.read())


TITLES = {
    "official": "A server of the official SDK with its own authorization server",
    "official with default scopes": "The same with default_scopes",
    "FastMCP": "A server of FastMCP with its own authorization server",
    "oidc-provider": "A server of ours at oidc-provider 9.13.3",
    "django-oauth-toolkit": "A server of ours at django-oauth-toolkit 3.4.1",
    "JWTVerifier": "A server of FastMCP with JWTVerifier at oidc-provider",
    "OAuthProxy": "The OAuth proxy of FastMCP 4.1.2 before oidc-provider",
    "OAuthProxy of FastMCP 3": "The OAuth proxy of FastMCP 3.2.4 before oidc-provider",
    "Keycloak": "A server of ours at Keycloak 26.7.3",
    "Keycloak, resource-indicators": "The same with the feature resource-indicators",
}
NAMES = tuple(TITLES)


# The page.


def write(results: Mapping[str, tuple[Mapping[str, Mapping[str, str]], Mapping[str, str]]]) -> str:
    """Return the page: a table for each server, and one of what only our side does."""
    notes: list[str] = []

    def mark(cell: str) -> str:
        if cell in ("yes", "", NOT_OURS):
            return "yes" if cell == "yes" else "-"
        cell = " ".join(cell.partition("  url: ")[0].split())[:250]
        words = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", cell).replace("|", "/").replace("`", "'")
        words = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{5,}|(?=[\w-]*\d)[\w-]{30,}|\b7[0-9a-f]{11}\b", "...", words)
        if words not in notes:
            notes.append(words)
        kind = "not offered" if words.startswith("not offered") else "no"
        return f"{kind} ({notes.index(words) + 1})"

    parts = []
    for name, (by_client, _) in results.items():
        clients = [each for each in CLIENTS if each in by_client]
        rows = [f"## {TITLES[name]}", "", f"| | {' | '.join(clients)} |", f"|---|{'---|' * len(clients)}"]
        rows += [f"| {step} | {' | '.join(mark(by_client[each][step]) for each in clients)} |" for step in STEPS]
        parts.append("\n".join(rows))
    rows = ["## What no other client here does", "", f"| | {' | '.join(OURS)} |", f"|---|{'---|' * len(OURS)}"]
    rows += [
        f"| {TITLES[name]} | {' | '.join(mark(ours[each]) for each in OURS)} |" for name, (_, ours) in results.items()
    ]
    parts.append("\n".join(rows))
    words = "\n".join(f"{number}. `{note}`" for number, note in enumerate(notes, 1))
    return "\n\n".join([INTRODUCTION, *parts, f"## The words\n\n{words}"]) + "\n"


INTRODUCTION = """# Logins that were tried

Which client logs in at which authorization server, and what works then. `python bench/logins/table.py` has run every cell and has
written this page; a number stands for the words at its end, which are those of the client, or of the page on which the person
was left. Everything was on one machine: none of it was tried at a provider on the internet.

- **DCR**: a client that registers itself logs in and calls. **CIMD**: a client that is described by a document at a URL does.
  **by hand**: a client with an id, and a secret if it has one, that was registered before does.
- **refresh**: a call with an access token that is not valid any more, without a login. **rotation**: a second time, where the
  authorization server replaces refresh tokens.
- **step-up**: a call of a tool that needs another scope, with a second login.
- The document of a client is on the internet. The proxies of FastMCP fetch it, as oidc-provider does with that of Claude Code,
  and have nothing to fetch it from here; oidc-provider was given that of the others.
- The clients are Linkspan, the official SDK for Python (mcp 2.3.0), FastMCP 4.1.2, the TypeScript SDK 1.32.2 and 2.4.0,
  mcp-remote 0.15.1 and Claude Code 2.1.197, of which login and refresh were tried."""


def kept() -> dict[str, Any]:
    """Return the results so far, by server."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def main() -> None:
    """Run what is wanted; write the page when every server is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=f"some of: {'; '.join(NAMES)}")
    parser.add_argument("--resume", action="store_true", help="leave out the servers that are done")
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only this client (repeatable)")
    options = parser.parse_args()
    if not (options.resume or options.servers or options.client):
        KEPT.unlink(missing_ok=True)
    done = kept() if options.resume else {}
    for name in [each for each in options.servers or NAMES if each not in done]:
        with site_of(name) as site:
            begun, clients = time.monotonic(), options.client or CLIENTS
            with ThreadPoolExecutor(len(clients)) as pool:
                by_client = dict(zip(clients, pool.map(partial(cells_of, site), clients), strict=True))
            for client, cells in by_client.items():
                print(f"{name}: {client}: {cells}", flush=True)
            ours = {} if options.client else cells_of_ours(site)
            print(f"{name}: {ours} ({time.monotonic() - begun:.0f} s)", flush=True)
        done = kept()
        before = done.get(name, [{}, {}])
        done[name] = [{**before[0], **by_client}, {**before[1], **ours}]
        KEPT.write_text(json.dumps(done))
    results = {name: kept()[name] for name in NAMES if name in kept()}
    if len(results) == len(NAMES):
        PAGE.write_text(write(results))


if __name__ == "__main__":
    main()
