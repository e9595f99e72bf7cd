"""The view of the cluster: status, alerts in words, and the progress of repairs. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from peacefs.coordinator.cluster.chunk_map import ChunkMap
from peacefs.coordinator.cluster.repair import ReplicaCopy
from peacefs.protocol.ids import NodeId, show
from peacefs.protocol.values.cluster_status import ClusterStatus

from .alerts import Alert, alerts_of

copies_shown_max: Final = 100


_RATE_OVER_S = 30.0


class CopyUnderWay(msgspec.Struct, frozen=True):
    """A repair copy under way. `since_s` is how many seconds ago it began."""

    chunk: str
    bytes: int
    source: NodeId
    target: NodeId
    since_s: float


class RepairView(msgspec.Struct, frozen=True):
    """The repair as a whole: how many chunks still lack replicas (`left`), and how many are `done`.

    `left_s` is the expected number of seconds left, at the rate of the last half minute; None if unknown.
    """

    left: int
    done: int
    per_second: float
    left_s: float | None
    copies: list[CopyUnderWay]


class ClusterView(msgspec.Struct, frozen=True):
    """Everything that the page shows of the cluster."""

    status: ClusterStatus
    alerts: list[Alert]
    repair: RepairView
    #: The number of chunks being written through each datanode. Datanodes without any are left out.
    streams: dict[NodeId, int]


class RepairProgress:
    """Computes the progress of repair from repeated observations. All viewers share one. Time is passed in."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._repaired_before: int | None = None
        self._was_idle = True

    def looked(self, now_s: float, left: int, repaired_total: int) -> tuple[int, float, float | None]:
        """Take in an observation. Return how many copies are done, their rate, and the seconds left, if known."""
        if self._repaired_before is None or (left and self._was_idle):
            self._repaired_before = repaired_total
            self._seen.clear()
        self._was_idle = not left
        self._seen.append((now_s, repaired_total))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > _RATE_OVER_S:
            self._seen.popleft()
        (from_s, before), done = self._seen[0], repaired_total - self._repaired_before
        rate = (repaired_total - before) / (now_s - from_s) if now_s > from_s else 0.0
        return done, rate, left / rate if rate > 0 and left else None


def cluster_view(
    now_s: float,
    status: ClusterStatus,
    copies: Sequence[tuple[ReplicaCopy, float]],
    chunks: ChunkMap,
    progress: RepairProgress,
    pipelines: Iterable[Sequence[NodeId]],
) -> ClusterView:
    """Return the view. `copies` have their start times, `pipelines` are those of chunks being written."""
    left = status.chunks.under_replicated
    done, rate, left_s = progress.looked(now_s, left, status.repaired_total)
    shown = [
        CopyUnderWay(
            chunk=show(copy.chunk),
            bytes=0 if (state := chunks.get(copy.chunk)) is None else state.length,
            source=copy.source,
            target=copy.target,
            since_s=round(max(0.0, now_s - began_s), 1),
        )
        for copy, began_s in copies[:copies_shown_max]
    ]
    repair = RepairView(
        left=left,
        done=done,
        per_second=round(rate, 2),
        left_s=None if left_s is None else round(left_s, 1),
        copies=shown,
    )
    streams = Counter(node for pipeline in pipelines for node in pipeline)
    return ClusterView(status, alerts_of(status), repair, dict(streams))
