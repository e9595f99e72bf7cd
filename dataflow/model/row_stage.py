"""Stages of a row on its way from a producer to a consumer."""

from __future__ import annotations

from enum import IntEnum


class RowStage(IntEnum):
    """Stages of a row on its way to a destination."""

    #: The producer has put the row into its buffer.
    PRODUCED = 0
    #: The row was passed to the connection.
    SENT = 1
    #: The destination has the row in memory: level 0 of upstream backup.
    RECEIVED = 2
    #: The destination never needs the row again, whatever fails: level 1 of upstream backup, SGuard's checkpoints.
    SAFE = 3
