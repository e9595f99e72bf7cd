"""The layout of the trash, the directories for deleted files, with Hadoop's names.

Each user has a trash in the home directory. Deleted files move to `Current`, below which they keep their path.
Periodically, `Current` is renamed to a checkpoint, named by the current time in UTC. Checkpoints are deleted when
they reach the age that the cluster sets.
"""

from __future__ import annotations

import calendar
import re
import time
from typing import Final

HOMES: Final = "/user"
TRASH_NAME: Final = ".Trash"
CURRENT_NAME: Final = "Current"
#: A trash is private to its user.
TRASH_PERMISSION: Final = 0o700

# If two checkpoints are made in the same second, a number is appended to the second one.
_CHECKPOINT = re.compile(r"(\d{12})(?:-\d+)?")
_FORMAT: Final = "%y%m%d%H%M%S"


def home_of(user: str) -> str:
    """Return a user's home directory, as in HDFS."""
    return f"{HOMES}/{user}"


def trash_of(user: str) -> str:
    return f"{home_of(user)}/{TRASH_NAME}"


def checkpoint_name(now_ms: int) -> str:
    """Return the name of a checkpoint made at this time."""
    return time.strftime(_FORMAT, time.gmtime(now_ms // 1000))


def checkpoint_time_ms(name: str) -> int | None:
    """Return when a checkpoint was made; None for other names, which must be left alone."""
    found = _CHECKPOINT.fullmatch(name)
    if found is None:
        return None
    try:
        return calendar.timegm(time.strptime(found[1], _FORMAT)) * 1000
    except ValueError:
        return None


def has_expired(name: str, now_ms: int, kept_minutes: int) -> bool:
    """Return whether a directory in a trash is a checkpoint older than `kept_minutes`."""
    made_ms = checkpoint_time_ms(name)
    return made_ms is not None and made_ms < now_ms - kept_minutes * 60_000
