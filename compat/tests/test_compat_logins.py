"""Logins of client programs, at a server and an issuer of this process."""

import asyncio
import subprocess
import sys
from urllib.parse import parse_qs, urlsplit

import pytest

from login_site import login_site, visit

REDIRECT = "http://localhost:3030/callback"


@pytest.fixture(scope="module")
def site():
    with login_site() as found:
        yield found


@pytest.fixture(autouse=True)
def no_logins(tmp_path, monkeypatch):
    """Keep nothing among the logins of this user."""
    from linkspan.client import authorizing

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    authorizing._accesses.clear()  # as in a new process


class Storage:
    """What a program keeps, and what it was asked for."""

    def __init__(self):
        self.tokens = self.client = None
        self.kept = []

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.kept.append("tokens")
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.kept.append("client")
        self.client = client_info


class Person:
    """Follows the URL as a browser would, on the loop of the program."""

    def __init__(self):
        self.shown = []
        self.came = asyncio.Queue()

    async def redirect(self, url):
        self.shown.append(parse_qs(urlsplit(url).query))
        await self.came.put(await asyncio.to_thread(visit, url))

    async def callback(self):
        query = parse_qs(urlsplit(await self.came.get()).query)
        return query["code"][0], query["state"][0], query["iss"][0]


def provider(site, storage, person):
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    metadata = OAuthClientMetadata(client_name="Program", redirect_uris=[REDIRECT], scope="user")
    return OAuthClientProvider(site.url, metadata, storage, person.redirect, person.callback)


async def who(site, streams):
    from mcp import ClientSession

    async with streams as found, ClientSession(found[0], found[1]) as session:
        await session.initialize()
        return (await session.call_tool("who", {})).content[0].text


@pytest.mark.parametrize("flavour", ["mcp1", "mcp2"])
def test_a_program_logs_in_and_keeps_the_login(flavour, site, request):
    request.getfixturevalue(flavour)
    import httpx
    from mcp.client.streamable_http import streamable_http_client, streamablehttp_client
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

    site.begin_anew()

    async def program():
        storage, person = Storage(), Person()
        auth = provider(site, storage, person)
        if flavour == "mcp1":
            first = await who(site, streamablehttp_client(site.url, auth=auth))
        else:
            first = await who(site, streamable_http_client(site.url, http_client=httpx.AsyncClient(auth=auth)))
        assert storage.kept == ["client", "tokens"]
        assert person.shown[0]["redirect_uri"] == [REDIRECT]
        assert (storage.client.client_id, storage.client.client_name) == ("registered", "Program")
        assert first == f"Bearer {storage.tokens.access_token}"
        storage.tokens = OAuthToken.model_validate_json(storage.tokens.model_dump_json())
        storage.client = OAuthClientInformationFull.model_validate_json(storage.client.model_dump_json())
        again = await who(site, streamablehttp_client(site.url, auth=provider(site, storage, person)))
        assert again == first
        assert len(person.shown) == 1

    asyncio.run(program())
    assert site.seen["authorization_code"] == 1


def test_a_registration_in_the_storage_is_used(mcp1, site):
    from mcp.client.streamable_http import streamablehttp_client
    from mcp.shared.auth import OAuthClientInformationFull

    site.begin_anew()

    async def program():
        storage, person = Storage(), Person()
        storage.client = OAuthClientInformationFull(client_id="by-hand", redirect_uris=[REDIRECT])
        await who(site, streamablehttp_client(site.url, auth=provider(site, storage, person)))
        assert person.shown[0]["client_id"] == ["by-hand"]
        assert storage.kept == ["tokens"]

    asyncio.run(program())
    assert site.seen["/register"] == 0


def test_tokens_of_another_sdk_are_named_and_not_used(mcp1, site, caplog):
    from mcp.client.streamable_http import streamablehttp_client
    from mcp.shared.auth import OAuthToken

    site.begin_anew()

    async def program():
        storage, person = Storage(), Person()
        storage.tokens = OAuthToken(access_token="old", token_type="Bearer")
        await who(site, streamablehttp_client(site.url, auth=provider(site, storage, person)))
        assert len(person.shown) == 1

    asyncio.run(program())
    assert "log in once more" in caplog.text


def test_a_program_with_a_secret_of_its_own_logs_in(mcp1, site):
    from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
    from mcp.client.streamable_http import streamablehttp_client

    site.begin_anew()
    auth = ClientCredentialsOAuthProvider(site.url, Storage(), "desk", "secret", scopes="user")
    assert asyncio.run(who(site, streamablehttp_client(site.url, auth=auth))).startswith("Bearer ")
    assert site.seen["client_credentials"] == 1


def test_oauth_of_fastmcp_is_that_of_linkspan(fast):
    from fastmcp.client.auth import OAuth

    from linkspan.auth import OAuth as LinkspanOAuth
    from linkspan_compat.errors import NotServed

    found = OAuth(scopes="read write", client_id="desk", callback_port=3030).identity()
    assert found == LinkspanOAuth(
        scopes=["read", "write"], client_id="desk", redirect_port=3030, client_name="FastMCP Client"
    )
    with pytest.raises(NotServed, match="token_storage"):
        OAuth(token_storage=object())


PROGRAM = """
import asyncio, sys
sys.modules["httpx"] = None  # mcp 2 brings httpx2 alone
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import parse_qs, urlsplit
import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

class Storage:
    tokens = client = None
    async def get_tokens(self): return self.tokens
    async def set_tokens(self, tokens): self.tokens = tokens
    async def get_client_info(self): return self.client
    async def set_client_info(self, client_info): self.client = client_info

def visit(url):
    parts = urlsplit(url)
    with closing(HTTPConnection(parts.netloc, timeout=10)) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}")
        with connection.getresponse() as response:
            return response.headers["location"]

async def main(url, mode):
    storage, came = Storage(), asyncio.Queue()
    async def redirect(page): await came.put(await asyncio.to_thread(visit, page))
    async def callback():
        query = parse_qs(urlsplit(await came.get()).query)
        return AuthorizationCodeResult(code=query["code"][0], state=query["state"][0], iss=query["iss"][0])
    metadata = OAuthClientMetadata(client_name="Program", redirect_uris=["http://localhost:3030/callback"], scope="user")
    login = OAuthClientProvider(url, metadata, storage, redirect, callback)
    async with Client(streamable_http_client(url, http_client=httpx2.AsyncClient(auth=login)), mode=mode) as client:
        found = await client.call_tool("who", {})
        print([each.name for each in (await client.list_tools()).tools])
        print(found.content[0].text == f"Bearer {storage.tokens.access_token}", storage.client.client_id, came.qsize())

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("runner", [[], ["-m", "linkspan", "exec"]], ids=["official", "served"])
def test_the_client_of_mcp_2_logs_in(runner, mode, site, tmp_path):
    for needed in ("httpx2", "mcp.client.auth"):
        pytest.importorskip(needed)
    site.begin_anew()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, *runner, str(program), site.url, mode],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("['who', 'write']\nTrue registered 0\n", 0), done.stderr
    assert site.seen["authorization_code"] == 1
