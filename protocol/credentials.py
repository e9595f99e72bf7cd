"""The credential of a datanode: its own key pair (Ed25519, RFC 8032), to which the coordinator binds its id.

The cluster secret shows that a machine belongs to the cluster; the credential shows which datanode it is. The
private key never leaves the datanode's directory. So neither the secret nor the coordinator's metadata is enough
to register in its place. Pure, except for the random numbers in `make`.
"""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

PUBLIC_KEY_BYTES: Final = 32
_PURPOSE = b"peacefs registration of datanode "
_FINGERPRINT_CHARACTERS = 16


class Credential:
    """A datanode's key pair."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = key.public_key().public_bytes_raw()

    @staticmethod
    def make() -> Credential:
        return Credential(Ed25519PrivateKey.generate())

    @staticmethod
    def from_pem(text: bytes) -> Credential:
        """Read a private key. Raises ValueError if it is not an Ed25519 key."""
        key = load_pem_private_key(text, None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("not an Ed25519 key")
        return Credential(key)

    def to_pem(self) -> bytes:
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign_registration(self, node: str, transcript: bytes) -> bytes:
        """Sign a registration that is valid only on the connection with this handshake transcript."""
        return self._key.sign(_signed(node, transcript))


def proves_registration(public_key: bytes, signature: bytes, node: str, transcript: bytes) -> bool:
    """Return whether the private half of this key signed the registration of `node` on this connection."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, _signed(node, transcript))
    except (ValueError, InvalidSignature):
        return False
    return True


def fingerprint(public_key: bytes) -> str:
    """Return a short hash by which people compare keys; empty if there is no key."""
    return hashlib.sha256(public_key).hexdigest()[:_FINGERPRINT_CHARACTERS] if public_key else ""


def _signed(node: str, transcript: bytes) -> bytes:
    return _PURPOSE + node.encode() + b"\0" + transcript
