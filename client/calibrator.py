"""Measures what disks and links carry, by writing chunks through pipelines that are chosen for it.

Nothing of it is ever in a file, and all of it is deleted as soon as a measurement is done. A rate is that of bytes
that are on every disk of a pipeline by the time that is counted. What else the cluster does meanwhile makes
rates lower, and so does a network card of this machine that is slower than the disk that is measured.
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

# Streams through a link when it is measured.
calibration_link_streams: Final = 8
# Each of them crosses it to and fro so often. Longer pipelines take too long to fill and to drain.
calibration_pairs_max: Final = 4


Pipeline = Sequence[NodeId]

#: The share of a measurement's time that a stream's last chunk may take.
_LAST_PART = 1 / 8


class LinkRate(NamedTuple):
    """The rate over a link in one direction, and the rate of each disk meanwhile, in bytes a second."""

    bytes_s: float
    disk_bytes_s: float
    #: The number of streams that each disk took in.
    disk_streams: int


class Calibrator:
    """`seconds` is how long each measurement lasts."""

    def __init__(self, api: CoordinatorApi, driver: ThreadDriver, seconds: float) -> None:
        self._api = api
        self._driver = driver
        self._seconds = seconds
        self._packet = _packet_of(packet_bytes)
        #: A packet is on one hop at a time, so that the links of a long pipeline idle until it is full, and again
        #: when it empties: with short packets that is a quarter of the time.
        self._short_packet = _packet_of(checksum_block_bytes)

    def disk(self, node: NodeId) -> list[tuple[int, float]]:
        """Bytes a second that a datanode takes in, at each of `limits.calibration_streams`."""
        return [(streams, self.disk_at(node, streams)) for streams in calibration_streams]

    def disk_at(self, node: NodeId, streams: int) -> float:
        return sum(self._rates([[node]] * streams))

    def link(self, one: Sequence[NodeId], other: Sequence[NodeId]) -> LinkRate:
        """Measure the link between these two sets of datanodes. Pipelines go to and fro, so that a byte crosses
        several times and this machine's own link is not the bottleneck. All begin on one side: wherever this
        machine is, only the crossings to the other side are counted, which are no fewer than those back.
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
        """Bytes a second through each of these, when all are written through at once. Raises what a hop raises."""
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
    """A pipeline that changes sides with every hop, as long as is of use; each turn begins with others."""
    pairs = min(len(first), len(second), calibration_pairs_max)
    return [side[(turn + number) % len(side)] for number in range(pairs) for side in (first, second)]


def _packet_of(size: int) -> OutgoingPacket:
    piece = os.urandom(size)
    return OutgoingPacket(0, block_checksums(piece), piece, last=False)


class _Stream:
    """Chunk after chunk through one pipeline, on a thread of its own."""

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
        """Has the first chunk allocated, which should not count."""
        self._allocated = self._api.allocate_probe(self._pipeline)
        self.chunks.append(self._allocated.chunk)

    def run(self, until_s: float) -> None:
        """A short chunk, then chunks that last for the rest of the time at the rate of the one before: what is in
        buffers when the time is over has to be waited for, and should not be much. To a disk alone they last for
        half of the rest, until little is left: after a guess from a few packets one stream would go on long after
        the others, and a disk with one stream has another rate. A pipeline's filling costs more than that."""
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
    """The same packet over and over, up to so many bytes, a multiple of it. See `PacketSource`."""

    def __init__(self, packet: OutgoingPacket, size: int) -> None:
        self._packet = packet
        self._size = size

    def packet(self, index: int, *, wait_s: float) -> fx.Steps[OutgoingPacket | None]:
        yield from ()
        offset = index * len(self._packet.data)
        return self._packet._replace(offset=offset, last=offset + len(self._packet.data) == self._size)
