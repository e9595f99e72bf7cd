"""Converts rows to records: chunks and supervised queries."""

from __future__ import annotations

import msgspec

from peacefs.protocol.ids import NodeId
from peacefs.protocol.values.supervised_queries import QueryPhase

from .model import ChunkRecord, QueryRecord
from .tables import Row


def chunk_record(row: Row) -> ChunkRecord:
    """Return the record of a row of the table of chunks."""
    return ChunkRecord(row[0], row[1], row[2], row[4], _hint(row[6]))


def _hint(text: str) -> tuple[NodeId, ...]:
    return msgspec.json.decode(text, type=tuple[NodeId, ...])


def query_record(row: Row, has_standby: bool) -> QueryRecord:
    name, user, is_superuser, command, checkpoint, nodes, restarts_max, phase, *progress = row
    return QueryRecord(
        name,
        user,
        bool(is_superuser),
        msgspec.json.decode(command, type=tuple[str, ...]),
        checkpoint,
        msgspec.json.decode(nodes, type=tuple[str, ...]),
        restarts_max,
        QueryPhase(phase),
        *(*progress, has_standby),
    )
