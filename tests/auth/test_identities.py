"""What `auth=` takes: values that are checked when they are made, and that show no secret."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from linkspan.auth import ClientCredentials, Enterprise, OAuth, WorkloadIdentity
from linkspan.flows.client_errors import NO_ORIGIN, InsufficientScope, LoginTimeout


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: OAuth(scopes="files:read"), "scopes= must be a list"),
        (lambda: OAuth(scopes=["files:read files:write"]), "pass each scope by itself"),
        (lambda: OAuth(scopes=['"']), "invalid scope"),
        (lambda: OAuth(hosts="idp.corp"), "hosts= must be a list"),
        (lambda: OAuth(issuer="idp.corp"), "issuer= must be an http or https URL"),
        (lambda: OAuth(client_secret="s3cret"), "client_secret= needs the client_id="),
        (lambda: OAuth(client_metadata_url="http://c.example/c"), "https URL with a path"),
        (lambda: OAuth(client_metadata_url="https://c.example/"), "https URL with a path"),
        (lambda: OAuth(redirect_port=0), "redirect_port= must be from 1 to 65535"),
        (lambda: OAuth(resource="my files"), "resource= must be an absolute URI"),
        (lambda: OAuth(resource="https://mcp.example/mcp#part"), "resource= must be an absolute URI"),
        (lambda: ClientCredentials("id"), "either secret= or key="),
        (lambda: ClientCredentials("id", secret="s3cret", key="k"), "either secret= or key="),
        (lambda: Enterprise(idp="https://idp.corp", subject="TOKEN"), "needs the client_id="),
        (
            lambda: Enterprise(idp="https://idp.corp", subject="TOKEN", client_id="c", scopes="a b"),
            "scopes= must be a list",
        ),
        (lambda: Enterprise(idp="javascript:x", subject="TOKEN", client_id="c"), "idp= must be"),
    ],
)
def test_a_mistake_is_named_when_it_is_made(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert problem in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_equal_values_are_one_identity() -> None:
    assert OAuth(scopes=["a"]) == OAuth(scopes=("a",))
    assert len({OAuth(scopes=["a"]), OAuth(scopes=("a",)), OAuth(account="x")}) == 2


def test_no_secret_is_in_a_repr() -> None:
    made = [
        OAuth(client_id="c", client_secret="s3cret"),
        ClientCredentials("c", secret="s3cret"),
        ClientCredentials("c", key="s3cret"),
        Enterprise(
            idp="https://i", subject="ID_TOKEN", client_id="c", client_secret="s3cret", idp_client_secret="s3cret"
        ),
    ]
    assert "s3cret" not in repr(made)
    assert repr(made[1]) == "ClientCredentials(client_id='c', secret='[redacted]')"
    assert [each.secrets()[0] for each in made] == ["s3cret"] * 4
    assert repr(WorkloadIdentity("/var/run/token")) == "WorkloadIdentity(assertion='/var/run/token')"


def test_importing_the_values_loads_no_crypto_and_no_network() -> None:
    code = "import sys; from linkspan.auth import OAuth; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"cryptography", "joserfc", "hashlib", "socket", "asyncio", "http.client"} & set(loaded)


def test_each_waiting_call_gets_an_error_of_its_own() -> None:
    errors = [
        InsufficientScope("x", NO_ORIGIN, data=("files:write",)),
        LoginTimeout("x", NO_ORIGIN, data={"url": "https://a/authorize"}, seconds=300),
    ]
    copies = [each.again() for each in errors]
    assert isinstance(copies[0], InsufficientScope)
    assert copies[0].scopes == ("files:write",)
    assert copies[0].error is None
    assert isinstance(copies[1], LoginTimeout)
    assert copies[1].login_url == "https://a/authorize"
    assert isinstance(copies[1], TimeoutError)


def test_the_package_lists_its_names() -> None:
    import linkspan.auth

    assert {"OAuth", "ClientCredentials", "Protected"} <= {*dir(linkspan.auth)}


@pytest.mark.parametrize(
    "make",
    [
        OAuth,
        partial(ClientCredentials, "robot", secret="s"),
        partial(WorkloadIdentity, assertion=lambda issuer, endpoint: "jwt"),
        partial(Enterprise, idp="https://idp.example", subject="TOKEN", client_id="robot"),
    ],
)
@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"scopes": "a b"}, "scopes= must be a list"),
        ({"scopes": ["a b"]}, "invalid scope 'a b'"),
        ({"hosts": "a"}, "hosts= must be a list"),
        ({"issuer": "a.example"}, "issuer"),
    ],
)
def test_what_all_identities_have_is_checked_by_each(make: Any, wrong: dict[str, Any], problem: str) -> None:
    assert make().scopes == ()
    with pytest.raises(ValueError, match=problem):
        make(**wrong)
