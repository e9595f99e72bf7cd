"""The directories of a datanode: one for its identity, and others for its chunks if it has several disks.

Uses plain system calls, at the start only. The exception is `rooms_of`, whose functions look at the disks later.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from peacefs.datanode.store.layout import StorePaths
from peacefs.protocol.errors import DiskFault, StartupError
from peacefs.protocol.ids import NodeId

from .identity import StoreDirectory

# Short enough that no disk can write a tenth of the reserve meanwhile.
room_known_for_s: Final = 0.05


class Claimed(NamedTuple):
    """The datanode's identity directory. `broken` maps data directories on failed disks to the reason."""

    directory: StoreDirectory
    broken: Mapping[Path, str]


def cluster_of(identity: Path) -> str | None:
    """Return the cluster of a datanode; None if the datanode is new. Raises StartupError."""
    try:
        return StoreDirectory.cluster_of(identity)
    except DiskFault as fault:
        raise StartupError(fault.message) from None


@contextlib.contextmanager
def claim_directories(identity: Path, data: Sequence[Path], cluster: str, new_node: NodeId) -> Iterator[Claimed]:
    """Lock all directories for one datanode. The identity's directory contains chunks only if it is in `data`.

    A data directory on a failed disk is left out. Raises StartupError if the identity is on a failed disk, if a
    directory is unusable, another's or named twice, or if `identity` has chunks but is not in `data`.
    """
    places = [path.resolve() for path in data]
    if twice := [str(path) for path, times in Counter(places).items() if times > 1]:
        raise StartupError(f"{twice[0]} is named twice as a data directory")
    if data and identity.resolve() not in places and _has_chunks(identity):
        raise StartupError(f"{identity} holds chunks: name it as a --data-dir too, or they are as good as lost")
    with contextlib.ExitStack() as held:
        try:
            directory = held.enter_context(StoreDirectory.claim(identity, cluster, new_node))
        except DiskFault as fault:
            raise StartupError(fault.message) from None
        broken: dict[Path, str] = {}
        for path in data:
            if path.resolve() == identity.resolve():
                continue
            try:
                claim = StoreDirectory.claim(path, cluster, directory.node, may_be_read_only=True)
                disk = held.enter_context(claim)
            except DiskFault as fault:
                broken[path] = fault.message
                continue
            if disk.node != directory.node:
                raise StartupError(f"{path} belongs to datanode {disk.node}, {identity} to {directory.node}")
        yield Claimed(directory, broken)


def rooms_of(
    directories: Sequence[Path], clock: Callable[[], float] = time.monotonic
) -> list[tuple[Path, Callable[[], int]]]:
    """Return for each directory a function that returns the free bytes of its file system.

    Directories on one file system share its free bytes. A result is reused for `room_known_for_s`. The directories
    must exist. A disk that cannot be queried has no room.
    """
    devices = [path.stat().st_dev for path in directories]
    shares = Counter(devices)
    return [(path, _room(path, shares[device], clock)) for path, device in zip(directories, devices, strict=True)]


def _room(path: Path, shares: int, clock: Callable[[], float]) -> Callable[[], int]:
    looked_s, free_bytes = -math.inf, 0

    def room() -> int:
        nonlocal looked_s, free_bytes
        now_s = clock()
        if now_s - looked_s >= room_known_for_s:
            try:
                free_bytes = shutil.disk_usage(path).free // shares
            except OSError:
                free_bytes = 0
            looked_s = now_s
        return free_bytes

    return room


def _has_chunks(directory: Path) -> bool:
    paths = StorePaths(str(directory))
    return any(entry.is_file() for part in (paths.chunks, paths.segments) for entry in Path(part).rglob("*"))
