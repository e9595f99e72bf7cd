"""Bearer tokens: JSON Web Tokens (RFC 7519) signed with Ed25519, made and read with PyJWT.

Signatures are asymmetric so that a datanode can verify a token and cannot make one. Lifetimes are judged by the
caller's clock, not the library's. A token says who its bearer is and nothing else: what users may do is decided
where they ask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

import jwt
import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import Unauthenticated
from peacefs.protocol.limits import bearer_token_characters_max

_ISSUER: Final = "peacefs"
_ALGORITHM: Final = "EdDSA"
_NUMBER_BYTES = 4
_NOT_OURS = "the token is none of this cluster's, or was changed"


class Claims(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of a token. Times are seconds since 1970, `aud` is the cluster."""

    iss: str
    aud: str
    sub: str
    jti: str
    iat: int
    exp: int
    #: May administer the cluster.
    adm: bool = False
    #: The OAuth2 client that it was granted to.
    client_id: str = ""


def key_number(public: bytes) -> int:
    """Return the number of a key, drawn from its public half: 31 bits, as Hadoop's tokens name keys."""
    return int.from_bytes(hashlib.sha256(public).digest()[:_NUMBER_BYTES]) & 0x7FFFFFFF


def key_id(number: int) -> str:
    """Return the same number as tokens name it, in `kid`."""
    return f"{number:08x}"


class VerificationKey:
    """The public half of a key."""

    def __init__(self, public: bytes) -> None:
        self.public = public
        self.number = key_number(public)
        self._key = Ed25519PublicKey.from_public_bytes(public)

    def read(self, token: str, cluster: str) -> Claims:
        """Raises Unauthenticated for anything but a token of this cluster, signed with this key."""
        try:
            claims = jwt.decode(
                token,
                self._key,
                algorithms=[_ALGORITHM],
                audience=cluster,
                issuer=_ISSUER,
                options={
                    "require": ["exp", "iat", "jti", "sub", "aud", "iss"],
                    # By the clock of whoever asks.
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
            return msgspec.convert(claims, Claims)
        except (jwt.PyJWTError, *UNREADABLE):
            raise Unauthenticated(_NOT_OURS) from None

    def verifies(self, signature: bytes, signed: bytes) -> bool:
        """Return whether the key made this signature."""
        try:
            self._key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True


class SigningKey:
    """A whole key. Its private half leaves this object as `pem` only."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.verification = VerificationKey(private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    @classmethod
    def generate(cls) -> SigningKey:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes) -> SigningKey:
        """Raises ValueError for what is no such key."""
        private = load_pem_private_key(pem, None)
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError(f"a key of another kind: {type(private).__name__}")
        return cls(private)

    def pem(self) -> bytes:
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def number(self) -> int:
        return self.verification.number

    def token(
        self,
        *,
        cluster: str,
        user: str,
        token_id: str,
        issued_s: float,
        expires_s: float,
        is_administrator: bool = False,
        client: str = "",
    ) -> str:
        """Return a token that says that its bearer is `user`."""
        claims = Claims(_ISSUER, cluster, user, token_id, int(issued_s), int(expires_s), is_administrator, client)
        headers = {"kid": key_id(self.number)}
        return jwt.encode(msgspec.to_builtins(claims), self._private, algorithm=_ALGORITHM, headers=headers)

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)


def read_token(
    token: str, find_key: Callable[[str], VerificationKey | None], cluster: str
) -> tuple[Claims, VerificationKey]:
    """Return what a token says, and the key that it names and was verified with. Raises Unauthenticated."""
    if len(token) > bearer_token_characters_max:
        raise Unauthenticated(f"a token of more than {bearer_token_characters_max} characters is none of ours")
    try:
        named = jwt.get_unverified_header(token).get("kid")
    except jwt.PyJWTError:
        raise Unauthenticated(_NOT_OURS) from None
    key = find_key(named) if isinstance(named, str) else None
    if key is None:
        raise Unauthenticated(f"{_NOT_OURS}, or its key was given up")
    return key.read(token, cluster), key
