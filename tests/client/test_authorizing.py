"""Clients that log in: who waits for whom, for how long, and what a login may contact."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from faces import outcome, wait_until

from linkspan import (
    AuthorizationError,
    Client,
    ClientCall,
    ClientError,
    ConnectError,
    InsufficientScope,
    LoginRequired,
    LoginTimeout,
    Server,
    SyncClient,
    Timeouts,
)
from linkspan.auth import ApiKeys, ClientCredentials, OAuth, Protected
from linkspan.auth.verifying import Grant
from linkspan.cli.forms import PersonAtTerminal
from linkspan.client import authorizing
from linkspan.client.callback import CallbackReceiver
from linkspan.client.transports.http_guarded import GuardedHttp
from linkspan.client.vault import Vault
from linkspan.testing import TranscriptWriter
from login_site import Site, login_site, visit
from over_http import serving
from ports import reserve_port

BOTH = pytest.mark.parametrize("face", ["sync", "async"])


@pytest.fixture(autouse=True)
def empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def only_site() -> Iterator[Site]:
    with login_site() as found:
        yield found


@pytest.fixture
def site(only_site: Site) -> Site:
    only_site.begin_anew()
    authorizing._accesses.clear()  # as in a new process
    return only_site


class Person:
    """Logs in when `may` is set; `asked` is set as soon as there is something to do."""

    def __init__(self) -> None:
        self.asked, self.may = threading.Event(), threading.Event()
        self.urls: list[str] = []

    def __call__(self, url: str) -> str | None:
        self.urls.append(url)
        self.asked.set()
        assert self.may.wait(30)
        return visit(url)


@BOTH
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_client_logs_in_once_and_its_calls_carry_the_token(site: Site, face: str, era: Any) -> None:
    auth = OAuth(open_url=visit)
    answer = outcome(face, site.url, lambda client: client.call_tool("who"), auth=auth, era=era)
    assert answer.text == "Bearer the-secret-token-1"
    assert (site.seen["/authorize"], site.seen["refused"]) == (1, 1)


@BOTH
def test_the_next_process_and_a_client_without_auth_use_the_login_that_is_stored(site: Site, face: str) -> None:
    outcome(face, site.url, lambda client: client.call_tool("who"), auth=OAuth(open_url=visit))
    answer = outcome(face, site.url, lambda client: client.call_tool("who"))
    assert answer.text == "Bearer the-secret-token-1"
    assert (site.seen["/authorize"], site.seen["refused"]) == (1, 1), "it was sent from the first request on"


class Keeper:
    """Keeps logins in memory."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, ...], bytes] = {}

    def load(self, key: tuple[str, ...]) -> bytes | None:
        return self.entries.get(key)

    def save(self, key: tuple[str, ...], value: bytes | None) -> None:
        if value is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = value


@BOTH
def test_a_program_keeps_its_logins_and_receives_the_browser_by_itself(site: Site, tmp_path: Path, face: str) -> None:
    auth = OAuth(open_url=visit, redirect_uri="http://localhost:1/came", logins=Keeper())
    for _ in range(2):
        answer = outcome(face, site.url, lambda client: client.call_tool("who"), auth=auth)
        assert answer.text == "Bearer the-secret-token-1"
        authorizing._accesses.clear()  # as in a new process
    assert [each["redirect_uri"] for each in site.asked] == ["http://localhost:1/came"]
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize("more", [{}, {"open_url": visit, "redirect_port": 1}, {"open_url": visit, "device": True}])
def test_a_redirect_uri_goes_with_a_function_that_returns_where_the_browser_came(more: Any) -> None:
    with pytest.raises(ValueError, match="redirect_uri= needs open_url="):
        OAuth(redirect_uri="http://localhost:1/came", **more)


@BOTH
def test_without_auth_and_a_stored_login_it_says_at_once_which_command_to_run(site: Site, face: str) -> None:
    with pytest.raises(LoginRequired) as caught:
        outcome(face, site.url, lambda client: client.list_tools())
    assert f"linkspan login {site.url}" in (caught.value.hint or "")
    assert caught.value.phase == "authorize"
    assert site.seen["/authorize"] == 0


def test_twenty_parallel_calls_meet_one_401_and_cause_one_login(site: Site) -> None:
    async def on_a_loop() -> set[str]:
        async with asyncio.timeout(30):
            client = Client(site.url, auth=OAuth(open_url=visit))
            answers = await asyncio.gather(*(client.call_tool("who") for _ in range(20)))
            await client.close()
            return {each.text for each in answers}

    assert asyncio.run(on_a_loop()) == {"Bearer the-secret-token-1"}
    assert (site.seen["/authorize"], site.seen["refused"]) == (1, 1)


@BOTH
def test_calls_whose_token_was_revoked_share_one_new_login(site: Site, face: str) -> None:
    def again(client: SyncClient) -> set[str]:
        client.call_tool("who")
        site.tokens.clear()
        site.refresh_tokens.clear()
        with ThreadPoolExecutor(20) as pool:
            return {each.text for each in pool.map(lambda _: client.call_tool("who"), range(20))}

    async def again_on_a_loop() -> set[str]:
        async with Client(site.url, auth=OAuth(open_url=visit)) as client:
            await client.call_tool("who")
            site.tokens.clear()
            site.refresh_tokens.clear()
            return {each.text for each in await asyncio.gather(*(client.call_tool("who") for _ in range(20)))}

    if face == "async":
        assert asyncio.run(again_on_a_loop()) == {"Bearer the-secret-token-2"}
    else:
        with SyncClient(site.url, auth=OAuth(open_url=visit)) as client:
            assert again(client) == {"Bearer the-secret-token-2"}
    assert site.seen["/authorize"] == 2


@BOTH
def test_the_deadlines_of_calls_and_of_the_negotiation_stand_still_while_a_person_logs_in(
    site: Site, face: str
) -> None:
    person = Person()
    timeouts = Timeouts(connect=2.0, probe=1.5, list=2.0, call=2.0, total=2.0)
    threading.Thread(target=lambda: (person.asked.wait(30), time.sleep(2.5), person.may.set()), daemon=True).start()
    answer = outcome(
        face, site.url, lambda client: client.call_tool("who"), auth=OAuth(open_url=person), timeouts=timeouts
    )
    assert answer.text == "Bearer the-secret-token-1"
    assert site.seen["refused"] == 1, "nothing was sent beside the probe"


@BOTH
def test_a_step_up_in_the_middle_of_a_session_takes_none_of_the_time_of_the_call(site: Site, face: str) -> None:
    site.needs = {"write": "files:write"}
    person = Person()
    person.may.set()
    calls: list[str] = []

    def slowly(url: str) -> str | None:
        calls.append(url)
        if len(calls) > 1:
            time.sleep(2.5)
        return visit(url)

    def step(client: Any) -> Any:
        return client.call_tool("write", {"text": "x"}, timeout=2.0, total=2.0)

    assert outcome(face, site.url, step, auth=OAuth(open_url=slowly)).text == "x"
    assert site.seen["/authorize"] == 2


def test_calls_with_a_token_go_on_while_another_waits_for_more_rights(site: Site) -> None:
    site.needs = {"write": "files:write"}
    person = Person()
    person.may.set()
    with SyncClient(site.url, auth=OAuth(open_url=person)) as client, ThreadPoolExecutor(1) as pool:
        client.call_tool("who")
        person.may.clear()
        person.asked.clear()
        waiting = pool.submit(client.call_tool, "write", {"text": "x"})
        assert person.asked.wait(30)
        assert client.call_tool("who").text == "Bearer the-secret-token-1"
        person.may.set()
        assert waiting.result(30).text == "x"


def test_a_login_that_is_not_finished_ends_with_its_url(site: Site) -> None:
    person = Person()
    with (
        pytest.raises(LoginTimeout) as caught,
        SyncClient(site.url, auth=OAuth(open_url=person), timeouts=Timeouts(login=0.2)) as client,
    ):
        client.call_tool("who")
    assert person.asked.wait(30)
    person.may.set()
    assert caught.value.login_url == person.urls[0]
    assert caught.value.seconds == 0.2


def test_a_cancelled_call_leaves_the_login_to_the_others(site: Site) -> None:
    person = Person()

    async def run() -> str:
        async with asyncio.timeout(30):
            client = Client(site.url, auth=OAuth(open_url=person))
            first = asyncio.create_task(client.call_tool("who"))
            second = asyncio.create_task(client.call_tool("who"))
            await asyncio.to_thread(person.asked.wait, 30)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            person.may.set()
            found = await second
            await client.close()
            return found.text

    assert asyncio.run(run()) == "Bearer the-secret-token-1"
    assert len(person.urls) == 1


def test_a_call_cancelled_in_mid_session_leaves_the_login_to_the_others(site: Site) -> None:
    person = Person()
    person.may.set()

    async def run() -> str:
        async with asyncio.timeout(30), Client(site.url, auth=OAuth(open_url=person)) as client:
            site.tokens.clear()
            site.refresh_tokens.clear()
            person.may.clear()
            person.asked.clear()
            first = asyncio.create_task(client.call_tool("who"))
            await asyncio.to_thread(person.asked.wait, 30)
            second = asyncio.create_task(client.call_tool("who"))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            person.may.set()
            return (await second).text

    assert asyncio.run(run()) == "Bearer the-secret-token-2"
    assert len(person.urls) == 2


def test_a_login_that_fails_is_tried_once_for_all_that_wait(site: Site) -> None:
    asked: list[str] = []

    def refuse(url: str) -> str:
        asked.append(url)
        time.sleep(0.1)
        state = url.partition("state=")[2].partition("&")[0]
        return f"http://127.0.0.1/callback?error=access_denied&state={state}&iss={site.base}"

    async def run() -> list[Any]:
        async with asyncio.timeout(30):
            client = Client(site.url, auth=OAuth(open_url=refuse))
            found = await asyncio.gather(*(client.call_tool("who") for _ in range(5)), return_exceptions=True)
            await client.close()
            return found

    assert [type(each) for each in asyncio.run(run())] == [AuthorizationError] * 5
    assert len(asked) == 1


def test_a_login_for_which_there_is_no_thread_fails_and_the_next_one_is_not_held_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "linkspan-login":
            monkeypatch.setattr(threading.Thread, "start", start)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    auth = OAuth(open_url=visit)
    with pytest.raises(ConnectError, match="can't start new thread"), SyncClient(site.url, auth=auth):
        pass
    with SyncClient(site.url, auth=auth, timeouts=Timeouts(connect=10)) as client:
        assert client.call_tool("who").text == "Bearer the-secret-token-1"


def test_a_login_whose_connections_cannot_be_closed_holds_nothing_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = GuardedHttp.close

    def fail(guarded: GuardedHttp) -> None:
        monkeypatch.setattr(GuardedHttp, "close", close)
        raise OSError("bad descriptor")

    monkeypatch.setattr(GuardedHttp, "close", fail)
    with SyncClient(site.url, auth=OAuth(open_url=visit), timeouts=Timeouts(connect=10)) as client:
        assert client.call_tool("who").text == "Bearer the-secret-token-1"


def test_each_client_waits_for_a_person_as_long_as_its_own_timeouts_allow(site: Site) -> None:
    auth = OAuth(open_url=lambda url: None)
    for seconds in (0.05, 0.1):
        with pytest.raises(LoginTimeout) as caught, SyncClient(site.url, auth=auth, timeouts=Timeouts(login=seconds)):
            pass
        assert caught.value.seconds == seconds


def test_two_clients_with_one_identity_share_one_login(site: Site) -> None:
    person = Person()
    auth = OAuth(open_url=person)
    with ThreadPoolExecutor(2) as pool:
        clients = [SyncClient(site.url, auth=auth) for _ in range(2)]
        calls = [pool.submit(each.call_tool, "who") for each in clients]
        assert person.asked.wait(30)
        person.may.set()
        assert {each.result(30).text for each in calls} == {"Bearer the-secret-token-1"}
        for each in clients:
            each.close()
    assert len(person.urls) == 1


@BOTH
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_call_can_be_made_as_another_and_what_is_kept_is_apart(site: Site, face: str, era: Any) -> None:
    other = ClientCredentials("robot", "a-secret-of-the-robot")
    with SyncClient(site.url, auth=OAuth(open_url=visit), era=era) as client:
        assert client.call_tool("who").text == "Bearer the-secret-token-1"
        assert client.call_tool("who", auth=other).text == "Bearer the-secret-token-2"
        assert client.call_tool("who", auth=ClientCredentials("robot", "a-secret-of-the-robot")).text == (
            "Bearer the-secret-token-2"
        )
        assert client.call_tool("who").text == "Bearer the-secret-token-1"
    assert site.seen["client_credentials"] == 1


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_the_identity_of_a_call_counts_before_the_headers_of_its_client(site: Site, era: Any) -> None:
    robot = ClientCredentials("robot", "a-secret-of-the-robot")
    mine = OAuth(open_url=visit)
    with SyncClient(site.url, auth=mine) as client:
        token = client.call_tool("who").text
    assert token == "Bearer the-secret-token-1"
    with SyncClient(site.url, headers={"Authorization": token}, era=era) as client:
        assert client.call_tool("who").text == token
        assert client.call_tool("who", auth=robot, headers={"Authorization": token}).text == "Bearer the-secret-token-2"
        assert client.call_tool("who").text == token


def test_middleware_sees_no_header_for_an_identity_and_may_send_one_in_its_place(site: Site) -> None:
    robot = ClientCredentials("robot", "a-secret-of-the-robot")
    seen: list[dict[str, str]] = []
    other: dict[str, str] = {}

    def watch(call: ClientCall) -> Any:
        seen.append(dict(call.headers))
        return (yield call.replace(headers=other) if other else call)

    with SyncClient(site.url, auth=OAuth(open_url=visit), middleware=[watch]) as client:
        mine = client.call_tool("who").text
        assert client.call_tool("who", auth=robot).text == "Bearer the-secret-token-2"
        other["Authorization"] = mine
        assert client.call_tool("who", auth=robot).text == mine
    assert seen == [{}, {}, {}]


def test_closing_a_session_begins_no_login(site: Site) -> None:
    person = Person()
    person.may.set()
    with SyncClient(site.url, auth=OAuth(open_url=person), era="legacy") as client:
        client.call_tool("who")
        site.tokens.clear()
        site.refresh_tokens.clear()
    assert len(person.urls) == 1


def test_an_expired_token_is_refreshed_before_it_is_sent(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    later, now = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: now() + later[0])
    with SyncClient(site.url, auth=OAuth(open_url=visit)) as client:
        assert client.call_tool("who").text == "Bearer the-secret-token-1"
        later[0] = 3600.0 - 59.0
        with ThreadPoolExecutor(8) as pool:
            answers = {each.text for each in pool.map(lambda _: client.call_tool("who"), range(8))}
    assert answers == {"Bearer the-secret-token-2"}
    assert (site.seen["refused"], site.seen["refresh_token"], site.seen["/authorize"]) == (1, 1, 1)


def test_a_token_that_lives_shortly_is_used_all_the_same(site: Site) -> None:
    site.expires_in = 5
    with SyncClient(site.url, auth=OAuth(open_url=visit)) as client:
        assert client.call_tool("who").text == client.call_tool("who").text


def test_endless_403_ends_with_the_scopes_that_are_missing(site: Site) -> None:
    site.needs = {"write": "files:write"}
    person = Person()
    person.may.set()

    def forget_scopes(url: str) -> str | None:
        for each in site.tokens.values():
            each.clear()
        return person(url.replace("files%3Awrite", ""))

    with (
        SyncClient(site.url, auth=OAuth(open_url=forget_scopes)) as client,
        pytest.raises(InsufficientScope) as caught,
    ):
        client.call_tool("write", {"text": "x"})
    assert caught.value.scopes == ("files:write",)
    assert len(person.urls) <= 3


def test_secrets_are_in_no_recording_no_log_and_no_error(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    site.needs = {"write": "never:given"}
    recording = tmp_path / "recording.transcript"
    with recording.open("w") as file:
        recorder = TranscriptWriter(file)
        errors: list[ClientError] = []
        with SyncClient(
            site.url, auth=ClientCredentials("robot", "a-secret-of-the-robot"), recorder=recorder
        ) as client:
            client.list_tools()
            try:
                client.call_tool("write", {"text": "x"})
            except ClientError as error:
                errors.append(error)
    out, err = capfd.readouterr()
    shown = "".join([recording.read_text(), caplog.text, out, err, *map(str, errors), *map(repr, errors)])
    assert "the-secret-token" not in shown
    assert "a-secret-of-the-robot" not in shown


def test_a_client_without_a_login_loads_nothing_of_it(site: Site) -> None:
    code = """
import sys
from linkspan import SyncClient
from linkspan.testing import *
sys.path.insert(0, "tests")
from over_http import serving
from linkspan import Server
with serving(Server("open").asgi(path="/mcp")) as url:
    SyncClient(url).list_tools()
print([each for each in sys.modules if each.startswith(("linkspan.auth", "joserfc", "keyring", "webbrowser"))])
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout == "[]\n"


# What a login may contact.


@pytest.mark.parametrize("port", [None, 65000])
def test_a_port_that_cannot_be_listened_on_is_named_once(
    site: Site, monkeypatch: pytest.MonkeyPatch, port: int | None
) -> None:
    def taken(receiver: CallbackReceiver, port: int | None = None) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(CallbackReceiver, "__init__", taken)
    auth = OAuth(open_url=visit, redirect_port=port)
    with pytest.raises(AuthorizationError) as caught, SyncClient(site.url, auth=auth):
        pass
    place = "any port" if port is None else "port 65000"
    assert caught.value.problem == (
        f"the login has no redirect URI: cannot listen on {place} of 127.0.0.1: Address already in use"
    )
    assert caught.value.hint == (None if port is None else "pass another redirect_port= [LS-406]")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Addresses of names, in the order in which they are given; the last one again and again."""
    known: dict[str, list[str]] = {}
    system = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in known:
            addresses = known[name]
            return system(addresses.pop(0) if len(addresses) > 1 else addresses[0], *arguments, **options)
        return system(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "fd00::1"])
def test_a_host_that_only_the_server_names_may_not_have_a_private_address(
    site: Site, names: dict[str, list[str]], address: str
) -> None:
    names["inside.example"] = [address]
    site.metadata = {"token_endpoint": "https://inside.example/token"}
    with pytest.raises(AuthorizationError) as caught, SyncClient(site.url, auth=OAuth(open_url=visit)) as client:
        client.call_tool("who")
    assert "private network" in str(caught.value)


def test_dns_rebinding_leads_nowhere_because_the_address_is_checked_that_is_connected_to(
    site: Site, names: dict[str, list[str]]
) -> None:
    names["inside.example"] = ["93.184.216.34", "10.0.0.1"]
    socket.getaddrinfo("inside.example", 443)  # the attacker's first answer, to whoever looks first
    site.metadata = {"token_endpoint": "https://inside.example/token"}
    with pytest.raises(AuthorizationError) as caught, SyncClient(site.url, auth=OAuth(open_url=visit)) as client:
        client.call_tool("who")
    assert "private network" in str(caught.value)


def test_a_redirect_of_the_metadata_to_another_origin_is_not_followed(site: Site) -> None:
    with login_site() as other:
        answer = site.answer

        def redirect(path: str, query: Any, body: bytes) -> Any:
            if path == "/.well-known/oauth-authorization-server":
                return 302, {"location": f"{other.base}{path}"}, None
            return answer(path, query, body)

        site.answer = redirect
        with pytest.raises(AuthorizationError), SyncClient(site.url, auth=OAuth(open_url=visit)) as client:
            client.call_tool("who")
        assert not other.seen


def test_a_redirect_of_the_token_endpoint_is_not_followed(site: Site) -> None:
    answer = site.answer

    def redirect(path: str, query: Any, body: bytes) -> Any:
        return (307, {"location": f"{site.base}/elsewhere"}, None) if path == "/token" else answer(path, query, body)

    site.answer = redirect
    with pytest.raises(AuthorizationError), SyncClient(site.url, auth=OAuth(open_url=visit)) as client:
        client.call_tool("who")
    assert site.seen["/elsewhere"] == 0


def test_huge_metadata_are_not_read_to_their_end(site: Site) -> None:
    site.metadata = {"padding": "x" * (2 << 20)}
    with pytest.raises(AuthorizationError) as caught, SyncClient(site.url, auth=OAuth(open_url=visit)) as client:
        client.call_tool("who")
    assert "larger than 1048576 bytes" in str(caught.value)


def test_what_is_stored_holds_the_login_and_no_file_of_it_is_readable_by_others(site: Site, tmp_path: Path) -> None:
    outcome("sync", site.url, lambda client: client.call_tool("who"), auth=OAuth(open_url=visit))
    kept = Vault().all_keys()
    assert {key[0] for key in kept} == {"server", "grant", "registration"}
    for each in (tmp_path / "linkspan" / "logins").iterdir():
        assert each.stat().st_mode & 0o077 == 0


def test_what_is_no_identity_is_refused(site: Site) -> None:
    with pytest.raises(ValueError, match="must be a bearer token"):
        SyncClient(site.url, auth=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be a bearer token"):
        SyncClient(site.url).call_tool("who", auth=object())  # type: ignore[arg-type]


def test_nothing_of_a_login_stays_behind(site: Site) -> None:
    with SyncClient(site.url, auth=OAuth(open_url=visit)) as client:
        client.call_tool("who")
    wait_until(
        lambda: not [each for each in threading.enumerate() if each.name in ("linkspan-login", "linkspan-callback")]
    )


def test_a_wrong_key_in_a_header_of_its_own_is_named(site: Site) -> None:
    with (
        pytest.raises(AuthorizationError, match="the API key is wrong: the server refuses that in x-api-key") as caught,
        SyncClient(site.url, headers={"x-api-key": "no-such-key"}) as client,
    ):
        client.call_tool("who")
    assert not isinstance(caught.value, LoginRequired)
    assert caught.value.hint == f"pass the right one in headers=, or log in with `linkspan login {site.url}` [LS-418]"
    assert "no-such-key" not in str(caught.value)


def test_a_wrong_key_is_named_where_nobody_can_log_in(site: Site) -> None:
    """The server has keys and nothing to log in at, so that a person who is there cannot do it either."""
    keys = ApiKeys({"a" * 64: Grant(issuer="keys", subject="ann")}, header="x-api-key")
    server = Server("with-keys", auth=Protected("https://api.example.com/mcp", verify=keys))
    opened: list[str] = []
    with (
        serving(server.asgi(path="/mcp")) as url,
        pytest.raises(AuthorizationError, match="the API key is wrong"),
        SyncClient(url, headers={"x-api-key": "no-such-key"}, auth=OAuth(open_url=opened.append)) as client,
    ):
        client.ping()
    assert opened == []


def test_what_is_wrong_with_a_stored_login_is_said_and_a_header_does_not_hide_it(site: Site) -> None:
    with SyncClient(site.url, auth=OAuth(open_url=visit)) as client:
        client.ping()
    site.needs = {"write": "files:write"}
    with (
        SyncClient(site.url, headers={"x-trace-token": "1"}) as client,
        pytest.raises(LoginRequired, match="tools/call write needs files:write"),
    ):
        client.call_tool("write", {"text": "x"})


@pytest.mark.parametrize("shows", ["the client", "the command line"])
def test_a_login_that_waits_says_what_for(site: Site, monkeypatch: pytest.MonkeyPatch, shows: str) -> None:
    """The browser may show an error page of the authorization server, from which nothing comes back."""
    shown: list[str] = []

    def show(text: str) -> None:
        shown.append(text)
        if text.startswith("Still waiting"):
            back = visit(text.rpartition("\n")[2])
            assert back is not None
            visit(back)

    monkeypatch.setattr(authorizing, "_REMINDER", 0.05)
    monkeypatch.setattr(authorizing, "_print", show)
    monkeypatch.setattr("linkspan.client.callback.can_open_browser", lambda: False)
    auth = OAuth() if shows == "the client" else OAuth(open_url=PersonAtTerminal(show))
    with SyncClient(site.url, auth=auth, timeouts=Timeouts(login=60)) as client:
        client.ping()
    assert len(shown) == 2
    assert re.match(
        r"Still waiting, for 59.95 s at most, until the browser comes back to http://127.0.0.1:\d+", shown[1]
    )


def test_a_login_page_that_is_refused_to_a_client_is_named_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser shows an error page, of a client or a redirect URI that was written wrong."""
    shown: list[str] = []
    answer = site.answer

    def refuse_pages(path: str, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], Any]:
        if path == "/authorize":
            return 400, {}, {"error": "invalid_request", "error_description": "redirect_uri is not registered"}
        return answer(path, query, body)

    site.answer = refuse_pages
    monkeypatch.setattr(authorizing, "_print", shown.append)
    monkeypatch.setattr("linkspan.client.callback.can_open_browser", lambda: False)
    auth = OAuth(client_id="desk", redirect_port=reserve_port())
    with pytest.raises(LoginTimeout), SyncClient(site.url, auth=auth, timeouts=Timeouts(login=0.2)) as client:
        client.ping()
    assert shown[1:] == [
        f"{site.base} refuses the login page (invalid_request: redirect_uri is not registered). It may not know the client "
        f"'desk', or not with the redirect URI http://127.0.0.1:{auth.redirect_port}/callback: correct that, and log in again"
    ]


def test_a_program_that_shows_the_login_itself_gets_no_line_of_ours(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def slowly(url: str) -> str | None:
        reminded.wait(0.2)
        return visit(url)

    reminded = threading.Event()
    monkeypatch.setattr(authorizing, "_REMINDER", 0.01)
    monkeypatch.setattr(authorizing, "_print", shown.append)
    with SyncClient(site.url, auth=OAuth(open_url=slowly)) as client:
        client.ping()
    assert shown == []


@pytest.mark.parametrize("complete", [True, False])
def test_a_login_on_another_device_shows_the_complete_address(
    site: Site, monkeypatch: pytest.MonkeyPatch, complete: bool
) -> None:
    shown: list[str] = []
    place = f"{site.base}/device"
    answer = site.answer

    def with_a_device(path: str, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], Any]:
        if path != "/device_authorization":
            return answer(path, query, body)
        found = {
            "device_code": "d",
            "user_code": "WDJB-MJHT",
            "verification_uri": place,
            "expires_in": 1,
            "interval": 999,
        }
        return 200, {}, {**found, **({"verification_uri_complete": f"{place}?code=WDJB-MJHT"} if complete else {})}

    site.metadata = {"device_authorization_endpoint": f"{site.base}/device_authorization"}
    site.answer = with_a_device
    monkeypatch.setattr(authorizing, "_print", shown.append)
    with SyncClient(site.url, auth=OAuth(device=True)) as client:
        client.ping()
    more = f" (or open {place}?code=WDJB-MJHT)" if complete else ""
    assert shown == [f"Open {place} on any device and enter the code WDJB-MJHT{more}"]
