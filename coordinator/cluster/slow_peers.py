"""Find datanodes that are much slower than the others, as hops of pipelines or at their disks. Pure.

Each datanode reports how long its successors made it wait, and how long its own disks took
(`messages.LatencySample`). The latency of a hop is the median of its predecessors' reports, so that one bad link
does not decide. As in HDFS's OutlierDetector, a hop or a disk is slow if it exceeds

    max(slow_s_a_mebibyte_min, 3 * median, median + 3 * MAD)    over all measured datanodes, if there are enough

twice in a row. It counts as slow for a while after the last finding, because an avoided node is not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Final

from peacefs.protocol.ids import NodeId
from peacefs.protocol.messages import LatencySample

slow_judge_interval_s: Final = 5.0
slow_measured_nodes_min: Final = 3
slow_measured_chunks_min: Final = 5
# Anything faster than this is never slow: 10 MiB per second, or 0.1 s for a small chunk.
slow_s_a_mebibyte_min: Final = 0.1
slow_pardon_s: Final = 120.0
slow_avoided_fraction_max: Final = 0.34


_DEVIATIONS = 3.0
#: Makes the median of deviations comparable to a standard deviation.
_MAD_SCALE = 1.4826


class SlowPart(Enum):
    HOP = "hop"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Slowness:
    """A change: a part of a datanode is now slow, or no longer. `seconds` and `median` are per MiB."""

    node: NodeId
    part: SlowPart
    is_slow: bool
    seconds: float
    median: float


@dataclass(frozen=True, slots=True)
class SlowEvidence:
    """The measurements that last showed a part of a datanode to be slow. `seconds` and `median` are per MiB.

    `said` has the reports by their reporter, which for a disk is the datanode itself. The part was first found
    slow at `since_s` and last at `found_s`.
    """

    part: SlowPart
    seconds: float
    median: float
    #: The number of datanodes that were compared.
    compared: int
    said: Mapping[NodeId, LatencySample]
    since_s: float
    found_s: float


class SlowPeers:
    """Collect the latencies that datanodes report, and derive which datanodes are slow.

    `Cluster` feeds it heartbeats and calls `judge` at each tick; `ChunkPlacement` avoids the slow ones.
    """

    def __init__(self) -> None:
        self._said: dict[NodeId, Sequence[LatencySample]] = {}
        self._judge_at_s = 0.0
        self._suspected: set[tuple[NodeId, SlowPart]] = set()
        self._slow_until_s: dict[tuple[NodeId, SlowPart], float] = {}
        self._evidence: dict[tuple[NodeId, SlowPart], SlowEvidence] = {}
        #: Seconds per MiB.
        self.measured: dict[SlowPart, dict[NodeId, float]] = {part: {} for part in SlowPart}

    def tell(self, reporter: NodeId, samples: Sequence[LatencySample]) -> None:
        """Replace a datanode's earlier samples by these."""
        if samples:
            self._said[reporter] = samples
        else:
            self._said.pop(reporter, None)

    def forget(self, node: NodeId) -> None:
        """Forget the samples of a datanode that is dead or registers again, and all findings about it."""
        self._said.pop(node, None)
        for part in SlowPart:
            self._suspected.discard((node, part))
            self._slow_until_s.pop((node, part), None)
            self._evidence.pop((node, part), None)

    def evidence(self, node: NodeId) -> list[SlowEvidence]:
        """Return the evidence for each slow part of a datanode."""
        return [self._evidence[node, part] for part in self.slow_parts(node)]

    def slow_parts(self, node: NodeId) -> list[SlowPart]:
        return [part for part in SlowPart if (node, part) in self._slow_until_s]

    def slow(self) -> list[NodeId]:
        """Return the slow datanodes, the slowest first."""
        worst = {
            node: max(self.measured[part].get(node, 0.0) for part in SlowPart)
            for node, _part in self._slow_until_s
        }
        return sorted(worst, key=lambda node: (-worst[node], node))

    def judge(self, now_s: float) -> list[Slowness]:
        """Judge all datanodes, at most every `slow_judge_interval_s`. Return what has changed."""
        if now_s < self._judge_at_s:
            return []
        self._judge_at_s = now_s + slow_judge_interval_s
        self._measure()
        news = []
        for part, measured in self.measured.items():
            middle, outliers = find_outliers(measured)
            for node in outliers:
                if (node, part) in self._suspected:
                    if (node, part) not in self._slow_until_s:
                        news.append(Slowness(node, part, True, measured[node], middle))
                    self._slow_until_s[node, part] = now_s + slow_pardon_s
                    self._keep_evidence(now_s, node, part, middle)
            self._suspected = {each for each in self._suspected if each[1] is not part}
            self._suspected.update((node, part) for node in outliers)
            for node, of in [key for key, until_s in self._slow_until_s.items() if until_s <= now_s]:
                if of is part:
                    del self._slow_until_s[node, part], self._evidence[node, part]
                    news.append(Slowness(node, part, False, measured.get(node, 0.0), middle))
        return news

    def _keep_evidence(self, now_s: float, node: NodeId, part: SlowPart, middle: float) -> None:
        before, measured = self._evidence.get((node, part)), self.measured[part]
        said = {
            reporter: sample
            for reporter, samples in self._said.items()
            for sample in samples
            if sample.node == node and (reporter == node) == (part is SlowPart.DISK)
        }
        since_s = before.since_s if before else now_s
        self._evidence[node, part] = SlowEvidence(
            part, measured[node], middle, len(measured), said, since_s, now_s
        )

    def _measure(self) -> None:
        of_hop: dict[NodeId, list[LatencySample]] = {}
        of_disk: dict[NodeId, list[LatencySample]] = {}
        for reporter, samples in self._said.items():
            for sample in samples:
                of = of_disk if sample.node == reporter else of_hop
                of.setdefault(sample.node, []).append(sample)
        self.measured = {SlowPart.HOP: _medians(of_hop), SlowPart.DISK: _medians(of_disk)}


def _medians(said: Mapping[NodeId, Sequence[LatencySample]]) -> dict[NodeId, float]:
    """Return the median of each node that has handled enough chunks for a median to mean something."""
    return {
        node: median(sample.seconds for sample in samples)
        for node, samples in said.items()
        if sum(sample.chunks for sample in samples) >= slow_measured_chunks_min
    }


def usual_s_max(middle: float) -> float:
    """Return the seconds per MiB that always count as usual if the median is `middle`."""
    return max(slow_s_a_mebibyte_min, _DEVIATIONS * middle)


def find_outliers(measured: Mapping[NodeId, float]) -> tuple[float, list[NodeId]]:
    """Return the median and the nodes far above it; 0 and none if too few nodes were measured."""
    if len(measured) < slow_measured_nodes_min:
        return 0.0, []
    middle = median(measured.values())
    deviation = _MAD_SCALE * median(abs(seconds - middle) for seconds in measured.values())
    limit = max(usual_s_max(middle), middle + _DEVIATIONS * deviation)
    return middle, [node for node, seconds in measured.items() if seconds > limit]


def avoidable(slow: Sequence[NodeId], racks: Mapping[NodeId, str], replication: int) -> frozenset[NodeId]:
    """Return which slow nodes new chunks can avoid, among the candidates in `racks`.

    Enough candidates remain for all replicas, in two racks if there are two. At most a fraction of the candidates
    is avoided, because the others would be overloaded if many nodes were slow.
    """
    left = dict(racks)
    avoided: set[NodeId] = set()
    for node in slow:
        if node not in left:
            continue
        rest = {other: rack for other, rack in left.items() if other != node}
        is_enough = len(rest) >= replication and len(set(rest.values())) >= min(2, len(set(racks.values())))
        if is_enough and len(avoided) + 1 <= slow_avoided_fraction_max * len(racks):
            avoided.add(node)
            left = rest
    return frozenset(avoided)
