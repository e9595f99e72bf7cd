"""Several queries of one Spark session write large snapshots at the same moment: HDFS's placement and ours.

The cluster is that of `figure10`. All partitions of all queries write a file of one chunk at the same time, over
WebHDFS as stock Spark does, without stating what they will write. The coordinator infers a write set from the
client's host and the checkpoint's root, and its size from the root's last checkpoint. So the first round of every
run does not count, and the pauses between rounds exceed `checkpoint_pause_s`. A session runs on one host, whose
disk then takes all first replicas, or has executors on several hosts. A query's checkpoint is done when its last
file is written. Needs root.

    python -m benchmarks snapshots [--full]
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from statistics import fmean
from typing import Any

from peacefs.coordinator.scheduling.checkpoint_estimates import checkpoint_pause_s
from peacefs.peace.simulator.scenarios import REPLICAS

from .emulation.emulation import LEAD_S, Emulation, emulation
from .emulation.orders import UploadOrder
from .emulation.paper_cluster import Scale
from .emulation.processor import ProcessorUse
from .report import show

_BASELINE = "random"
_POLICIES = (_BASELINE, "express")


@dataclass(frozen=True, slots=True)
class Session:
    """Number of queries, of partitions per query, and of hosts."""

    hosts: int
    queries: int
    partitions: int


def main(*, quick: bool = False, full: bool = False) -> None:
    sessions, rounds, runs = [Session(1, 8, 2), Session(8, 8, 4)], 1, 1
    if quick:
        sessions = [Session(4, 4, 2)]
    elif full:
        sessions, rounds, runs = [Session(1, 8, 4), Session(8, 8, 4), Session(8, 8, 8)], 3, 2
    with emulation(Scale()) as emulated:
        if emulated is not None:
            _Figure(emulated).draw(sessions, rounds, runs)


class _Figure:
    def __init__(self, emulated: Emulation) -> None:
        self._cluster = emulated.cluster
        self._conditions = emulated.conditions
        self._scale = emulated.scale
        self._runs = 0

    def draw(self, sessions: Sequence[Session], rounds: int, runs: int) -> None:
        taken: dict[tuple[Session, str], list[float]] = {key: [] for key in product(sessions, _POLICIES)}
        use = ProcessorUse(self._cluster.pids)
        for number, (session, run) in enumerate(product(sessions, range(runs))):
            for policy in _POLICIES if number % 2 == 0 else reversed(_POLICIES):
                taken[session, policy] += self._run(session, policy, rounds, run)
        own, machine = use.shares()
        show(
            "snapshots",
            f"{self._conditions}; {runs} runs of {rounds} checkpoints each; seconds of the paper's cluster.\n"
            f"Of all cores the services and writers used {own:.0%}, everything on the machine {machine:.0%}",
            list(_rows(taken)),
        )

    def _run(self, session: Session, policy: str, rounds: int, seed: int) -> list[float]:
        """Return the seconds of every query in every round except the first."""
        self._runs += 1
        tree = f"/snapshots/{self._runs}"
        self._cluster.use_policy(policy)
        taken: list[float] = []
        self._checkpoint(session, tree, 0, seed)
        for number in range(rounds):
            time.sleep(checkpoint_pause_s)
            taken += self._checkpoint(session, tree, number + 1, seed)
        self._cluster.delete(tree)
        return taken

    def _checkpoint(self, session: Session, tree: str, number: int, seed: int) -> list[float]:
        """Return the seconds that each query takes from now until all its partitions are written."""
        hosts = Random(seed).sample(self._cluster.network.hosts, session.hosts)
        at_s = time.monotonic() + LEAD_S
        places = list(product(range(session.queries), range(session.partitions)))
        uploaded = self._cluster.upload(
            [
                (
                    hosts[at % len(hosts)],
                    UploadOrder(
                        path=f"{tree}/query-{query}/state/0/{partition}/{number + 1}.zip",
                        length=self._scale.chunk_bytes,
                        block_bytes=self._scale.chunk_bytes,
                        replication=REPLICAS,
                        at_s=at_s,
                    ),
                )
                for at, (query, partition) in enumerate(places)
            ]
        )
        done_s = dict.fromkeys(range(session.queries), at_s)
        for (query, _), each in zip(places, uploaded, strict=True):
            done_s[query] = max(done_s[query], each.done_s)
        return [self._scale.paper_s(each - at_s) for each in done_s.values()]


def _rows(taken: dict[tuple[Session, str], list[float]]) -> Iterator[dict[str, Any]]:
    for (session, policy), seconds in taken.items():
        base = taken[session, _BASELINE]
        yield {
            "hosts": session.hosts,
            "queries": session.queries,
            "partitions": session.partitions,
            "policy": policy,
            "mean": fmean(seconds),
            "slowest": max(seconds),
            f"mean / {_BASELINE}": fmean(seconds) / fmean(base),
            f"slowest / {_BASELINE}": max(seconds) / max(base),
        }
