"""Bearer tokens: JSON Web Tokens (RFC 7519) signed with Ed25519, encoded and decoded with PyJWT.

Signatures are asymmetric so that a datanode can verify a token but cannot make one. Callers of this module check
lifetimes with their own clock, instead of PyJWT. A token only identifies its bearer; permissions are checked where
a request is served.
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
    """The payload of a token. Times are seconds since 1970; `aud` is the cluster."""

    iss: str
    aud: str
    sub: str
    jti: str
    iat: int
    exp: int
    #: True if the bearer may administer the cluster.
    adm: bool = False
    #: The OAuth2 client to which the token was granted; empty if none.
    client_id: str = ""


def key_number(public: bytes) -> int:
    """Return the number of a key: 31 bits of a hash of its public half, since Hadoop's tokens number keys so."""
    return int.from_bytes(hashlib.sha256(public).digest()[:_NUMBER_BYTES]) & 0x7FFFFFFF


def key_id(number: int) -> str:
    """Return a key number as it appears in the `kid` header of tokens."""
    return f"{number:08x}"


class VerificationKey:
    def __init__(self, public: bytes) -> None:
        self.public = public
        self.number = key_number(public)
        self._key = Ed25519PublicKey.from_public_bytes(public)

    def read(self, token: str, cluster: str) -> Claims:
        """Return the claims of a token.

        Raises Unauthenticated unless the token is for this cluster and signed with this key.
        """
        try:
            claims = jwt.decode(
                token,
                self._key,
                algorithms=[_ALGORITHM],
                audience=cluster,
                issuer=_ISSUER,
                options={
                    "require": ["exp", "iat", "jti", "sub", "aud", "iss"],
                    # The caller checks times with its own clock.
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
            return msgspec.convert(claims, Claims)
        except (jwt.PyJWTError, *UNREADABLE):
            raise Unauthenticated(_NOT_OURS) from None

    def verifies(self, signature: bytes, signed: bytes) -> bool:
        try:
            self._key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True


class SigningKey:
    """A key pair. The private half leaves this object only through `pem`."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.verification = VerificationKey(private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    @classmethod
    def generate(cls) -> SigningKey:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes) -> SigningKey:
        """Read a key. Raises ValueError if it is not an Ed25519 private key."""
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
        claims = Claims(_ISSUER, cluster, user, token_id, int(issued_s), int(expires_s), is_administrator, client)
        headers = {"kid": key_id(self.number)}
        return jwt.encode(msgspec.to_builtins(claims), self._private, algorithm=_ALGORITHM, headers=headers)

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)


def read_token(
    token: str, find_key: Callable[[str], VerificationKey | None], cluster: str
) -> tuple[Claims, VerificationKey]:
    """Verify a token with the key that it names; return its claims and that key. Raises Unauthenticated."""
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
