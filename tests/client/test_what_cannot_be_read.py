"""What a client makes of texts, files and helpers that it cannot read: one sentence, or what it would do without them."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from linkspan.auth.exchanging import ExchangeError, TokenExchange
from linkspan.auth.grants import _supply
from linkspan.auth.identities import _is_resource
from linkspan.auth.jwks import IssuerUnavailable
from linkspan.auth.metadata import AuthorizationFailure
from linkspan.client import callback, tracing
from linkspan.client.authorizing import _operation
from linkspan.client.config import UnusableTarget, _toml
from linkspan.client.kept_options import NO_OPTIONS, _key, kept_options
from linkspan.client.subscriptions import _params
from linkspan.client.targets import resolve
from linkspan.client.vault import Vault, system_keyring
from linkspan.core.auth_flow import HttpUnavailable
from linkspan.wire.jsonrpc import Notification

DEEP = b"[" * 100_000


@pytest.mark.parametrize("body", [b"", b"no JSON", DEEP])
def test_a_message_that_cannot_be_read_is_named_by_what_it_is_for(body: bytes) -> None:
    assert _operation(body, "a call") == "a call"
    assert _params(Notification("x", Raw(body))) == {}
    assert not tracing._is_tool_error(b'"isError":' + body)


@pytest.mark.parametrize("params", [DEEP, b'{"name":5}', b"5"])
def test_params_of_a_method_of_ones_own_name_no_target(params: bytes) -> None:
    spec: Any = type("Spec", (), {"params": params})
    assert tracing._target_of(spec) == tracing._TracedTarget()


def test_a_port_that_is_none_is_not_in_a_trace() -> None:
    assert tracing._server("https://shop.example:port/") == {"server.address": "shop.example"}


def test_a_url_that_is_none_is_no_resource() -> None:
    assert not _is_resource("https://[")


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("= 5")
    with pytest.raises(UnusableTarget, match=r"config\.toml' is not valid TOML: "):
        _toml(file)


def test_a_command_without_the_end_of_a_quote_is_refused() -> None:
    with pytest.raises(UnusableTarget, match="is not a valid command: No closing quotation"):
        resolve('python "server')


def test_options_of_another_version_are_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKSPAN_HOME", str(tmp_path))
    Vault().save(_key("https://shop.example/"), msgspec.json.encode([5]))
    assert kept_options("https://shop.example/") == NO_OPTIONS


def test_a_keyring_that_cannot_be_asked_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def get_keyring() -> object:
        raise RuntimeError("no bus")

    monkeypatch.setitem(sys.modules, "keyring", type("keyring", (), {"get_keyring": get_keyring}))
    assert system_keyring() is None


def test_a_machine_without_a_browser_opens_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise webbrowser.Error("no browser")

    monkeypatch.setenv("BROWSER", "true")
    with monkeypatch.context() as patched:
        patched.setattr(webbrowser, "get", fail)
        assert not callback.can_open_browser()
    monkeypatch.setattr(webbrowser, "get", lambda: None)
    monkeypatch.setattr(webbrowser, "open", fail)
    assert not callback.open_browser("https://shop.example/")


def test_an_assertion_whose_function_raises_is_not_shown() -> None:
    flow = _supply(lambda: "secret")
    flow.send(None)
    with pytest.raises(AuthorizationFailure, match=r"^the assertion could not be read: it raised ValueError$"):
        flow.throw(ValueError("secret"))


@pytest.mark.parametrize("found", ["", " \n", None, b"bytes"])
def test_an_assertion_that_is_none_is_not_sent(found: object) -> None:
    flow = _supply(lambda: "")
    flow.send(None)
    with pytest.raises(AuthorizationFailure, match=r"^the assertion is empty or not a string$"):
        flow.send(found)


@pytest.mark.parametrize(
    ("endpoint", "error", "problem"),
    [
        (None, IssuerUnavailable("no metadata"), "no metadata"),
        ("https://a.example/token", HttpUnavailable("refused"), "https://a.example cannot be reached: refused"),
    ],
)
def test_a_token_cannot_be_exchanged_where_the_issuer_is_not_there(
    endpoint: str | None, error: Exception, problem: str
) -> None:
    exchange = TokenExchange("https://a.example", token_endpoint=endpoint, client_id="c", client_secret="s")
    flow = exchange.token("t", "https://b.example", (), 0.0)
    flow.send(None)
    with pytest.raises(ExchangeError, match=problem):
        flow.throw(error)
