"""Sealed request state: it comes back whole to the request that it belongs to, or not at all (MRTR-S5, MRTR-S9, MRTR-S11)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import aead
from hypothesis import given
from hypothesis import strategies as st
from test_asking import Client, accept, text

from linkspan import Context, Limits, Server
from linkspan.errors import INTERNAL_ERROR, INVALID_PARAMS, RegistrationError, RemoteProtocolError
from linkspan.server import request_state
from linkspan.server.request_state import (
    MAX_BYTES,
    Binding,
    RequestStateInvalid,
    RequestStateKeys,
    digest,
    seal,
    unseal,
)

OLD, NEW = b"old" * 8, "new" * 8
NOW, TTL = 1_000_000.0, 60.0
FACTS: dict[str, Any] = {
    "method": "tools/call",
    "target": "book",
    "arguments": digest(b'{"date":"today"}'),
    "principal": "alice",
    "audience": "travel",
}
BINDING = Binding(**FACTS)
PAYLOAD = b'{"answers": {"seats": 2}}'
FORMS = ["encrypted", "signed"]


def counting() -> Callable[[int], bytes]:
    """Make randomness that is new each time, and the same in each run."""
    drawn = iter(range(1, 1000))
    return lambda size: next(drawn).to_bytes(size, "big")


@contextmanager
def form_of(form: str) -> Iterator[None]:
    """Act like a process with, or without, `cryptography`. Of the loaded modules no other one may change: it would load anew."""
    with pytest.MonkeyPatch.context() as patched:
        if form == "signed":
            patched.setitem(sys.modules, aead.__name__, None)
        yield


def make(form: str, *secrets: bytes | str) -> RequestStateKeys:
    with form_of(form):
        keys = RequestStateKeys(*secrets or (OLD,))
        keys.seals()
    return keys


def sealed(keys: RequestStateKeys, payload: bytes = PAYLOAD) -> str:
    return seal(keys, BINDING, payload, now=NOW, ttl=TTL, random=counting())


def refusal(keys: RequestStateKeys, token: str, binding: Binding = BINDING, now: float = NOW) -> RequestStateInvalid:
    with pytest.raises(RequestStateInvalid) as caught:
        unseal(keys, token, binding, now=now)
    return caught.value


@pytest.mark.parametrize("form", FORMS)
@given(payload=st.binary(max_size=200))
def test_what_was_sealed_is_unsealed_by_whoever_has_the_key(form: str, payload: bytes) -> None:
    token = sealed(make(form), payload)
    assert unseal(make(form), token, BINDING, now=NOW + TTL - 1) == payload
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)


def test_an_encrypted_state_cannot_be_read_and_a_signed_one_can() -> None:
    encrypted, signed = (sealed(make(form)) for form in FORMS)
    assert (encrypted[:2], signed[:2]) == ("a1", "h1")
    assert PAYLOAD not in request_state._bytes(encrypted[2:])
    assert PAYLOAD in request_state._bytes(signed[2:])


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_a_changed_state_is_refused_wherever_it_was_changed(form: str, data: st.DataObject) -> None:
    keys = make(form)
    token = sealed(keys)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABCXYZabcxyz0189-_+/=. \n\x00é\ud800").filter(lambda char: char != token[at]))
    for changed in (token[:at] + other + token[at + 1 :], token[:at] + other + token[at:], token[:at]):
        refusal(keys, changed)


@pytest.mark.parametrize("form", FORMS)
def test_every_single_character_counts(form: str) -> None:
    keys = make(form)
    token = sealed(keys)
    for at, char in enumerate(token):
        for other in "ABab01-_":
            if other != char:
                refusal(keys, token[:at] + other + token[at + 1 :])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "change", ["{}-TAMPERED", "-{}", "{}=", "{}A", "{}\n", " {}", "", "a1", "h1", "a1AAAA", "x1{}", "{{}}"]
)
def test_a_state_that_was_added_to_is_refused(form: str, change: str) -> None:
    keys = make(form)
    refusal(keys, change.format(sealed(keys)))


@given(st.text(max_size=100), st.sampled_from(["", "a1", "h1"]))
def test_noise_is_refused(noise: str, front: str) -> None:
    for form in FORMS:
        refusal(make(form), front + noise)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "elsewhere",
    [
        {"method": "prompts/get"},
        {"target": "cancel"},
        {"arguments": digest(b'{"date":"tomorrow"}')},
        {"principal": "bob"},
        {"principal": None},
        {"principal": ""},
        {"audience": "hotel"},
        {"method": "tools/callbook", "target": ""},
        {"target": 'book","x'},
    ],
    ids=str,
)
def test_a_state_of_another_request_is_refused(form: str, elsewhere: dict[str, str | None]) -> None:
    keys = make(form)
    refusal(keys, sealed(keys), Binding(**FACTS | elsewhere))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("late", [TTL, TTL + 0.001, 1e9])
def test_an_expired_state_is_refused(form: str, late: float) -> None:
    keys = make(form)
    assert refusal(keys, sealed(keys), now=NOW + late).reason == "expired"


@pytest.mark.parametrize("form", FORMS)
def test_a_new_key_in_front_leaves_the_old_one_valid(form: str) -> None:
    old, both, new = make(form, OLD), make(form, NEW, OLD), make(form, NEW)
    assert unseal(both, sealed(old), BINDING, now=NOW) == PAYLOAD
    assert unseal(new, sealed(both), BINDING, now=NOW) == PAYLOAD
    refusal(new, sealed(old))
    refusal(old, sealed(both))


def test_neither_form_is_taken_for_the_other() -> None:
    encrypting, signing = make("encrypted"), make("signed")
    for one, other in ((encrypting, signing), (signing, encrypting)):
        token = sealed(one)
        refusal(other, token)
        refusal(other, {"a1": "h1", "h1": "a1"}[token[:2]] + token[2:])


def test_every_refusal_looks_the_same_to_the_client() -> None:
    keys = make("encrypted")
    refusals = [
        refusal(keys, "nonsense"),
        refusal(keys, sealed(keys), now=NOW + TTL),
        refusal(keys, sealed(make("encrypted", NEW))),
        refusal(keys, sealed(keys), Binding(**FACTS | {"principal": "bob"})),
        refusal(keys, "a1" + "A" * MAX_BYTES),
    ]
    assert {(each.code, each.data) for each in refusals} == {(INVALID_PARAMS, None)}
    assert len({each.message for each in refusals}) == 1
    assert len({each.reason for each in refusals}) > 2


@pytest.mark.parametrize("form", FORMS)
def test_a_state_that_is_too_large_is_not_made(form: str) -> None:
    keys = make(form)
    with pytest.raises(RemoteProtocolError, match=f"over {MAX_BYTES} bytes"):
        sealed(keys, b"a" * MAX_BYTES)
    token = sealed(keys, b"a" * (MAX_BYTES // 2))
    assert len(token) < MAX_BYTES * 0.7
    with pytest.raises(RequestStateInvalid):
        unseal(keys, token, BINDING, now=NOW, limit=1000)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000])
def test_a_state_may_be_as_large_as_the_limit_and_no_larger(form: str, size: int) -> None:
    keys, payload = make(form), b"a" * size
    largest = len(sealed(keys, payload))

    def within(limit: int) -> str:
        return seal(keys, BINDING, payload, now=NOW, ttl=TTL, random=counting(), limit=limit)

    assert len(within(largest)) == largest
    assert unseal(keys, within(largest), BINDING, now=NOW, limit=largest) == payload
    with pytest.raises(RemoteProtocolError, match=f"over {largest - 1} bytes") as refused:
        within(largest - 1)
    assert refused.value.code == INTERNAL_ERROR
    with pytest.raises(RequestStateInvalid) as caught:
        unseal(keys, within(largest), BINDING, now=NOW, limit=largest - 1)
    assert caught.value.reason == "too long, or not of this form"


def test_a_server_makes_and_takes_states_up_to_its_limit() -> None:
    def client(**limits: int) -> Client:
        server = Server("curious", request_state_keys=[OLD], limits=Limits(**limits))

        @server.tool
        def ask(ctx: Context) -> str:
            return ctx.ask("q", str, "What?")

        return Client(server)

    answer = {"q": accept(q="this")}
    largest = len(client().call("ask")["requestState"])
    exact, short = client(max_request_state_bytes=largest), client(max_request_state_bytes=largest - 1)
    first = exact.call("ask")
    assert len(first["requestState"]) == largest
    assert text(exact.answer(first, answer, "ask")) == "this"
    refused = short.call("ask")
    message = f"Internal error: the state between two rounds is over {largest - 1} bytes"
    assert (refused["code"], refused["message"]) == (INTERNAL_ERROR, message)
    assert short.answer(first, answer, "ask")["code"] == INVALID_PARAMS


@pytest.mark.parametrize("secrets", [(), (b"short",), (OLD, "short"), ("",)])
def test_a_weak_key_is_refused(secrets: tuple[bytes | str, ...]) -> None:
    with pytest.raises(RegistrationError, match="at least 16 bytes"):
        RequestStateKeys(*secrets)


def test_a_key_ring_does_not_show_its_secrets() -> None:
    assert "newnew" not in repr(RequestStateKeys(NEW)) + str(RequestStateKeys(NEW))


def test_nobody_else_has_an_ephemeral_key() -> None:
    one, other = RequestStateKeys.ephemeral(os.urandom), RequestStateKeys.ephemeral(os.urandom)
    assert unseal(one, sealed(one), BINDING, now=NOW) == PAYLOAD
    refusal(other, sealed(one))


def test_the_same_payload_is_never_sealed_to_the_same_state() -> None:
    keys, random = make("encrypted"), counting()
    tokens = {seal(keys, BINDING, PAYLOAD, now=NOW, ttl=TTL, random=random) for _ in range(20)}
    assert len(tokens) == 20


def test_keys_are_derived_as_rfc_5869_says() -> None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    witness = HKDF(SHA256(), length=32, salt=b"linkspan request state", info=b"encrypt")
    assert request_state._derive(OLD, b"encrypt") == witness.derive(OLD)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b'{"a":1,"b":[1,2]}', b'{ "b": [1, 2], "a": 1 }', True),
        (b'{"a":"\\u00e9"}', '{"a":"é"}'.encode(), True),
        (b'{"a":{"x":1,"y":2}}', b'{"a":{"y":2,"x":1}}', True),
        (b'{"a":[1,2]}', b'{"a":[2,1]}', False),
        (b'{"a":1}', b'{"a":"1"}', False),
        (b'{"a":1}', b'{"a":true}', False),
        (b'{"a":100000000000000000000000000000}', b'{"a":100000000000000000000000000001}', False),
        (b"{}", b"null", True),
        (b"", b"{}", True),
        (b"{}", b"[]", False),
    ],
)
def test_a_digest_tells_arguments_apart_and_not_their_spelling(one: bytes, other: bytes, same: bool) -> None:
    assert (digest(one) == digest(other)) is same


def test_cryptography_is_loaded_only_when_a_state_is_sealed() -> None:
    script = (
        "import sys; from linkspan.server.request_state import *; keys = RequestStateKeys('k' * 16);"
        "print('cryptography' in sys.modules); keys.seals(); print('cryptography' in sys.modules)"
    )
    source = Path(request_state.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
