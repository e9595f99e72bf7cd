"""Looks up in the kernel's process table which processes have files of the mount open."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_PROCESSES = Path("/proc")
#: What Linux appends to the path of a descriptor whose name is gone.
_DELETED = " (deleted)"


def process_of(thread: int) -> int:
    """Return the process id of a thread; 0 if the thread has ended or is in another process namespace."""
    try:
        status = (_PROCESSES / str(thread) / "status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("Tgid:")), 0)


def have_open_for_writing(processes: Iterable[int], path: str) -> bool:
    """Return whether one of the processes can write to a file whose path ends with `path`.

    A descriptor that is being closed does not count. A process that may not be inspected counts as having none.
    """
    for process in processes:
        # Avoid pathlib, which is slower: this runs at each close of a written file.
        try:
            with os.scandir(f"{_PROCESSES}/{process}/fd") as descriptors:
                if any(_writes_to(process, descriptor.name, path) for descriptor in descriptors):
                    return True
        except OSError:
            continue
    return False


def _writes_to(process: int, descriptor: str, path: str) -> bool:
    directory = f"{_PROCESSES}/{process}"
    try:
        # Linux also adds the mark when another process looked the name up while the file was being created.
        name = os.readlink(f"{directory}/fd/{descriptor}").removesuffix(_DELETED)  # noqa: PTH115
        if not name.endswith(path):
            return False
        facts = Path(f"{directory}/fdinfo/{descriptor}").read_text().splitlines()
    except OSError:
        return False
    flags = next((int(line.split()[1], 8) for line in facts if line.startswith("flags:")), 0)
    return flags & os.O_ACCMODE != os.O_RDONLY
