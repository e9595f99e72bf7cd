"""A file's chunks with their replicas: the answer of `GET /v1/files/chunks`, as JSON."""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import NodeId


class ReplicaPlace(msgspec.Struct, frozen=True):
    """A replica and its datanode; `state` is the lower-case name of a ReplicaState."""

    node: NodeId
    rack: str
    state: str
    datanode: str


class PlacedChunk(msgspec.Struct, frozen=True):
    """A chunk of a file, with its id as shown to people, and its offset in the file."""

    chunk: str
    offset: int
    length: int
    replicas: list[ReplicaPlace]


class FileChunks(msgspec.Struct, frozen=True):
    """Some of a file's chunks, beginning with number `first`; the file has `count` chunks."""

    path: str
    length: int
    replication: int
    count: int
    first: int
    chunks: list[PlacedChunk]
