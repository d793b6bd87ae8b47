"""Which URLs and addresses a flow of authorization may be made to contact."""

from __future__ import annotations

import pytest

from linkspan.auth.metadata import covers, resource_metadata_urls, server_metadata_urls
from linkspan.auth.network import check_url, may_connect, was_named

REMOTE, LOCAL = "https://mcp.example.com/mcp", "http://localhost:8000/mcp"


@pytest.mark.parametrize("url", ["https://auth.example.com/x?y=z", "https://[2001:db8::1]:8443/"])
def test_https_urls_are_used(url: str) -> None:
    assert check_url(url, REMOTE) is None


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/", "http://[::1]/", "http://localhost/x", "http://auth.localhost/"]
)
def test_http_on_loopback_is_used_only_if_the_mcp_server_is_there(url: str) -> None:
    assert check_url(url, LOCAL) is None
    assert check_url(url, REMOTE) == "it is not https"


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "vbscript:x",
        "JavaScript://x.example/%0aalert(1)",
        "//auth.example.com/x",
        "https:/x",
        "https://user:pw@auth.example.com/",
        "https://auth.example.com\\@evil.example/",
        "https://auth.example.com/a b",
        "https://auth.example.com/\x1b]8;;",
        "https://auth.example.com/\u202e",
        "https://auth.example.com/#x",
        "https://auth.example.com:99999/",
        "https://[::1/",
        "http://auth.example.com/",
        "",
    ],
)
def test_javascript_urls_and_other_schemes_are_refused(url: str) -> None:
    """AU-C26."""
    assert check_url(url, REMOTE) is not None
    assert check_url(url, LOCAL) is not None


@pytest.mark.parametrize(
    ("address", "server", "named", "allowed"),
    [
        ("93.184.216.34", "93.184.216.34", False, True),
        ("10.0.0.1", "93.184.216.34", False, False),
        ("10.0.0.1", "93.184.216.34", True, True),
        ("10.0.0.1", "192.168.1.1", False, True),
        ("100.64.0.1", "93.184.216.34", False, False),
        ("127.0.0.1", "10.0.0.1", False, False),
        ("127.0.0.1", "127.0.0.2", False, True),
        ("10.0.0.1", "127.0.0.1", False, False),
        ("::1", "127.0.0.1", False, True),
        ("fd00::1", "93.184.216.34", False, False),
        ("2606:2800:220:1::1", "93.184.216.34", False, True),
        # what reaches a private address in other words
        ("::ffff:10.0.0.1", "93.184.216.34", False, False),
        ("::ffff:127.0.0.1", "93.184.216.34", False, False),
        ("64:ff9b::a00:1", "93.184.216.34", False, False),
        ("64:ff9b::5db8:d822", "10.0.0.1", False, True),
        ("2002:a00:1::", "93.184.216.34", False, False),
        # never, even if the user named the host: the credentials of a cloud
        ("169.254.169.254", "169.254.169.254", True, False),
        ("fe80::1%eth0", "127.0.0.1", True, False),
        ("fd00:ec2::254", "fd00::1", True, False),
        ("::ffff:169.254.169.254", "127.0.0.1", True, False),
        ("0.0.0.0", "127.0.0.1", True, False),
        ("::", "127.0.0.1", True, False),
        ("224.0.0.1", "10.0.0.1", True, False),
        ("localhost", "127.0.0.1", True, False),
    ],
)
def test_metadata_cannot_make_a_client_contact_private_addresses(
    address: str, server: str, named: bool, allowed: bool
) -> None:
    """Server-side request forgery, AU-C7."""
    assert may_connect(address, lambda: [server], named=named) is allowed


@pytest.mark.parametrize(("address", "allowed"), [("93.184.216.34", True), ("169.254.169.254", False)])
def test_the_addresses_of_the_server_are_looked_up_for_private_addresses_only(address: str, allowed: bool) -> None:
    def look_up() -> list[str]:
        raise AssertionError("there is nothing to compare with")

    assert may_connect(address, look_up, named=False) is allowed


def test_a_host_is_named_by_a_url_of_the_user_or_by_itself() -> None:
    urls = [REMOTE, None, "https://IDP.corp/x"]
    assert was_named("MCP.example.com", urls, ())
    assert was_named("idp.corp", urls, ())
    assert was_named("login.corp", urls, ("Login.corp",))
    assert not was_named("evil.example", urls, ("Login.corp",))


@pytest.mark.parametrize(
    ("resource", "url", "accepted"),
    [
        ("https://h.example/mcp", "https://h.example/mcp", True),
        ("https://H.example:443/mcp/", "https://h.example/mcp", True),
        ("https://h.example", "https://h.example/a/mcp", True),
        ("https://h.example/a", "https://h.example/a/mcp", True),
        ("https://h.example/m", "https://h.example/mcp", False),
        ("https://h.example/mcp/deeper", "https://h.example/mcp", False),
        ("https://h.example/other", "https://h.example/mcp", False),
        ("https://evil.example/mcp", "https://h.example/mcp", False),
        ("http://h.example/mcp", "https://h.example/mcp", False),
        ("https://h.example:8443/mcp", "https://h.example/mcp", False),
        ("https://h.example@evil.example/mcp", "https://h.example/mcp", False),
        ("https://h.example/mcp#x", "https://h.example/mcp", False),
        ("https://h.example/mcp?a=b", "https://h.example/mcp", False),
        ("https://h.example/mcp?a=b", "https://h.example/mcp?a=b", True),
        ("urn:example", "https://h.example/mcp", False),
    ],
)
def test_a_token_for_another_server_is_not_asked_for(resource: str, url: str, accepted: bool) -> None:
    """The wrong audience, AU-C2."""
    assert covers(resource, url) is accepted


def test_metadata_are_where_the_specification_has_them() -> None:
    """AU-C1, AU-C3."""
    assert resource_metadata_urls("https://h/mcp?a=b") == [
        "https://h/.well-known/oauth-protected-resource/mcp?a=b",
        "https://h/.well-known/oauth-protected-resource",
    ]
    assert resource_metadata_urls("https://h/") == ["https://h/.well-known/oauth-protected-resource"]
    assert server_metadata_urls("https://a/") == [
        "https://a/.well-known/oauth-authorization-server",
        "https://a/.well-known/openid-configuration",
    ]
    assert server_metadata_urls("https://a/t/") == [
        "https://a/.well-known/oauth-authorization-server/t",
        "https://a/.well-known/openid-configuration/t",
        "https://a/t/.well-known/openid-configuration",
    ]
