"""The coordinator's knowledge of one chunk, and its reasons: the answer of `GET /v1/chunks/<id>`, as JSON."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.ids import ChunkId, NodeId, read
from peacefs.protocol.values.fsck_findings import Finding

_SHOWN_CHARACTERS = 40


def parse_chunk_id(text: str) -> ChunkId:
    """Return the chunk whose id people read as `text`. Raises BadRequest."""
    chunk = read(text)
    if chunk is None:
        raise BadRequest(f"{text[:_SHOWN_CHARACTERS]!r} is no chunk id: one is like 1-2a, as fsck shows them")
    return chunk


class ChunkStanding(StrEnum):
    """The chunk's place in the namespace."""

    #: Part of a file, or of several.
    REFERENCED = "referenced"
    #: Part of no file any more, and kept for readers that have one open.
    FREED = "freed"
    #: Somebody has leave to write it, or was granted that.
    BEING_WRITTEN = "being written"
    #: Its writer gave it up.
    ABANDONED = "abandoned"
    #: Part of no file that is known, and nobody is known to write it.
    UNREFERENCED = "unreferenced"


class PendingKind(StrEnum):
    """An action that the coordinator is about to take, or an event that it waits for."""

    REPAIR = "repair"
    COPY = "copy"
    DELETION = "deletion"
    RELEASE = "release"
    CONFIRMATION = "confirmation"
    PROOF = "proof"
    RETURN = "return"
    WRITER = "writer"


class Pending(msgspec.Struct, frozen=True):
    """One of these, in a sentence."""

    kind: PendingKind
    text: str


class ReplicaExplanation(msgspec.Struct, frozen=True):
    """A replica. `state` is a name of the table of states, in small letters; `datanode` how its datanode fares.

    `because` is the event that brought it there, so many seconds ago; None for the time if that is not remembered.
    """

    node: NodeId
    state: str
    datanode: str
    because: str
    since_s: float | None = None


class ChunkEvent(msgspec.Struct, frozen=True):
    """Something that happened to a replica so many seconds ago."""

    ago_s: float
    node: NodeId
    event: str
    text: str


class ChunkExplanation(msgspec.Struct, frozen=True):
    """`chunk` is the id as people read it. Version, length and replication are those of the namespace, if any.

    `history` has the last events that are remembered, the earliest first.
    """

    chunk: str
    standing: ChunkStanding
    version: str | None = None
    length: int | None = None
    replication: int | None = None
    #: `chunk_files_shown_max` at most.
    files: list[str] = []
    more_files: bool = False
    findings: list[Finding] = []
    replicas: list[ReplicaExplanation] = []
    pending: list[Pending] = []
    history: list[ChunkEvent] = []
