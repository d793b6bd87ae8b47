"""Tokens against the verifiers: each is wrong in one way. No network: what is asked of an issuer is a list of effects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from types import MappingProxyType
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from linkspan.auth.exchanging import TokenExchange
from linkspan.auth.jwks import IssuerUnavailable, TokenRefused
from linkspan.auth.presets import PRESETS, preset_for
from linkspan.auth.protection import Protected
from linkspan.auth.verifying import (
    ApiKeys,
    CheckToken,
    FunctionVerifier,
    Introspection,
    Jwt,
    Verified,
    Verifier,
    verify,
)
from linkspan.core.auth_flow import Http, HttpResult, HttpUnavailable
from linkspan.revisions.neutral import Grant
from tokens import ISSUER, JWKS, KEY, OTHER, RESOURCE, jwt, signed, token

NOW = 1_800_000_000.0


def outcome(
    verifiers: Verifier | Sequence[Verifier],
    given: str,
    *answers: Any,
    now: float = NOW,
    asked: list[Any] | None = None,
) -> Verified:
    """Verify a token, with these answers to what is asked."""
    flow = verify([verifiers] if not isinstance(verifiers, Sequence) else verifiers, given, RESOURCE, now)
    waiting = list(answers)
    try:
        effect = next(flow)
        while True:
            if asked is not None:
                asked.append(effect)
            answer = waiting.pop(0)
            effect = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer)
    except StopIteration as stop:
        assert not waiting
        found: Verified = stop.value
        return found


def refused(verifiers: Verifier | Sequence[Verifier], given: str, *answers: Any) -> str:
    """Return why a token is not good."""
    with pytest.raises(TokenRefused) as problem:
        outcome(verifiers, given, *answers)
    assert problem.value.error == "invalid_token"
    return str(problem.value)


def reply(body: Any, status: int = 200, **headers: str) -> HttpResult:
    return HttpResult(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(body).encode()
    )


def test_a_good_token_is_a_grant() -> None:
    grant, owner, _ = outcome(jwt(), token(now=NOW, scope="files:read files:write", aud=["other", RESOURCE]))
    assert (grant.issuer, grant.subject, grant.client_id) == (ISSUER, "ann", "editor")
    assert grant.scopes == {"files:read", "files:write"}
    assert grant.expires == NOW + 600
    assert grant.claims["sub"] == "ann"
    assert owner == f"{ISSUER} sub ann"
    with pytest.raises(TypeError):
        grant.claims["sub"] = "bob"  # type: ignore[index]


@pytest.mark.parametrize(
    "proof",
    [
        {"gty": "client-credentials"},
        {"gty": ["client_credentials"]},
        {"grant_type": "client_credentials"},
        {"idtyp": "app"},
    ],
)
def test_a_token_of_a_client_for_itself_is_owned_by_the_client(proof: dict[str, Any]) -> None:
    assert outcome(jwt(), token(now=NOW, sub=None, **proof)).owner == f"{ISSUER} client editor"


def test_no_kind_of_name_is_taken_for_another() -> None:
    """A client, a person and a user name of the same text; a client that acts for a person is none of them."""
    robots: list[dict[str, Any]] = [
        {"sub": "robot", "client_id": "robot"},
        {"sub": None, "username": "robot"},
        {"sub": None, "client_id": "robot", "gty": "client-credentials"},
        {"sub": None, "client_id": "robot"},
        {"sub": None, "client_id": "robot", "gty": ["authorization_code", "client_credentials"]},
        {"sub": "", "client_id": "robot", "username": "", "gty": 7},
    ]
    found = [outcome(jwt(), token(now=NOW, **each)) for each in robots]
    assert [each.owner.split(" ")[1] for each in found] == ["sub", "username", "client", "token", "token", "token"]
    assert len({each.owner for each in found}) == len(robots)
    assert [each.grant.subject for each in found] == ["robot", None, None, None, None, None]


def test_a_token_that_names_nobody_is_a_principal_of_its_own() -> None:
    bare = {"active": True, "aud": RESOURCE}
    first, again, second = (outcome(introspection(), given, reply(bare)) for given in ("one", "one", "two"))
    assert first.owner == again.owner == f"{ISSUER} token {sha256(b'one').hexdigest()[:32]}"
    assert second.owner != first.owner
    assert (first.grant.subject, first.grant.client_id) == (None, None)


def test_a_grant_of_the_author_for_a_client_is_the_client_itself() -> None:
    """Who hands out a key, or decides about a token, knows for whom that is."""
    robot = Grant("https://own.example.com", client_id="robot")
    keys = ApiKeys({sha256(b"hunter2").hexdigest(): robot})
    assert outcome(keys, "hunter2").owner == "https://own.example.com client robot"
    assert outcome(FunctionVerifier(lambda _: None), "opaque", robot).owner == "https://own.example.com client robot"


def test_who_is_introspected_without_a_subject_is_the_user_name() -> None:
    """As django-oauth-toolkit answers: two people at one client, and the client itself."""
    answers = {"ann": {"username": "ann"}, "bob": {"username": "bob"}, "job": {}}
    common = {"active": True, "client_id": "editor", "aud": RESOURCE}
    found = {name: outcome(introspection(), name, reply(common | more)) for name, more in answers.items()}
    assert found["ann"].owner == f"{ISSUER} username ann"
    assert found["bob"].owner == f"{ISSUER} username bob"
    assert found["job"].owner.startswith(f"{ISSUER} token ")
    assert {each.grant.subject for each in found.values()} == {None}


def test_scopes_are_parted_by_the_space_only() -> None:
    """RFC 6749, section 3.3: a blank of another kind makes no two scopes of one."""
    given = "files:read  a\u00a0admin b\u2003admin c\tadmin"
    assert outcome(jwt(), token(now=NOW, scope=given)).grant.scopes == {
        "files:read",
        "a\u00a0admin",
        "b\u2003admin",
        "c\tadmin",
    }


WRONG: dict[str, tuple[str, str]] = {
    "wrong audience": (token(now=NOW, aud="https://api.example.com/other"), "the token is for"),
    "audience that begins the same": (token(now=NOW, aud=RESOURCE + "/x"), "the token is for"),
    "audience with a slash": (token(now=NOW, aud=RESOURCE + "/"), "the token is for"),
    "no audience": (token(now=NOW, aud=None), "the token is for None"),
    "audience that is no text": (token(now=NOW, aud=[7, None]), "the token is for"),
    "audience that is a number": (token(now=NOW, aud=7), "the token is for 7"),
    "audience that is an object": (token(now=NOW, aud={RESOURCE: True}), "the token is for {"),
    "token of another server": (token(now=NOW, iss="https://evil.example.com"), "not trusted here"),
    "issuer with a slash": (token(now=NOW, iss=ISSUER + "/"), "not trusted here"),
    "no issuer": (token(now=NOW, iss=None), "not known to any verifier"),
    "alg none": (token({"alg": "none"}, now=NOW), "is signed with 'none'"),
    "no alg": (signed({"alg": "none"}, b"{}", b""), "not known"),
    "HS256 with the public key": (
        token({"alg": "HS256"}, KEY.as_pem(private=False), NOW),
        "is signed with 'HS256'",
    ),
    "key of somebody else": (token(now=NOW, key=OTHER), "the signature is not valid"),
    "unknown kid": (token({"kid": "k2"}, now=NOW), "has no key 'k2'"),
    "kid that is no text": (token({"kid": None}, now=NOW).replace(".", "x.", 1), "not known"),
    "algorithm of another family": (
        token({"alg": "RS256"}, RSAKey.generate_key(2048, {"kid": "k1"}), NOW),
        "has no key 'k1' for RS256",
    ),
    "expired": (token(now=NOW - 630), "has expired"),
    "no expiry": (token(now=NOW, exp=None), "no exp"),
    "expiry that is no number": (token(now=NOW, exp="tomorrow"), "must be numbers"),
    "expiry that is true": (token(now=NOW, exp=True), "must be numbers"),
    "not valid yet": (token(now=NOW, nbf=NOW + 31), "not valid yet"),
    "made in the future": (token(now=NOW, iat=NOW + 31), "not valid yet"),
    "type of a proof": (token({"typ": "dpop+jwt"}, now=NOW), "not an access token"),
    "type of a logout": (token({"typ": "logout+jwt"}, now=NOW), "not an access token"),
    "type that is no text": (token({"typ": 7}, now=NOW), "not an access token"),
    "unknown critical header": (token({"crit": ["x"], "x": 1}, now=NOW), "the signature is not valid"),
    "bound to a certificate": (token(now=NOW, cnf={"x5t#S256": "x"}), "bound to something other"),
    "claims that are a list": (signed({"alg": "ES256", "kid": "k1"}, b"[]", KEY), "not known"),
    "encrypted": (".".join(["eyJhbGciOiJSU0EtT0FFUCJ9", "a", "b", "c", "d"]), "not known"),
    "nothing": (".", "not known"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_token_that_is_wrong_in_one_way_is_refused(name: str) -> None:
    given, reason = WRONG[name]
    assert reason in refused(jwt(), given)


def test_a_token_whose_signature_was_changed_is_refused() -> None:
    head, claims, signature = token(now=NOW).split(".")
    assert "is not valid" in refused(jwt(), f"{head}.{claims}.{signature[:-4]}AAAA")


@pytest.mark.parametrize(
    "given",
    [
        token({"typ": "application/at+jwt"}, now=NOW),
        token({"typ": "JWT"}, now=NOW),
        token({"typ": None}, now=NOW),
        token({"kid": None}, now=NOW),
        token(now=NOW, iat=None),
        token(now=NOW, nbf=NOW + 30, iat=NOW + 30),
        token(now=NOW - 629),
        token({"x5t": "unknown members of the header do not matter"}, now=NOW),
    ],
)
def test_what_other_issuers_do_is_accepted(given: str) -> None:
    assert outcome(jwt(), given).grant.subject == "ann"


def test_only_listed_algorithms_are_accepted() -> None:
    assert "ES256" in refused(jwt(algorithms=["RS256"]), token(now=NOW))
    with pytest.raises(ValueError, match="algorithms must be of"):
        jwt(algorithms=["HS256"])
    with pytest.raises(ValueError, match="algorithms must be of"):
        jwt(algorithms=["none"])


def test_keys_that_nobody_should_sign_with_are_not_taken_from_an_issuer() -> None:
    secret = OctKey.import_key("a secret that is long enough for a key", {"kid": "k1"})
    small = {"kty": "RSA", "kid": "k1", "n": "AQAB" * 40, "e": "AQAB"}
    keys = [secret.as_dict(), small, {"kty": "EC"}, "nonsense", {**KEY.as_dict(private=False), "use": "enc"}]
    assert "has no key" in refused(Jwt(ISSUER, jwks_uri=f"{ISSUER}/keys"), token(now=NOW), reply({"keys": keys}))


def test_a_large_rsa_key_of_an_issuer_verifies() -> None:
    key = RSAKey.generate_key(2048, {"kid": "k1"})
    found = outcome(jwt(keys={"keys": [key.as_dict(private=False)]}), token({"alg": "RS256"}, key, NOW))
    assert found.grant.subject == "ann"


def test_of_two_keys_with_one_kid_that_for_the_algorithm_counts() -> None:
    other = ECKey.generate_key("P-256", {"kid": "k1", "alg": "ES384"})
    assert outcome(jwt(keys={"keys": [other.as_dict(private=False), *JWKS["keys"]]}), token(now=NOW))


def test_several_issuers_are_told_apart() -> None:
    second = Jwt("https://second.example.com", keys={"keys": [OTHER.as_dict(private=False)]})
    verifiers = [jwt(), second]
    assert outcome(verifiers, token(now=NOW)).grant.issuer == ISSUER
    mine = token(now=NOW, key=OTHER, iss="https://second.example.com")
    assert outcome(verifiers, mine).owner == "https://second.example.com sub ann"
    assert "is not valid" in refused(verifiers, token(now=NOW, iss="https://second.example.com"))


# Keys of one's own.

RSA = RSAKey.generate_key(2048)
ED = OKPKey.generate_key("Ed25519")


def public(key: ECKey | RSAKey | OKPKey) -> str:
    return key.as_pem(private=False).decode()


def _native(private: Any) -> bytes:
    return private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def certificate() -> str:
    """Return a certificate of the key by itself."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "login.example.com")])
    now, native = datetime.now(UTC), KEY.private_key
    assert native is not None
    builder = x509.CertificateBuilder(name, name, native.public_key(), x509.random_serial_number(), now, now)
    return builder.sign(native, SHA256()).public_bytes(Encoding.PEM).decode()


@pytest.mark.parametrize("kid", ["k1", None], ids=["named", "unnamed"])
@pytest.mark.parametrize(
    "keys",
    [
        public(KEY),
        public(KEY).encode(),
        f"the key of production:\n\n{public(KEY)}\n",
        public(KEY) + public(RSA) + public(ED),
        certificate(),
        KEY.as_dict(private=False),
        json.dumps(KEY.as_dict(private=False)),
        JWKS,
        json.dumps(JWKS).encode(),
        MappingProxyType(JWKS),
    ],
    ids=[
        "PEM",
        "bytes",
        "with a comment",
        "several",
        "certificate",
        "JWK",
        "JSON",
        "JWKS",
        "JSON of a JWKS",
        "mapping",
    ],
)
def test_a_key_of_ones_own_is_taken_as_it_is_kept(keys: Any, kid: str | None) -> None:
    """A key in PEM has no name, so it fits whatever name a token gives to it."""
    assert outcome(jwt(keys=keys), token({"kid": kid}, now=NOW)).grant.subject == "ann"
    assert "is not valid" in refused(jwt(keys=keys), token({"kid": kid}, key=OTHER, now=NOW))


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (ED, "Ed25519")])
def test_a_key_of_ones_own_may_be_of_any_kind(key: Any, algorithm: str) -> None:
    verifier = jwt(keys=public(key))
    assert outcome(verifier, token({"alg": algorithm}, key, NOW)).grant.subject == "ann"
    assert "has no key 'k1' for ES256" in refused(verifier, token(now=NOW))


def test_a_named_key_is_for_tokens_with_its_name_only() -> None:
    assert "has no key 'k2'" in refused(jwt(keys=JWKS["keys"][0]), token({"kid": "k2"}, now=NOW))


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ("hunter2", "A shared secret"),
        ("keys/public.pem", "the text of a file, not its path"),
        ("", "takes a public key as PEM"),
        (public(KEY).replace("MFk", "XXX"), "block PUBLIC KEY has none that can be read"),
        (KEY.as_pem(private=True), "give its public one, which `openssl pkey"),
        (KEY.as_dict(private=True), "leave its private members out"),
        ({"keys": [KEY.as_dict(private=True)]}, "leave its private members out"),
        ({"keys": []}, "no key that can verify"),
        ({"keys": "k1"}, "no key that can verify"),
        ({"kty": "oct", "k": "aHVudGVyMg"}, "no key that can verify"),
        (_native(generate_private_key(65537, 1024)), "fewer than 2048 bits"),
        (_native(X25519PrivateKey.generate()), "kind X25519PublicKey verifies none"),
        (public(KEY) + public(OTHER), "several keys of one kind without a kid"),
    ],
)
def test_what_is_no_public_key_is_refused_where_it_is_written(keys: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as problem:
        jwt(keys=keys)
    assert "hunter2" not in str(problem.value)


# Keys from the issuer.

METADATA = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys", "introspection_endpoint": f"{ISSUER}/introspect"}


def urls(effects: Sequence[Any]) -> list[str]:
    return [each.url for each in effects if isinstance(each, Http)]


def test_keys_are_read_where_the_metadata_say_and_kept_as_long_as_the_response_says() -> None:
    verifier, asked = Jwt(ISSUER), list[Any]()
    outcome(verifier, token(now=NOW), reply(METADATA), reply(JWKS, cache_control="public, max-age=600"), asked=asked)
    assert urls(asked) == [f"{ISSUER}/.well-known/oauth-authorization-server", f"{ISSUER}/keys"]
    outcome(verifier, token(now=NOW), now=NOW + 599)
    late = token(now=NOW + 600)
    outcome(verifier, late, reply(JWKS), now=NOW + 600, asked=asked)
    assert urls(asked)[2:] == [f"{ISSUER}/keys"]


def test_the_metadata_may_be_at_any_of_the_well_known_places() -> None:
    verifier, asked = Jwt(ISSUER), list[Any]()
    outcome(verifier, token(now=NOW), reply({}, 404), reply(METADATA), reply(JWKS), asked=asked)
    assert urls(asked)[1] == f"{ISSUER}/.well-known/openid-configuration"


def test_metadata_of_another_issuer_are_not_believed() -> None:
    with pytest.raises(IssuerUnavailable, match="write issuer= exactly like that"):
        outcome(Jwt(ISSUER), token(now=NOW), reply(METADATA | {"issuer": ISSUER + "/other"}))


@pytest.mark.parametrize(("written", "named"), [(ISSUER, ISSUER + "/"), (ISSUER + "/", ISSUER)])
def test_a_slash_at_the_end_of_an_issuer_is_mended(written: str, named: str, caplog: pytest.LogCaptureFixture) -> None:
    """The principal is that of the author's spelling, whichever way the tokens have it."""
    verifier = Jwt(written)
    found = outcome(verifier, token(now=NOW, iss=named), reply(METADATA | {"issuer": named}), reply(JWKS))
    assert found.owner == f"{written} sub ann"
    assert f"the issuer {written} calls itself {named}" in caplog.text
    assert "not trusted here" in refused(verifier, token(now=NOW, iss=written)), "from now on its own spelling counts"


def test_a_slash_at_the_end_of_a_known_issuer_is_mended_where_it_is_written() -> None:
    auth0, realm = "https://t.eu.auth0.com", "https://id.example.com/realms/x"
    assert [Jwt(each).issuer for each in (auth0, auth0 + "/")] == [auth0 + "/"] * 2
    assert [Jwt(each).issuer for each in (realm, realm + "/")] == [realm] * 2
    assert Jwt(realm + "/", preset="keycloak").issuer == realm
    assert Jwt("https://login.example.com", preset="auth0").issuer == "https://login.example.com/"
    assert Introspection(realm + "/", "a", "b").issuer == realm


def test_an_issuer_whose_keys_are_given_has_one_spelling() -> None:
    assert "not trusted here" in refused(Jwt(ISSUER, jwks_uri=f"{ISSUER}/keys"), token(now=NOW, iss=ISSUER + "/"))


def test_an_unknown_kid_causes_one_request_in_thirty_seconds() -> None:
    """A flood of unknown kids must not become a flood at the issuer."""
    verifier, rotated = Jwt(ISSUER), ECKey.generate_key("P-256", {"kid": "k2"})
    outcome(verifier, token(now=NOW), reply(METADATA), reply(JWKS))
    for number in range(100):
        refused(verifier, token({"kid": f"x{number}"}, now=NOW))
    flood, asked = token({"kid": "x"}, now=NOW), list[Any]()
    with pytest.raises(TokenRefused):
        outcome(verifier, flood, now=NOW + 29.9)
    with pytest.raises(TokenRefused):
        outcome(verifier, flood, reply(JWKS), now=NOW + 30, asked=asked)
    with pytest.raises(TokenRefused):
        outcome(verifier, flood, now=NOW + 32)
    assert len(asked) == 1
    new = {"keys": [*JWKS["keys"], rotated.as_dict(private=False)]}
    assert outcome(verifier, token({"kid": "k2"}, rotated, NOW), reply(new), now=NOW + 62).grant.subject == "ann"


ROTATED = ECKey.generate_key("P-256", {"kid": "k2"})


def rotated(now: float = NOW + 10, **claims: Any) -> str:
    """Return a token that is signed with a key which the issuer has since a moment ago."""
    return token({"kid": "k2"}, ROTATED, now, **claims)


def test_a_token_that_is_newer_than_the_keys_waits_for_the_next_look_at_them() -> None:
    verifier = Jwt(ISSUER, jwks_uri=f"{ISSUER}/keys")
    outcome(verifier, token(now=NOW), reply(JWKS))
    with pytest.raises(IssuerUnavailable, match=r"has no key 'k2' for ES256, and the token is newer") as problem:
        outcome(verifier, rotated(), now=NOW + 10)
    assert problem.value.seconds == 20
    new = {"keys": [*JWKS["keys"], ROTATED.as_dict(private=False)]}
    assert outcome(verifier, rotated(), reply(new), now=NOW + 30).grant.subject == "ann"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (rotated(iat=NOW), "has no key 'k2'"),
        (rotated(iat=None), "has no key 'k2'"),
        (rotated(iat=NOW + 41), "not valid yet"),
        (rotated(aud="https://other.example.com/mcp"), "the token is for"),
        (rotated(aud=None), "the token is for"),
        (rotated(exp=NOW - 31), "has expired"),
        (rotated(exp=None), "no exp"),
        (rotated(iss="https://other.example.com"), "not trusted here"),
        (token({"kid": "k1", "alg": "RS256"}, RSA, NOW + 10), "has no key 'k1' for RS256"),
        (token({"kid": None, "alg": "RS256"}, RSA, NOW + 10), "names no key"),
        (token({"kid": "k1"}, ROTATED, NOW + 10), "the signature is not valid"),
    ],
    ids=[
        "not newer",
        "no iat",
        "future",
        "audience",
        "no audience",
        "ended",
        "no end",
        "issuer",
        "kid",
        "no kid",
        "signature",
    ],
)
def test_a_token_that_is_wrong_besides_its_unknown_key_is_refused(given: str, reason: str) -> None:
    verifier = Jwt(ISSUER, jwks_uri=f"{ISSUER}/keys")
    outcome(verifier, token(now=NOW), reply(JWKS))
    with pytest.raises(TokenRefused, match=reason):
        outcome(verifier, given, now=NOW + 10)


def test_a_look_that_failed_is_none_at_the_keys() -> None:
    """A token from before it, and from after the one that succeeded, may still have a key that is newer."""
    verifier = Jwt(ISSUER, jwks_uri=f"{ISSUER}/keys")
    outcome(verifier, token(now=NOW), reply(JWKS))
    for seconds, answers in ((40, [HttpUnavailable("no route")]), (41, [])):
        with pytest.raises(IssuerUnavailable):
            outcome(verifier, rotated(NOW + 35), *answers, now=NOW + seconds)
    with pytest.raises(TokenRefused, match="has no key 'k2'"):
        outcome(verifier, rotated(NOW + 35), reply(JWKS), now=NOW + 70)


def test_keys_of_ones_own_are_never_read_again() -> None:
    assert "has no key 'k2'" in refused(jwt(), rotated(NOW))


def test_known_keys_are_used_while_the_issuer_is_down() -> None:
    verifier, asked = Jwt(ISSUER), list[Any]()
    outcome(verifier, token(now=NOW), reply(METADATA), reply(JWKS, cache_control="max-age=60"))
    down = HttpUnavailable("no route")
    late = token(now=NOW + 100)
    assert outcome(verifier, late, down, now=NOW + 100, asked=asked).grant.subject == "ann"
    assert outcome(verifier, late, now=NOW + 101).grant.subject == "ann"
    assert outcome(verifier, late, reply({}, 500), now=NOW + 131).grant.subject == "ann"
    with pytest.raises(IssuerUnavailable):
        outcome(verifier, token(now=NOW + 100_000), reply(METADATA), down, now=NOW + 100_000)


def test_an_issuer_that_was_never_reached_is_asked_again_after_a_moment() -> None:
    verifier, down = Jwt(ISSUER), HttpUnavailable("no route")
    for answers, now in (([down], NOW), ([], NOW + 1), ([down], NOW + 6)):
        with pytest.raises(IssuerUnavailable):
            outcome(verifier, token(now=NOW), *answers, now=now)
    outcome(verifier, token(now=NOW), reply(METADATA), reply(JWKS), now=NOW + 12)


def test_a_second_request_waits_for_keys_that_are_on_their_way() -> None:
    verifier = Jwt(ISSUER, jwks_uri=f"{ISSUER}/keys")
    first, second = (verify([verifier], token(now=NOW), RESOURCE, NOW) for _ in range(2))
    assert next(first) == next(second)
    for each in (first, second):
        with pytest.raises(StopIteration):
            each.send(reply(JWKS))


# Introspection.

ACTIVE = {"active": True, "scope": "files:read", "client_id": "editor", "sub": "ann", "aud": RESOURCE, "exp": NOW + 600}


def introspection(**options: Any) -> Introspection:
    return Introspection(ISSUER, "files server", "s3cret:%", endpoint=f"{ISSUER}/introspect", **options)


def test_an_opaque_token_is_introspected() -> None:
    asked: list[Any] = []
    found = outcome(introspection(), "opaque", reply(ACTIVE), asked=asked)
    assert found.owner == f"{ISSUER} sub ann"
    assert found.seconds == 60
    (effect,) = asked
    assert effect.body == b"token=opaque&token_type_hint=access_token"
    assert effect.headers["authorization"] == "Basic ZmlsZXMrc2VydmVyOnMzY3JldCUzQSUyNQ=="


def test_an_introspected_token_is_remembered_as_long_as_the_response_says() -> None:
    assert outcome(introspection(), "opaque", reply(ACTIVE, cache_control="max-age=5")).seconds == 5
    assert outcome(introspection(), "opaque", reply(ACTIVE, cache_control="no-store")).seconds == 0
    assert outcome(introspection(), "opaque", reply(ACTIVE, cache_control="max-age=500")).seconds == 60


@pytest.mark.parametrize("said", [{}, {"cache_control": "no-cache"}, {"cache_control": "max-age=5"}])
def test_an_introspected_token_is_remembered_as_long_as_the_author_says(said: dict[str, str]) -> None:
    assert outcome(introspection(remember=30), "opaque", reply(ACTIVE, **said)).seconds == 30
    assert "not active" in refused(introspection(remember=30), "opaque", reply({"active": False}, **said))


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_remembering_takes_some_seconds(seconds: float) -> None:
    with pytest.raises(ValueError, match="remember must be a number of seconds above 0"):
        introspection(remember=seconds)


def test_why_keycloak_knows_nothing_of_a_token_is_said() -> None:
    """It says that of each token whose audience is without the client that asks."""
    realm = "https://id.example.com/realms/work"
    keycloak = Introspection(realm, "files-server", "hunter2", endpoint=f"{realm}/introspect")
    reason = refused(keycloak, "opaque", reply({"active": False}))
    assert reason.endswith("an audience mapper with the Included Client Audience files-server [LS-613]")
    assert "hunter2" not in reason
    assert refused(introspection(), "opaque", reply({"active": False})) == f"{ISSUER} reports the token as not active"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"active": False}, "reports the token as not active"),
        ({"active": "true"}, "reports the token as not active"),
        ({"aud": "other"}, "the token is for 'other'"),
        ({"aud": None}, "the token is for None"),
        ({"exp": NOW - 31}, "has expired"),
        ({"iss": "https://evil.example.com"}, "was issued by 'https://evil.example.com'"),
    ],
)
def test_an_introspected_token_that_is_wrong_is_refused(changes: dict[str, Any], reason: str) -> None:
    assert reason in refused(introspection(), "opaque", reply(ACTIVE | changes))


@pytest.mark.parametrize("answer", [reply({}, 401), reply([]), HttpUnavailable("no route")])
def test_an_introspection_that_fails_is_not_the_fault_of_the_token(answer: Any) -> None:
    with pytest.raises(IssuerUnavailable):
        outcome(introspection(), "opaque", answer)


def test_an_issuer_whose_metadata_cannot_be_read_is_not_asked_again_for_each_token() -> None:
    verifier = Introspection(ISSUER, "a", "b")
    asked: list[Any] = []
    for seconds in (0, 1, 4.9, 5):
        with pytest.raises(IssuerUnavailable):
            outcome(verifier, "opaque", HttpUnavailable("no route"), asked=asked, now=NOW + seconds)
    assert len(asked) == 2
    assert outcome(verifier, "opaque", reply(METADATA), reply(ACTIVE), now=NOW + 10).owner == f"{ISSUER} sub ann"


def test_a_jwt_of_another_issuer_is_not_shown_to_an_introspection_endpoint() -> None:
    assert "not trusted" in refused(introspection(), token(now=NOW, iss="https://other.example.com"))


def test_the_endpoint_of_introspection_is_found_by_the_metadata() -> None:
    asked: list[Any] = []
    outcome(Introspection(ISSUER, "a", "b"), "opaque", reply(METADATA), reply(ACTIVE), asked=asked)
    assert urls(asked)[1] == f"{ISSUER}/introspect"


# Keys of one's own, and functions.


def test_api_keys_are_known_by_their_digest() -> None:
    ann = Grant("keys", subject="ann", scopes=frozenset({"files:read"}))
    keys = ApiKeys({sha256(b"hunter2").hexdigest(): ann})
    assert outcome(keys, "hunter2").grant == ann
    assert "not known" in refused(keys, "hunter3")
    assert "hunter2" not in repr(keys)
    expired = ApiKeys({sha256(b"hunter2").hexdigest(): Grant("keys", subject="ann", expires=NOW - 1)})
    assert "expired" in refused(expired, "hunter2")
    with pytest.raises(ValueError, match="not the key itself"):
        ApiKeys({"hunter2": ann})
    with pytest.raises(ValueError, match="needs a subject"):
        ApiKeys({sha256(b"hunter2").hexdigest(): Grant("keys")})


def test_a_function_decides_about_tokens() -> None:
    def check(token: str) -> Grant | None:
        raise AssertionError("the driver calls it")

    verifier = FunctionVerifier(check)
    asked: list[Any] = []
    ann = Grant("https://own.example.com", subject="ann")
    assert outcome(verifier, "opaque", ann, asked=asked).grant is ann
    assert asked == [CheckToken(check, "opaque")]
    assert "not known" in refused(verifier, "opaque", None)
    assert "without a subject" in refused(verifier, "opaque", Grant("x"))
    assert "expired" in refused(verifier, "opaque", Grant("x", subject="y", expires=NOW))
    with pytest.raises(TypeError, match="returns a Grant or None, not bool"):
        outcome(verifier, "opaque", True)


# Providers.


@pytest.mark.parametrize(
    ("name", "issuer", "claims", "scopes", "roles", "client"),
    [
        ("auth0", "https://t.eu.auth0.com/", {"scope": "a", "permissions": ["b"], "azp": "c"}, {"a", "b"}, set(), "c"),
        (
            "okta",
            "https://o.okta.com/oauth2/default",
            {"scp": ["a", "b"], "cid": "c", "groups": ["g"]},
            {"a", "b"},
            {"g"},
            "c",
        ),
        (
            "entra",
            "https://login.microsoftonline.com/t/v2.0",
            {"scp": "a b", "azp": "c", "roles": ["r"]},
            {"a", "b"},
            {"r"},
            "c",
        ),
        (
            "keycloak",
            "https://id.example.com/realms/x",
            {"typ": "Bearer", "scope": "a", "azp": "c", "realm_access": {"roles": ["r"]}},
            {"a"},
            {"r"},
            "c",
        ),
        (
            "cognito",
            "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_x",
            {"token_use": "access", "client_id": "c", "scope": "r/a", "cognito:groups": ["g"], "aud": None},
            {"r/a"},
            {"g"},
            "c",
        ),
        ("authkit", "https://x.authkit.app", {"scope": "a", "client_id": "c", "role": "r"}, {"a"}, {"r"}, "c"),
        ("descope", "https://api.descope.com/v1/apps/agentic/P2/M3", {"scope": "a", "azp": "c"}, {"a"}, set(), "c"),
        ("clerk", "https://x.clerk.accounts.dev", {"scope": "a", "client_id": "c"}, {"a"}, set(), "c"),
        ("supabase", "https://x.supabase.co/auth/v1", {"aud": "authenticated", "client_id": "c"}, set(), set(), "c"),
    ],
)
def test_the_tokens_of_a_provider_are_understood(
    name: str, issuer: str, claims: dict[str, Any], scopes: set[str], roles: set[str], client: str
) -> None:
    assert preset_for(issuer) is PRESETS[name] is preset_for("https://own.example.com", name)
    options: dict[str, Any] = {"audience": ["c"]} if name == "cognito" else {}
    verifier = Jwt(issuer, keys=JWKS, **options)
    given = {"scope": None, "client_id": None, **claims}
    grant = outcome(verifier, token(now=NOW, iss=issuer, **given)).grant
    assert (grant.scopes, grant.roles, grant.client_id) == (scopes, roles, client)


def test_an_id_token_of_a_provider_is_not_an_access_token() -> None:
    keycloak = Jwt("https://id.example.com/realms/x", keys=JWKS)
    assert "typ is 'ID'" in refused(keycloak, token(now=NOW, iss="https://id.example.com/realms/x", typ="ID"))
    pool = "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_x"
    cognito = Jwt(pool, keys=JWKS, audience="editor")
    assert "token_use is 'id'" in refused(cognito, token(now=NOW, iss=pool, token_use="id"))
    assert "is for 'stranger' (client_id)" in refused(
        cognito, token(now=NOW, iss=pool, token_use="access", client_id="stranger")
    )


def test_what_a_provider_cannot_do_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="pass audience="):
        Jwt("https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_x")
    for issuer, line in (("https://accounts.google.com", "google"), ("https://github.com/login/oauth", "github")):
        with pytest.raises(ValueError, match=rf"are not JWTs: write auth=Protected\.{line}\(...\)"):
            Jwt(issuer)
        assert hasattr(Protected, line)
    with pytest.raises(ValueError, match="did you mean 'keycloak'"):
        Jwt(ISSUER, preset="keyclock")
    with pytest.raises(ValueError, match="must be an https URL"):
        Introspection("login.example.com", "a", "b")


INSIDE = "http://keycloak:8080/realms/x"


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda **more: Jwt(INSIDE, **more), "issuer"),
        (lambda **more: Jwt(ISSUER, jwks_uri=f"{INSIDE}/certs", **more), "jwks_uri"),
        (lambda **more: Introspection(INSIDE, "a", "b", **more), "issuer"),
        (lambda **more: Introspection(ISSUER, "a", "b", endpoint=f"{INSIDE}/introspect", **more), "endpoint"),
        (lambda **more: TokenExchange(INSIDE, "a", "b", **more), "issuer"),
        (lambda **more: TokenExchange(ISSUER, "a", "b", token_endpoint=f"{INSIDE}/token", **more), "token_endpoint"),
    ],
)
def test_http_to_an_issuer_inside_a_private_network_is_a_choice_of_the_author(make: Any, name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be an https URL.* write (\w+)\(\.\.\., insecure_issuer=True\)"):
        make()
    assert any(each.startswith(INSIDE) for each in make(insecure_issuer=True).named_urls)


@pytest.mark.parametrize("url", ["http://a:b@keycloak/realms/x", "ftp://keycloak/realms/x", "keycloak", "http://kc/#x"])
def test_what_is_no_url_of_an_issuer_is_refused_whatever_the_author_chooses(url: str) -> None:
    with pytest.raises(ValueError, match="must be an https URL") as problem:
        Jwt(url, insecure_issuer=True)
    assert "insecure_issuer" not in str(problem.value)


def test_scopes_may_have_a_prefix_that_tokens_leave_out() -> None:
    grant = outcome(jwt(scope_prefix="api://7/"), token(now=NOW, scope="read")).grant
    assert grant.scopes == {"read", "api://7/read"}
