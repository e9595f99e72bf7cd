"""The interface of stores for checkpoints of pages. tests/state/test_stores.py tests all adapters alike.

A checkpoint has an index and files of pages: its own, and those of the older checkpoints that it refers to. A
reference shares the older checkpoint's data and keeps it alive: removing the older checkpoint does not affect it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class WriteRequest:
    """A checkpoint to write. `runs` are consecutive pages, in buffers that do not change until written.

    `referred` lists older checkpoints with needed pages; checkpoint `source` holds or refers to them all.
    """

    unit: str
    sequence: int
    runs: Sequence[memoryview]
    index: bytes
    referred: Sequence[int]
    source: int | None
    #: Called from any thread with two offsets: the bytes between them are written and may change from now on.
    written: Callable[[int, int], None]


class PendingWrite(Protocol):
    @property
    def expected_start_s(self) -> float:
        """The expected seconds until the next part has its turn; 0.0 while it is being written."""

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until it is published. Raises the reason if it is not, or TimeoutError."""

    def cancel(self) -> bool:
        """Cancel it, and wait until nothing of it continues. Return False if it was published before."""


class CheckpointStore(Protocol):
    """Checkpoints by unit and sequence number. Each appears whole or not at all."""

    def sequences(self, unit: str) -> list[int]:
        """Return the sequence numbers of a unit's checkpoints, ascending."""

    def submit(self, request: WriteRequest, instead_of: PendingWrite | None = None) -> PendingWrite:
        """Begin to write a checkpoint. It takes the turn of `instead_of`, a cancelled checkpoint.

        Raises FileAlreadyExists if the sequence exists, here or in `wait`.
        """

    def index(self, unit: str, sequence: int) -> bytes:
        """Read an index. Raises FileNotFound, CheckpointDamaged."""

    def read_pages(self, unit: str, sequence: int, stored_in: int, target: memoryview) -> None:
        """Read all pages that a checkpoint holds from checkpoint `stored_in`; their size must be that of `target`.

        Raises CheckpointDamaged if they are missing or have another size.
        """

    def remove(self, unit: str, sequence: int) -> None:
        """Remove a checkpoint. Succeeds if there is none."""

    def remove_left_over(self, unit: str) -> None:
        """Remove what dead writers have left, as far as that can be told. No writer of the unit may be active."""
