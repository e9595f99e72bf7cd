"""The unpublished bytes of a block. A short part is kept in memory; a longer one is written while it arrives."""

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

# How long a writer waits for memory that other writers use.
budget_wait_s: Final = 60.0
# How long to retry publishing while no coordinator answers. Shorter than the time that a client waits for an
# acknowledgement.
publish_again_s: Final = 60.0
publish_again_pause_s: Final = 0.5
# A part longer than this is written while it arrives. A shorter part has less than `orphan_bytes_min` even with a
# flushed tail, so later hops do not keep it as an orphan. An orphaned chunk therefore always begins where the
# published bytes of the block end.
kept_part_bytes_max: Final = orphan_bytes_min // 2
# The maximum number of flushed bytes per block that are kept, to be rewritten together with later bytes.
flushed_tail_bytes_max: Final = orphan_bytes_min - kept_part_bytes_max
# The last bytes of a part that may not have reached later hops yet: packets held by the writer and the first hop,
# and the minimum that a later hop must have received to keep them.
bytes_on_their_way: Final = orphan_bytes_min + 4 * packet_bytes

log = logging.getLogger("peacefs.hdfs")


class BlockParts:
    """Writes one block in parts, with a flusher. Belongs to the connection's thread.

    A part longer than `kept_part_bytes_max` is written by its own thread while it arrives.
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
        """Add bytes. Raises the error of the writing thread, or Overloaded."""
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
        """True if no bytes of the part are being written. Raises the error of the writing thread."""
        if self._fault is not None:
            raise self._fault
        return self._writing is None or not self._part.waiting_bytes

    @property
    def forwarded_bytes(self) -> int:
        """The number of bytes of the part that later hops have received, as a lower estimate."""
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
        """Discard the unpublished bytes. Raises nothing."""
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
        """Publish. Retry while no coordinator answers, because another one may become the leader."""
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
