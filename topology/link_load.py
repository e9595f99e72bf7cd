"""The load of a link beside its capacity, for drawings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .model import Link


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Concurrent chunks from the link's end `a` to `b` and back, and how many it carries in each direction."""

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
        """As seen from one end of it: `2 out, 1 in, of 6`."""
        out, come_in = (self.forth, self.back) if end == self.a else (self.back, self.forth)
        return f"{out} out, {come_in} in, of {self.capacity}"


#: Links are found by their ends. A drawing without loads is that of a description.
Loads = Mapping[frozenset[str], LinkLoad]


def load_on(loads: Loads, link: Link) -> LinkLoad | None:
    """None where nothing is known, or nothing is on its way."""
    load = loads.get(link.ends)
    return None if load is None or load.is_idle else load
