"""Permissions of an inode: HDFS's owner, group and other bits, its superusers and its messages.

Names are believed, as everywhere with Hadoop's simple authentication: this protects users from each other's
accidents, not from attacks. A user is in the group of its own name, and in the groups that the coordinator was
configured with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntFlag
from types import MappingProxyType
from typing import Final

from peacefs.coordinator.metadata.model import ROOT_GROUP, Inode, InodeKind
from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.values.account_names import check_account_name

from .acl_rules import allows
from .paths import NamespacePath

_STICKY: Final = 0o1000


class Access(IntFlag):
    """A requested access, in the bits of a permission."""

    EXECUTE = 1
    WRITE = 2
    READ = 4

    @classmethod
    def parse(cls, symbol: str) -> Access:
        """Return the bits in the form r-x."""
        return cls(sum(bit for bit, letter in zip((4, 2, 1), symbol, strict=True) if letter != "-"))

    @property
    def hadoop_name(self) -> str:
        """Return the name that Hadoop's FsAction uses."""
        return _FS_ACTIONS[self]


_FS_ACTIONS: Final = ("NONE", "EXECUTE", "WRITE", "WRITE_EXECUTE", "READ", "READ_EXECUTE", "READ_WRITE", "ALL")
ALL_ACCESS: Final = Access.READ | Access.WRITE | Access.EXECUTE


@dataclass(frozen=True, slots=True)
class Principal:
    """The user on whose behalf something is done. A superuser is never refused."""

    user: str
    groups: frozenset[str]
    is_superuser: bool

    def may(self, inode: Inode, access: Access) -> bool:
        """Return whether the caller has an access. The first of owner, group and other that fits decides.

        For inodes with an ACL, see `acl_rules.allows`.
        """
        if self.is_superuser:
            return True
        if inode.acl:
            return allows(
                inode.permission, inode.acl, self.user, self.groups, inode.owner, inode.group, int(access)
            )
        if self.user == inode.owner:
            allowed = inode.permission >> 6
        elif inode.group in self.groups:
            allowed = inode.permission >> 3
        else:
            allowed = inode.permission
        # As a number, because operators of flags are many times slower.
        wanted = int(access)
        return wanted & allowed == wanted

    def is_kept_off_by_sticky_bit(self, directory: Inode, child: Inode) -> bool:
        """Return whether the sticky bit keeps the caller from removing the child."""
        return (
            bool(directory.permission & _STICKY)
            and not self.is_superuser
            and self.user not in (directory.owner, child.owner)
        )


class Callers:
    """Principals by user name. Superusers are the user that runs the coordinator and the group `supergroup`.

    Without any superuser, permissions are not enforced: everybody is one. `members` has the users of each group.
    """

    def __init__(
        self, superuser: str | None = None, members: Mapping[str, Collection[str]] = MappingProxyType({})
    ) -> None:
        self._superuser = superuser
        self._groups_of: dict[str, set[str]] = {}
        for group, users in members.items():
            for user in users:
                self._groups_of.setdefault(user, set()).add(group)

    @property
    def are_checked(self) -> bool:
        """Return whether permissions are enforced."""
        return self._superuser is not None

    def of(self, user: str) -> Principal:
        """Return the principal of a user. Raises BadRequest for an impossible name."""
        check_account_name("user", user)
        groups = frozenset({user, *self._groups_of.get(user, ())})
        return Principal(user, groups, self._superuser in (None, user) or ROOT_GROUP in groups)

    def need_superuser(self, user: str) -> None:
        """Raise AccessDenied, with HDFS's message, unless the user is a superuser."""
        if not self.of(user).is_superuser:
            raise AccessDenied(f"Access denied for user {user}. Superuser privilege is required")


def refusal(caller: Principal, access: Access, path: NamespacePath, inode: Inode) -> AccessDenied:
    """Return a refusal with HDFS's message, which people search for."""
    return AccessDenied(
        f"Permission denied: user={caller.user}, access={access.hadoop_name}, inode={_shown(path, inode)}"
    )


def check_may_read(caller: Principal, path: NamespacePath, inode: Inode) -> None:
    """Raise AccessDenied unless the caller may read a file, or list and enter a directory."""
    access = Access.READ if inode.kind is InodeKind.FILE else Access.READ | Access.EXECUTE
    if not caller.may(inode, access):
        raise refusal(caller, access, path, inode)


def sticky_refusal(
    caller: Principal, path: NamespacePath, inode: Inode, parent_path: NamespacePath, parent: Inode
) -> AccessDenied:
    """Return the refusal for a caller who may write a sticky directory but owns neither it nor the entry."""
    return AccessDenied(
        f"Permission denied by sticky bit: user={caller.user}, path={_shown(path, inode)}, "
        f"parent={_shown(parent_path, parent)}"
    )


def _shown(path: NamespacePath, inode: Inode) -> str:
    kind = "d" if inode.kind is InodeKind.DIRECTORY else "-"
    return f'"{path}":{inode.owner}:{inode.group}:{kind}{symbolic(inode.permission)}{"+" if inode.acl else ""}'


def symbolic(permission: int) -> str:
    """Return a permission in the form rwxr-xr-t."""
    letters = [letter if permission >> (8 - place) & 1 else "-" for place, letter in enumerate("rwxrwxrwx")]
    if permission & _STICKY:
        letters[-1] = "t" if permission & 1 else "T"
    return "".join(letters)
