"""Users and groups: names in the cluster, numbers on this machine."""

from __future__ import annotations

import grp
import os
import pwd
from functools import lru_cache
from typing import Final

# The number of users and groups that this machine does not know, as NFS shows them.
NOBODY: Final = 65534


class Identities:
    """Translates both ways. A name that is a number is that number, so that a chown to a number can be shown."""

    def __init__(self, user: str) -> None:
        """`user` is the user of the mount. If this machine does not know the name, it is shown as the caller."""
        self._user = user

    def uid(self, owner: str) -> int:
        known = _uid(owner)
        if known is None:
            return os.getuid() if owner == self._user else NOBODY
        return known

    def gid(self, group: str, owner: str) -> int:
        """Return the number of a file's group; for an unknown group of the mount's user, that of the mount.

        So programs that keep owners, such as `cp -a`, find that the user's files are the user's already.
        """
        known = _gid(group)
        if known is None:
            return os.getgid() if owner == self._user else NOBODY
        return known

    @staticmethod
    def owner(uid: int) -> str:
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)

    @staticmethod
    def group(gid: int) -> str:
        try:
            return grp.getgrgid(gid).gr_name
        except KeyError:
            return str(gid)


@lru_cache(maxsize=4096)
def _uid(owner: str) -> int | None:
    try:
        return pwd.getpwnam(owner).pw_uid
    except KeyError:
        return int(owner) if owner.isdecimal() and int(owner) < 2**32 - 1 else None


@lru_cache(maxsize=4096)
def _gid(group: str) -> int | None:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return int(group) if group.isdecimal() and int(group) < 2**32 - 1 else None
