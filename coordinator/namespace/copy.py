"""Copies of files and trees: names are copied, data never. Atomic: a copy appears whole or not at all.

A copy shows the source at the moment of its first commit. If it does not fit into one commit, it grows in later
commits, without a name, from a pinned state. The last commit gives it its name. The caller needs the right to read
the whole source, in the copied state, and to make the target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
from msgspec import structs

from peacefs.coordinator.limits import reclaim_entries_per_commit
from peacefs.coordinator.metadata.model import ChunkRecord, Inode, InodeId, InodeKind, NamespaceUsage, TreeSummary
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import FileAlreadyExists, FileNotFound, IllegalChange, SnapshotRefused

from . import access_checks
from .copy_steps import Growth, add_copy, begun, copy_references, grow
from .paths import NamespacePath, check_creatable, check_name_length
from .permissions import Principal, check_may_read
from .quotas import charge
from .resolution import check_not_full, find_existing, find_place
from .retry_cache import RequestKey, cache_reply, cached_reply
from .snapshots import locate


@dataclass(frozen=True, slots=True)
class CopyToMake:
    """How to copy. Copies belong to the caller; `preserve` keeps times and, for superusers, owners."""

    source: NamespacePath
    target: NamespacePath
    caller: Principal
    preserve: bool
    request_id: str
    now_ms: int

    def keeps(self, attribute: str) -> bool:
        """Return whether copies keep an extended attribute: only superusers may set some."""
        return self.caller.is_superuser or attribute.startswith("user.")

    @property
    def key(self) -> RequestKey:
        return RequestKey(
            self.request_id, ("copy", str(self.source), str(self.target), self.caller.user, self.preserve)
        )


@dataclass(frozen=True, slots=True)
class TreeCopy:
    """A growing copy, in the group of the target's directory. `at_tx` is the copied state."""

    wanted: CopyToMake
    group: str
    top: InodeId
    growth: Growth
    at_tx: int
    #: True if a pin keeps this state; otherwise a snapshot does.
    pinned: bool


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The copied usage, and the chunks that need more replicas than before."""

    copied: TreeSummary
    changed: list[ChunkRecord]


def begin_copy(
    tx: Transaction, wanted: CopyToMake, limit: int = reclaim_entries_per_commit
) -> TreeCopy | CopyResult:
    """Copy as much as fits into one commit; return the result if that is all. A repetition gets the first answer.

    Raises FileNotFound, AccessDenied, FileAlreadyExists for an existing target, IllegalChange for a target below
    the source, BadRequest, PathLimitExceeded, QuotaExceeded.
    """
    remembered = _remembered(tx, wanted)
    if remembered is not None:
        return remembered
    access_checks.check_way_to_snapshots(tx, wanted.source, wanted.caller)
    place = locate(tx, wanted.source)
    access_checks.check_pass(place.reader, place.path, wanted.caller)
    source = find_existing(place.reader, place.path)
    if wanted.target.is_under(wanted.source):
        raise IllegalChange(f"{wanted.source} cannot be copied to below itself: {wanted.target}")
    group = _place_for_copy(tx, wanted)[1].group
    check_may_read(wanted.caller, wanted.source, source)
    made = add_copy(tx, place.reader, source, _as_copied(wanted, group, source), wanted.keeps)
    tx.stage(made)
    if source.kind is InodeKind.FILE:
        space = source.length * source.replication
        growth = Growth((), TreeSummary(0, 1, source.length, space))
        copy_references(tx, place.reader, source, made, growth.changed)
    else:
        growth = begun(wanted.source, source.inode, made)
    at_tx = place.snapshot.at_tx if place.snapshot else None
    copy = _grown(tx, place.reader, TreeCopy(wanted, group, made, growth, at_tx or 0, False), limit)
    if copy.growth.is_whole:
        return finish_copy(tx, copy)
    return copy if at_tx is not None else replace(copy, at_tx=tx.pin(source.inode), pinned=True)


def copy_step(tx: Transaction, copy: TreeCopy, limit: int = reclaim_entries_per_commit) -> TreeCopy:
    """Copy about `limit` further names and references.

    Raises AccessDenied, and SnapshotRefused if the copied snapshot is gone.
    """
    if not copy.pinned:
        _need_snapshot(tx, copy)
    return _grown(tx, tx.at(copy.at_tx, tx.root), copy, limit)


def finish_copy(tx: Transaction, copy: TreeCopy) -> CopyResult:
    """Give a complete copy its name. Raises as `begin_copy` does for the target."""
    assert copy.growth.is_whole
    wanted = copy.wanted
    remembered = _remembered(tx, wanted)
    if remembered is not None:
        # The same request was sent twice at the same time, and the other copy of it finished first.
        give_up_copy(tx, copy)
        return remembered
    above, parent = _place_for_copy(tx, wanted)
    copied = copy.growth.copied
    charge(tx, (above, NamespaceUsage(copied.directories + copied.files, copied.space_consumed)))
    tx.unstage(copy.top)
    tx.add_entry(parent.inode, wanted.target.name, copy.top)
    tx.touch(parent.inode, wanted.now_ms)
    if copy.pinned:
        tx.unpin(copy.at_tx)
    cache_reply(tx, wanted.key, msgspec.json.encode(copied).decode(), wanted.now_ms)
    return CopyResult(copied, copy.growth.changed)


def give_up_copy(tx: Transaction, copy: TreeCopy) -> None:
    """Leave the copy to be reclaimed. Do nothing if it has its name."""
    if not tx.unstage(copy.top):
        return
    tx.discard(copy.top)
    if copy.pinned:
        tx.unpin(copy.at_tx)


def _remembered(tx: Transaction, wanted: CopyToMake) -> CopyResult | None:
    first = cached_reply(tx, wanted.key)
    return None if first is None else CopyResult(msgspec.json.decode(first.answer, type=TreeSummary), [])


def _place_for_copy(tx: Transaction, wanted: CopyToMake) -> tuple[list[InodeId], Inode]:
    """Return the directory for the copy, and the inode numbers of all directories above."""
    check_creatable(wanted.target)
    access_checks.check_mkdirs(tx, wanted.target, wanted.caller)
    way = find_place(tx, wanted.target)
    if way.is_whole:
        raise FileAlreadyExists(f"{wanted.target} already exists")
    if len(way.missing) > 1:
        parent = wanted.target.ancestor(len(wanted.target.components) - 1)
        raise FileNotFound(f"Parent directory doesn't exist: {parent}")
    check_name_length(wanted.target.name)
    check_not_full(tx, way.last)
    return way.inodes, way.deepest


def _grown(tx: Transaction, source: Reader, copy: TreeCopy, limit: int) -> TreeCopy:
    wanted = copy.wanted

    def renewed(directory: NamespacePath, name: str, inode: Inode) -> Inode:
        check_may_read(wanted.caller, directory.child(name), inode)
        return _as_copied(wanted, copy.group, inode)

    return replace(copy, growth=grow(tx, source, copy.growth, limit, renewed, wanted.keeps))


def _need_snapshot(tx: Transaction, copy: TreeCopy) -> None:
    try:
        snapshot = locate(tx, copy.wanted.source).snapshot
    except FileNotFound:
        snapshot = None
    if snapshot is None or snapshot.at_tx != copy.at_tx:
        raise SnapshotRefused(f"The snapshot of {copy.wanted.source} was deleted while it was being copied")


def _as_copied(wanted: CopyToMake, group: str, inode: Inode) -> Inode:
    if wanted.preserve and wanted.caller.is_superuser:
        return inode
    owned = structs.replace(inode, owner=wanted.caller.user, group=group)
    if wanted.preserve:
        return owned
    return structs.replace(
        owned, modified_ms=wanted.now_ms, accessed_ms=wanted.now_ms if inode.kind is InodeKind.FILE else 0
    )
