"""The verbs of logins, and verbs that log in because they are at a terminal."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shell import AtTerminal, Done, Shell, at_terminal, command

from linkspan.client import authorizing
from login_site import Site, login_site, visit


@pytest.fixture(scope="module")
def only_site() -> Iterator[Site]:
    with login_site() as found:
        yield found


@pytest.fixture
def site(only_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    only_site.begin_anew()
    authorizing._accesses.clear()
    return only_site


def log_in(site: Site, *options: str) -> Done:
    """Run `linkspan login` without a terminal, and visit the page that it names."""
    process = subprocess.Popen(
        command("login", site.url, *options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "Open this URL" in process.stderr.readline()
    back = visit(process.stderr.readline().strip())
    assert back is not None
    visit(back)
    out, err = process.communicate(timeout=60)
    return Done(process.returncode, out, err)


def page(terminal: AtTerminal) -> str:
    """Return the URL of the login page that the command shows."""
    terminal.expect("Open this URL in a browser to log in:")
    found = re.search(r"http://\S+", terminal.expect("here:"))
    assert found is not None
    return found[0]


def test_a_login_is_kept_for_every_verb_until_the_logout(site: Site, linkspan: Shell) -> None:
    assert linkspan("list", site.url).status == 5, "nobody is asked without a terminal"
    authorizing._accesses.clear()  # the next command is another process
    done = log_in(site, "--scope", "files:read")
    assert done.status == 0
    assert done.out == f"logged in to {site.url} (by {site.base}; files:read; renewed automatically)\n"
    assert linkspan("call", site.url, "who").out == "Bearer the-secret-token-1\n"
    client = "client registered, registered dynamically"
    assert linkspan("whoami").out.splitlines() == [
        f"{site.url} (by {site.base}; files:read; renewed automatically; {client})",
        f"kept for logins: linkspan login {site.url} --scope files:read",
    ]
    assert linkspan("logout").out.splitlines() == [
        f"logged out of {site.url}",
        f"forgot its options; to log in again: linkspan login {site.url} --scope files:read",
    ]
    assert linkspan("whoami") == (1, "there is no login\n", "")
    assert linkspan("logout", site.url) == (1, "there was no login\n", "")


def test_doctor_and_check_send_the_token_of_a_stored_login(site: Site, linkspan: Shell) -> None:
    behind_the_login = {"D08", "D09", "D10", "D24", "D40"}
    levels = {each["id"]: each["level"] for each in json.loads(linkspan("doctor", "--json", site.url).out)["verdicts"]}
    assert {levels[each] for each in behind_the_login} == {"skipped"}
    assert linkspan("check", "--only", "MSG-11", site.url).status == 3
    authorizing._accesses.clear()
    assert log_in(site).status == 0
    done = linkspan("doctor", "--json", site.url)
    levels = {each["id"]: each["level"] for each in json.loads(done.out)["verdicts"]}
    assert {levels[each] for each in behind_the_login} == {"ok"}
    assert "the-secret-token" not in done.out
    assert "2 of 2 passed" in linkspan("check", "--only", "MSG-11", site.url).out
    wrong = ("--header", "authorization: Bearer wrong")
    assert linkspan("check", *wrong, "--only", "MSG-11", site.url).status == 3, "what is given takes its place"


REFUSAL = {"error": "invalid_client", "error_description": "not refresh-the-secret-token-1"}


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, None, None),
        (400, REFUSAL, "status 400: invalid_client: not [redacted]"),
        (503, None, "status 503"),
        (None, None, "it has no endpoint for that"),
    ],
)
def test_a_logout_says_that_the_token_was_not_revoked(
    site: Site, linkspan: Shell, status: int | None, body: object, reason: str | None
) -> None:
    known = site.answer

    def answer(path: str, query: dict[str, str], request: bytes) -> tuple[int, dict[str, str], object]:
        return (status or 404, {}, body) if path == "/revoke" else known(path, query, request)

    site.answer = answer
    site.metadata = {} if status is not None else {"revocation_endpoint": None}
    for options in ((), ("--json",)):
        site._number = 0
        log_in(site)
        done = linkspan("logout", *options, site.url)
        assert done.status == 0, "it is forgotten here"
        assert "secret" not in done.out
        told = {"notRevoked": {site.url: reason}} if reason is not None else {}
        line = (
            f"{site.base} did not revoke the token, which stays valid there: {reason}\n" if reason is not None else ""
        )
        if options:
            assert done.json == {"loggedOut": [site.url], **told}
        else:
            assert done.out == f"logged out of {site.url}\n{line}"
    assert linkspan("whoami").status == 1


def test_a_login_whose_token_the_server_refuses_fails_at_once(site: Site, linkspan: Shell) -> None:
    """Its authorization server issues tokens for another audience, for example."""
    answer = site.answer

    def issues_for_another(path: str, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], Any]:
        found = answer(path, query, body)
        site.tokens.clear()
        return found

    site.answer = issues_for_another
    done = log_in(site)
    assert (done.status, done.out) == (1, "")
    assert "the server refuses the token that its authorization server has just issued" in done.err
    assert "[LS-403]" in done.err
    assert linkspan("whoami").out == "there is no login\n"
    site.answer = answer
    assert log_in(site).status == 0


def test_a_login_can_be_followed_step_by_step(site: Site) -> None:
    process = subprocess.Popen(
        command("login", site.url, "--scope", "files:read", "-v"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines: list[str] = []
    while "Open this URL" not in (line := process.stderr.readline()):
        assert line, lines
        lines.append(line.strip())
    back = visit(process.stderr.readline().strip())
    assert back is not None
    visit(back)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [each.replace(site.base, "") for each in (*lines, *rest.splitlines())] == [
        "POST /mcp -> 401",
        "GET /.well-known/oauth-protected-resource/mcp -> 200",
        "GET /.well-known/oauth-authorization-server -> 200",
        "POST /register -> 201",
        "login at  for /mcp, files:read: client registered (registered dynamically), authentication none",
        "POST /token -> 200",
        "POST /mcp -> 400",  # it takes the token, and wants a handshake first
    ]


def test_as_json_a_login_has_no_secret(site: Site, linkspan: Shell) -> None:
    found = json.loads(log_in(site, "--json").out)
    assert (found["url"], found["issuer"], found["renewed"]) == (site.url, site.base, True)
    assert linkspan("whoami", "--json", site.url).json == {"logins": [found]}
    assert "secret" not in json.dumps(found)


def test_without_a_login_the_error_names_the_command(site: Site, linkspan: Shell) -> None:
    done = linkspan("list", site.url, "--json")
    assert done.status == 5
    assert done.json["error"]["type"] == "LoginRequired"
    assert f"`linkspan login {site.url}`" in done.json["error"]["hint"]


def test_errors_about_a_stored_login_and_a_key_speak_of_the_command_line(site: Site, linkspan: Shell) -> None:
    done = linkspan("list", site.url, "--header", "X-Api-Key: no-such-key")
    assert done.status == 1
    assert "the API key is wrong" in done.err
    assert f"pass the right one with --header, or log in with `linkspan login {site.url}` [LS-418]" in done.err
    authorizing._accesses.clear()  # the next command is another process
    assert log_in(site).status == 0
    site.needs = {"write": "files:write"}
    done = linkspan("call", site.url, "write", "text=x")
    assert done.status == 5
    assert "tools/call write needs files:write, which the stored login does not have" in done.err
    assert f"run `linkspan login {site.url} --scope files:write` [LS-417]" in done.err
    site.tokens.clear()
    site.refresh_tokens.clear()
    done = linkspan("list", site.url)
    assert done.status == 5
    assert "the stored login has ended (invalid_grant)" in done.err


def test_at_a_terminal_without_a_browser_the_last_address_can_be_pasted(site: Site) -> None:
    with at_terminal("login", site.url) as terminal:
        back = visit(page(terminal))
        assert back is not None
        terminal.type("what?")
        terminal.expect("not the address of the last page")
        terminal.type(back)
        terminal.expect("logged in to")
        assert terminal.end() == 0


@pytest.mark.parametrize("verb", ["list", "call"])
def test_list_and_call_log_in_at_a_terminal(site: Site, verb: str) -> None:
    more = ["who"] if verb == "call" else []
    with at_terminal(verb, site.url, *more) as terminal:
        back = visit(page(terminal))
        assert back is not None
        visit(back)
        terminal.expect("the-secret-token" if verb == "call" else "who")
        assert terminal.end() == 0
    assert site.seen["/authorize"] == 1


def test_ctrl_c_ends_a_login_and_keeps_the_old_one(site: Site, linkspan: Shell) -> None:
    log_in(site)
    with at_terminal("login", site.url) as terminal:
        page(terminal)
        terminal.signal()
        terminal.expect("interrupted")
        assert terminal.end() == 130
    assert linkspan("whoami").status == 0


@pytest.mark.parametrize("url", ["nonsense", "file:///etc/passwd", "javascript:alert(1)", "https://", "http://[x/mcp"])
def test_what_is_no_url_of_a_server_is_a_wrong_command_line(linkspan: Shell, url: str) -> None:
    for verb in ("login", "logout", "whoami"):
        done = linkspan(verb, url)
        assert done.status == 2
        assert "not the URL of a server" in done.err


def test_client_metadata_prints_the_document_to_host(linkspan: Shell) -> None:
    found = linkspan("client-metadata", "https://example.com/linkspan.json", "--name", "Desk", "--port", "8123").json
    assert found["client_id"] == "https://example.com/linkspan.json"
    assert found["client_name"] == "Desk"
    assert found["redirect_uris"] == ["http://127.0.0.1:8123/callback"]
    assert "refresh_token" in found["grant_types"]
    assert linkspan("client-metadata", "http://example.com/linkspan.json").status == 2
