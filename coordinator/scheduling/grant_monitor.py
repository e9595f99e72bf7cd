"""Watch the grants in flight: find those that lapsed unreported, and those whose writers are idle. Pure.

**Lapsed grants.** A grant may end without anybody's word. The monitor says which datanodes to ask about it, and
when enough of them have denied knowing the stream.

**Idle grants.** While a writer stalls, its capacity is lent to others. The paper returns capacity on completion,
abort, or when a chain denies the stream, never by a deadline; a producer that sends a byte now and then would
hold a chunk open for hours. So heads are asked periodically how much has arrived and how long they have waited
for it. A stream whose head mostly waits for its writer loads neither disks nor links; its capacity is returned
while it goes on, and taken again as soon as the stream uses it, whether or not others have it by then.

Only waiting for the writer counts: a stream that is slow because a disk or a link is slow uses all that there is,
and another in its place would make that slower.
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
# The heads of chunks that are not quickly done are asked this often whether their writers make use of the room.
idle_grant_look_s: Final = 5.0


class LapsedGrants:
    """Knows which datanodes are dead: they deny everything."""

    def __init__(self) -> None:
        self._dead: set[NodeId] = set()

    def died(self, node: NodeId) -> None:
        self._dead.add(node)

    def lives(self, node: NodeId) -> None:
        self._dead.discard(node)

    def is_denied(self, grant: InFlight) -> bool:
        """By every node of its pipeline."""
        return self._dead.union(grant.denied).issuperset(grant.nodes)

    def due(self, now_s: float, grants: Iterable[InFlight]) -> list[InFlight]:
        """Those to ask about now: they can be used no more, or not go on."""
        return [
            grant
            for grant in grants
            if (is_lapsed(now_s, grant) or self._is_broken(grant))
            and now_s - grant.asked_s >= grant_ask_interval_s
        ]

    def _is_broken(self, grant: InFlight) -> bool:
        """Return whether its writing has begun and cannot go on, because the head receives nothing any more."""
        head = grant.nodes[0]
        return grant.begun and (head in self._dead or head in grant.denied)

    def questions(self, now_s: float, grants: Iterable[InFlight]) -> list[Ask]:
        """To every node that lives, one for all of them."""
        asks: dict[NodeId, list[ChunkId]] = {}
        for grant in grants:
            grant.asked_s = now_s
            for node in grant.nodes:
                if node not in self._dead:
                    asks.setdefault(node, []).append(grant.chunk)
        return [Ask(node, tuple(chunks)) for node, chunks in asks.items()]


def is_lapsed(now_s: float, grant: InFlight) -> bool:
    """Return whether nobody can begin to use it any more, however far the clocks are apart."""
    return now_s - grant.granted_s > grant_open_s + 2 * grant_clock_slack_s


#: A stream that gets less than this part of what it is granted for,
_IDLE_BELOW = 0.1
#: while its head waits for its writer for at least this part of the time.
_WAITS_ABOVE = 0.9
#: Two looks at it are at least so far apart.
_APART_S = idle_grant_look_s / 2


class IdleGrants:
    """Decide which heads to ask for the progress of their streams, and judge from the answers which grants are
    idle.
    """

    def __init__(self) -> None:
        self._bytes_s = 0.0

    def use(self, topology: Topology) -> None:
        """Return the disks and links that a stream occupies while it is granted."""
        self._bytes_s = _IDLE_BELOW * calibrate(topology).stream_bytes_s

    def questions(self, now_s: float, grants: Iterable[InFlight]) -> list[Ask]:
        """To the heads of pipelines that are not quickly done, now and then; not to those that are asked
        anyway."""
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
        """Return whether the stream is idle, as its head sees it now. Late and repeated reports change nothing."""
        before = grant.progress
        if before is not None and seen.begun_s == before.begun_s and seen.seen_s < before.seen_s + _APART_S:
            return grant.is_idle
        grant.progress = seen
        if before is None or seen.begun_s != before.begun_s:
            # The first word of it, or it was begun anew.
            return False
        elapsed_s = seen.seen_s - before.seen_s
        waited_s = seen.waited_s - before.waited_s
        return seen.received - before.received < self._bytes_s * elapsed_s and waited_s >= _WAITS_ABOVE * elapsed_s
