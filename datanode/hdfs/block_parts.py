"""The bytes of a block that are not published yet: kept while they are few, else written while they come."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.file_flusher import FileFlusher
from peacefs.datanode.pipeline.orphaned_chunks import orphan_bytes_min
from peacefs.protocol.errors import PeacefsError, PeerUnreachable
from peacefs.protocol.limits import hop_timeout_s, packet_bytes
from peacefs.runtime import effects as fx
from peacefs.runtime.thread_driver import ThreadDriver

from .write_budget import WriteBudget

# How long a writer waits for memory that other writers hold.
budget_wait_s: Final = 60.0
# How long a publication is repeated while no coordinator answers: less than a client waits for an acknowledgement.
publish_again_s: Final = 60.0
publish_again_pause_s: Final = 0.5
# A longer part is written while it comes. A shorter one has less than `orphan_bytes_min` even with a flushed tail.
# So a chunk that later hops keep always begins where the block's published bytes end.
kept_part_bytes_max: Final = orphan_bytes_min // 2
# Flushed bytes that a block keeps, to write them anew together with what follows.
flushed_tail_bytes_max: Final = orphan_bytes_min - kept_part_bytes_max
# Bytes of a part that are not counted as forwarded yet: packets in the hands of the writer and of the head, and as
# many as a later hop must have to keep them.
bytes_on_their_way: Final = orphan_bytes_min + 4 * packet_bytes

log = logging.getLogger("peacefs.hdfs")


class BlockParts:
    """Writes one block part by part, with a flusher. Belongs to the connection's thread.

    A part that outgrows the fast lane is written by a thread of its own, while it comes.
    """

    def __init__(self, flusher: FileFlusher, driver: ThreadDriver, budget: WriteBudget) -> None:
        self._flusher = flusher
        self._driver = driver
        self._budget = budget
        self._part = ByteStream()
        self._writing: threading.Thread | None = None
        self._fault: Exception | None = None
        self._tail_bytes = 0
        #: The number of bytes of the current part.
        self.unpublished_bytes = 0

    def feed(self, data: bytes) -> None:
        """Add bytes. Raises the error of the thread that writes, and Overloaded."""
        if not self._budget.try_take(len(data)):
            self.publish()
            self._forget_tail()
            self._budget.take(len(data), budget_wait_s)
        self.unpublished_bytes += len(data)
        room = self._part.feed(data)
        if self._writing is None and self.unpublished_bytes > kept_part_bytes_max:
            self._writing = threading.Thread(target=self._write, args=(self._part,), name="hdfs-part", daemon=True)
            self._writing.start()
        if room is not None:
            self._driver.run(_until_room(room))

    @property
    def is_idle(self) -> bool:
        """True if nothing of the part is being written. Raises the error of the thread that writes."""
        if self._fault is not None:
            raise self._fault
        return self._writing is None or not self._part.waiting_bytes

    @property
    def forwarded_bytes(self) -> int:
        """The number of bytes of the part that later hops should have."""
        if self._writing is None:
            return 0
        return max(0, self.unpublished_bytes - self._part.waiting_bytes - bytes_on_their_way)

    def publish(self) -> None:
        """Make the part's bytes durable at all hops and visible in the file. Raises the errors of the flusher."""
        if not self.unpublished_bytes:
            return
        part, self._part = self._part, ByteStream()
        part.finish()
        try:
            if self._writing is not None:
                self._join()
                self._flush(b"")
            else:
                self._flush(b"".join(iter(lambda: part.take(kept_part_bytes_max), b"")))
        finally:
            self._budget.give_back(self.unpublished_bytes)
            self.unpublished_bytes = 0
        self._keep_tail()

    def close(self) -> None:
        """Give up what is not published. Raises nothing."""
        self._part.abort(PeerUnreachable("the client of a block has gone"))
        if self._writing is not None:
            self._writing.join()
            self._writing = None
        self._budget.give_back(self.unpublished_bytes)
        self.unpublished_bytes = 0
        self._forget_tail()

    def _write(self, part: ByteStream) -> None:
        try:
            self._driver.run(self._flusher.write(part))
        except Exception as fault:
            part.abort(fault if isinstance(fault, PeacefsError) else PeacefsError("an internal error"))
            self._fault = fault

    def _join(self) -> None:
        assert self._writing is not None
        self._writing.join()
        self._writing = None
        if self._fault is not None:
            raise self._fault

    def _flush(self, data: bytes) -> None:
        """Publish; ask again while no coordinator answers, for another may be about to lead."""
        deadline_s = time.monotonic() + publish_again_s
        try:
            self._driver.run(self._flusher.flush(data))
        except PeacefsError as first:
            fault = first
            while fault.retriable and self._flusher.is_unanswered and time.monotonic() < deadline_s:
                time.sleep(publish_again_pause_s)
                try:
                    self._driver.run(self._flusher.repeat())
                except PeacefsError as again:
                    fault = again
                else:
                    return
            raise fault from None

    def _keep_tail(self) -> None:
        held_bytes = self._flusher.tail_bytes
        self._budget.give_back(self._tail_bytes)
        self._tail_bytes = 0
        if self._budget.try_take(held_bytes):
            self._tail_bytes = held_bytes
        else:
            self._flusher.forget_tail()

    def _forget_tail(self) -> None:
        self._flusher.forget_tail()
        self._budget.give_back(self._tail_bytes)
        self._tail_bytes = 0


def _until_room(room: fx.Ticket) -> fx.Steps[None]:
    while not (yield from fx.wait(room, timeout_s=hop_timeout_s)):
        pass
