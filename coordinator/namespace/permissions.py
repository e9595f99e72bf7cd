"""Permissions of an inode: HDFS's owner, group and other bits, its superusers and its words for a refusal.

Names are believed, as everywhere with Hadoop's simple authentication: this keeps users from each other's
accidents, not from each other's malice. A user is in the group of its own name and in those that the coordinator
was told of.
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
    """An access that is asked for, in the bits of a permission."""

    EXECUTE = 1
    WRITE = 2
    READ = 4

    @classmethod
    def parse(cls, symbol: str) -> Access:
        """Return the bits in the form r-x."""
        return cls(sum(bit for bit, letter in zip((4, 2, 1), symbol, strict=True) if letter != "-"))

    @property
    def hadoop_name(self) -> str:
        """As Hadoop's FsAction names it."""
        return _FS_ACTIONS[self]


_FS_ACTIONS: Final = ("NONE", "EXECUTE", "WRITE", "WRITE_EXECUTE", "READ", "READ_EXECUTE", "READ_WRITE", "ALL")
ALL_ACCESS: Final = Access.READ | Access.WRITE | Access.EXECUTE


@dataclass(frozen=True, slots=True)
class Principal:
    """On whose behalf something is done. A superuser is never refused."""

    user: str
    groups: frozenset[str]
    is_superuser: bool

    def may(self, inode: Inode, access: Access) -> bool:
        """The first of owner, group and other that fits decides, even where a later one would allow more.

        What has an ACL is another matter: see `acl_rules.allows`.
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
        # As a number: the operators of flags are many times slower.
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
    """Knows users by name: the superuser is who runs the coordinator, and whoever is in the group `supergroup`.

    Without a superuser permissions are not enforced: everybody is one. `members` are the users of each group.
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
        """Raises BadRequest for what nobody can be called."""
        check_account_name("user", user)
        groups = frozenset({user, *self._groups_of.get(user, ())})
        return Principal(user, groups, self._superuser in (None, user) or ROOT_GROUP in groups)

    def need_superuser(self, user: str) -> None:
        """Raises AccessDenied, in the words of HDFS."""
        if not self.of(user).is_superuser:
            raise AccessDenied(f"Access denied for user {user}. Superuser privilege is required")


def refusal(caller: Principal, access: Access, path: NamespacePath, inode: Inode) -> AccessDenied:
    """In the words of HDFS, which people search for."""
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
    """The same, for who may write a sticky directory but owns neither it nor what is to go."""
    return AccessDenied(
        f"Permission denied by sticky bit: user={caller.user}, path={_shown(path, inode)}, "
        f"parent={_shown(parent_path, parent)}"
    )


def _shown(path: NamespacePath, inode: Inode) -> str:
    kind = "d" if inode.kind is InodeKind.DIRECTORY else "-"
    return f'"{path}":{inode.owner}:{inode.group}:{kind}{symbolic(inode.permission)}{"+" if inode.acl else ""}'


def symbolic(permission: int) -> str:
    """Like rwxr-xr-t."""
    letters = [letter if permission >> (8 - place) & 1 else "-" for place, letter in enumerate("rwxrwxrwx")]
    if permission & _STICKY:
        letters[-1] = "t" if permission & 1 else "T"
    return "".join(letters)
