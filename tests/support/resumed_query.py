"""A dataflow whose driver can be killed and restarted: `support.resumed_query DIRECTORY BATCHES UNTIL`.

The source stalls after UNTIL batches, unless those are all. The sink writes its rows as lines to a file, whose
length is the number of delivered rows. Prints a line when the query has ended.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.techniques.sguard import SGuard

from . import prepared_starts
from .dataflows import SAMPLES

_EVERY_S = 0.02
_PATIENT_S = 100.0


class Lines:
    """A sink that writes a file. A line that was cut off is written again."""

    def __init__(self, path: Path) -> None:
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        self.delivered = whole.count(b"\n") + bool(whole)
        self._file = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(len(whole) + bool(whole))
        self._file.seek(0, os.SEEK_END)

    def __call__(self, rows: pa.RecordBatch) -> None:
        for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            self._file.write(json.dumps([*map(str, row)]).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.delivered += rows.num_rows


def main(directory: Path, batches: int, until: int) -> None:
    sample = SAMPLES[OperatorClass.DETERMINISTIC]()

    def paced() -> Iterator[pa.RecordBatch]:
        for rows in sample.rows(1, batches=batches)["in"][:until]:
            time.sleep(_EVERY_S)
            yield rows
        if until < batches:
            threading.Event().wait()

    host = LocalProcesses(2, DirectoryCheckpoints(directory / "checkpoints"), node_timeout_s=_PATIENT_S)
    options = RunOptions(resume=True)
    sinks = {"out": Lines(directory / "rows")}
    with host.start(sample.network, SGuard(interval_s=0.1), {"in": paced()}, sinks, options) as run:
        run.wait()
    print("ended", flush=True)


if __name__ == "__main__":
    with prepared_starts.forks_of_this_process():
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
