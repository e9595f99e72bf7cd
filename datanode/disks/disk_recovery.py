"""Starts a datanode's disks: recovers each store, and keeps only the newest version of a chunk on two disks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from peacefs.datanode.store.recovery_report import StoreRecovery
from peacefs.protocol.errors import ChunkError, DiskFault, StartupError
from peacefs.protocol.ids import ChunkId, Version
from peacefs.runtime import effects as fx

from .disk import Disk, DiskState


def recover_disks(disks: Sequence[Disk], on_changed: Callable[[Disk, int], None]) -> fx.Steps[StoreRecovery]:
    """Recover all stores. `on_changed` receives each disk that does not work, and its number of replicas.

    Raises StartupError if no disk can be written to.
    """
    whole = StoreRecovery()
    for disk in disks:
        part = yield from _recover(disk)
        whole.unfinished += part.unfinished
        whole.stale += part.stale
        whole.torn_bytes += part.torn_bytes
        whole.damaged_bytes += part.damaged_bytes
        whole.damaged_files += part.damaged_files
        whole.foreign += part.foreign
    if not any(disk.state is DiskState.WORKING for disk in disks):
        faults = ", ".join(f"{disk.directory}: {disk.fault}" for disk in disks)
        raise StartupError(f"no disk of this datanode can be written to: {faults}")
    for disk in disks:
        if disk.state is not DiskState.WORKING:
            on_changed(disk, disk.store.count() if disk.is_readable else 0)
    try:
        whole.stale += yield from _drop_doubles([disk for disk in disks if disk.is_readable])
    except ChunkError as error:
        raise StartupError(f"cannot clean up the disks: {error.message}") from None
    return whole


def _recover(disk: Disk) -> fx.Steps[StoreRecovery]:
    if disk.is_readable:
        disk.state, disk.fault = yield from disk.examine()
    if disk.is_readable:
        try:
            return (yield from disk.store.recover(read_only=disk.state is DiskState.READ_ONLY))
        except StartupError as error:
            disk.state, disk.fault = DiskState.FAILED, error.message
            yield from disk.store.close()
    return StoreRecovery()


def _drop_doubles(disks: Sequence[Disk]) -> fx.Steps[int]:
    """Delete the older replica of chunks on two disks: one disk may have been away during a rewrite."""
    newest: dict[ChunkId, tuple[Version, Disk]] = {}
    dropped = 0
    for disk in disks:
        for replica in disk.store.replicas():
            held = newest.setdefault(replica.chunk, (replica.version, disk))
            if held[1] is disk:
                continue
            dropped += 1
            if replica.version > held[0]:
                newest[replica.chunk] = replica.version, disk
                yield from _drop_double(held[1], replica.chunk, held[0])
            else:
                yield from _drop_double(disk, replica.chunk, replica.version)
    return dropped


def _drop_double(disk: Disk, chunk: ChunkId, version: Version) -> fx.Steps[None]:
    try:
        yield from disk.store.delete(chunk, version)
    except DiskFault:
        # A read-only disk keeps the file, but the store has forgotten the replica, as in `DiskSet.delete`.
        if disk.state is not DiskState.READ_ONLY or disk.store.find(chunk) is not None:
            raise
