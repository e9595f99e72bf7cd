"""Control tuples of a unit's log: rows of a stream, encoded and decoded one commit at a time.

A commit is one record of the log, so that it exists completely or not at all. It has a row for each window that is
opened, checked or closed. It ends with a *result* row, which describes the progress of the unit:

@at      the host's clock, microseconds since 1970
@kind    0 result, 1 open, 2 check, 3 close: the paper's R, G_open and G_check. The results of a closed window are
         in the output, and its `close` says that its earlier tuples no longer count
@commit  the number of the commit, from 1
@open    N, the number of windows that were open when the commit was made
@detail  in a result row: MessagePack, see `CommitDetail`
@bucket  the pane of a time window, else 0. Then follow the columns of the key, and the columns of the window's
         state, whose names begin with "="
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from peacefs.dataflow.model.stream_type import TIME, StreamType

AT: Final = "@at"
KIND: Final = "@kind"
COMMIT: Final = "@commit"
OPEN: Final = "@open"
DETAIL: Final = "@detail"
BUCKET: Final = "@bucket"
STATE: Final = "="
HEAD: Final = (
    pa.field(AT, TIME),
    pa.field(KIND, pa.int8()),
    pa.field(COMMIT, pa.int64()),
    pa.field(OPEN, pa.int64()),
    pa.field(DETAIL, pa.binary()),
)

#: Positions of the inputs as in a checkpoint: [lineage, number, ended] by stream.
Inputs = Mapping[str, Sequence[Any]]


class TupleKind(IntEnum):
    RESULT = 0
    OPEN = 1
    CHECK = 2
    CLOSE = 3


class CommitPlace(msgspec.Struct, frozen=True):
    """The state of a unit at the end of a commit: the positions of its inputs, and its operator's cells."""

    commit: int
    inputs: dict[str, list[Any]]
    cells: dict[str, Any]


class CommitDetail(msgspec.Struct, frozen=True):
    """The result row of a commit. Rows of outputs up to `results` are logged; rows above `floors` are needed."""

    place: CommitPlace
    #: The outputs as `stored_edges` describes them.
    outputs: dict[str, Any]
    #: The place from which the inputs are replayed: that of the commit with the oldest tuple that counts.
    since: CommitPlace
    results: dict[str, int]
    floors: dict[str, int]
    #: Windows of panes below this one are closed.
    closed_before: int


def stream_type(ids: pa.Schema, state: pa.Schema) -> StreamType:
    """Return the type of the stream of control tuples for windows with these columns."""
    return StreamType(pa.schema([*HEAD, *ids, *state]), AT)


def commit_rows(
    schema: pa.Schema,
    parts: Sequence[tuple[TupleKind, pa.Table]],
    *,
    at_us: int,
    commit: int,
    open_windows: int,
    detail: CommitDetail,
) -> pa.RecordBatch:
    """Return the rows of a commit. Each of `parts` has all or some of the columns of windows."""
    total = sum(table.num_rows for _, table in parts) + 1
    kinds = np.zeros(total, np.int8)
    at = 0
    for kind, table in parts:
        kinds[at : at + table.num_rows] = kind
        at += table.num_rows
    windows = pa.schema(list(schema)[len(HEAD) :])
    rest = [_with_all_columns(table, windows) for _, table in parts]
    rest.append(_with_all_columns(None, windows))
    body = pa.concat_tables(rest).combine_chunks()
    packed = msgspec.msgpack.encode(detail)
    # All except the last are null.
    lengths = np.zeros(total + 1, np.int32)
    lengths[-1] = len(packed)
    valid = np.packbits(np.arange(total) == total - 1, bitorder="little").tobytes()
    details = pa.Array.from_buffers(
        pa.binary(), total, [pa.py_buffer(valid), pa.py_buffer(lengths.tobytes()), pa.py_buffer(packed)]
    )
    columns = [
        pa.array(np.full(total, at_us), pa.int64()).cast(TIME),
        pa.array(kinds),
        pa.array(np.full(total, commit)),
        pa.array(np.full(total, open_windows)),
        details,
        *(column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in body.columns),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def detail_of(rows: pa.RecordBatch, at: int) -> CommitDetail:
    """Return the detail of the result row at an index."""
    return msgspec.msgpack.decode(rows.column(DETAIL)[at].as_py(), type=CommitDetail)


def _with_all_columns(table: pa.Table | None, windows: pa.Schema) -> pa.Table:
    count = 1 if table is None else table.num_rows
    here = () if table is None else table.column_names
    columns = [
        table.column(field.name) if table is not None and field.name in here else pa.nulls(count, field.type)
        for field in windows
    ]
    if not columns:
        # A table without columns has no rows. Then there are only result rows.
        return pa.table({})
    return pa.Table.from_arrays(columns, schema=windows)
