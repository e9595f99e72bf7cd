"""Measure the processor time of processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

from peacefs.client.local_cluster.cluster import LocalCluster

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the user and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def cluster_cpu_s(cluster: LocalCluster, clients: str) -> dict[str, float]:
    """Return the time of all processes in the measurement. `clients` are threads of this process."""
    return {
        clients: time.process_time(),
        "coordinator": cpu_s(cluster.coordinator.pid),
        "datanodes": sum(cpu_s(datanode.pid) for datanode in cluster.datanodes),
    }


def children_of(pid: int) -> list[int]:
    """Return the living children of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name is in parentheses and may itself contain spaces and parentheses.
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == pid and state not in "ZX":
            found.append(int(stat.parent.name))
    return sorted(found)
