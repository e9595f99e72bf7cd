"""The port to wherever checkpoints of pages are kept, which all adapters fill alike (tests/state/test_stores.py).

A checkpoint has an index, and pages in files of one checkpoint each: its own, and those of older ones that it
refers to. A reference shares the older one's data and keeps it: removing the older checkpoint takes nothing from
the newer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class WriteRequest:
    """A checkpoint to be written. `runs` are pages one after the other, in buffers that do not change meanwhile.

    `referred` are older checkpoints whose pages are needed still, which checkpoint `source` has or refers to.
    """

    unit: str
    sequence: int
    runs: Sequence[memoryview]
    index: bytes
    referred: Sequence[int]
    source: int | None
    #: Called, from any thread, when the bytes from one offset to another need not stay as they are any more.
    written: Callable[[int, int], None]


class PendingWrite(Protocol):
    """A checkpoint that is being written."""

    @property
    def expected_start_s(self) -> float:
        """In how many seconds what comes next may expect its turn; 0.0 when it is being written."""

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until it is published. Raises why it is not, and TimeoutError."""

    def cancel(self) -> bool:
        """Give it up. False: it was published before. Nothing of it goes on when this returns."""


class CheckpointStore(Protocol):
    """Checkpoints by unit and sequence number, each of which appears whole or not at all."""

    def sequences(self, unit: str) -> list[int]:
        """Return which checkpoints of a unit there are, ascending."""

    def submit(self, request: WriteRequest, instead_of: PendingWrite | None = None) -> PendingWrite:
        """Begin to write a checkpoint. One that was cancelled, `instead_of` which it comes, leaves it its turn.

        Raises FileAlreadyExists for a sequence that is there, here or when it is waited for.
        """

    def index(self, unit: str, sequence: int) -> bytes:
        """Read an index. Raises FileNotFound, CheckpointDamaged."""

    def read_pages(self, unit: str, sequence: int, stored_in: int, target: memoryview) -> None:
        """Read all pages that a checkpoint has from checkpoint `stored_in`, which are as long as `target`.

        Raises CheckpointDamaged when they are not, or not there.
        """

    def remove(self, unit: str, sequence: int) -> None:
        """Remove a checkpoint; nothing happens if it is not there."""

    def remove_left_over(self, unit: str) -> None:
        """Remove what writers that died have left, as far as can be told; nobody may be writing the unit."""
