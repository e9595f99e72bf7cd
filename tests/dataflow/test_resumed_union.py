"""A resumed query with a union loses no row, although its program's determinants are gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.dataflows import SCHEMA, input_rows
from support.waiting import PATIENCE_S, wait_until

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.techniques.sguard import SGuard

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


class _Sink:
    def __init__(self) -> None:
        self.values: list[int] = []

    @property
    def delivered(self) -> int:
        return len(self.values)

    def __call__(self, rows: pa.RecordBatch) -> None:
        self.values += rows.column("value").to_pylist()


def test_resumed_union_loses_no_row_that_comes_in_another_order(tmp_path: Path) -> None:
    """The first program takes rows of one source only; the second one takes rows of the other source first."""
    query = Query("first")
    one, other = (query.source(name, SCHEMA, time="at") for name in ("in", "more"))
    one.union(other).unit("second").filter(F.col("value") >= 0).sink("out")
    network = query.network()
    rows = {name: input_rows(at, batches=10, size=4, first=at * 1000) for at, name in enumerate(("in", "more"))}
    sink, over, checkpointed = _Sink(), threading.Event(), threading.Event()

    def first_program() -> Iterator[pa.RecordBatch]:
        yield from rows["in"][:2]
        checkpointed.wait(PATIENCE_S)
        # Rows that the sink has received but no checkpoint covers.
        yield from rows["in"][2:6]
        over.wait(PATIENCE_S)

    def nothing() -> Iterator[pa.RecordBatch]:
        over.wait(PATIENCE_S)
        yield from ()

    host = LocalProcesses(1, DirectoryCheckpoints(tmp_path), node_timeout_s=PATIENCE_S)
    with host.start(
        network, SGuard(interval_s=2), {"in": first_program(), "more": nothing()}, {"out": sink}
    ) as run:
        wait_until(lambda: all(run.checkpoint_of(unit.name) for unit in network.units), "checkpoints")
        checkpointed.set()
        wait_until(lambda: len(sink.values) == 24, "rows that were not checkpointed")
        over.set()

    def second_program() -> Iterator[pa.RecordBatch]:
        wait_until(lambda: {1039} <= set(sink.values) or len(sink.values) >= 24 + 16, "rows of the other source")
        yield from rows["in"]

    given = {"in": second_program(), "more": rows["more"]}
    with host.start(network, SGuard(interval_s=1), given, {"out": sink}, RunOptions(resume=True)) as run:
        run.wait(PATIENCE_S)
    wanted = {
        value for batches in rows.values() for batch in batches for value in batch.column("value").to_pylist()
    }
    assert set(sink.values) == wanted
