"""Tokens (permits of the coordinator) and receipts (statements of datanodes), signed with the cluster secret.

A token is a struct in MessagePack followed by 16 bytes of HMAC-SHA256, in URL-safe base64 without padding.
Only services that know the secret can sign or alter them. The keys for tokens and receipts are derived from the
secret with different labels, so a token cannot pass for a receipt. Times are seconds of the coordinator's wall
clock; datanodes compare with that clock, too.

A token names every address to which a service may connect on behalf of its bearer. Gateways and pipeline hops
connect to no others (decision 29).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Collection
from math import inf
from typing import TypeVar

import msgspec

from .decoding import UNREADABLE
from .errors import AccessDenied, TokenExpired
from .ids import ChunkId, NodeId, Version
from .messages import Allocated, ChunkLayout, Hop, Receipt
from .new_file import NewFile

_MAC_BYTES = 16
_HASH_BLOCK_BYTES = 64
_SECRET_NAME_BYTES = 8
#: Translates the URL-safe base64 alphabet to the standard one. `+` and `/` become `!`, which is then rejected.
_STANDARD = bytes.maketrans(b"-_+/", b"+/!!")


class Token(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base of all tokens. Encoded as an array, to keep URLs short."""

    expires_s: float


class FileWrite(Token, frozen=True):
    """Permits to write one new file. Contains everything that completion needs, so that CREATE commits nothing."""

    file: NewFile
    #: The host that created the file.
    client_host: str = ""
    #: True if the name may appear before the file is complete, because it replaces no other file.
    may_appear: bool = False

    # The same properties as fields of the other file tokens.

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def user(self) -> str:
        return self.file.user

    @property
    def block_bytes(self) -> int:
        return self.file.block_bytes

    @property
    def replication(self) -> int:
        return self.file.replication

    @property
    def request_id(self) -> str:
        return self.file.request_id


class FileAppend(Token, frozen=True):
    """Permits to extend the file at a path any number of times; each use takes a lease.

    `block_bytes` and `replication` are the file's, for the gateway that receives the data.
    """

    path: str
    user: str
    block_bytes: int
    replication: int


class FileLease(Token, frozen=True):
    """The lease of a file. Its number fences off earlier holders. `path` is only for logs."""

    path: str
    inode: int
    number: int
    holder: str
    replication: int
    request_id: str


class FileVersion(msgspec.Struct, frozen=True, array_like=True):
    """The chunks of a file at one moment, each as (id, version, used bytes).

    With more than `read_token_chunks_max` chunks, it contains only their `count` and a `digest`.
    """

    chunks: list[tuple[ChunkId, Version, int]]
    count: int
    digest: bytes = b""


class FileRead(Token, frozen=True):
    """Permits to read one version of a file, identified by inode and not by name.

    The version is the one that was opened; with `at_tx`, the one after that transaction, as shown by a snapshot.
    The coordinator has checked that `user` may read the file. After `expires_s` the token can be renewed, which
    repeats the check, until `renewable_until_s`. `chunks` is the layout of a small file, without chunk tokens.
    """

    path: str
    inode: int
    user: str
    opened: FileVersion
    renewable_until_s: float = 0.0
    at_tx: int | None = None
    chunks: list[ChunkLayout] | None = None


class ChunkWrite(Token, frozen=True):
    """Permits to write one version of one chunk through this pipeline, before `expires_s`.

    A large chunk has a `grant` of the scheduling service; the first node reports when the grant is finished.
    """

    chunk: ChunkId
    version: Version
    pipeline: list[Hop]
    grant: int = 0

    @property
    def nodes(self) -> list[NodeId]:
        return [hop.node for hop in self.pipeline]


class OneTimeChunk(Token, frozen=True, tag="FirstChunk"):
    """Permits one process of a datanode to write one version of one chunk, once.

    It is part of the URL of a CREATE, which a client could send more than once. Data servers do not accept it.
    The gateway of that process replaces it by a ChunkWrite token for the first body that arrives.
    """

    chunk: ChunkId
    version: Version
    pipeline: list[Hop]
    process: str


class ChunkRead(Token, frozen=True):
    """Permits a reader of the file `inode` to read one chunk, on any datanode."""

    chunk: ChunkId
    inode: int = 0


class BlockWrite(Token, frozen=True):
    """Permits a client of HDFS's data transfer protocol to write one block, at any datanode (decision 82).

    The datanode writes the block's bytes as chunks of the file, under the FileLease token `lease`, beginning with
    `allocated` if there is one. `block` is the id that the client knows. The first `published` bytes of the block
    are in the file already. `file_block_bytes` is the file's block size. `unpublished` are the chunks that an
    earlier datanode had begun for the bytes after those.
    """

    lease: str
    block: ChunkId
    version: Version
    file_block_bytes: int
    allocated: Allocated | None = None
    published: int = 0
    unpublished: list[ChunkId] = []


class ProxyPass(Token, frozen=True):
    """Permits a proxy user to use, at a datanode, one token that was issued to it for another user."""

    real_user: str
    token_digest: bytes

    @classmethod
    def of(cls, expires_s: float, real_user: str, token: str) -> ProxyPass:
        return cls(expires_s, real_user, _digest(token))

    def is_for(self, real_user: str, token: str) -> bool:
        return real_user == self.real_user and hmac.compare_digest(_digest(token), self.token_digest)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


AnyToken = (
    FileWrite | FileAppend | FileLease | FileRead | ChunkWrite | OneTimeChunk | ChunkRead | BlockWrite | ProxyPass
)
_decoder: msgspec.msgpack.Decoder[AnyToken] = msgspec.msgpack.Decoder(AnyToken)
T = TypeVar(
    "T", FileWrite, FileAppend, FileLease, FileRead, ChunkWrite, OneTimeChunk, ChunkRead, BlockWrite, ProxyPass
)


def _of_kind(token: AnyToken, kind: type[T]) -> T:
    if not isinstance(token, kind):
        raise AccessDenied(f"a {kind.__name__} token is wanted, this is a {type(token).__name__}")
    return token


def user_named_in(text: str) -> str | None:
    """Return the user that a token names, without verifying it; None if it names none or cannot be decoded."""
    try:
        raw = binascii.a2b_base64(text.encode("ascii").translate(_STANDARD) + b"=" * (-len(text) % 4))
        token = _decoder.decode(raw[:-_MAC_BYTES])
    except (binascii.Error, ValueError, *UNREADABLE):
        return None
    return token.user if isinstance(token, FileWrite | FileAppend | FileRead) else None


class _Mac:
    """HMAC-SHA256 (RFC 2104) under one key of at most 64 bytes.

    `hmac.digest` releases the interpreter lock for a microsecond of work, and busy threads can delay its return
    for much longer. `hashlib` keeps the lock for inputs below 2 KiB.
    """

    def __init__(self, key: bytes) -> None:
        block = key.ljust(_HASH_BLOCK_BYTES, b"\0")
        assert len(block) == _HASH_BLOCK_BYTES
        # Copying a hash object is cheaper than creating one.
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def of(self, body: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(body)
        outer.update(inner.digest())
        return outer.digest()[:_MAC_BYTES]


class HandshakeSecret:
    """A cluster secret as the handshake uses it. Equal secrets have equal names; a name reveals nothing else."""

    def __init__(self, secret: bytes) -> None:
        self._key = _derive(secret, b"hello")
        self.name = hmac.digest(self._key, b"name", hashlib.sha256)[:_SECRET_NAME_BYTES]

    def prove(self, label: bytes, transcript: bytes) -> bytes:
        """Return a proof of knowing the secret, different for each label. It does not reveal the secret."""
        return hmac.digest(self._key, label + b"\0" + transcript, hashlib.sha256)


def _derive(secret: bytes, label: bytes) -> bytes:
    return hmac.digest(secret, b"peacefs " + label, hashlib.sha256)


def _key_number(key: bytes) -> int:
    return int.from_bytes(hmac.digest(key, b"number", hashlib.sha256)[:4]) & 0x7FFFFFFF


class Signer:
    """Signs with the cluster secret, and verifies with it and with secrets that are being replaced.

    Every service has one. Tokens and receipts signed with a secret that is not in its list are refused.
    Thread-safe.
    """

    def __init__(self, secret: bytes, *others: bytes) -> None:
        self.replace(secret, *others)

    def replace(self, secret: bytes, *others: bytes) -> None:
        """Replace all secrets; the first one signs."""
        secrets = (secret, *others)
        self._token_macs = [_Mac(_derive(each, b"token")) for each in secrets]
        self._receipt_macs = [_Mac(_derive(each, b"receipt")) for each in secrets]
        self.handshake_secrets = [HandshakeSecret(each) for each in secrets]
        self._password_keys = [_derive(each, b"delegation") for each in secrets]

    def handshake_secret(self, names: Collection[bytes]) -> HandshakeSecret | None:
        """Return the first secret with one of these names."""
        return next((secret for secret in self.handshake_secrets if secret.name in names), None)

    @property
    def password_key(self) -> int:
        """The number of the key of new passwords. It reveals nothing else of the key."""
        return _key_number(self._password_keys[0])

    def password(self, identifier: bytes, key: int) -> bytes | None:
        """Return the password of a delegation token that all coordinators know; None if its key was given up."""
        for each in self._password_keys:
            if _key_number(each) == key:
                return hmac.digest(each, identifier, hashlib.sha256)
        return None

    def sign(self, token: Token) -> str:
        body = msgspec.msgpack.encode(token)
        return base64.urlsafe_b64encode(body + self._token_macs[0].of(body)).rstrip(b"=").decode()

    def verify(self, text: str, kind: type[T], now_s: float) -> T:
        """Return a verified token.

        Raises AccessDenied if it is malformed, forged or of another kind; TokenExpired if it has expired.
        """
        return _of_kind(self._verified(text, now_s), kind)

    def verify_even_late(self, text: str, kind: type[T]) -> T:
        """Return a verified token as `verify` does, but accept an expired one: the caller checks `expires_s`."""
        return _of_kind(self._verified(text, -inf), kind)

    def verify_reader(self, text: str, now_s: float) -> FileRead:
        """Return the token of an open file if it may still be renewed. Raises AccessDenied or TokenExpired."""
        token = self.verify_even_late(text, FileRead)
        if token.renewable_until_s < now_s:
            raise TokenExpired("the file was not read for too long: open it again")
        return token

    def verify_for_writing(self, text: str, now_s: float) -> FileWrite | FileLease:
        """Return a token that permits to write chunks of a new or extended file. Raises AccessDenied."""
        token = self._verified(text, now_s)
        if not isinstance(token, FileWrite | FileLease):
            raise AccessDenied(f"a token to write with is wanted, this is a {type(token).__name__}")
        return token

    def named_in(self, text: str) -> tuple[str | None, str | None]:
        """Return path and user of a correctly signed token, for logs; None for each that the token lacks."""
        try:
            token = self._verified(text, -inf)
        except AccessDenied:
            return None, None
        return getattr(token, "path", None), getattr(token, "user", None)

    def _verified(self, text: str, now_s: float) -> AnyToken:
        try:
            padded = text.encode("ascii").translate(_STANDARD) + b"=" * (-len(text) % 4)
            raw = binascii.a2b_base64(padded, strict_mode=True)
        except (binascii.Error, ValueError):
            raise AccessDenied("the token is malformed; ask the coordinator for a new one") from None
        body, mac = raw[:-_MAC_BYTES], raw[-_MAC_BYTES:]
        if not any(hmac.compare_digest(each.of(body), mac) for each in self._token_macs):
            raise AccessDenied("the token was not signed with this cluster's secret")
        try:
            token = _decoder.decode(body)
        except UNREADABLE:
            raise AccessDenied("the token is of another version of peacefs") from None
        if token.expires_s < now_s:
            raise TokenExpired("the token has expired; ask the coordinator for a new one")
        return token

    def receipt(self, node: NodeId, chunk: ChunkId, version: Version, length: int, checksum: int) -> Receipt:
        """Return a datanode's receipt for a replica that is on its disk."""
        return Receipt(node, self._receipt_macs[0].of(_attested(node, chunk, version, length, checksum)))

    def verify_receipt(
        self, receipt: Receipt, chunk: ChunkId, version: Version, length: int, checksum: int
    ) -> None:
        """Check that the datanode named in a receipt signed it for exactly this replica. Raises AccessDenied."""
        attested = _attested(receipt.node, chunk, version, length, checksum)
        if not any(hmac.compare_digest(each.of(attested), receipt.mac) for each in self._receipt_macs):
            raise AccessDenied(f"the receipt of datanode {receipt.node} does not verify")


def _attested(node: NodeId, chunk: ChunkId, version: Version, length: int, checksum: int) -> bytes:
    return f"{node}\0{chunk}\0{version}\0{length}\0{checksum}".encode()
