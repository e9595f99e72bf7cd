"""The redirect URLs of CREATE, APPEND, OPEN and GETFILECHECKSUM, made by coordinators and read by gateways. Pure.

The URL contains everything that the gateway needs, in signed tokens. So the gateway can send or receive the first
byte without asking the coordinator. There are two exceptions: each use of an APPEND URL takes a lease, and the
layout of a file with several chunks would be too long for an OPEN URL. The path in the URL is only for logs. All
addresses are in the tokens, so a gateway connects only to addresses that the coordinator has signed.
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
    """Write the body as the file of `token`. `first` is a OneTimeChunk token for the first chunk.

    `namenode` is the client's address of the coordinator, for the URL of the new file in the answer. The gateway
    does not connect to it. Empty if unknown.
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
    """Append the body to the file of `token`."""

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
    """Send the file of `token` from `offset`: `length` bytes, or (None) up to the end."""

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
    """Send the checksum of the file of `token`, which has this block size."""

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
    """Parse the second request of a redirected operation. Raises only BadRequest or Unsupported."""
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
    """Return the URL at a datanode. Raises PathLimitExceeded if it is too long for a server.

    `delegation` is the client's delegation token, `proxy_pass` a pass for a proxy user. `trace` is the request's
    id for logs, because stock clients do not repeat the header; `span` is the current span, if the request is
    traced.
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
