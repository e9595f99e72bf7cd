"""Write sets that were cancelled, with their age, for whoever comes back with another number of chunks. Pure."""

from __future__ import annotations

from peacefs.protocol.limits import write_set_memory_max, write_set_memory_s


class CancelledSets:
    """By name: since when they wait, and when they were cancelled; oldest first, and bounded."""

    def __init__(self) -> None:
        self._sets: dict[str, tuple[float, float]] = {}

    def remember(self, now_s: float, name: str, asked_s: float) -> None:
        """A set that has waited since `asked_s` is cancelled."""
        self._sets[name] = asked_s, now_s
        while len(self._sets) > write_set_memory_max:
            del self._sets[next(iter(self._sets))]

    def take(self, name: str, now_s: float) -> float:
        """Since when a set waits that comes back; `now_s` for any other."""
        asked_s, _ = self._sets.pop(name, (now_s, 0.0))
        return asked_s

    def forget_old(self, now_s: float) -> None:
        """Those that have not come back in `limits.write_set_memory_s`."""
        for name, (_asked_s, cancelled_s) in list(self._sets.items()):
            if now_s - cancelled_s < write_set_memory_s:
                break
            del self._sets[name]
