"""The directories that only superusers should write to."""

from __future__ import annotations

from typing import Final

from .trash import HOMES

GUARDED: Final = ("/", HOMES)
_OTHERS_WRITE: Final = 0o002


def is_open(permission: int) -> bool:
    return bool(permission & _OTHERS_WRITE)
