"""The second URL of a CREATE, APPEND or OPEN: the name side writes it, the data side reads it. Pure.

All that the data side needs is in the URL, signed where it matters, so that it asks the coordinator nothing
before the first byte. (But for APPEND: its URL may be used again and again, and each time takes a lease; and for
OPEN of a file of several chunks, whose layout would be long.) The path is in it for people and logs; what counts
is in the tokens. So are all addresses: the data side connects to none that anybody else could have written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from peacefs.protocol.asgi import Scope
from peacefs.protocol.errors import PathLimitExceeded
from peacefs.protocol.limits import checksum_block_bytes, http_url_bytes_max

from .query import PREFIX, RequestQuery, find_operation, invalid, path_of

_NAMENODE = re.compile(r"[A-Za-z0-9.:\[\]_-]*")


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write the body as the file of `token`, beginning with the chunk of `first`, a FirstChunk token.

    `namenode` is the coordinator as the client calls it, for the URL of the new file: words that go back to the
    client, and no address that anything connects to. Empty where unknown.
    """

    path: str
    token: str
    first: str
    namenode: str

    @property
    def query(self) -> str:
        namenode = f"&namenoderpcaddress={self.namenode}" if _NAMENODE.fullmatch(self.namenode) else ""
        return f"op=CREATE&token={self.token}&first={self.first}{namenode}"

    @classmethod
    def read(cls, path: str, query: RequestQuery) -> WriteFile:
        first, namenode = query.required("first"), query.text("namenoderpcaddress") or ""
        if not _NAMENODE.fullmatch(namenode):
            raise invalid("namenoderpcaddress", "it is not host:port")
        return cls(path, query.required("token"), first, namenode)


@dataclass(frozen=True, slots=True)
class ExtendFile:
    """Add the body to the end of the file of `token`."""

    path: str
    token: str

    @property
    def query(self) -> str:
        return f"op=APPEND&token={self.token}"

    @classmethod
    def read(cls, path: str, query: RequestQuery) -> ExtendFile:
        return cls(path, query.required("token"))


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Send the file of `token` from `offset` on, `length` bytes or (None) all."""

    path: str
    token: str
    offset: int
    length: int | None

    @property
    def query(self) -> str:
        length = "" if self.length is None else f"&length={self.length}"
        return f"op=OPEN&token={self.token}&offset={self.offset}{length}"

    @classmethod
    def read(cls, path: str, query: RequestQuery) -> ReadFile:
        length = query.integer("length", -1, 0)
        offset = query.integer("offset", 0, 0)
        return cls(path, query.required("token"), offset, None if length < 0 else length)


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
    def read(cls, path: str, query: RequestQuery) -> SumFile:
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
    """Parse the second request of a redirected operation. Raises BadRequest or Unsupported, and nothing else."""
    query = RequestQuery(scope["query_string"])
    return find_operation(scope["method"], query, _OPERATIONS).read(path_of(scope), query)


def location(
    wanted: Wanted,
    scheme: str,
    host: str,
    port: int,
    delegation: str | None = None,
    proxy_pass: str | None = None,
    trace: str = "",
    span: str = "",
) -> str:
    """The URL at a datanode. Raises PathLimitExceeded if a server would not take it for its length.

    A client that came with a delegation token shows it there again; one that acts for another has a pass for it.
    `trace` is the id by which logs name the request, which stock clients bring in no header; `span`, if it is
    traced, that of the span within which it goes on.
    """
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    shown = "" if delegation is None else f"&delegation={quote(delegation)}"
    if proxy_pass is not None:
        shown += f"&proxypass={proxy_pass}"
    if trace:
        shown += f"&x-request-id={trace}" + (f"&x-request-span={span}" if span else "")
    url = f"{scheme}://{authority}{PREFIX}{quote(wanted.path)}?{wanted.query}{shown}"
    if len(url) > http_url_bytes_max:
        raise PathLimitExceeded(f"The path is too long for the URL that leads to its data: {len(url)} bytes")
    return url
