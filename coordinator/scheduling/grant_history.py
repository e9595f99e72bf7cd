"""Grants that have ended, for a time line of the last minutes. Bounded in number and time. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from peacefs.coordinator.limits import grant_history_max, grant_history_s
from peacefs.protocol.ids import NodeId

from .write_sets import InFlight


@dataclass(frozen=True, slots=True)
class EndedGrant:
    """A grant that has ended. `length` is the number of bytes written, 0 if the write failed."""

    number: int
    write_set: str
    nodes: tuple[NodeId, ...]
    granted_s: float
    ended_s: float
    length: int
    user: str


class GrantHistory:
    """The last grants that ended, in the order of their ends."""

    def __init__(self, *, kept_s: float = grant_history_s, count_max: int = grant_history_max) -> None:
        self._kept_s = kept_s
        self._ended: deque[EndedGrant] = deque(maxlen=count_max)

    def ended(self, now_s: float, grant: InFlight, length: int) -> None:
        """Add a grant that ended now, after `length` bytes were written."""
        while self._ended and now_s - self._ended[0].ended_s > self._kept_s:
            self._ended.popleft()
        ended = EndedGrant(grant.number, grant.write_set, grant.nodes, grant.granted_s, now_s, length, grant.user)
        self._ended.append(ended)

    def since(self, from_s: float) -> list[EndedGrant]:
        """Return the grants that ended at or after `from_s`."""
        return [each for each in self._ended if each.ended_s >= from_s]
