"""Files of replicas that were lent to this process, kept for what is read next of the same chunks."""

from __future__ import annotations

import contextlib
import threading
from typing import NamedTuple

from peacefs.protocol.ids import ChunkId, NodeId, Version
from peacefs.protocol.runtime import effects as fx


class SharedDescriptor(NamedTuple):
    """An open file, the checksums of all its blocks, and whose replica it is."""

    chunk: ChunkId
    version: Version
    lender: NodeId
    file: fx.File
    sums: bytes


class SharedDescriptors:
    """Those of one open file: the latest few that nobody is reading. Thread-safe.

    A replica that is deleted meanwhile takes room on its disk until its loan is given back.
    """

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._lock = threading.Lock()
        self._kept: list[SharedDescriptor] = []

    def take(self, chunk: ChunkId, version: Version, lender: NodeId) -> SharedDescriptor | None:
        """One that is kept; its taker has it for himself."""
        with self._lock:
            for loan in self._kept:
                if (loan.chunk, loan.version, loan.lender) == (chunk, version, lender):
                    self._kept.remove(loan)
                    return loan
        return None

    def keep(self, loan: SharedDescriptor) -> fx.Steps[None]:
        """For the next reader; what there is no room for is given back, the oldest first."""
        with self._lock:
            self._kept.append(loan)
            surplus = self._kept[: len(self._kept) - self._kept_max]
            del self._kept[: len(surplus)]
        yield from give_back(surplus)

    def close(self) -> fx.Steps[None]:
        """Gives all back, and keeps none from now on."""
        with self._lock:
            self._kept_max = 0
            kept, self._kept = self._kept, []
        yield from give_back(kept)


def give_back(descriptors: list[SharedDescriptor]) -> fx.Steps[None]:
    """Closes the files; what goes wrong with that makes no difference any more."""
    for loan in descriptors:
        with contextlib.suppress(OSError):
            yield from fx.close_file(loan.file)
