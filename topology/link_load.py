"""The load and capacity of links, for drawings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .model import Link


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Concurrent chunks on a link from its end `a` (`forth`) and to it (`back`); the capacity is per direction."""

    a: str
    forth: int
    back: int
    capacity: int

    @property
    def is_idle(self) -> bool:
        return not self.forth and not self.back

    @property
    def is_full(self) -> bool:
        return max(self.forth, self.back) >= self.capacity

    def from_end(self, end: str) -> str:
        """Format the load as seen from one end: `2 out, 1 in, of 6`."""
        out, come_in = (self.forth, self.back) if end == self.a else (self.back, self.forth)
        return f"{out} out, {come_in} in, of {self.capacity}"


#: Loads by the ends of the link. Empty if only a description is drawn, not a running cluster.
Loads = Mapping[frozenset[str], LinkLoad]


def load_on(loads: Loads, link: Link) -> LinkLoad | None:
    """Return the load of a link; None if it is unknown or idle."""
    load = loads.get(link.ends)
    return None if load is None or load.is_idle else load
