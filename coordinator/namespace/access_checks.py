"""HDFS's checks of a caller before each operation: functions that raise AccessDenied or do nothing.

Each is called before the operation, and nothing is awaited in between. For a superuser they cost nothing.

A path through a file is refused here, too, because HDFS checks it together with the right to traverse: with
PathThroughFile, or with ParentNotDirectory if the operation makes a name. Other faults of a path are reported by
the operation.

    operation                      on the way    on what it is about
    ---------------------------    ----------    -----------------------------------------------------------
    status                         x
    list                           x             r and x on a directory
    content summary                x             r and x on every directory below
    open, block locations          x             r on a file, and again while the file is read
    create                         x             w on the deepest directory that exists; w on a file it replaces
    mkdirs                         x             w on the deepest directory that exists, if anything is missing
    delete                         x             w on the parent, sticky bit; all on full directories below
    rename                         x             w on the source's parent, sticky bit; as create for the target
    exchange                       x             as rename, for both
    set times, set replication,    x             w
    append, truncate
    concat                         x             w on the target, r on the sources, and what deleting them needs
    set permission, set owner      x             to be the owner; the owner's name is for superusers to change
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from peacefs.coordinator.limits import tree_entries_per_turn
from peacefs.coordinator.metadata.model import ROOT, Inode, InodeId, InodeKind, RenameMode
from peacefs.coordinator.metadata.reader import Reader
from peacefs.coordinator.metadata.transaction import Transaction
from peacefs.protocol.errors import AccessDenied, ParentNotDirectory, PathThroughFile, PeacefsError

from .paths import NamespacePath
from .permissions import ALL_ACCESS, Access, Principal, refusal, sticky_refusal
from .resolution import existing_inode, follow
from .snapshots import snapshotted_directory

#: The bits that let owner, group and others pass through a directory.
_ALL_PASS: Final = 0o111


class _Passed(NamedTuple):
    """The inodes of the existing part of a path, beginning with the root. The caller may traverse all of them."""

    path: NamespacePath
    inodes: list[Inode]
    caller: Principal

    @property
    def target(self) -> Inode | None:
        """Return the inode that the path names, if it exists."""
        return self.inodes[-1] if len(self.inodes) > len(self.path.components) else None

    @property
    def parent(self) -> Inode | None:
        """The directory of the path's last name; None for the root and for a missing directory."""
        depth = len(self.path.components)
        return self.inodes[depth - 1] if 0 < depth <= len(self.inodes) else None

    def need(self, access: Access, depth: int) -> None:
        """Require access to the inode of the first `depth` components."""
        if not self.caller.may(self.inodes[depth], access):
            raise refusal(self.caller, access, self.path.ancestor(depth), self.inodes[depth])

    def need_on_target(self, access: Access) -> None:
        if self.target is not None:
            self.need(access, len(self.path.components))

    def need_on_deepest_parent(self, access: Access) -> None:
        """Require access to the deepest existing directory above the path."""
        if self.path.components:
            self.need(access, min(len(self.inodes), len(self.path.components)) - 1)

    def require_removal_rights(self) -> None:
        """Require write access to the parent, and no sticky bit that forbids the removal."""
        if self.parent is None:
            return
        depth = len(self.path.components)
        if self.target is not None and self.caller.is_kept_off_by_sticky_bit(self.parent, self.target):
            raise sticky_refusal(self.caller, self.path, self.target, self.path.ancestor(depth - 1), self.parent)
        self.need(Access.WRITE, depth - 1)


def _pass(
    reader: Reader, path: NamespacePath, caller: Principal, through_file: type[PeacefsError] = PathThroughFile
) -> _Passed | None:
    """Follow a path, checking the right to pass through each directory; return None for a superuser.

    Raises `through_file` if the path leads through a file.
    """
    if caller.is_superuser:
        return None
    passed = _Passed(path, reader.pass_through(path.components), caller)
    for depth, inode in enumerate(passed.inodes[: len(path.components)]):
        if inode.kind is InodeKind.FILE:
            raise through_file(f"{path.ancestor(depth)} (is not a directory)")
        if inode.acl or inode.permission & _ALL_PASS != _ALL_PASS:
            passed.need(Access.EXECUTE, depth)
    return passed


def check_pass(reader: Reader, path: NamespacePath, caller: Principal) -> None:
    """Check an operation that only needs to reach the path."""
    _pass(reader, path, caller)


def check_way_to_snapshots(reader: Reader, path: NamespacePath, caller: Principal) -> None:
    """Check that the caller may reach the directory of a snapshot path, and enter it."""
    directory = snapshotted_directory(path)
    if directory is not None and (passed := _pass(reader, directory, caller)):
        passed.need_on_target(Access.EXECUTE)


def check_access(reader: Reader, path: NamespacePath, caller: Principal, access: Access) -> None:
    """Check access to the inode at the path."""
    if passed := _pass(reader, path, caller):
        passed.need_on_target(access)


def may_write(reader: Reader, path: NamespacePath, caller: Principal) -> bool:
    """Return whether `check_access` lets the caller write."""
    try:
        check_access(reader, path, caller, Access.WRITE)
    except AccessDenied:
        return False
    return True


def check_open_file(reader: Reader, inode: InodeId, caller: Principal) -> None:
    """Check that the caller may go on reading a file, by its present name.

    In a deleted tree, only the file's own permission counts.
    """
    if caller.is_superuser:
        return
    entries = reader.ancestors(inode)
    path = NamespacePath(tuple(name for _parent, name in entries))
    if entries and entries[0][0] == ROOT:
        check_access(reader, path, caller, Access.READ)
    elif (found := reader.inode(inode)) is not None and not caller.may(found, Access.READ):
        raise refusal(caller, Access.READ, path, found)


def check_file(reader: Reader, path: NamespacePath, caller: Principal, access: Access) -> None:
    """Check access to a file.

    For a directory, only check that the caller may reach it; the operation then refuses it.
    """
    passed = _pass(reader, path, caller)
    if passed and passed.target and passed.target.kind is InodeKind.FILE:
        passed.need_on_target(access)


def check_list(reader: Reader, path: NamespacePath, caller: Principal) -> None:
    """Check that the caller may read and enter a directory; for a file, only that it may reach the file."""
    passed = _pass(reader, path, caller)
    if passed and passed.target and passed.target.kind is InodeKind.DIRECTORY:
        passed.need_on_target(Access.READ | Access.EXECUTE)


def check_create(reader: Reader, path: NamespacePath, caller: Principal, overwrite: bool) -> None:
    """Check write access to the deepest existing directory and, if the file exists, to the file."""
    passed = _pass(reader, path, caller, ParentNotDirectory)
    if passed is None:
        return
    passed.need_on_deepest_parent(Access.WRITE)
    if overwrite and passed.target and passed.target.kind is InodeKind.FILE:
        passed.need_on_target(Access.WRITE)


def check_mkdirs(reader: Reader, path: NamespacePath, caller: Principal) -> None:
    """Check write access to the deepest existing directory, unless the whole path exists."""
    passed = _pass(reader, path, caller, ParentNotDirectory)
    if passed and passed.target is None:
        passed.need_on_deepest_parent(Access.WRITE)


def check_delete(reader: Reader, path: NamespacePath, caller: Principal) -> None:
    """Check the name; `check_below` checks what lies below it."""
    if passed := _pass(reader, path, caller):
        passed.require_removal_rights()


def check_rename(
    reader: Reader, source: NamespacePath, target: NamespacePath, caller: Principal, mode: RenameMode
) -> None:
    """Check the rights to remove the source, to write the target's directory, and to remove what is replaced."""
    passed = _pass(reader, source, caller)
    if passed is None:
        return
    onto = _pass(reader, target, caller, ParentNotDirectory)
    assert onto is not None
    passed.require_removal_rights()
    if mode is RenameMode.LEGACY and onto.target and onto.target.kind is InodeKind.DIRECTORY and source.name:
        # The target is this directory, so the source moves into it.
        onto = _pass(reader, target.child(source.name), caller, ParentNotDirectory)
        assert onto is not None
    onto.need_on_deepest_parent(Access.WRITE)
    if mode is RenameMode.OVERWRITE:
        onto.require_removal_rights()


def check_concat(
    reader: Reader, target: NamespacePath, sources: Sequence[NamespacePath], caller: Principal
) -> None:
    """Check write access to the target, and the rights to read and remove the sources."""
    check_access(reader, target, caller, Access.WRITE)
    for source in sources:
        check_access(reader, source, caller, Access.READ)
        check_delete(reader, source, caller)


def check_owner(reader: Reader, path: NamespacePath, caller: Principal) -> None:
    """Check that the caller is the owner or a superuser."""
    passed = _pass(reader, path, caller)
    if passed and passed.target:
        _need_owner(passed, passed.target)


def _need_owner(passed: _Passed, target: Inode) -> None:
    if target.owner != passed.caller.user:
        raise AccessDenied(f"Permission denied. user={passed.caller.user} is not the owner of inode={passed.path}")


def check_set_owner(
    reader: Reader, path: NamespacePath, caller: Principal, owner: str | None, group: str | None
) -> None:
    """Check a change of owner or group: owners may choose among their groups, superusers may do both."""
    passed = _pass(reader, path, caller)
    if passed is None or passed.target is None:
        return
    _need_owner(passed, passed.target)
    if owner is not None and owner != caller.user:
        raise AccessDenied(f"User {caller.user} is not a super user (non-super user cannot change owner).")
    if group is not None and group not in caller.groups:
        raise AccessDenied(f"User {caller.user} does not belong to {group}")


def check_summary(reader: Reader, path: NamespacePath, caller: Principal) -> Generator[None, None, None]:
    """Check in turns that the caller may read and enter every directory of a tree."""
    yield from _check_directories(reader, path, caller, Access.READ | Access.EXECUTE, empty_too=True)


def check_below(reader: Reader, path: NamespacePath, caller: Principal) -> Generator[None, None, None]:
    """Check in the steps of `check_summary` that everything below the path may be deleted.

    The deleting transaction cannot check a large tree. It calls `check_below_again` for the changes made since.
    """
    yield from _check_directories(reader, path, caller, ALL_ACCESS, empty_too=False)


def check_below_again(tx: Transaction, path: NamespacePath, caller: Principal, since_tx: int) -> bool:
    """Return False if too much has changed since `check_below` began, so that it must run again.

    Raises AccessDenied for a new or changed entry that the caller may not delete.
    """
    if caller.is_superuser:
        return True
    top = follow(tx, path)
    changes = tx.rights_changes(since_tx)
    if not top.is_whole:
        return True
    if changes is None:
        return False
    seen: dict[InodeId, bool] = {}
    on_the_way = set(top.inodes)
    for change in changes:
        if change.moved and change.child in on_the_way:
            # The path leads to another tree than the one that was checked.
            return False
        if not _lies_in(tx, change.inode, top.last, seen):
            continue
        child = change.child
        if change.moved and child is not None and tx.has_children(child):
            return False
        _check_changed(tx, change.inode, child, caller)
    return True


def _lies_in(tx: Transaction, inode: InodeId, top: InodeId, seen: dict[InodeId, bool]) -> bool:
    if inode not in seen:
        seen[inode] = inode == top or any(parent == top for parent, _ in tx.ancestors(inode))
    return seen[inode]


def _check_changed(tx: Transaction, number: InodeId, child: InodeId | None, caller: Principal) -> None:
    inode = existing_inode(tx, number)
    where = NamespacePath(tuple(name for _, name in tx.ancestors(number)))
    if inode.kind is InodeKind.DIRECTORY and tx.has_children(number) and not caller.may(inode, ALL_ACCESS):
        raise refusal(caller, ALL_ACCESS, where, inode)
    if child is None and where.components:
        # The sticky bit of its directory may protect the entry itself.
        above = tx.ancestors(number)[-1][0]
        directory, removed, shown = existing_inode(tx, above), inode, where
    else:
        found = tx.inode(child) if child is not None else None
        if found is None or tx.ancestors(found.inode)[-1:] == [] or tx.ancestors(found.inode)[-1][0] != number:
            return
        directory, removed = inode, found
        shown = NamespacePath(tuple(name for _, name in tx.ancestors(found.inode)))
    if caller.is_kept_off_by_sticky_bit(directory, removed):
        above_path = shown.ancestor(len(shown.components) - 1)
        raise sticky_refusal(caller, shown, removed, above_path, directory)


def _check_directories(
    reader: Reader, path: NamespacePath, caller: Principal, access: Access, empty_too: bool
) -> Generator[None, None, None]:
    passed = _pass(reader, path, caller)
    if passed is None or passed.target is None or passed.target.kind is InodeKind.FILE:
        return
    unread = [(path, passed.target, "")]
    while unread:
        where, directory, after = unread.pop()
        children = reader.children(directory.inode, after, tree_entries_per_turn)
        if (children or empty_too) and not caller.may(directory, access):
            raise refusal(caller, access, where, directory)
        if len(children) == tree_entries_per_turn:
            unread.append((where, directory, children[-1][0]))
        for name, child in children:
            if not empty_too and caller.is_kept_off_by_sticky_bit(directory, child):
                raise sticky_refusal(caller, where.child(name), child, where, directory)
            if child.kind is InodeKind.DIRECTORY:
                unread.append((where.child(name), child, ""))
        yield
