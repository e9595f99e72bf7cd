"""Measure the recent times of this datanode's successors, and of its own disks, over chunks. Thread-safe.

A predecessor notices best that a hop is slow: it waits for it. Of what it waits, the hop says what it waited for
the one after it, so that nobody is blamed for another. Time is counted by the MiB, a smaller chunk for one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import LatencySample

# Datanodes report each other's latency over the last one to two windows.
latency_window_s: Final = 30.0
latency_peers_max: Final = 1000


@dataclass(slots=True)
class _Spent:
    seconds: float = 0.0
    mebibytes: float = 0.0
    chunks: int = 0

    def add(self, other: _Spent) -> None:
        self.seconds += other.seconds
        self.mebibytes += other.mebibytes
        self.chunks += other.chunks


@dataclass
class LatencySamples:
    """The times spent in this window and in the one before."""

    _now: dict[NodeId, _Spent] = field(default_factory=dict)
    _before: dict[NodeId, _Spent] = field(default_factory=dict)
    _began_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def took(self, now_s: float, node: NodeId, seconds: float, size: int) -> None:
        """A chunk of `size` bytes cost so much time; `node` is the successor, or this datanode for its disk."""
        with self._lock:
            self._turn_over(now_s)
            if node in self._now or len(self._now) < latency_peers_max:
                self._now.setdefault(node, _Spent()).add(_Spent(seconds, max(1.0, size / MIB), 1))

    def lately(self, now_s: float) -> list[LatencySample]:
        """Return the sample over this window and the one before."""
        with self._lock:
            self._turn_over(now_s)
            samples = []
            for node in sorted(self._now.keys() | self._before.keys()):
                spent = _Spent()
                for window in (self._now, self._before):
                    if node in window:
                        spent.add(window[node])
                samples.append(LatencySample(node, spent.seconds / spent.mebibytes, spent.chunks))
            return samples

    def _turn_over(self, now_s: float) -> None:
        windows_on = (now_s - self._began_s) // latency_window_s
        if windows_on >= 1:
            self._before = self._now if windows_on == 1 else {}
            self._now = {}
            self._began_s += windows_on * latency_window_s
