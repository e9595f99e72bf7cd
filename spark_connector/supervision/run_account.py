"""The account of this machine under which a run works, and what the run can see.

An agent that runs as root gives each user's runs their own uid, groups and private directory, and nothing of its
own but standard output. Any other agent runs everything under its own uid: then each run can read what the others
can, including the cluster's secret.
"""

from __future__ import annotations

import ctypes
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from peacefs.protocol.errors import QueryFailed, StartupError

#: The variables that a run inherits from the agent's environment, besides those that begin with LC_.
_INHERITED = frozenset(
    (
        *("PATH", "LANG", "LANGUAGE", "TZ", "JAVA_HOME", "SPARK_HOME", "SPARK_LOCAL_IP"),
        *("HADOOP_HOME", "HADOOP_CONF_DIR", "PYSPARK_PYTHON"),
    )
)
_PR_SET_DUMPABLE = 4


@dataclass(frozen=True)
class Account:
    """An account of this machine. `groups` is None if runs keep the agent's own uid."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] | None


class Accounts:
    """The accounts that an agent may use. `mapped` is the operator's list: users to accounts."""

    def __init__(self, mapped: Mapping[str, str], uid: int) -> None:
        """Raise StartupError if an account does not exist, or if the agent cannot use it."""
        self._mapped = mapped
        self._uid = uid
        if mapped and uid != 0:
            raise StartupError("the list names accounts: an agent can use them only when it runs as root")
        for user, name in mapped.items():
            if _found(name) is None:
                raise StartupError(f"the account {name} of user {user} is not on this machine")

    def warning(self) -> str | None:
        """Return a one-line warning for the operator, or None."""
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
        """Return a user's account. Raises QueryFailed if there is none, or if it is root and not listed."""
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
    """Return the account's own directory below the agent's, made if needed. Raises QueryFailed."""
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
    """Return the part of the agent's environment that a run inherits: paths of programs, and language."""
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
