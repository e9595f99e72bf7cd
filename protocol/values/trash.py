"""The layout of the trash: the directories in which deleted files lie until they expire, as Hadoop names them.

Each user has a trash in his home. What is deleted goes to `Current`, under the path that it had; now and then
`Current` is renamed to the time that it then is, a checkpoint, and a checkpoint that is older than the cluster
keeps them is deleted. Times are in UTC.
"""

from __future__ import annotations

import calendar
import re
import time
from typing import Final

HOMES: Final = "/user"
TRASH_NAME: Final = ".Trash"
CURRENT_NAME: Final = "Current"
#: Others may not look into a trash.
TRASH_PERMISSION: Final = 0o700

# A second checkpoint of the same second has a number behind it.
_CHECKPOINT = re.compile(r"(\d{12})(?:-\d+)?")
_FORMAT: Final = "%y%m%d%H%M%S"


def home_of(user: str) -> str:
    """The home directory, as HDFS has it."""
    return f"{HOMES}/{user}"


def trash_of(user: str) -> str:
    """Return a user's trash; deleted files go to `Current` in it."""
    return f"{home_of(user)}/{TRASH_NAME}"


def checkpoint_name(now_ms: int) -> str:
    """Return the name that `Current` is renamed to."""
    return time.strftime(_FORMAT, time.gmtime(now_ms // 1000))


def checkpoint_time_ms(name: str) -> int | None:
    """When a checkpoint was made; None for what is none, and is left alone."""
    found = _CHECKPOINT.fullmatch(name)
    if found is None:
        return None
    try:
        return calendar.timegm(time.strptime(found[1], _FORMAT)) * 1000
    except ValueError:
        return None


def has_expired(name: str, now_ms: int, kept_minutes: int) -> bool:
    """Return whether a directory of a trash is a checkpoint older than that."""
    made_ms = checkpoint_time_ms(name)
    return made_ms is not None and made_ms < now_ms - kept_minutes * 60_000
