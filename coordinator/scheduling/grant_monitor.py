"""Monitors the grants in flight: finds unreported ends, and writers that are idle. Pure.

**Lapsed grants.** A grant may end without a report. The monitor decides which datanodes to ask about it, and
whether all of them have denied receiving the stream.

**Idle grants.** While a writer stalls, its capacity is lent to others. In the paper, capacity is returned on
completion, on abort, or if a chain denies the stream, but never by a deadline. So a producer that sends a byte now
and then would hold a chunk open for hours. Therefore the first datanode of a pipeline, its head, is asked
periodically how much has arrived, and how long it has waited for its writer. A stream whose head mostly waits for
its writer loads neither disks nor links. Its capacity is lent to others while it stays idle. When the stream
becomes active again, the capacity is taken back, even if others still use it.

Only waiting for the writer counts. A stream that is slow because of a slow disk or link uses all of its capacity,
so a second stream would make the disk or link even slower.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from peacefs.coordinator.limits import grant_open_s
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import grant_clock_slack_s
from peacefs.protocol.messages import StreamProgress
from peacefs.topology.calibration import calibrate
from peacefs.topology.model import Topology

from .write_sets import Ask, InFlight

grant_ask_interval_s: Final = 5.0
# How often the head of a long stream is asked whether its writer uses the grant.
idle_grant_look_s: Final = 5.0


class LapsedGrants:
    """Finds grants that may have lapsed. A dead datanode counts as one that denies every stream."""

    def __init__(self) -> None:
        self._dead: set[NodeId] = set()

    def died(self, node: NodeId) -> None:
        self._dead.add(node)

    def lives(self, node: NodeId) -> None:
        self._dead.discard(node)

    def is_denied(self, grant: InFlight) -> bool:
        """Return whether every node of the pipeline has denied the stream or is dead."""
        return self._dead.union(grant.denied).issuperset(grant.nodes)

    def due(self, now_s: float, grants: Iterable[InFlight]) -> list[InFlight]:
        """Return the lapsed or broken grants that were not asked about recently."""
        return [
            grant
            for grant in grants
            if (is_lapsed(now_s, grant) or self._is_broken(grant))
            and now_s - grant.asked_s >= grant_ask_interval_s
        ]

    def _is_broken(self, grant: InFlight) -> bool:
        """Return whether the head has received a part of the stream but does not receive it any more."""
        head = grant.nodes[0]
        return grant.begun and (head in self._dead or head in grant.denied)

    def questions(self, now_s: float, grants: Iterable[InFlight]) -> list[Ask]:
        """Return one question to each living node, about all of its grants."""
        asks: dict[NodeId, list[ChunkId]] = {}
        for grant in grants:
            grant.asked_s = now_s
            for node in grant.nodes:
                if node not in self._dead:
                    asks.setdefault(node, []).append(grant.chunk)
        return [Ask(node, tuple(chunks)) for node, chunks in asks.items()]


def is_lapsed(now_s: float, grant: InFlight) -> bool:
    """Return whether it is too late to use the grant, even with the greatest clock difference."""
    return now_s - grant.granted_s > grant_open_s + 2 * grant_clock_slack_s


#: A stream is idle if its rate is below this fraction of the calibrated rate of one stream ...
_IDLE_BELOW = 0.1
#: ... while its head waits for its writer for at least this fraction of the time.
_WAITS_ABOVE = 0.9
#: The minimum time between two reports of a stream that are compared.
_APART_S = idle_grant_look_s / 2


class IdleGrants:
    """Decides which heads to ask about the progress of their streams, and judges which grants are idle."""

    def __init__(self) -> None:
        self._bytes_s = 0.0

    def use(self, topology: Topology) -> None:
        """Set the rate below which a stream may be idle, from the network's rate of one stream."""
        self._bytes_s = _IDLE_BELOW * calibrate(topology).stream_bytes_s

    def questions(self, now_s: float, grants: Iterable[InFlight]) -> list[Ask]:
        """Return questions to the heads of long streams, except those that were asked recently for any reason."""
        due = [
            grant
            for grant in grants
            if now_s - max(grant.granted_s, grant.looked_s, grant.asked_s) >= idle_grant_look_s
        ]
        heads: dict[str, list[int]] = {}
        for grant in due:
            grant.looked_s = now_s
            heads.setdefault(grant.nodes[0], []).append(grant.chunk)
        return [Ask(head, tuple(chunks)) for head, chunks in heads.items()]

    def is_idle(self, grant: InFlight, seen: StreamProgress) -> bool:
        """Return whether a stream is idle by its head's report. Ignores late and repeated reports."""
        before = grant.progress
        if before is not None and seen.begun_s == before.begun_s and seen.seen_s < before.seen_s + _APART_S:
            return grant.is_idle
        grant.progress = seen
        if before is None or seen.begun_s != before.begun_s:
            # There is no earlier report of this stream to compare with.
            return False
        elapsed_s = seen.seen_s - before.seen_s
        waited_s = seen.waited_s - before.waited_s
        return seen.received - before.received < self._bytes_s * elapsed_s and waited_s >= _WAITS_ABOVE * elapsed_s
