"""Maps users and groups: names in the cluster, numeric ids on this machine."""

from __future__ import annotations

import grp
import os
import pwd
from functools import lru_cache
from typing import Final

# The id shown for users and groups that this machine does not know, as in NFS.
NOBODY: Final = 65534


class Identities:
    """Translates names to ids and back. A numeric name is that id, so that a chown to any id is visible."""

    def __init__(self, user: str) -> None:
        """`user` is the user of the mount. If this machine does not know the name, the caller's id is shown."""
        self._user = user

    def uid(self, owner: str) -> int:
        known = _uid(owner)
        if known is None:
            return os.getuid() if owner == self._user else NOBODY
        return known

    def gid(self, group: str, owner: str) -> int:
        """Return the id of a file's group. An unknown group of the mount's user is shown as the mount's group.

        So the user's files appear to belong to the user, which programs that keep owners check, such as `cp -a`.
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
