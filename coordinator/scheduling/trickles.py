"""Grants of which their writers make hardly any use: their room is others' meanwhile. Pure.

The paper gives capacity back by completion, abort or a chain that denies the stream, and never by a deadline. A
producer that sends a byte now and then holds a chunk open for hours by these rules. So heads are asked, now and
then, how much has come and for how long they have waited for it. A stream whose head does little but wait for its
writer takes nothing of disks and links; its room is given back while it goes on, and taken again as soon as the
stream makes use of it, whether or not others have it now.

That it is the writer who is waited for is what matters: a stream that is slow because a disk or a link is slow
makes use of all that there is, and another in its place would make that slower.
"""

from __future__ import annotations

from collections.abc import Iterable

from peacefs.protocol.limits import trickle_look_s
from peacefs.protocol.messages import StreamProgress
from peacefs.topology.calibration import calibrate
from peacefs.topology.model import Topology

from .write_sets import Ask, InFlight

#: A stream that gets less than this part of what it is granted for,
_TRICKLES_BELOW = 0.1
#: while its head waits for its writer for at least this part of the time.
_WAITS_ABOVE = 0.9
#: Two looks at it are at least so far apart.
_APART_S = trickle_look_s / 2


class Trickles:
    """Whom to ask, and what the answers tell."""

    def __init__(self) -> None:
        self._bytes_s = 0.0

    def use(self, topology: Topology) -> None:
        """What a stream is granted for depends on disks and links."""
        self._bytes_s = _TRICKLES_BELOW * calibrate(topology).stream_bytes_s

    def questions(self, now_s: float, grants: Iterable[InFlight]) -> list[Ask]:
        """To the heads of pipelines that are not quickly done, now and then; not to those that are asked
        anyway."""
        due = [
            grant
            for grant in grants
            if now_s - max(grant.granted_s, grant.looked_s, grant.asked_s) >= trickle_look_s
        ]
        heads: dict[str, list[int]] = {}
        for grant in due:
            grant.looked_s = now_s
            heads.setdefault(grant.nodes[0], []).append(grant.chunk)
        return [Ask(head, tuple(chunks)) for head, chunks in heads.items()]

    def trickles(self, grant: InFlight, seen: StreamProgress) -> bool:
        """Whether it does, as the head sees it now. What comes late or twice changes nothing."""
        before = grant.progress
        if before is not None and seen.begun_s == before.begun_s and seen.seen_s < before.seen_s + _APART_S:
            return grant.trickles
        grant.progress = seen
        if before is None or seen.begun_s != before.begun_s:
            # The first word of it, or it was begun anew.
            return False
        elapsed_s = seen.seen_s - before.seen_s
        waited_s = seen.waited_s - before.waited_s
        return seen.received - before.received < self._bytes_s * elapsed_s and waited_s >= _WAITS_ABOVE * elapsed_s
