"""A ring of real processes, observed by a benchmark while its source runs."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.processor_time import cpu_s
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.ring_run import RingRun
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique

PATIENT_S: Final = 300.0
#: A long timeout for busy machines. A killed process is noticed at once nevertheless.
SILENCE_S: Final = 60.0


@dataclass
class RingUnderTest:
    """A running ring, and the observations of it."""

    run: RingRun
    host: LocalProcesses

    def processor_s(self) -> float:
        """Return the processor time of all nodes and of this program."""
        spent_s = cpu_s(os.getpid())
        for pid in self.host.pids().values():
            with contextlib.suppress(OSError):
                spent_s += cpu_s(pid)
        return spent_s

    def kill(self, node: str) -> None:
        os.kill(self.host.pids()[node], signal.SIGKILL)


def with_ring(
    network: Network,
    nodes: int,
    technique: Technique,
    rows: Iterator[pa.RecordBatch],
    look: Callable[[RingUnderTest], None],
) -> None:
    """Start a ring, observe it while its source `text` runs, and end it."""
    with tempfile.TemporaryDirectory() as directory:
        host = LocalProcesses(nodes, DirectoryCheckpoints(Path(directory)))
        with host.start(network, technique, {"text": rows}, {"out": lambda _: None}) as run:
            assert isinstance(run, RingRun)
            run.wait_begun(PATIENT_S)
            look(RingUnderTest(run, host))
