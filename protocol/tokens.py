"""Tokens and receipts: what the coordinator allows and what datanodes attest, signed with the cluster secret.

A token is a struct in MessagePack followed by 16 bytes of HMAC-SHA256, in URL-safe base64 without padding.
Whoever knows the secret can sign; nobody else can change a bit. Keys for different purposes are derived from
the secret by label, so that no token can pass for a receipt. Times are seconds of the coordinator's wall clock, by
which datanodes judge, too.

A token names every address that its bearer may have a service dial: a gateway, or a hop of a pipeline, connects to
no other (decision 29).
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
from .messages import ChunkLayout, Hop, Receipt
from .new_file import NewFile

_MAC_BYTES = 16
_HASH_BLOCK_BYTES = 64
_SECRET_NAME_BYTES = 8
#: From the URL-safe alphabet to the one that `binascii` knows; what is in neither stays out.
_STANDARD = bytes.maketrans(b"-_+/", b"+/!!")


class Token(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Base of all; an array, for URLs are to be short."""

    expires_s: float


class FileWrite(Token, frozen=True):
    """Permits to write one new file: all that its completion needs, so that CREATE commits nothing."""

    file: NewFile
    #: From where the file was created: whose checkpoint it may be part of.
    client_host: str = ""
    #: True if the name may appear before the file is whole: it replaces nothing.
    may_appear: bool = False

    # As the other tokens of files have them.

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
    """Permits to extend the file at a path, once or again and again: each time a lease is taken with it.

    `block_bytes` and `replication` are the file's, for whoever receives the data.
    """

    path: str
    user: str
    block_bytes: int
    replication: int


class FileLease(Token, frozen=True):
    """The lease of a file: its number fences off earlier holders. `path` is for people and logs."""

    path: str
    inode: int
    number: int
    holder: str
    replication: int
    request_id: str


class FileVersion(msgspec.Struct, frozen=True, array_like=True):
    """The chunks of a file at one moment, each with its version and how much of it is used.

    Where they are more than `read_token_chunks_max` it is their `count` and a `digest` of them.
    """

    chunks: list[tuple[ChunkId, Version, int]]
    count: int
    digest: bytes = b""


class FileRead(Token, frozen=True):
    """Permits to read one file as it was when it was opened: the inode, not the name, and that version of it.

    With `at_tx` as it was when that transaction had taken effect, which a snapshot shows. The coordinator saw that
    `user` may read it and will look again when `expires_s` is over, if it is asked before `renewable_until_s`.
    `chunks` says where the data of a small file is; their own tokens are left out.
    """

    path: str
    inode: int
    user: str
    opened: FileVersion
    renewable_until_s: float = 0.0
    at_tx: int | None = None
    chunks: list[ChunkLayout] | None = None


class ChunkWrite(Token, frozen=True):
    """Permits to write one version of one chunk through these nodes, at these addresses and in this order.

    A large chunk has a `grant` of the scheduling service, whose end the first node reports. It is to be used
    before `expires_s`.
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

    It is in the URL of a CREATE, which whoever has it may send again. No data server takes it; the gateway of that
    process signs ChunkWrite in its place for the first body that comes.
    """

    chunk: ChunkId
    version: Version
    pipeline: list[Hop]
    process: str


class ChunkRead(Token, frozen=True):
    """Permits to read one chunk wherever it is, for a reader of the file `inode`."""

    chunk: ChunkId
    inode: int = 0


class ProxyPass(Token, frozen=True):
    """Permits a proxy user to use at a datanode the one token that it was given in the name of another."""

    real_user: str
    token_digest: bytes

    @classmethod
    def of(cls, expires_s: float, real_user: str, token: str) -> ProxyPass:
        return cls(expires_s, real_user, _digest(token))

    def is_for(self, real_user: str, token: str) -> bool:
        """Return whether this user may use that token."""
        return real_user == self.real_user and hmac.compare_digest(_digest(token), self.token_digest)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


AnyToken = FileWrite | FileAppend | FileLease | FileRead | ChunkWrite | OneTimeChunk | ChunkRead | ProxyPass
_decoder: msgspec.msgpack.Decoder[AnyToken] = msgspec.msgpack.Decoder(AnyToken)
T = TypeVar("T", FileWrite, FileAppend, FileLease, FileRead, ChunkWrite, OneTimeChunk, ChunkRead, ProxyPass)


def _of_kind(token: AnyToken, kind: type[T]) -> T:
    if not isinstance(token, kind):
        raise AccessDenied(f"a {kind.__name__} token is wanted, this is a {type(token).__name__}")
    return token


def user_named_in(text: str) -> str | None:
    """Return the user that a token was given to; None where it names none, or cannot be read. Verifies nothing."""
    try:
        raw = binascii.a2b_base64(text.encode("ascii").translate(_STANDARD) + b"=" * (-len(text) % 4))
        token = _decoder.decode(raw[:-_MAC_BYTES])
    except (binascii.Error, ValueError, *UNREADABLE):
        return None
    return token.user if isinstance(token, FileWrite | FileAppend | FileRead) else None


class _Mac:
    """HMAC-SHA256 (RFC 2104) under one key of at most 64 bytes.

    `hmac.digest` gives up the interpreter lock for what takes a microsecond, and among busy threads to get it back
    takes many; a hash of less than 2 KiB keeps it.
    """

    def __init__(self, key: bytes) -> None:
        block = key.ljust(_HASH_BLOCK_BYTES, b"\0")
        assert len(block) == _HASH_BLOCK_BYTES
        # A copy of a hash costs less than a new one.
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def of(self, body: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(body)
        outer.update(inner.digest())
        return outer.digest()[:_MAC_BYTES]


class HandshakeSecret:
    """One secret as the handshake uses it. Its name tells nothing of it but that two have the same."""

    def __init__(self, secret: bytes) -> None:
        self._key = _derive(secret, b"hello")
        self.name = hmac.digest(self._key, b"name", hashlib.sha256)[:_SECRET_NAME_BYTES]

    def prove(self, label: bytes, transcript: bytes) -> bytes:
        """Compute a proof that only holders of the secret can make, different for each label; it never reveals the
        secret.
        """
        return hmac.digest(self._key, label + b"\0" + transcript, hashlib.sha256)


def _derive(secret: bytes, label: bytes) -> bytes:
    return hmac.digest(secret, b"peacefs " + label, hashlib.sha256)


class Signer:
    """Signs with the cluster secret; verifies with it and with those that are being replaced. Thread-safe."""

    def __init__(self, secret: bytes, *others: bytes) -> None:
        self.replace(secret, *others)

    def replace(self, secret: bytes, *others: bytes) -> None:
        """From now on these secrets are used; what was signed with one that is not among them is refused."""
        secrets = (secret, *others)
        self._token_macs = [_Mac(_derive(each, b"token")) for each in secrets]
        self._receipt_macs = [_Mac(_derive(each, b"receipt")) for each in secrets]
        self.handshake_secrets = [HandshakeSecret(each) for each in secrets]

    def handshake_secret(self, names: Collection[bytes]) -> HandshakeSecret | None:
        """The first of the secrets that bears one of these names."""
        return next((secret for secret in self.handshake_secrets if secret.name in names), None)

    def sign(self, token: Token) -> str:
        body = msgspec.msgpack.encode(token)
        return base64.urlsafe_b64encode(body + self._token_macs[0].of(body)).rstrip(b"=").decode()

    def verify(self, text: str, kind: type[T], now_s: float) -> T:
        """Raises AccessDenied for a token that is malformed, forged or of another kind; TokenExpired."""
        return _of_kind(self._verified(text, now_s), kind)

    def verify_even_late(self, text: str, kind: type[T]) -> T:
        """The same for whoever looks himself whether it has expired."""
        return _of_kind(self._verified(text, -inf), kind)

    def verify_reader(self, text: str, now_s: float) -> FileRead:
        """The token of an open file, to be renewed. Raises AccessDenied; TokenExpired if it is too old."""
        token = self.verify_even_late(text, FileRead)
        if token.renewable_until_s < now_s:
            raise TokenExpired("the file was not read for so long that it has to be opened again")
        return token

    def verify_for_writing(self, text: str, now_s: float) -> FileWrite | FileLease:
        """The token of whoever writes chunks, for a new file or for one that is extended. Raises AccessDenied."""
        token = self._verified(text, now_s)
        if not isinstance(token, FileWrite | FileLease):
            raise AccessDenied(f"a token to write with is wanted, this is a {type(token).__name__}")
        return token

    def named_in(self, text: str) -> tuple[str | None, str | None]:
        """The path and the user that a genuine token names, for logs; None for what it does not name."""
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
        """Make the receipt that a datanode gives once the replica is on its disk."""
        return Receipt(node, self._receipt_macs[0].of(_attested(node, chunk, version, length, checksum)))

    def verify_receipt(
        self, receipt: Receipt, chunk: ChunkId, version: Version, length: int, checksum: int
    ) -> None:
        """Raises AccessDenied unless the datanode it names gave it for exactly this replica."""
        attested = _attested(receipt.node, chunk, version, length, checksum)
        if not any(hmac.compare_digest(each.of(attested), receipt.mac) for each in self._receipt_macs):
            raise AccessDenied(f"the receipt of datanode {receipt.node} does not verify")


def _attested(node: NodeId, chunk: ChunkId, version: Version, length: int, checksum: int) -> bytes:
    return f"{node}\0{chunk}\0{version}\0{length}\0{checksum}".encode()
