"""A dataflow between connectors whose program may be killed and begins again.

    support.connector_query DIRECTORY SOURCE SINK [ENDS]

SOURCE and SINK are `kafka:SERVERS:TOPIC`, `files:FORMAT:URL` or `delta:URL`. The query drops every fourth row and
adds a running total for each user, so its state matters. With ENDS it ends when the source has no more rows. A
failure is a line on standard error, and the status is 1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from peacefs.dataflow.connectors import DeltaSink, FileSink, FileSource, KafkaSink, KafkaSource
from peacefs.dataflow.connectors.file_source import FileRead
from peacefs.dataflow.connectors.kafka_source import KafkaRead
from peacefs.dataflow.functions import col
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.query.query import Query
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.protocol.errors import PeacefsError

from . import prepared_starts

SCHEMA = {"user": "string", "at": "timestamp", "n": "long"}
_PATIENT_S = 100.0


def running_totals(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    totals = []
    for user, n in zip(rows.column("user").to_pylist(), rows.column("n").to_pylist(), strict=True):
        state[user] = state.get(user, 0) + n
        totals.append(state[user])
    return rows.append_column("total", pa.array(totals, pa.int64()))


def source_of(place: str, follow: bool) -> Any:
    kind, _, rest = place.partition(":")
    if kind == "kafka":
        servers, _, topic = rest.rpartition(":")
        return KafkaSource(servers, topic, SCHEMA, time="at", read=KafkaRead(follow=follow))
    format, _, url = rest.partition(":")
    read = FileRead(follow=follow, poll_s=0.05)
    return FileSource(url, SCHEMA, time="at", format=format, read=read)  # type: ignore[arg-type]


def sink_of(place: str) -> Any:
    kind, _, rest = place.partition(":")
    if kind == "kafka":
        servers, _, topic = rest.rpartition(":")
        return KafkaSink(servers, topic, key="user", interval_s=0.05, transaction_timeout_s=3.0)
    if kind == "delta":
        return DeltaSink(rest, interval_s=0.1)
    format, _, url = rest.partition(":")
    return FileSink(url, format=format, partition_by="user", interval_s=0.1)  # type: ignore[arg-type]


def main(directory: Path, source: str, sink: str, *ends: str) -> None:
    host = LocalProcesses(2, DirectoryCheckpoints(directory / "checkpoints"), node_timeout_s=_PATIENT_S)
    try:
        rows = source_of(source, follow=not ends)
        query = Query("totals")
        totals = {**SCHEMA, "total": "long"}
        kept = query.source("rows", rows.type).filter(pc.bit_wise_and(col("n"), 3) != 0)
        kept.process(running_totals, totals, time="at").sink("totals")
        given = query.network(), SGuard(interval_s=0.2), {"rows": rows}, {"totals": sink_of(sink)}
        with host.start(*given, RunOptions(resume=True)) as run:
            (directory / f"nodes-{os.getpid()}").write_text("\n".join(map(str, host.pids().values())))
            run.wait()
    except PeacefsError as error:
        print(error.message, file=sys.stderr, flush=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    with prepared_starts.forks_of_this_process():
        main(Path(sys.argv[1]), *sys.argv[2:])
