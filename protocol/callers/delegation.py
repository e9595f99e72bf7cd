"""Hadoop's delegation tokens as WebHDFS carries them: `delegation=<urlString>`.

The format is Hadoop's: a Token of identifier, password, kind and service, with HDFS's identifier
(AbstractDelegationTokenIdentifier), so Hadoop's tools can show and renew it. The password is a signature over the
identifier instead of Hadoop's HMAC, so that a datanode can verify a token but cannot make one. Clients treat the
password as opaque.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from peacefs.protocol.errors import Unauthenticated

from .bearer import SigningKey, VerificationKey

# Delegation tokens travel in URLs. Owner and renewer have at most `account_name_characters_max` characters each.
delegation_token_characters_max: Final = 2048


KIND: Final = "WEBHDFS delegation"
#: The kind of a token for `hdfs://`. The coordinators share its password, which SASL proves without showing it.
HDFS_KIND: Final = "HDFS_DELEGATION_TOKEN"
_IDENTIFIER_VERSION = 0
_DOMAIN = b"peacefs delegation token 1\0"
_UNREADABLE = "the delegation token cannot be read: it is not as it was issued"
#: Hadoop's variable-length integers: values up to this are stored in one byte.
_ONE_BYTE_MAX = 127
_LENGTH_BASE = -112


@dataclass(frozen=True, slots=True)
class Identifier:
    """The content of a delegation token, with HDFS's field names. Times are milliseconds since 1970."""

    owner: str
    renewer: str
    issued_ms: int
    max_ms: int
    sequence: int
    key: int
    #: The proxy user that fetched the token for its owner; empty if the owner fetched it.
    real_user: str = ""

    def encode(self) -> bytes:
        return b"".join(
            (
                bytes([_IDENTIFIER_VERSION]),
                _text(self.owner),
                _text(self.renewer),
                _text(self.real_user),
                *map(_integer, (self.issued_ms, self.max_ms, self.sequence, self.key)),
            )
        )

    @classmethod
    def decode(cls, raw: bytes) -> Identifier:
        """Parse an identifier. Raises Unauthenticated if it is malformed."""
        reading = _FieldReader(raw)
        if reading.take(1)[0] != _IDENTIFIER_VERSION:
            raise Unauthenticated(_UNREADABLE)
        owner, renewer, real_user = reading.text(), reading.text(), reading.text()
        issued_ms, max_ms, sequence, key = (reading.integer() for _ in range(4))
        found = cls(owner, renewer, issued_ms, max_ms, sequence, key, real_user)
        reading.end()
        return found


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token as it is sent: signed by `issue`, or received and not yet verified."""

    identifier: bytes
    password: bytes
    kind: str
    service: str

    @classmethod
    def issue(cls, what: Identifier, key: SigningKey, cluster: str, service: str) -> DelegationToken:
        """Sign a token. `service` is the coordinator's address, by which clients select the token."""
        identifier = what.encode()
        return cls(identifier, key.sign(_signed(identifier, cluster)), KIND, service)

    def is_signed_with(self, key: VerificationKey, cluster: str) -> bool:
        return self.kind == KIND and key.verifies(self.password, _signed(self.identifier, cluster))

    def url_string(self) -> str:
        raw = _block(self.identifier) + _block(self.password) + _text(self.kind) + _text(self.service)
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> DelegationToken:
        """Parse a `urlString` without verifying it. Raises Unauthenticated if it is malformed."""
        if len(text) > delegation_token_characters_max:
            raise Unauthenticated(_UNREADABLE)
        try:
            stripped = text.rstrip("=")
            raw = base64.b64decode(stripped + "=" * (-len(stripped) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise Unauthenticated(_UNREADABLE) from None
        reading = _FieldReader(raw)
        found = cls(reading.block(), reading.block(), reading.text(), reading.text())
        reading.end()
        return found


def _signed(identifier: bytes, cluster: str) -> bytes:
    return _DOMAIN + _text(cluster) + identifier


def _integer(value: int) -> bytes:
    """Encode a non-negative number as Hadoop's WritableUtils.writeVLong does."""
    if value <= _ONE_BYTE_MAX:
        return bytes([value])
    digits = value.to_bytes((value.bit_length() + 7) // 8)
    return bytes([(_LENGTH_BASE - len(digits)) & 0xFF]) + digits


def _block(raw: bytes) -> bytes:
    return _integer(len(raw)) + raw


def _text(value: str) -> bytes:
    return _block(value.encode())


class _FieldReader:
    """Reads values in order. Every method raises Unauthenticated if the data ends early or is malformed."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, count: int) -> bytes:
        if count > len(self._raw) - self._at:
            raise Unauthenticated(_UNREADABLE)
        self._at += count
        return self._raw[self._at - count : self._at]

    def integer(self) -> int:
        first = int.from_bytes(self.take(1), signed=True)
        if first >= 0:
            return first
        length = _LENGTH_BASE - first
        # Negative numbers are not allowed in a token.
        if not 1 <= length <= 8:
            raise Unauthenticated(_UNREADABLE)
        return int.from_bytes(self.take(length))

    def block(self) -> bytes:
        return self.take(self.integer())

    def text(self) -> str:
        try:
            return self.block().decode()
        except UnicodeDecodeError:
            raise Unauthenticated(_UNREADABLE) from None

    def end(self) -> None:
        if self._at != len(self._raw):
            raise Unauthenticated(_UNREADABLE)
