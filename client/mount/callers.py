"""What the kernel's process table says about processes that have files of the mount open."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_PROCESSES = Path("/proc")


def process_of(thread: int) -> int:
    """Return the process of a thread; 0 if it has ended or is in another process namespace."""
    try:
        status = (_PROCESSES / str(thread) / "status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("Tgid:")), 0)


def have_open(processes: Iterable[int], path: str) -> bool:
    """Return whether one of the processes has a descriptor of a file whose path ends with `path`.

    A descriptor that is just being closed does not count. A process that may not be looked at has none.
    """
    for process in processes:
        # Not with pathlib: this runs at each close of a written file.
        try:
            with os.scandir(f"{_PROCESSES}/{process}/fd") as descriptors:
                if any(_leads_to(descriptor.path, path) for descriptor in descriptors):
                    return True
        except OSError:
            continue
    return False


def _leads_to(link: str, path: str) -> bool:
    try:
        return os.readlink(link).endswith(path)  # noqa: PTH115
    except OSError:
        return False
