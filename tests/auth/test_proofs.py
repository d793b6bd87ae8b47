"""DPoP proofs, each wrong in one way (RFC 9449, section 4.3)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from joserfc.jwk import ECKey

from linkspan.auth.jwks import TokenRefused
from linkspan.auth.proofs import NonceNeeded, NonceSource, Proof, Replays, check_proof
from tokens import KEY, OTHER, RESOURCE, bound, proof

NOW = 1_800_000_000.0
TOKEN = bound(now=NOW)
PUBLIC = OTHER.as_dict(private=False)


def check(text: str, *, replays: Replays | None = None, nonces: NonceSource | None = None, now: float = NOW) -> None:
    replays = replays or Replays(threading.Lock())
    given = Proof(text, "POST", RESOURCE, TOKEN, OTHER.thumbprint())
    check_proof(given, now=now, replays=replays, nonces=nonces)


def made(header: dict[str, Any] | None = None, **claims: Any) -> str:
    return proof(TOKEN, header=header, **{"now": NOW, **claims})


@pytest.mark.parametrize(
    "good",
    [
        made(),
        made(now=NOW - 299),
        made(now=NOW + 299),
        made(htu="HTTPS://API.EXAMPLE.COM:443/mcp?query=is#ignored"),
        made(nonce="nobody asked for one"),
        made({"kid": "ignored"}),
    ],
)
def test_a_good_proof_is_accepted(good: str) -> None:
    check(good)


WRONG: dict[str, tuple[str, str]] = {
    "not a JWT": ("nonsense", "not a signed JWT"),
    "typ of a token": (made({"typ": "at+jwt"}), "typ is 'at+jwt'"),
    "alg none": (made({"alg": "none"}), "alg 'none'"),
    "a shared key": (proof(TOKEN, b"k" * 32, {"alg": "HS256", "jwk": {"kty": "oct", "k": "a2s"}}), "alg 'HS256'"),  # type: ignore[arg-type]
    "no jwk": (made({"jwk": None}), "not a public key"),
    "a private jwk": (made({"jwk": OTHER.as_dict(private=True)}), "not a public key"),
    "a broken jwk": (made({"jwk": {"kty": "EC", "crv": "P-256"}}), "cannot be read"),
    "a small key": (made({"jwk": {"kty": "RSA", "n": "AQAB", "e": "AQAB"}}), "not a public key"),
    "key of somebody else": (proof(TOKEN, KEY, now=NOW), "another key"),
    "signature of another key": (made({"jwk": PUBLIC, "x": 1})[:-4] + "AAAA", "is not valid"),
    "other method": (made(htm="GET"), "htm"),
    "other server": (made(htu="https://evil.example.com/mcp"), "htu"),
    "other path": (made(htu="https://api.example.com/other"), "htu"),
    "http": (made(htu="http://api.example.com/mcp"), "htu"),
    "no URL": (made(htu=None), "htu"),
    "too old": (made(now=NOW - 301), "iat"),
    "too early": (made(now=NOW + 301), "iat"),
    "no time": (made(iat=None), "iat"),
    "time that is true": (made(iat=True), "iat"),
    "other token": (made(ath="x"), "ath"),
    "no token": (made(ath=None), "ath"),
    "no id": (made(jti=None), "jti"),
    "long id": (made(jti="x" * 257), "jti"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_proof_that_is_wrong_in_one_way_is_refused(name: str) -> None:
    text, reason = WRONG[name]
    with pytest.raises(TokenRefused, match="DPoP proof") as problem:
        check(text)
    assert problem.value.error == "invalid_dpop_proof"
    assert reason in str(problem.value)


def test_a_proof_is_good_once() -> None:
    """DPoP replay."""
    replays, text = Replays(threading.Lock()), made()
    check(text, replays=replays)
    with pytest.raises(TokenRefused, match="used before"):
        check(text, replays=replays)
    check(made(), replays=replays)


def use(replays: Replays, key: str, number: int, made: float, now: float | None = None) -> bool:
    """Return whether a proof is let through."""
    try:
        replays.use(key, str(number), made, made if now is None else now)
    except TokenRefused:
        return False
    return True


def test_a_flood_of_proofs_hurts_only_its_own_key() -> None:
    replays = Replays(threading.Lock(), of_key=3)
    assert [use(replays, "a", number, NOW) for number in range(5)] == [True, True, True, False, False]
    assert use(replays, "b", 0, NOW)
    assert not use(replays, "a", 0, NOW)
    assert use(replays, "a", 9, NOW + 600)


def test_a_full_table_forgets_no_proof_that_is_still_good() -> None:
    """Each was made at a time of its own; none is let through twice while it is good, whatever comes meanwhile."""
    replays = Replays(threading.Lock(), of_key=4, in_all=5)
    times = [NOW - 299, NOW - 1, NOW, NOW + 299]
    assert [use(replays, "a", number, made, NOW) for number, made in enumerate(times)] == [True] * 4
    for number, made in enumerate(times):
        for now in (NOW, max(NOW, made), made + 300):
            assert not use(replays, "a", number, made, now), (number, now)
            use(replays, "a", 100 + number, now)


def test_at_the_bound_of_all_keys_no_proof_of_another_is_forgotten() -> None:
    replays = Replays(threading.Lock(), of_key=2, in_all=3)
    assert [use(replays, key, 0, NOW) for key in "abcd"] == [True, True, True, False]
    assert not any(use(replays, key, 0, NOW) for key in "abc")
    assert use(replays, "d", 0, NOW + 600)


def test_proofs_are_forgotten_when_they_are_too_old() -> None:
    """Of an hour, no more is kept than two generations and what clocks that are ahead have sent."""
    replays, most = Replays(threading.Lock()), 0
    for second in range(3600):
        assert use(replays, "a", second, NOW + second)
        most = max(most, sum(len(each.digests) for each in replays._generations.values()))
    assert most <= 600


def test_a_nonce_must_be_ours_and_new() -> None:
    nonces = NonceSource(b"k" * 32)
    check(made(nonce=nonces.new(NOW - 299)), nonces=nonces)
    foreign = NonceSource(b"x" * 32).new(NOW)
    for nonce in (None, "x", "é", 7, foreign, nonces.new(NOW - 301), nonces.new(NOW + 60)):
        with pytest.raises(NonceNeeded) as problem:
            check(made(nonce=nonce), nonces=nonces)
        assert problem.value.error == "use_dpop_nonce"


def test_proofs_with_other_algorithms_are_accepted() -> None:
    key = ECKey.generate_key("P-384")
    token = bound(key, now=NOW)
    text = proof(token, key, {"alg": "ES384"}, NOW)
    check_proof(Proof(text, "POST", RESOURCE, token, key.thumbprint()), now=NOW, replays=Replays(threading.Lock()))
