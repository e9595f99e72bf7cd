"""Measures the recent write times of this datanode's successors and of its own disks. Thread-safe.

A slow hop is best measured by its predecessor, which waits for it. The hop reports how long it waited for its own
successor, so that it is not blamed for that. Times are per MiB; a smaller chunk counts as one MiB.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from peacefs.protocol.ids import NodeId
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import LatencySample

# Datanodes report latencies over the last one to two windows.
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
    """The times in the current window and in the previous one."""

    _now: dict[NodeId, _Spent] = field(default_factory=dict)
    _before: dict[NodeId, _Spent] = field(default_factory=dict)
    _began_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def took(self, now_s: float, node: NodeId, seconds: float, size: int = 0, *, chunks: int = 1) -> None:
        """Record the times of `chunks` chunks of `size` bytes each, served together. Each took `seconds`.

        `node` is the successor, or this datanode for its own disk.
        """
        with self._lock:
            self._turn_over(now_s)
            spent = self._now.get(node)
            if spent is None:
                if len(self._now) >= latency_peers_max:
                    return
                spent = self._now[node] = _Spent()
            spent.seconds += seconds * chunks
            spent.mebibytes += max(1.0, size / MIB) * chunks
            spent.chunks += chunks

    def lately(self, now_s: float) -> list[LatencySample]:
        """Return the average times of both windows."""
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
