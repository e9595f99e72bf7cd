"""A datanode of a local cluster whose disk writes 2 MB/s, emulated as in the benchmarks."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.services import start_service

from peacefs.client.local_cluster.cluster import LocalCluster


@contextmanager
def datanode_with_a_slow_disk(cluster: LocalCluster, directory: Path, *options: str) -> Iterator[str]:
    """Start the datanode; return its id after its registration."""
    coordinator = cluster.coordinator.readiness
    process, announced = start_service(
        "--disk=1=2e6",
        f"--dir={directory}",
        f"--coordinator={coordinator.node_host}:{coordinator.node_port}",
        f"--secret-file={cluster.directory / 'coordinator' / 'cluster.secret'}",
        *options,
        program=(sys.executable, "-m", "benchmarks.emulation.slow_datanode"),
    )
    try:
        yield announced["node"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(180)
