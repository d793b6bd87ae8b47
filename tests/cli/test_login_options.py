"""Clients that were registered by hand: options of `linkspan login`, which are kept for every verb."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from shell import AtTerminal, Done, Shell, at_terminal, command

from linkspan import SyncClient
from linkspan.auth import OAuth
from linkspan.client import authorizing
from linkspan.client.kept_options import kept_options
from linkspan.client.login_options import NO_OPTIONS, LoginOptions
from linkspan.flows.client_errors import LoginRequired
from login_site import Site, login_site, visit
from ports import reserve_port

SECRET = "s3cret-of-desk"


@pytest.fixture(scope="module")
def only_site() -> Iterator[Site]:
    with login_site() as found:
        yield found


@pytest.fixture
def site(only_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A server at whose authorization server no client can register itself, and one was registered by hand."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "LINKSPAN_CLIENT_SECRET"):
        monkeypatch.delenv(name, raising=False)
    only_site.begin_anew()
    only_site.metadata = {
        "registration_endpoint": None,
        "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
    }
    only_site.clients = {"desk": None, "vault": SECRET}
    authorizing._accesses.clear()
    return only_site


def log_in(site: Site, *options: str, secret: str | None = None) -> Done:
    """Run `linkspan login` without a terminal, and visit the page that it names."""
    process = subprocess.Popen(
        command("login", site.url, *options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **({"LINKSPAN_CLIENT_SECRET": secret} if secret is not None else {})},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    first = process.stderr.readline()
    if "Open this URL" in first:
        back = visit(process.stderr.readline().strip())
        assert back is not None
        visit(back)
    with process:
        found = Done(process.wait(timeout=60), process.stdout.read(), first + process.stderr.read())
    authorizing._accesses.clear()  # what follows is another process
    return found


def finish(terminal: AtTerminal) -> dict[str, str]:
    """Log in with the page that a command at a terminal shows; return what the page was asked for."""
    terminal.expect("Open this URL in a browser to log in:")
    found = re.search(r"http://\S+", terminal.expect("here:"))
    assert found is not None
    back = visit(found[0])
    assert back is not None
    visit(back)
    return {name: each[0] for name, each in parse_qs(urlsplit(found[0]).query).items()}


def test_a_client_with_a_secret_is_asked_for_it_without_echo_and_every_verb_uses_it(
    site: Site, linkspan: Shell, tmp_path: Path
) -> None:
    port = reserve_port()
    options = ["--client-id", "vault", "--client-secret", "--redirect-port", str(port)]
    with at_terminal("login", site.url, *options) as terminal:
        terminal.expect("Client secret (it is not shown): ")
        terminal.type(SECRET)
        asked = finish(terminal)
        terminal.expect("logged in to")
        assert terminal.end() == 0
        assert SECRET not in terminal.seen
    assert (asked["client_id"], asked["redirect_uri"]) == ("vault", f"http://127.0.0.1:{port}/callback")
    site.tokens.clear()
    assert linkspan("call", site.url, "who").out == "Bearer the-secret-token-2\n", "renewed with the secret"
    authorizing._accesses.clear()
    site.tokens.clear()
    with SyncClient(site.url) as client:
        assert client.call_tool("who").text == "Bearer the-secret-token-3"
    shown = linkspan("whoami", site.url)
    assert "client vault, registered by hand)" in shown.out
    assert (
        f"kept for logins: linkspan login {site.url} --client-id vault --client-secret --redirect-port {port}"
        in shown.out
    )
    assert SECRET not in f"{shown.out}{linkspan('whoami', '--json')}{linkspan('whoami', '-v')}"
    holding = [file for file in tmp_path.rglob("*") if file.is_file() and stat.S_IMODE(file.stat().st_mode) != 0o600]
    assert holding == []


def test_a_secret_comes_from_the_environment_where_nobody_can_be_asked(site: Site, linkspan: Shell) -> None:
    done = log_in(site, "--client-id", "vault", "--client-secret", secret=SECRET)
    assert done.status == 0, done
    assert SECRET not in f"{done}"
    assert linkspan("call", site.url, "who").status == 0


def test_without_a_terminal_and_a_variable_a_secret_is_missed_at_once(site: Site) -> None:
    done = log_in(site, "--client-id", "vault", "--client-secret")
    assert done.status == 2
    assert (
        "--client-secret got no secret: run this at a terminal and type it, or set LINKSPAN_CLIENT_SECRET [LS-413]"
        in done.err
    )
    assert site.seen["/authorize"] == 0


@pytest.mark.parametrize("words", [["--client-secret=s3cret"], ["--client-secret", "s3cret"]], ids=["joined", "apart"])
def test_a_secret_on_the_command_line_is_refused_and_not_shown(site: Site, linkspan: Shell, words: list[str]) -> None:
    for given in (["--client-id", "vault", *words, site.url], [site.url, "--client-id", "vault", *words, "--json"]):
        done = linkspan("login", *given)
        assert done.status == 2
        assert "--client-secret takes no value, since others can read command lines" in done.out + done.err
        assert "s3cret" not in done.out + done.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--client-secret"], "--client-secret needs the --client-id that it belongs to"),
        (["--redirect-port", "70000"], "--redirect-port must be from 1 to 65535, got 70000"),
        (["--client-metadata-url", "http://c.example/c"], "--client-metadata-url must be an https URL with a path"),
        (["--resource", "my files"], "--resource must be an absolute URI"),
        (["--issuer", "idp"], "--issuer must be an http or https URL"),
        (["--scope", '"'], "invalid scope"),
    ],
)
def test_a_mistake_is_named_by_its_option(site: Site, linkspan: Shell, options: list[str], problem: str) -> None:
    done = linkspan("login", site.url, *options)
    assert done.status == 2
    assert problem in done.err


def test_options_are_kept_for_the_next_login_and_changed_one_by_one(site: Site) -> None:
    log_in(site, "--client-id", "vault", "--client-secret", "--scope", "files:read", secret=SECRET)
    done = log_in(site)
    assert done.status == 0, done
    assert (site.asked[-1]["client_id"], site.asked[-1]["scope"]) == ("vault", "files:read")
    done = log_in(site, "--scope", "files:write files:list", "--scope", "files:read", "--no-resource")
    assert done.status == 0, done
    assert (site.asked[-1]["client_id"], site.asked[-1]["scope"]) == ("vault", "files:write files:list files:read")
    assert "resource" not in site.asked[-1]
    done = log_in(site, "--resource", "api://files")
    assert site.asked[-1]["resource"] == "api://files"


def test_another_client_takes_the_place_of_all_that_was_kept(site: Site) -> None:
    log_in(site, "--client-id", "vault", "--client-secret", "--scope", "files:read", secret=SECRET)
    assert log_in(site, "--client-id", "desk").status == 0
    assert kept_options(site.url) == LoginOptions(client_id="desk")
    site.clients, site.metadata = {}, {}
    assert log_in(site, "--new").status == 0
    assert kept_options(site.url) == NO_OPTIONS
    assert site.asked[-1]["client_id"] == "registered"


def test_a_login_that_fails_changes_nothing_that_was_kept(site: Site, linkspan: Shell) -> None:
    log_in(site, "--client-id", "vault", "--client-secret", secret=SECRET)
    assert log_in(site, "--client-secret", secret="another").status == 1
    assert kept_options(site.url).client_secret == SECRET
    assert linkspan("call", site.url, "who").status == 0


def test_the_logout_forgets_the_client_and_names_the_command_for_the_next_login(site: Site, linkspan: Shell) -> None:
    log_in(site, "--client-id", "vault", "--client-secret", secret=SECRET)
    again = f"linkspan login {site.url} --client-id vault --client-secret"
    assert linkspan("logout", site.url).out.splitlines() == [
        f"logged out of {site.url}",
        f"forgot its options; to log in again: {again}",
    ]
    assert kept_options(site.url) == NO_OPTIONS
    log_in(site, "--client-id", "desk")
    found = linkspan("logout", "--json").json
    assert found == {"loggedOut": [site.url], "forgotten": {site.url: ["--client-id", "desk"]}}
    assert linkspan("logout").out == "there was no login\n"


def test_a_verb_at_a_terminal_logs_in_as_the_client_that_was_kept(site: Site) -> None:
    log_in(site, "--client-id", "vault", "--client-secret", secret=SECRET)
    site.tokens.clear()
    site.refresh_tokens.clear()
    with at_terminal("call", site.url, "who") as terminal:
        assert finish(terminal)["client_id"] == "vault"
        terminal.expect("Bearer the-secret-token")
        assert terminal.end() == 0


def test_an_identity_takes_what_it_leaves_open_from_what_was_kept(site: Site) -> None:
    log_in(site, "--client-id", "vault", "--client-secret", "--scope", "files:read", secret=SECRET)
    site.tokens.clear()
    site.refresh_tokens.clear()
    for auth, client in ((OAuth(open_url=visit), "vault"), (OAuth(open_url=visit, client_id="desk"), "desk")):
        with SyncClient(site.url, auth=auth) as client_of_site:
            client_of_site.call_tool("who")
        assert site.asked[-1]["client_id"] == client
    assert "scope" not in site.asked[-1], "nothing of another client is used"


def test_how_the_client_became_known_is_shown(site: Site, linkspan: Shell) -> None:
    site.clients, site.metadata = {}, {}
    log_in(site)
    assert linkspan("whoami").out.endswith("; client registered, registered dynamically)\n")
    site.metadata = {"client_id_metadata_document_supported": True}
    log_in(site, "--client-metadata-url", "https://c.example/c.json")
    assert "; client https://c.example/c.json, described by its document)\n" in linkspan("whoami").out
    log_in(site, "--client-id", "desk")
    found = linkspan("whoami", "--json").json
    assert (found["logins"][0]["client"], found["logins"][0]["registration"]) == ("desk", "registered by hand")
    assert found["kept"] == {site.url: ["--client-id", "desk"]}


def test_the_command_in_an_error_has_the_options_of_the_configuration(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_SECRET", SECRET)
    oauth = {"clientId": "vault", "clientSecret": "${DESK_SECRET}", "callbackPort": 17424, "scopes": "files:read"}
    with pytest.raises(LoginRequired) as caught, SyncClient({"url": site.url, "oauth": oauth}):
        pass
    assert "--client-id vault --client-secret --redirect-port 17424 --scope files:read`" in str(caught.value.hint)
    assert SECRET not in str(caught.value)
    log_in(site, "--client-id", "vault", "--client-secret", secret=SECRET)
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"site": {"url": site.url, "oauth": oauth}}}))
    with SyncClient(f"{tmp_path}/mcp.json:site") as client:
        client.ping()


def test_a_configuration_names_the_client_and_the_login_has_its_secret(site: Site, tmp_path: Path) -> None:
    log_in(site, "--client-id", "vault", "--client-secret", secret=SECRET)
    site.tokens.clear()
    port = reserve_port()
    entry = {"url": site.url, "oauth": {"clientId": "vault", "callbackPort": port}}
    with SyncClient(entry) as client:
        assert client.call_tool("who").text == "Bearer the-secret-token-2"
    site.tokens.clear()
    site.refresh_tokens.clear()
    with SyncClient(entry, auth=OAuth(open_url=visit)) as client:
        client.call_tool("who")
    assert site.asked[-1]["redirect_uri"] == f"http://127.0.0.1:{port}/callback"
