"""The second URL of a CREATE, APPEND or OPEN: the name side writes it, the data side reads it. Pure.

All that the data side needs is in the URL, signed where it matters, so that it asks the coordinator nothing
before the first byte. (But for APPEND: its URL may be used again and again, and each time takes a lease; and for
OPEN of a file of several chunks, whose layout would be long.) The path is in it for people and logs; what counts
is in the token. Addresses are not signed: who tampers with those of the first chunk's pipeline, or of a small
file's replicas, meets a hello that needs the cluster's secret, and each chunk has a token of its own.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from peacefs.protocol.asgi import Scope
from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import PathLimitExceeded
from peacefs.protocol.limits import checksum_block_bytes, http_url_bytes_max
from peacefs.protocol.messages import Allocated, Layout

from .query import PREFIX, Query, find_operation, invalid, path_of

T = TypeVar("T")

_NAMENODE = re.compile(r"[A-Za-z0-9.:\[\]_-]*")


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write the body as the file of `token`, beginning with the chunk `first`.

    `namenode` is the coordinator as the client calls it, for the URL of the new file; empty where unknown.
    """

    path: str
    token: str
    first: Allocated
    namenode: str

    @property
    def query(self) -> str:
        namenode = f"&namenoderpcaddress={self.namenode}" if _NAMENODE.fullmatch(self.namenode) else ""
        return f"op=CREATE&token={self.token}&first={_packed(self.first)}{namenode}"

    @classmethod
    def read(cls, path: str, query: Query) -> WriteFile:
        first, namenode = query.required("first"), query.text("namenoderpcaddress") or ""
        if not _NAMENODE.fullmatch(namenode):
            raise invalid("namenoderpcaddress", "it is not host:port")
        allocated = _unpacked("first", first, Allocated)
        if not allocated.pipeline:
            raise invalid("first", "the pipeline is empty")
        return cls(path, query.required("token"), allocated, namenode)


@dataclass(frozen=True, slots=True)
class ExtendFile:
    """Add the body to the end of the file of `token`."""

    path: str
    token: str

    @property
    def query(self) -> str:
        return f"op=APPEND&token={self.token}"

    @classmethod
    def read(cls, path: str, query: Query) -> ExtendFile:
        return cls(path, query.required("token"))


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Send the file of `token` from `offset` on, `length` bytes or (None) all.

    `layout` is where the data of a small file is; without it the coordinator is asked.
    """

    path: str
    token: str
    offset: int
    length: int | None
    layout: Layout | None = None

    @property
    def query(self) -> str:
        length = "" if self.length is None else f"&length={self.length}"
        layout = "" if self.layout is None else f"&layout={_packed(self.layout)}"
        return f"op=OPEN&token={self.token}&offset={self.offset}{length}{layout}"

    @classmethod
    def read(cls, path: str, query: Query) -> ReadFile:
        length = query.integer("length", -1, 0)
        packed = query.text("layout")
        layout = None if packed is None else _unpacked("layout", packed, Layout)
        return cls(
            path, query.required("token"), query.integer("offset", 0, 0), None if length < 0 else length, layout
        )


@dataclass(frozen=True, slots=True)
class SumFile:
    """Tell the checksum of the file of `token`, whose blocks are of so many bytes."""

    path: str
    token: str
    block_bytes: int

    @property
    def query(self) -> str:
        return f"op=GETFILECHECKSUM&token={self.token}&blocksize={self.block_bytes}"

    @classmethod
    def read(cls, path: str, query: Query) -> SumFile:
        block_bytes = query.integer("blocksize", 0, 0)
        if not block_bytes or block_bytes % checksum_block_bytes:
            raise invalid("blocksize", "it is not what the coordinator wrote")
        return cls(path, query.required("token"), block_bytes)


Wanted = WriteFile | ExtendFile | ReadFile | SumFile
_OPERATIONS: Final[Mapping[str, Mapping[str, type[Wanted]]]] = {
    "PUT": {"CREATE": WriteFile},
    "POST": {"APPEND": ExtendFile},
    "GET": {"OPEN": ReadFile, "GETFILECHECKSUM": SumFile},
}


def parse_redirected(scope: Scope) -> Wanted:
    """What the second request asks for. Raises BadRequest or Unsupported, and nothing else."""
    query = Query(scope["query_string"])
    return find_operation(scope["method"], query, _OPERATIONS).read(path_of(scope), query)


def location(wanted: Wanted, scheme: str, host: str, port: int, delegation: str | None = None) -> str:
    """The URL at a datanode. Raises PathLimitExceeded if a server would not take it for its length.

    A client that came with a delegation token shows it there again.
    """
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    shown = "" if delegation is None else f"&delegation={quote(delegation)}"
    url = f"{scheme}://{authority}{PREFIX}{quote(wanted.path)}?{wanted.query}{shown}"
    if len(url) > http_url_bytes_max:
        raise PathLimitExceeded(f"The path is too long for the URL that leads to its data: {len(url)} bytes")
    return url


def _packed(value: Allocated | Layout) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(value)).rstrip(b"=").decode()


def _unpacked(name: str, text: str, kind: type[T]) -> T:
    """Raises BadRequest."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(raw, type=kind)
    except (ValueError, *UNREADABLE):
        raise invalid(name, "it is not what the coordinator wrote") from None
