"""DIGEST-MD5 as RFC 2831 has it."""

from __future__ import annotations

import pytest
from oracles.digest_md5 import respond

from peacefs.protocol.errors import Unauthenticated
from peacefs.protocol.hadoop.digest_md5 import DigestChallenge

IDENTIFIER, PASSWORD = b"\x00\x05alice", bytes(range(32))


def password_of(identifier: bytes) -> bytes:
    if identifier != IDENTIFIER:
        raise Unauthenticated("no such token")
    return PASSWORD


def test_client_that_has_the_password_is_believed_and_the_server_proves_it_too() -> None:
    challenge = DigestChallenge.new()
    response, proof = respond(challenge.nonce, IDENTIFIER, PASSWORD)
    assert challenge.verify(response, password_of) == (IDENTIFIER, proof)


@pytest.mark.parametrize(
    "changed",
    [{"nonce": "other"}, {"nc": "00000002"}, {"qop": "auth-conf"}, {"realm": "elsewhere"}, {"uri": "/elsewhere"}],
)
def test_response_to_another_question_is_refused(changed: dict[str, str]) -> None:
    challenge = DigestChallenge.new()
    response, _ = respond(challenge.nonce, IDENTIFIER, PASSWORD, **changed)
    with pytest.raises(Unauthenticated):
        challenge.verify(response, password_of)


def test_wrong_password_unknown_token_and_noise_are_refused() -> None:
    challenge = DigestChallenge.new()
    for identifier, password in ((IDENTIFIER, bytes(32)), (b"another", PASSWORD)):
        with pytest.raises(Unauthenticated):
            challenge.verify(respond(challenge.nonce, identifier, password)[0], password_of)
    for noise in (b"", b"=", b"\xff\xfe", b'username="', b"a=1,a=2", b"x" * 5000, b'username="!!!"'):
        with pytest.raises(Unauthenticated):
            challenge.verify(noise, password_of)


def test_challenges_differ() -> None:
    assert DigestChallenge.new().nonce != DigestChallenge.new().nonce
