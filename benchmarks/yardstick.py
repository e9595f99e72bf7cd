"""Measure how fast this machine is now: a fixed piece of interpreter work, a fixed number of disk syncs.

The speed of rented machines varies from hour to hour. Figures of two runs are comparable as far as these agree.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable

_STEPS = 100_000
_SYNCS = 30
_SYNCED_BYTES = 4096


def interpreter_ms() -> float:
    """Return the median milliseconds of a loop of 100,000 steps that calls, allocates and looks up."""
    return statistics.median(_timed(_loop) for _ in range(7)) * 1000


def sync_ms() -> float:
    """Return the median milliseconds of a 4 KiB write with `fdatasync`, in the directory for temporary files."""
    with tempfile.TemporaryFile() as file:
        return statistics.median(_timed(lambda: _write_and_sync(file.fileno())) for _ in range(_SYNCS)) * 1000


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _loop() -> dict[int, tuple[int, int]]:
    kept: dict[int, tuple[int, int]] = {}
    for step in range(_STEPS):
        kept[step % 101] = (step, len(kept))
    return kept


def _write_and_sync(descriptor: int) -> None:
    os.write(descriptor, bytes(_SYNCED_BYTES))
    os.fdatasync(descriptor)
