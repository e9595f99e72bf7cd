"""Measure tracing: the same small files on clusters that trace nothing, one request in a hundred, and every one.

All clusters run side by side and take turns round by round. The client of each traces as its services do. Spans go
into a file, because a collector is another program's work.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.runtime import tracing
from peacefs.service.open_telemetry import FileExporter, OpenTelemetryTracer

from .processor_time import cluster_cpu_s
from .report import show

_DATA = bytes(1024)
_SHARES = {"off": None, "1 %": 0.01, "all": 1.0}
Operation = Callable[[PeaceFileSystem, int], object]
_OPERATIONS: dict[str, Operation] = {
    "write 1 KiB, three replicas": lambda files, n: files.write(f"/w{n}", _DATA, overwrite=True, replication=3),
    "read 1 KiB": lambda files, n: files.read(f"/w{n % 10}"),
    "stat": lambda files, n: files.status(f"/w{n % 10}"),
}


class _Front:
    """One cluster, its client, and the client's tracer."""

    def __init__(self, cluster: LocalCluster, tracer: OpenTelemetryTracer | None) -> None:
        self.cluster = cluster
        self.tracer = tracer
        self.files = PeaceFileSystem(cluster.http_address)

    def run(self, operation: Operation, count: int) -> tuple[float, float]:
        """Return the milliseconds per operation, and of all processors per operation."""
        tracing.install(self.tracer)
        before_s, began_s = self._processors_s(), time.perf_counter()
        for number in range(count):
            operation(self.files, number)
        took_s = time.perf_counter() - began_s
        spent_s = self._processors_s() - before_s
        tracing.install(None)
        return took_s / count * 1000, spent_s / count * 1000

    def _processors_s(self) -> float:
        return sum(cluster_cpu_s(self.cluster, "client").values())

    def close(self) -> None:
        self.files.close()
        if self.tracer is not None:
            self.tracer.close()


def main(*, quick: bool = False) -> None:
    count, rounds = (200, 4) if quick else (1000, 12)
    with _fronts() as fronts:
        for front in fronts.values():
            front.run(_OPERATIONS["write 1 KiB, three replicas"], 50)
        rows = []
        for name, operation in _OPERATIONS.items():
            runs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in fronts}
            for turn in range(rounds):
                for kind in (list(fronts), list(fronts)[::-1])[turn % 2]:
                    runs[kind].append(fronts[kind].run(operation, count))
            row: dict[str, object] = {"operation": name}
            for kind, measured in runs.items():
                took, spent = zip(*measured, strict=True)
                row[f"{kind}: ms"] = statistics.median(took)
                row[f"{kind}: ms of processors"] = statistics.median(spent)
            rows.append(row)
    show("tracing", f"{count} operations one after another; the median of {rounds} rounds, alternating", rows)


@contextlib.contextmanager
def _fronts() -> Iterator[dict[str, _Front]]:
    with contextlib.ExitStack() as stack:
        fronts = {}
        for kind, share in _SHARES.items():
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            tracer = None
            wanted = {}
            if share is not None:
                file = directory / "traces"
                tracer = OpenTelemetryTracer("client", "benchmark", FileExporter(file), share)
                shares = {f"PEACEFS_{service}_TRACE_SHARE": str(share) for service in ("COORDINATOR", "DATANODE")}
                wanted = {"PEACEFS_TRACES": str(file), **shares}
            os.environ |= wanted
            try:
                cluster = stack.enter_context(LocalCluster(directory / "cluster", datanodes=3, port=0))
            finally:
                for name in wanted:
                    del os.environ[name]
            fronts[kind] = _Front(cluster, tracer)
            stack.callback(fronts[kind].close)
        yield fronts
