"""Measure an idle cluster: the time until it is ready, and the memory of each member. Aim: 3 s, 120 MB each."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from peacefs.client.local_cluster.cluster import LocalCluster

from .report import show

_SETTLE_S = 3.0


def main(*, quick: bool = False) -> None:
    starts: list[float] = []
    memory: dict[str, list[float]] = {"coordinator": [], "datanode": []}
    for _ in range(1 if quick else 5):
        with tempfile.TemporaryDirectory() as directory:
            started = time.monotonic()
            with LocalCluster(Path(directory), datanodes=4, port=0) as cluster:
                starts.append(time.monotonic() - started)
                time.sleep(_SETTLE_S)
                memory["coordinator"].append(resident_mb(cluster.coordinator.pid))
                memory["datanode"] += [resident_mb(datanode.pid) for datanode in cluster.datanodes]
    show(
        "idle",
        "A cluster of one coordinator and four datanodes, idle",
        [
            {"what": "start-up to ready, s", "median": statistics.median(starts), "most": max(starts), "aim": 3.0},
            *(
                {
                    "what": f"memory of a {role}, MB",
                    "median": statistics.median(used),
                    "most": max(used),
                    "aim": 120.0,
                }
                for role, used in memory.items()
            ),
        ],
    )


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"process {pid} says nothing about its memory")
