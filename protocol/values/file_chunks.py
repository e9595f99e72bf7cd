"""A file's chunks with their replicas: the answer of `GET /v1/files/chunks`, as JSON."""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import NodeId


class ReplicaPlace(msgspec.Struct, frozen=True):
    """A replica and its datanode; `state` is a name of the table of states, in small letters."""

    node: NodeId
    rack: str
    state: str
    datanode: str


class PlacedChunk(msgspec.Struct, frozen=True):
    """A chunk of a file, by the id that people read, and where it begins in the file."""

    chunk: str
    offset: int
    length: int
    replicas: list[ReplicaPlace]


class FileChunks(msgspec.Struct, frozen=True):
    """A part of a file's chunks, from number `first` on, of `count` in all."""

    path: str
    length: int
    replication: int
    count: int
    first: int
    chunks: list[PlacedChunk]
