"""A dataflow that writes a stream log, and is killed meanwhile: `python -m support.log_dataflow PLAN`.

It ends by itself, unless its source holds.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.logs.log_sink import LogSink
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.service.lifeline import when_parent_dies

from . import prepared_starts
from .dataflows import SCHEMA, input_rows
from .log_plan import LogPlan
from .long_runs import often

_BATCHES, _ROWS = often(30, 60), 20
#: Slow enough that each commit contains some of the rows.
_PACE_S = 0.02


def source_rows() -> list[pa.RecordBatch]:
    return input_rows(7, batches=_BATCHES, size=_ROWS)


def network() -> Network:
    query = Query("doubling")
    stream = query.source("in", SCHEMA, time="at").filter(F.col("value") >= 100)
    stream.unit("second").with_columns(value=F.col("value") * 2).sink("out")
    return query.network()


def run_dataflow(plan: LogPlan) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        batches = source_rows()
        for batch in batches[: len(batches) // 2] if plan.holds else batches:
            time.sleep(_PACE_S)
            yield batch
        if plan.holds:
            threading.Event().wait()

    host = LocalProcesses(often(1, 2), DirectoryCheckpoints(Path(plan.directory)), node_timeout_s=100.0)
    with (
        LogSink(network(), "out", plan.target, coordinator=plan.coordinator, user=plan.user) as out,
        host.start(network(), SGuard(interval_s=0.2), {"in": rows()}, {"out": out}) as run,
    ):
        run.wait()


if __name__ == "__main__":
    with prepared_starts.forks_of_this_process():
        when_parent_dies(0, lambda: os._exit(1))
        run_dataflow(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=LogPlan))
