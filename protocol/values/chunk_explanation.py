"""What the coordinator knows about one chunk, and why: the answer of `GET /v1/chunks/<id>`, as JSON."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.ids import ChunkId, NodeId, read
from peacefs.protocol.values.fsck_findings import Finding

_SHOWN_CHARACTERS = 40


def parse_chunk_id(text: str) -> ChunkId:
    """Parse a chunk id in the form that is shown to people. Raises BadRequest."""
    chunk = read(text)
    if chunk is None:
        raise BadRequest(f"{text[:_SHOWN_CHARACTERS]!r} is no chunk id: one is like 1-2a, as fsck shows them")
    return chunk


class ChunkStanding(StrEnum):
    """How the namespace uses a chunk."""

    #: Part of one or more files.
    REFERENCED = "referenced"
    #: No longer part of a file, but kept for readers that have the file open.
    FREED = "freed"
    #: A writer has a token or a grant to write it.
    BEING_WRITTEN = "being written"
    #: Given up by its writer.
    ABANDONED = "abandoned"
    #: Not part of a file, and without a known writer.
    UNREFERENCED = "unreferenced"


class PendingKind(StrEnum):
    """The kind of an action that the coordinator will take, or of an event that it waits for."""

    REPAIR = "repair"
    COPY = "copy"
    DELETION = "deletion"
    RELEASE = "release"
    CONFIRMATION = "confirmation"
    PROOF = "proof"
    RETURN = "return"
    WRITER = "writer"


class Pending(msgspec.Struct, frozen=True):
    """A pending action or event, described in a sentence."""

    kind: PendingKind
    text: str


class ReplicaExplanation(msgspec.Struct, frozen=True):
    """A replica. `state` is the lower-case name of a ReplicaState; `datanode` is the state of its datanode.

    `because` is the event that led to this state, `since_s` seconds ago; None if the time is unknown.
    """

    node: NodeId
    state: str
    datanode: str
    because: str
    since_s: float | None = None


class ChunkEvent(msgspec.Struct, frozen=True):
    """An event of a replica, `ago_s` seconds ago."""

    ago_s: float
    node: NodeId
    event: str
    text: str


class ChunkExplanation(msgspec.Struct, frozen=True):
    """All that is known about a chunk. `chunk` is its id as shown to people.

    Version, length and replication are from the namespace, if it has the chunk. `history` has the last events, the
    earliest first.
    """

    chunk: str
    standing: ChunkStanding
    version: str | None = None
    length: int | None = None
    replication: int | None = None
    #: At most `chunk_files_shown_max`.
    files: list[str] = []
    more_files: bool = False
    findings: list[Finding] = []
    replicas: list[ReplicaExplanation] = []
    pending: list[Pending] = []
    history: list[ChunkEvent] = []
