"""The rules of HDFS's ACLs. Pure: permissions and entries in, permissions and entries out.

Every inode has a logical ACL: without stored entries it consists of the permission's owner, group and others. If
it has more entries, the permission still holds owner and others, and the mask takes the place of the group, so
that a change of the permission changes the mask. The other entries, the group's own among them, are kept as text
(`stored`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from peacefs.protocol.errors import InvalidAcl
from peacefs.protocol.values.acl_entries import AclEntry, EntryType, Scope, acl_text, parse_acl

acl_entries_max: Final = 32

_BASE: Final = (EntryType.USER, EntryType.GROUP, EntryType.OTHER)
_STICKY: Final = 0o1000
_MINIMAL_ENTRIES: Final = 3

Acl = Sequence[AclEntry]


class Stored(NamedTuple):
    """An ACL as it is stored: the permission, and the other entries as text."""

    permission: int
    acl: str


@lru_cache(maxsize=4096)
def stored_entries(acl: str) -> tuple[AclEntry, ...]:
    """Parse the entries that are stored beside the permission. Cached, because many inodes have the same."""
    return tuple(parse_acl(acl))


def allows(
    permission: int, acl: str, user: str, groups: frozenset[str], owner: str, group: str, wanted: int
) -> bool:
    """Return whether a caller who is no superuser has the access `wanted`.

    The owner has only the owner's rights. For others, the entry that names the user decides; without one, any
    entry of the user's groups that grants the access; without those, the rights of others. The mask limits named
    entries and groups.
    """
    if user == owner:
        return wanted & permission >> 6 == wanted
    entries = stored_entries(acl)
    if not entries or entries[0].scope is Scope.DEFAULT:
        granted = permission >> 3 if group in groups else permission
        return wanted & granted == wanted
    mask = permission >> 3 & 7
    is_named = False
    for entry in entries:
        if entry.scope is Scope.DEFAULT:
            break
        if entry.type is EntryType.USER and entry.name == user:
            return wanted & entry.permission & mask == wanted
        if entry.type is EntryType.GROUP and (entry.name or group) in groups:
            if wanted & entry.permission & mask == wanted:
                return True
            is_named = True
    return not is_named and wanted & permission == wanted


# -- between stored and logical form -------------------------------------------------------------------


def logical(permission: int, acl: str) -> list[AclEntry]:
    """Return all entries, in order."""
    entries = stored_entries(acl)
    access = [entry for entry in entries if entry.scope is Scope.ACCESS]
    owner, group, other = (permission >> shift & 7 for shift in (6, 3, 0))
    between = [*access, _entry(EntryType.MASK, group)] if access else [_entry(EntryType.GROUP, group)]
    default = [entry for entry in entries if entry.scope is Scope.DEFAULT]
    return [_entry(EntryType.USER, owner), *between, _entry(EntryType.OTHER, other), *default]


def stored(entries: Acl, permission: int, *, is_directory: bool) -> Stored:
    """Store a whole ACL, and keep the sticky bit. Raises InvalidAcl for a file with default entries."""
    access = [entry for entry in entries if entry.scope is Scope.ACCESS]
    default = [entry for entry in entries if entry.scope is Scope.DEFAULT]
    if default and not is_directory:
        raise InvalidAcl("Invalid ACL: only directories may have a default ACL.")
    kept = [] if len(access) == _MINIMAL_ENTRIES else access[1:-2]
    owner, group, other = access[0], access[-2], access[-1]
    bits = owner.permission << 6 | group.permission << 3 | other.permission
    return Stored(permission & _STICKY | bits, acl_text([*kept, *default]))


def removed(permission: int, acl: str) -> Stored:
    """Return the permission without an ACL: the group gets the rights of its own entry, without the mask."""
    own = [entry for entry in stored_entries(acl) if entry.key == (Scope.ACCESS, EntryType.GROUP, "")]
    return Stored(permission & ~0o070 | own[0].permission << 3 if own else permission, "")


def inherited(parent_acl: str, masked: int, unmasked: int | None, *, is_directory: bool) -> Stored:
    """Inherit a directory's default ACL, limited by the requested permission.

    The limit is `unmasked` if the client sent its permission before applying its mask, as in HDFS since 3.0.
    """
    if not parent_acl:
        return Stored(masked, "")
    default = [entry for entry in stored_entries(parent_acl) if entry.scope is Scope.DEFAULT]
    if not default:
        return Stored(masked, "")
    mode = masked if unmasked is None else unmasked
    is_minimal = len(default) == _MINIMAL_ENTRIES
    access = []
    for entry in default:
        limit = 7
        if entry.type is EntryType.USER and not entry.name:
            limit = mode >> 6 & 7
        elif entry.type is EntryType.MASK or (entry.type is EntryType.GROUP and is_minimal):
            limit = mode >> 3 & 7
        elif entry.type is EntryType.OTHER:
            limit = mode & 7
        access.append(entry._replace(scope=Scope.ACCESS, permission=entry.permission & limit))
    return stored([*access, *(default if is_directory else [])], mode, is_directory=is_directory)


# -- changes ---------------------------------------------------------------------------------------------


def modify(existing: Acl, spec: Acl) -> list[AclEntry]:
    """Add entries, or replace existing ones. Raises InvalidAcl, as all changes do."""
    wanted = _by_key(spec)
    change = _Change()
    for entry in existing:
        if entry.key in wanted:
            change.take(wanted[entry.key])
        else:
            change.keep(entry)
    there = {entry.key for entry in existing}
    for entry in spec:
        if entry.key not in there:
            change.take(entry)
    return change.result()


def remove(existing: Acl, spec: Acl) -> list[AclEntry]:
    """Remove entries. Ignore entries that do not exist."""
    wanted = _by_key(spec)
    change = _Change()
    for entry in existing:
        if entry.key in wanted:
            change.drop(entry)
        else:
            change.keep(entry)
    return change.result()


def remove_default(existing: Acl) -> list[AclEntry]:
    """Remove the default ACL."""
    return _checked([entry for entry in existing if entry.scope is Scope.ACCESS])


def replace(existing: Acl, spec: Acl) -> list[AclEntry]:
    """Replace the access entries, the default entries, or both, depending on what `spec` has."""
    _by_key(spec)
    change = _Change()
    for entry in spec:
        change.take(entry)
    replaced = {entry.scope for entry in spec}
    for entry in existing:
        if entry.scope not in replaced:
            change.keep(entry)
    return change.result()


class _Change:
    """An ACL under construction. Masks are kept apart until `result`."""

    def __init__(self) -> None:
        self._entries: list[AclEntry] = []
        self._masks: dict[Scope, AclEntry] = {}
        self._changed: set[Scope] = set()
        self._mask_changed: set[Scope] = set()

    def keep(self, entry: AclEntry) -> None:
        """Keep an existing entry."""
        if entry.type is EntryType.MASK:
            self._masks[entry.scope] = entry
        else:
            self._entries.append(entry)

    def take(self, entry: AclEntry) -> None:
        """Add a requested entry."""
        self._note(entry)
        self.keep(entry)

    def drop(self, entry: AclEntry) -> None:
        """Remove an existing entry."""
        self._note(entry)

    def _note(self, entry: AclEntry) -> None:
        self._changed.add(entry.scope)
        if entry.type is EntryType.MASK:
            self._mask_changed.add(entry.scope)

    def result(self) -> list[AclEntry]:
        """Return the whole ACL, with the entries that HDFS adds."""
        self._complete_default()
        self._add_masks()
        return _checked(self._entries)

    def _complete_default(self) -> None:
        """Copy missing base entries of the default ACL from the access ACL."""
        if not any(entry.scope is Scope.DEFAULT for entry in self._entries):
            return
        there = {entry.key: entry for entry in self._entries}
        for kind in _BASE:
            access = there.get((Scope.ACCESS, kind, ""))
            if access is not None and (Scope.DEFAULT, kind, "") not in there:
                self._entries.append(access._replace(scope=Scope.DEFAULT))

    def _add_masks(self) -> None:
        """Add a mask if there are named entries: the requested one, or the union of what it limits."""
        for scope in sorted({entry.scope for entry in self._entries}):
            of_scope = [entry for entry in self._entries if entry.scope is scope]
            needed = any(entry.name for entry in of_scope)
            mask = self._masks.get(scope)
            if mask is None and needed and scope in self._mask_changed:
                raise InvalidAcl("Invalid ACL: mask is required and cannot be deleted.")
            if mask is not None and (scope not in self._changed or scope in self._mask_changed):
                self._entries.append(mask)
            elif needed:
                limited = [entry.permission for entry in of_scope if entry.type is EntryType.GROUP or entry.name]
                union = 0
                for permission in limited:
                    union |= permission
                self._entries.append(AclEntry(scope, EntryType.MASK, "", union))


def _by_key(spec: Acl) -> dict[tuple[Scope, EntryType, str], AclEntry]:
    _check_count(spec)
    return {entry.key: entry for entry in spec}


def _checked(entries: Iterable[AclEntry]) -> list[AclEntry]:
    """Sort the entries. Raises InvalidAcl if they are no valid ACL."""
    acl = sorted(entries, key=lambda entry: entry.key)
    _check_count(acl)
    keys = set()
    for entry in acl:
        if entry.key in keys:
            raise InvalidAcl("Invalid ACL: multiple entries with same scope, type and name.")
        keys.add(entry.key)
        if entry.name and entry.type in (EntryType.MASK, EntryType.OTHER):
            raise InvalidAcl(f"Invalid ACL: this entry type must not have a name: {entry}.")
    for scope in sorted({Scope.ACCESS, *(entry.scope for entry in acl)}):
        if any((scope, kind, "") not in keys for kind in _BASE):
            what = "default ACL" if scope is Scope.DEFAULT else "ACL"
            raise InvalidAcl(f"Invalid {what}: the user, group and other entries are required.")
    return acl


def _check_count(entries: Acl) -> None:
    for scope in Scope:
        count = sum(1 for entry in entries if entry.scope is scope)
        if count > acl_entries_max:
            raise InvalidAcl(
                f"Invalid ACL: ACL has {count} {scope.name.lower()} entries, which exceeds maximum of "
                f"{acl_entries_max}."
            )


def _entry(kind: EntryType, permission: int) -> AclEntry:
    return AclEntry(Scope.ACCESS, kind, "", permission)
