"""Under which account of this machine a run works, and what it gets to see of it.

An agent that runs as root gives each user's runs an account of their own: its uid and groups, a directory that is
that account's alone, and nothing of the agent's but standard output. Any other agent can only run all under its
own uid; then what one of them reads the others can read, and the cluster's secret with it.
"""

from __future__ import annotations

import ctypes
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from peacefs.protocol.errors import QueryFailed, StartupError

#: The variables that a run inherits from the agent's environment; besides, all that begin with LC_.
_INHERITED = frozenset(
    (
        *("PATH", "LANG", "LANGUAGE", "TZ", "JAVA_HOME", "SPARK_HOME", "SPARK_LOCAL_IP"),
        *("HADOOP_HOME", "HADOOP_CONF_DIR", "PYSPARK_PYTHON"),
    )
)
_PR_SET_DUMPABLE = 4


@dataclass(frozen=True)
class Account:
    """`groups` None means that nothing is changed: what runs is what the agent is."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] | None


class Accounts:
    """The accounts that an agent may run as. `mapped` are accounts by the cluster's users, from the operator's
    list.
    """

    def __init__(self, mapped: Mapping[str, str], uid: int) -> None:
        """Raise StartupError for accounts that this agent cannot use, or that are not there."""
        self._mapped = mapped
        self._uid = uid
        if mapped and uid != 0:
            raise StartupError("the list names accounts: an agent can use them only when it runs as root")
        for user, name in mapped.items():
            if _found(name) is None:
                raise StartupError(f"the account {name} of user {user} is not on this machine")

    def warning(self) -> str | None:
        """Return what an operator should know at the start, in one line; None for nothing."""
        if self._uid != 0:
            return (
                f"all queries run under this agent's own uid {self._uid}: each can read what the others and the "
                "agent can, the cluster's secret too. An agent that runs as root gives each user an account"
            )
        as_root = sorted(user for user, name in self._mapped.items() if pwd.getpwnam(name).pw_uid == 0)
        if as_root:
            return f"queries of {', '.join(as_root)} run as root: they can read the cluster's secret"
        return None

    def of(self, user: str) -> Account:
        """The account of a user of the cluster. Raise QueryFailed where there is none but root."""
        if self._uid != 0:
            mine = _found_by_uid(self._uid)
            return Account(mine.pw_name if mine else str(self._uid), self._uid, os.getgid(), None)
        mapped = self._mapped.get(user)
        found = _found(mapped or user)
        if found is None or (found.pw_uid == 0 and mapped is None):
            raise QueryFailed(
                f"user {user} has no account of its own on this node: add one, or name one in [accounts] of the "
                "agent's list"
            )
        groups = os.getgrouplist(found.pw_name, found.pw_gid)
        return Account(found.pw_name, found.pw_uid, found.pw_gid, tuple(groups))


def home_of(account: Account, directory: Path) -> Path:
    """The account's own directory below the agent's, made if it is not there. Raise QueryFailed."""
    homes = directory / "work"
    home = homes / account.name
    try:
        homes.mkdir(mode=0o711, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0:
            os.chown(home, account.uid, account.gid, follow_symlinks=False)
        home.chmod(0o700)
    except OSError as error:
        raise QueryFailed(f"cannot make {home}: {error.strerror}") from None
    return home


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the agent's environment that a run inherits: where programs are, and their language."""
    return {name: value for name, value in environment.items() if name in _INHERITED or name.startswith("LC_")}


def hide_memory() -> None:
    """Keep processes of the same uid from reading this one's memory, environment and descriptors in /proc."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _found(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _found_by_uid(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None
