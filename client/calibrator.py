"""Measures the throughput of disks and links by writing chunks through chosen pipelines.

The chunks belong to no file, and are deleted after each measurement. A rate counts only bytes that reached every
disk of the pipeline. Other load on the cluster lowers the rates, and so does a slow network card of this machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.ids import ChunkId, NodeId
from peacefs.protocol.limits import calibration_streams, checksum_block_bytes, chunk_bytes_max, packet_bytes
from peacefs.runtime import effects as fx
from peacefs.runtime.thread_driver import ThreadDriver

from .control.api import CoordinatorApi
from .transfer.chunk_buffer import OutgoingPacket
from .transfer.chunk_writer import send_chunk

# Number of streams through a link while it is measured.
calibration_link_streams: Final = 8
# Number of times that a pipeline crosses the link in each direction. Longer pipelines take too long to fill and
# drain.
calibration_pairs_max: Final = 4


Pipeline = Sequence[NodeId]

#: Fraction of a measurement's time that a stream's last chunk may take.
_LAST_PART = 1 / 8


class LinkRate(NamedTuple):
    """The rate of a link in one direction, and of the busiest disk meanwhile, in bytes per second."""

    bytes_s: float
    disk_bytes_s: float
    #: The number of streams that this disk received.
    disk_streams: int


class Calibrator:
    """Measures disks and links for `seconds` each, with probe chunks. `peacefs topology calibrate` uses it."""

    def __init__(self, api: CoordinatorApi, driver: ThreadDriver, seconds: float) -> None:
        self._api = api
        self._driver = driver
        self._seconds = seconds
        self._packet = _packet_of(packet_bytes)
        #: The links of a long pipeline are idle while it fills and drains. Short packets cut that time to a
        #: quarter.
        self._short_packet = _packet_of(checksum_block_bytes)

    def disk(self, node: NodeId) -> list[tuple[int, float]]:
        """Return the bytes per second that a datanode writes, for each number of `calibration_streams`."""
        return [(streams, self.disk_at(node, streams)) for streams in calibration_streams]

    def disk_at(self, node: NodeId, streams: int) -> float:
        return sum(self._rates([[node]] * streams))

    def link(self, one: Sequence[NodeId], other: Sequence[NodeId]) -> LinkRate:
        """Measure the link between two sets of datanodes.

        Pipelines alternate between the sides: a byte crosses the link several times, so that this machine's own
        link is not the bottleneck. All pipelines start on the same side. Only crossings away from that side are
        counted. They are at least as many as the crossings back, wherever this machine is.
        """
        pipelines = [zigzag(one, other, turn) for turn in range(calibration_link_streams)]
        rates = self._rates(pipelines)
        taken = dict.fromkeys((*one, *other), (0.0, 0))
        for pipeline, rate in zip(pipelines, rates, strict=True):
            for node in pipeline:
                taken[node] = taken[node][0] + rate, taken[node][1] + 1
        disk_bytes_s, disk_streams = max(taken.values())
        crossed = (rate * len(pipeline) / 2 for pipeline, rate in zip(pipelines, rates, strict=True))
        return LinkRate(sum(crossed), disk_bytes_s, disk_streams)

    # -- streams -------------------------------------------------------------------------------------

    def _rates(self, pipelines: Sequence[Pipeline]) -> list[float]:
        """Return the bytes per second of each pipeline, all written at once. Raises the error of a failed hop."""
        streams = [
            _Stream(self._api, self._driver, self._packet if len(pipeline) == 1 else self._short_packet, pipeline)
            for pipeline in pipelines
        ]
        try:
            for stream in streams:
                stream.prepare()
            begun_s = time.monotonic()
            threads = [threading.Thread(target=stream.run, args=(begun_s + self._seconds,)) for stream in streams]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            elapsed_s = time.monotonic() - begun_s
        finally:
            self._api.forget_probes([chunk for stream in streams for chunk in stream.chunks])
        for stream in streams:
            if stream.error is not None:
                raise stream.error
        return [stream.sent_bytes / elapsed_s for stream in streams]


def zigzag(first: Sequence[NodeId], second: Sequence[NodeId], turn: int) -> list[NodeId]:
    """Return the longest useful pipeline that changes sides with every hop. `turn` rotates the first datanode."""
    pairs = min(len(first), len(second), calibration_pairs_max)
    return [side[(turn + number) % len(side)] for number in range(pairs) for side in (first, second)]


def _packet_of(size: int) -> OutgoingPacket:
    piece = os.urandom(size)
    return OutgoingPacket(0, block_checksums(piece), piece, last=False)


class _Stream:
    """Writes chunk after chunk through one pipeline, on its own thread."""

    def __init__(
        self, api: CoordinatorApi, driver: ThreadDriver, packet: OutgoingPacket, pipeline: Pipeline
    ) -> None:
        self._api = api
        self._driver = driver
        self._packet = packet
        self._pipeline = list(pipeline)
        self.chunks: list[ChunkId] = []
        self.sent_bytes = 0
        self.error: PeacefsError | None = None

    def prepare(self) -> None:
        """Allocate the next chunk before the clock starts."""
        self._allocated = self._api.allocate_probe(self._pipeline)
        self.chunks.append(self._allocated.chunk)

    def run(self, until_s: float) -> None:
        """Write a short chunk, then chunks sized to fill the remaining time at the last chunk's rate.

        At the end of the time, buffered bytes must still be waited for, so there should be few of them. To a
        single disk, each chunk fills half of the remaining time until little time is left. Otherwise, after a bad
        first estimate, one stream could run long after the others, and the speed of a disk depends on the number
        of streams. For longer pipelines, refilling them would cost more than this error.
        """
        size = step = len(self._packet.data)
        begun_s = time.monotonic()
        short_s = (until_s - begun_s) * (_LAST_PART if len(self._pipeline) == 1 else 1.0)
        try:
            while True:
                written = self._driver.run(send_chunk(self._allocated, _ProbePackets(self._packet, size)))
                self.sent_bytes += written.length
                ended_s = time.monotonic()
                if ended_s >= until_s:
                    return
                rest_s = until_s - ended_s
                rest = size / (ended_s - begun_s) * (rest_s / 2 if rest_s > short_s else rest_s)
                size = max(step, min(int(rest), chunk_bytes_max) // step * step)
                begun_s = ended_s
                self.prepare()
        except PeacefsError as error:
            self.error = error


class _ProbePackets:
    """One packet repeated up to `size` bytes, a multiple of its length. See `PacketSource`."""

    def __init__(self, packet: OutgoingPacket, size: int) -> None:
        self._packet = packet
        self._size = size

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        yield from ()
        offset = index * len(self._packet.data)
        return self._packet._replace(offset=offset, last=offset + len(self._packet.data) == self._size)
