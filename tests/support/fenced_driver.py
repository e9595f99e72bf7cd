"""One of several drivers of the same query.

    support.fenced_driver OUTPUT BATCHES UNTIL TECHNIQUE HOST STORE...

The source stalls after UNTIL batches, unless those are all. STORE is a directory, or a coordinator and a directory
of its cluster. The sink writes its rows as lines to OUTPUT, which all drivers share. If the query fails, the
reason is one line on standard error, and the exit status is 1.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints, UnitCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.window_checkpoints.extent import Targets
from peacefs.protocol.errors import PeacefsError

from . import prepared_starts
from .dataflows import SAMPLES

_EVERY_S = 0.02
_PATIENT_S = 100.0
_TECHNIQUES = {
    "sguard": SGuard(interval_s=0.1),
    "cec": CEC(Targets(extent=1.5, replay_rows=50), period_s=0.05),
}


class SharedLines:
    """A sink that writes to a file shared by all drivers."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._path = path

    @property
    def delivered(self) -> int:
        return self._path.read_bytes().count(b"\n")

    def __call__(self, rows: pa.RecordBatch) -> None:
        made = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        lines = b"".join(json.dumps([*map(str, row), os.getpid()]).encode() + b"\n" for row in made)
        assert os.write(self._file, lines) == len(lines)


def _host(kind: str, checkpoints: UnitCheckpoints, scratch: Path) -> Any:
    if kind == "processes":
        return LocalProcesses(2, checkpoints, node_timeout_s=_PATIENT_S)
    from peacefs.spark_connector.executors_host import SparkExecutors
    from peacefs.spark_connector.java import find_java, java_environment

    from .executors_ordeal import session, spark_home

    scratch.mkdir()
    os.environ |= {
        **java_environment(find_java(), scratch),
        "SPARK_HOME": str(spark_home(scratch)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parent.parent),
    }
    return SparkExecutors(session(), 2, checkpoints, node_timeout_s=_PATIENT_S)


def main(output: Path, batches: int, until: int, technique: str, kind: str, *store: str) -> None:
    sample = SAMPLES[OperatorClass.DETERMINISTIC]()

    def paced() -> Iterator[pa.RecordBatch]:
        for rows in sample.rows(1, batches=batches)["in"][:until]:
            time.sleep(_EVERY_S)
            yield rows
        if until < batches:
            threading.Event().wait()

    checkpoints: UnitCheckpoints = (
        DirectoryCheckpoints(store[0]) if len(store) == 1 else PeaceCheckpoints(store[0], store[1], "alice")
    )
    host = _host(kind, checkpoints, output.with_name(f"scratch-{os.getpid()}"))
    sinks = {"out": SharedLines(output)}
    given = sample.network, _TECHNIQUES[technique], {"in": paced()}, sinks, RunOptions(resume=True)
    try:
        with host.start(*given) as run:
            run.wait()
    except PeacefsError as error:
        print(error.message, file=sys.stderr, flush=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    with prepared_starts.forks_of_this_process():
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
