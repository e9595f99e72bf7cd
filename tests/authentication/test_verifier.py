"""Credentials are verified with public keys only; all kinds of invalid ones are refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.protocol.callers.bearer import SigningKey, key_id
from peacefs.protocol.callers.caller import Caller, Via
from peacefs.protocol.callers.delegation import DelegationToken, Identifier
from peacefs.protocol.callers.verifier import Verifier, client_revocation, delegation_id
from peacefs.protocol.errors import AccessDenied, ServiceUnready, Unauthenticated
from peacefs.protocol.messages import Trust, TrustedKey

NOW_S = 1_800_000_000.0
KEY = SigningKey.generate()


def trusting(*keys: SigningKey, revoked: tuple[str, ...] = (), ends_s: float = 0.0) -> Trust:
    trusted = [TrustedKey(key.number, key.verification.public, ends_s) for key in keys]
    return Trust(is_required=True, keys=trusted, revoked=list(revoked))


def verifier(*keys: SigningKey, cluster: str = "c1") -> Verifier:
    made = Verifier(cluster)
    made.trust(trusting(*(keys or (KEY,))))
    return made


def bearer(key: SigningKey = KEY, *, user: str = "alice", ends_s: float = NOW_S + 60, **more: object) -> str:
    said = {"cluster": "c1", "token_id": "t1", "issued_s": NOW_S, "is_administrator": False, "client": ""} | more
    return key.token(user=user, expires_s=ends_s, **said)  # type: ignore[arg-type]


def delegation(key: SigningKey = KEY, cluster: str = "c1", sequence: int = 7) -> str:
    said = Identifier("alice", "yarn", int(NOW_S * 1000), int((NOW_S + 60) * 1000), sequence, key.number)
    return DelegationToken.issue(said, key, cluster, "127.0.0.1:9870").url_string()


def test_bearer_token_says_who_its_bearer_is():
    assert verifier().bearer(bearer(), NOW_S).caller == Caller("alice", Via.BEARER, False, "t1")
    assert verifier().bearer(bearer(is_administrator=True), NOW_S).caller.is_administrator


def test_bearer_token_ends_by_the_clock_that_is_passed_in():
    checked, token = verifier(), bearer()
    checked.bearer(token, NOW_S + 59)
    with pytest.raises(Unauthenticated, match="alice expired at 2027-01-15 08:01:00 UTC: make another"):
        checked.bearer(token, NOW_S + 60)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b.c",
        "x" * 5000,
        bearer(cluster="c2"),
        bearer(SigningKey.generate()),
        bearer()[:-4] + "AAAA",
        "é.é.é",
        "..",
    ],
    ids=["none", "nonsense", "long", "other cluster", "other key", "changed", "not ASCII", "dots"],
)
def test_bearer_token_that_is_not_ours_is_refused(token):
    with pytest.raises(Unauthenticated):
        verifier().bearer(token, NOW_S)


def _part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", ["none", "HS256", "EdDSA"])
def test_bearer_token_cannot_choose_how_it_is_verified(algorithm):
    """The classic forgeries: no signature, and the public key used as a shared secret."""
    payload = {"iss": "peacefs", "aud": "c1", "sub": "root", "jti": "x", "iat": 0, "exp": 4e9, "adm": True}
    signed = f"{_part({'alg': algorithm, 'kid': key_id(KEY.number)})}.{_part(payload)}"
    mac = hmac.digest(KEY.verification.public, signed.encode(), hashlib.sha256)
    with pytest.raises(Unauthenticated):
        verifier().bearer(f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}", NOW_S)
    with pytest.raises(Unauthenticated):
        verifier().bearer(f"{signed}.", NOW_S)


def test_revoked_token_is_refused_although_it_was_remembered():
    checked, token, granted = verifier(), bearer(), bearer(token_id="t2", client="spark")
    checked.bearer(token, NOW_S)
    checked.bearer(granted, NOW_S)
    checked.trust(trusting(KEY, revoked=("t1", client_revocation("spark"))))
    for each in (token, granted):
        with pytest.raises(Unauthenticated, match="was revoked"):
            checked.bearer(each, NOW_S)


def test_key_that_is_given_up_verifies_nothing_any_more():
    newer = SigningKey.generate()
    checked, token = verifier(KEY, newer), bearer()
    checked.bearer(token, NOW_S)
    checked.trust(trusting(KEY, newer, ends_s=NOW_S + 5))
    checked.bearer(token, NOW_S + 4)
    with pytest.raises(Unauthenticated, match="given up"):
        checked.bearer(token, NOW_S + 5)
    checked.trust(trusting(newer))
    with pytest.raises(Unauthenticated, match="given up"):
        checked.bearer(token, NOW_S)
    checked.bearer(bearer(newer), NOW_S)


def test_verifier_knows_nothing_before_it_is_told():
    with pytest.raises(ServiceUnready):
        _ = Verifier("c1").is_required


def test_verifier_remembers_a_bounded_number_of_tokens():
    checked = Verifier("c1", remembered_max=3)
    checked.trust(trusting(KEY))
    tokens = [bearer(token_id=str(number)) for number in range(5)]
    found = [checked.bearer(token, NOW_S).caller.token_id for token in (*tokens, *tokens)]
    assert found == [*"01234", *"01234"]
    assert checked.remembered == 3


def test_delegation_token_says_who_gave_it():
    assert verifier().delegation(delegation(), NOW_S).caller == Caller(
        "alice", Via.DELEGATION, False, delegation_id(7)
    )
    with pytest.raises(Unauthenticated, match="expired"):
        verifier().delegation(delegation(), NOW_S + 60)
    checked = verifier()
    checked.trust(trusting(KEY, revoked=(delegation_id(7),)))
    with pytest.raises(Unauthenticated, match="revoked"):
        checked.delegation(delegation(), NOW_S)


@pytest.mark.parametrize(
    "token",
    ["", "x", "AAAA", delegation(cluster="c2"), delegation(SigningKey.generate()), delegation() + "AAAA"],
    ids=["none", "nonsense", "zeros", "other cluster", "other key", "longer"],
)
def test_delegation_token_that_is_not_ours_is_refused(token):
    with pytest.raises(Unauthenticated):
        verifier().delegation(token, NOW_S)


@given(raw=st.binary(max_size=200))
def test_delegation_token_of_any_bytes_raises_nothing_else(raw):
    with pytest.raises(Unauthenticated):
        verifier().delegation(base64.urlsafe_b64encode(raw).decode(), NOW_S)


@given(
    owner=st.text(max_size=20).filter(lambda text: text.isprintable()),
    number=st.integers(0, 2**63 - 1),
    sequence=st.integers(0, 2**31 - 1),
)
def test_delegation_identifier_is_read_as_it_was_written(owner, number, sequence):
    said = Identifier(owner, "", number, number, sequence, KEY.number)
    assert Identifier.decode(said.encode()) == said


def test_caller_acts_for_another_only_as_an_administrator():
    alice, root = Caller("alice", Via.BEARER), Caller("root", Via.BEARER, is_administrator=True)
    assert (alice.acting_as(None), alice.acting_as("alice"), root.acting_as("bob")) == ("alice", "alice", "bob")
    with pytest.raises(AccessDenied, match="the token is alice's, who may not act as bob"):
        alice.acting_as("bob")
