"""The processes that a process has started."""

from __future__ import annotations

from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the living children of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may contain anything.
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == pid and state not in "ZX":
            found.append(int(stat.parent.name))
    return sorted(found)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and is not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
