"""Limit the rate of a datanode's disk, for experiments on one machine, whose disk all datanodes share.

Chunks are received at a rate that depends on their number, as on a real disk with one arm. A writer waits before
its bytes are stored, so its sender and all earlier hops wait, too. Reads are not limited. `slow_datanode` runs a
datanode with it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise

from peacefs.datanode.store.chunk_store import Sealed, Staged
from peacefs.datanode.store.interface import ChunkIntake
from peacefs.protocol.checksums import Bytes
from peacefs.protocol.errors import BadRequest, ChunkError
from peacefs.protocol.ids import ChunkId, Version
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx
from peacefs.topology.rate_curve import RateCurve

#: Unused time of the recent past may be used at once, so that a slightly late writer does not idle the disk.
_BURST_S = 0.01


def parse_curve(text: str) -> RateCurve:
    """Parse a curve from `STREAMS=BYTES_S,...`, as in `1=30e6,2=45e6,4=41e6`. Raises BadRequest."""
    points: list[tuple[int, float]] = []
    for part in text.split(","):
        streams, _, rate = part.partition("=")
        try:
            points.append((int(streams), float(rate)))
        except ValueError:
            raise BadRequest(f"{part!r} is not STREAMS=BYTES_S, as in 2=45e6") from None
    if any(streams < 1 or not 0 < rate < float("inf") for streams, rate in points):
        raise BadRequest(f"{text!r}: streams count from 1, and rates are above zero")
    if any(after <= before for (before, _), (after, _) in pairwise(points)):
        raise BadRequest(f"{text!r}: the numbers of streams must rise")
    return RateCurve(tuple(points))


class DiskArm:
    """Gives users of a disk turns at the rate for their number. Thread-safe; does not wait itself."""

    def __init__(self, curve: RateCurve) -> None:
        self._curve = curve
        self._lock = threading.Lock()
        self._streams: set[object] = set()
        self._busy_until_s = float("-inf")

    @property
    def streams(self) -> int:
        return len(self._streams)

    def begin(self, stream: object) -> None:
        with self._lock:
            self._streams.add(stream)

    def end(self, stream: object) -> None:
        """End a stream. Does nothing if it has ended already."""
        with self._lock:
            self._streams.discard(stream)

    def reserve(self, now_s: float, size: int) -> float:
        """Return the time at which `size` more bytes of a stream are on the disk."""
        with self._lock:
            rate = self._curve.rate(max(1, len(self._streams)))
            self._busy_until_s = max(self._busy_until_s, now_s - _BURST_S) + size / rate
            return self._busy_until_s


class EmulatedDisk:
    """Stores chunks no faster than the arm allows, with the store's guarantees."""

    def __init__(self, store: ChunkIntake, arm: DiskArm) -> None:
        self._store = store
        self._arm = arm

    def stage(self, chunk: ChunkId, version: Version) -> Staged:
        staged = self._store.stage(chunk, version)
        self._arm.begin(staged)
        return staged

    def write(self, staged: Staged, sums: Bytes, data: Bytes) -> fx.Steps[None]:
        yield from self._wait(len(data))
        yield from self._store.write(staged, sums, data)

    def seal(self, staged: Staged, sums: Bytes = b"", data: Bytes = b"") -> fx.Steps[Sealed]:
        try:
            yield from self._wait(len(data))
            return (yield from self._store.seal(staged, sums, data))
        finally:
            self._arm.end(staged)

    def take(self, chunk: ChunkId, version: Version, sums: Bytes, data: Bytes) -> Staged:
        staged = self._store.take(chunk, version, sums, data)
        self._arm.begin(staged)
        return staged

    def seal_many(self, chunks: Sequence[Staged]) -> fx.Steps[list[Sealed | ChunkError]]:
        try:
            yield from self._wait(sum(staged.length for staged in chunks))
            return (yield from self._store.seal_many(chunks))
        finally:
            for staged in chunks:
                self._arm.end(staged)

    def discard(self, staged: Staged) -> fx.Steps[None]:
        self._arm.end(staged)
        yield from self._store.discard(staged)

    def find(self, chunk: ChunkId) -> Replica | None:
        return self._store.find(chunk)

    def _wait(self, size: int) -> fx.Steps[None]:
        now_s = yield from fx.now()
        done_s = self._arm.reserve(now_s, size)
        if done_s > now_s:
            yield from fx.sleep(done_s - now_s)
