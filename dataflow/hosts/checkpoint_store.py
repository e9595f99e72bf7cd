"""Storage of units' checkpoints: a port, its in-memory twin, and a directory.

Pages are kept by the stores of paged state: a checkpoint exists completely or not at all, until it is deleted.
Beside the pages is the *record*, a file in which the controller stores which checkpoint each unit begins with.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from peacefs.dataflow.core.messages import CheckpointId, sequence_of
from peacefs.dataflow.logs.directory_segments import DirectorySegments
from peacefs.dataflow.logs.segments import MemorySegments, SegmentStore
from peacefs.state.checkpoints.directory_store import DirectoryStore
from peacefs.state.checkpoints.memory_store import MemoryStore
from peacefs.state.checkpoints.store import CheckpointStore as PageStore

from .driver_fence import DirectoryFence, DriverFence, MemoryFence
from .durable_files import replace_file

RECORD = "query.json"
#: The directory of units' logs, beside the checkpoints.
LOGS = "logs"


class UnitCheckpoints(Protocol):
    """The checkpoints of one query. It is sent to nodes as a value, and each process connects on first use."""

    def pages(self) -> PageStore:
        """Return the store of pages. Its keys are `name_of` a unit and `sequence_of` a checkpoint."""
        ...

    def segments(self) -> SegmentStore:
        """Return the store of units' logs."""
        ...

    def begin_run(self) -> tuple[UnitCheckpoints, DriverFence]:
        """Make this program the only driver of the query: older drivers can no longer write or deliver.

        Returns the checkpoints for this driver and its nodes to write, once the last delivery of an older driver
        is over. Raises StartupError if that delivery does not end, and RunSuperseded if a younger driver has
        begun.
        """
        ...

    def record(self, record: bytes, name: str = RECORD) -> None:
        """Replace the record atomically. Raises RunSuperseded if a younger driver has begun.

        `name`: another file beside it, for what a source or sink records.
        """
        ...

    def recorded(self, name: str = RECORD) -> bytes | None:
        """Return the record; None if there is none."""
        ...

    def replicas(self, unit: str, checkpoint: CheckpointId) -> Mapping[str, int]:
        """Return how many bytes of a checkpoint each datanode has; empty if the location makes no difference."""
        ...

    def close(self) -> None:
        """Close the connections of this process."""
        ...


def name_of(unit: str) -> str:
    """Return the name of a unit as used in file names."""
    return quote(unit, safe="").replace(".", "%2E")


def delete(store: UnitCheckpoints, unit: str, checkpoint: CheckpointId) -> None:
    """Delete a checkpoint if it exists."""
    store.pages().remove(name_of(unit), sequence_of(checkpoint))


def retain(store: UnitCheckpoints, unit: str, oldest: CheckpointId) -> None:
    """Delete all checkpoints of a unit that are older than `oldest`."""
    pages, name = store.pages(), name_of(unit)
    for sequence in pages.sequences(name):
        if sequence < sequence_of(oldest):
            pages.remove(name, sequence)


class MemoryCheckpoints:
    def __init__(self) -> None:
        self._pages = MemoryStore()
        self._segments = MemorySegments()
        # Shared by all drivers.
        self._records: dict[str, bytes] = {}
        self._drivers: list[MemoryFence] = []
        self._fence: MemoryFence | None = None

    def begin_run(self) -> tuple[MemoryCheckpoints, DriverFence]:
        fenced = copy.copy(self)
        fenced._fence = MemoryFence(self._drivers)
        return fenced, fenced._fence

    def pages(self) -> PageStore:
        return self._pages

    def segments(self) -> MemorySegments:
        return self._segments

    def record(self, record: bytes, name: str = RECORD) -> None:
        if self._fence is not None:
            self._fence.check()
        self._records[name] = record

    def recorded(self, name: str = RECORD) -> bytes | None:
        return self._records.get(name)

    def replicas(self, unit: str, checkpoint: CheckpointId) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        """Do nothing: there are no connections."""


class DirectoryCheckpoints:
    """Checkpoints in a directory that all nodes can access."""

    def __init__(self, root: Path | str, fence: DirectoryFence | None = None) -> None:
        """`fence`: the fence of the driver that writes them."""
        # Nodes may have another working directory.
        self._root = Path(root).absolute()
        self._fence = fence

    def begin_run(self) -> tuple[DirectoryCheckpoints, DriverFence]:
        fence = DirectoryFence(self._root)
        fence.begin()
        return DirectoryCheckpoints(self._root, fence), fence

    def pages(self) -> PageStore:
        return DirectoryStore(self._root)

    def segments(self) -> SegmentStore:
        return DirectorySegments(self._root / LOGS)

    def record(self, record: bytes, name: str = RECORD) -> None:
        with contextlib.nullcontext() if self._fence is None else self._fence.delivery():
            self._root.mkdir(parents=True, exist_ok=True)
            replace_file(self._root / name, record, staged=f".{name}")

    def recorded(self, name: str = RECORD) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return (self._root / name).read_bytes()
        return None

    def replicas(self, unit: str, checkpoint: CheckpointId) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        """Do nothing: there are no connections."""
