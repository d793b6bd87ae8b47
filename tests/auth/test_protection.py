"""What an author writes, what a request carries, and what it is answered."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from linkspan import LinkspanError
from linkspan.auth import protection
from linkspan.auth.protection import BadCredentials, Credentials, Protected, metadata_places, metadata_url
from linkspan.auth.verifying import ApiKeys
from linkspan.revisions.neutral import Grant
from linkspan.wire.challenges import read_challenges
from tokens import ISSUER, RESOURCE, jwt

KEYS = ApiKeys({sha256(b"k").hexdigest(): Grant("keys", subject="ann")}, header="X-Api-Key")


def protected(resource: str | None = RESOURCE, **options: Any) -> Protected:
    return Protected(resource, **{"verify": jwt(), **options})


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({}, None),
        ({"authorization": "Bearer abc"}, Credentials("abc")),
        ({"authorization": "bEaReR abc"}, Credentials("abc")),
        ({"authorization": "DPoP abc", "dpop": "proof"}, Credentials("abc", "dpop", "proof")),
        ({"authorization": "Bearer abc", "dpop": "ignored"}, Credentials("abc")),
        ({"authorization": "Basic abc"}, None),
        ({"authorization": 'Digest username="a", realm="b"'}, None),
        ({"x-api-key": "any text?"}, Credentials("any text?", "key")),
    ],
)
def test_credentials_are_read(headers: dict[str, str], found: Credentials | None) -> None:
    assert protected(verify=[jwt(), KEYS]).credentials(headers, "") == found


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"authorization": "Bearer a, Bearer b"}, ""),
        ({"authorization": "Bearer a, Bearer a"}, ""),
        ({"authorization": "Basic a, Bearer b"}, ""),
        ({"authorization": "Bearer a b"}, ""),
        ({"authorization": "Bearer"}, ""),
        ({"authorization": "Bearer a,b"}, ""),
        ({"authorization": "DPoP a"}, ""),
        ({"authorization": "DPoP a", "dpop": "one, two"}, ""),
        ({"authorization": "Bearer a", "x-api-key": "k"}, ""),
        ({"x-api-key": "k, k"}, ""),
        ({}, "access_token=a"),
        ({"authorization": "Bearer a"}, "x=1&access%5Ftoken="),
    ],
)
def test_credentials_in_a_way_that_no_server_may_accept_are_a_bad_request(headers: dict[str, str], query: str) -> None:
    with pytest.raises(BadCredentials):
        protected(verify=[jwt(), KEYS]).credentials(headers, query)


def test_a_query_without_a_token_means_nothing() -> None:
    assert protected().credentials({"authorization": "Bearer abc"}, "q=1") == Credentials("abc")


def test_an_api_key_is_no_bearer_token_and_a_bearer_token_no_key() -> None:
    server = protected(verify=[jwt(), KEYS])
    assert server.verifiers_for(Credentials("k", "key")) == [KEYS]
    assert KEYS not in server.verifiers_for(Credentials("k"))
    assert set(server.secret_headers) == {"authorization", "dpop", "x-api-key"}


def test_a_challenge_without_a_token_has_no_error() -> None:
    (challenge,) = read_challenges(protected(scopes=["files:read"]).challenge("https://x/meta"))
    assert challenge.scheme == "bearer"
    assert challenge.parameters == {"resource_metadata": "https://x/meta", "scope": "files:read"}


def test_a_challenge_names_all_scopes_of_the_operation_at_once() -> None:
    text = protected(scopes=["base"]).challenge(
        None, error="insufficient_scope", description='a "b"\n', scopes=["x", "base"]
    )
    (challenge,) = read_challenges(text)
    assert challenge.parameters == {"error": "insufficient_scope", "error_description": "a 'b''", "scope": "base x"}


def test_where_keys_are_required_the_challenge_is_one_for_dpop() -> None:
    (challenge,) = read_challenges(protected(dpop="required").challenge(None))
    assert challenge.scheme == "dpop"
    assert "ES256" in challenge.parameters["algs"].split()


def test_scopes_imply_others_through_others() -> None:
    server = protected(implies={"admin": ["write"], "write": ["read", "admin"]})
    assert server.implied(["admin"]) == {"admin", "write", "read"}
    assert server.implied(["read"]) == {"read"}


def test_the_metadata_are_public() -> None:
    response = protected(scopes=["files:read"], name="Files").metadata(RESOURCE)
    assert response is not None
    assert ("access-control-allow-origin", "*") in response.headers
    document = json.loads(response.body)
    assert document.pop("dpop_signing_alg_values_supported")
    assert document == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["files:read"],
        "bearer_methods_supported": ["header"],
        "resource_name": "Files",
    }
    assert protected(verify=KEYS).metadata(RESOURCE) is None


def test_the_metadata_are_where_clients_look() -> None:
    assert metadata_places(RESOURCE) == (
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
    )
    assert metadata_url(RESOURCE, below=False) == "https://api.example.com/.well-known/oauth-protected-resource/mcp"
    assert metadata_url(RESOURCE, below=True) == "https://api.example.com/mcp/.well-known/oauth-protected-resource"
    assert metadata_url("https://h", below=False) == "https://h/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"resource": "http://api.example.com/mcp"}, "must be https"),
        ({"resource": "api.example.com"}, "must be the URL of the server"),
        ({"resource": "https://api.example.com/mcp#x"}, "must be the URL of the server"),
        ({"resource": "https://api.example.com/mcp?a=b"}, "must be the URL of the server"),
        ({"resource": "https://user@api.example.com/mcp"}, "must be the URL of the server"),
        ({"resource": "https://[api.example.com/mcp"}, "must be the URL of the server"),
        ({"resource": "https://api.example.com:port/mcp"}, "must be the URL of the server"),
        ({"verify": ()}, "which tokens are valid"),
        ({"scopes": "files:read"}, "must be a list"),
        ({"scopes": ["a b"]}, "must be a list"),
        ({"scopes": ["offline_access"]}, "leave it out"),
        ({"implies": {"a": "b"}}, "must be a list"),
        ({"dpop": "yes"}, "dpop must be"),
        ({"authorization_servers": ["login.example.com"]}, "authorization_servers must be a list of https URLs"),
        ({"authorization_servers": ["https://a.example", "http://b.example"]}, "authorization_servers must be"),
        ({"authorization_servers": "https://login.example.com"}, "authorization_servers must be a list"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        protected(**options)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1:8000", "[::1]:80"])
def test_on_loopback_a_server_needs_no_certificate(host: str) -> None:
    assert protected(f"http://{host}/mcp").resource == f"http://{host}/mcp"


def test_no_repr_shows_a_secret() -> None:
    from linkspan.auth.exchanging import TokenExchange
    from linkspan.auth.verifying import Introspection

    server = protected(
        verify=[Introspection(ISSUER, "me", "hunter2"), KEYS], exchange=TokenExchange(ISSUER, "me", "hunter2")
    )
    assert "hunter2" not in repr(server) + repr(server.exchange)


def suggested(scopes: dict[str, tuple[str, ...]], **options: Any) -> str | None:
    """Return the scopes in the line to write."""
    found = protected(**options).unnamed(scopes)
    return None if found is None else found.partition("scopes=[")[2].partition("]")[0]


def test_scopes_that_clients_are_not_told_of_are_a_line_to_write() -> None:
    assert protected().unnamed({"tool 'write'": ("files:write",)}) == (
        "the tool 'write' needs the scope files:write, but Protected(scopes=) is empty, so that clients do not know what to "
        "ask for at a login: write Protected('https://api.example.com/mcp', ..., scopes=['files:write']) with the scopes that "
        "every request needs [LS-614]"
    )
    several = protected(None).unnamed({"tool 'write'": ("a", "b"), "prompt 'p'": ("a",)})
    assert several is not None
    assert several.startswith("the tool 'write' needs the scope a b (and 1 more), but")
    assert "write Protected(..., scopes=['a']) with" in several


def test_the_scope_to_name_is_the_one_that_all_need_or_most() -> None:
    read, write = ("files:read",), ("files:write",)
    assert suggested({"a": read, "b": (*read, *write), "c": read}) == "'files:read'"
    assert suggested({"a": write, "b": read, "c": read}) == "'files:read'"
    assert suggested({"a": write, "b": read}, implies={"files:write": ["files:read"]}) == "'files:read'"
    assert suggested({"a": write}, implies={"files:write": ["files:read"]}) == "'files:write'"


def test_nothing_is_to_be_written_where_clients_know_what_to_ask_for() -> None:
    needed = {"tool 'write'": ("files:write",)}
    assert protected(scopes=["files:read"]).unnamed(needed) is None
    assert protected().unnamed({}) is None
    assert protected(verify=KEYS).unnamed(needed) is None, "there is no login"


def test_only_who_requires_proofs_needs_what_checks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise LinkspanError("it is not installed")

    monkeypatch.setattr(protection, "require_jose", missing)
    assert not Protected("https://api.example.com/mcp", verify=lambda _: None).dpop_required
    with pytest.raises(LinkspanError, match="it is not installed"):
        Protected("https://api.example.com/mcp", verify=lambda _: None, dpop="required")
