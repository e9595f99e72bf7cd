"""Messages between coordinators, with which a standby copies the leader's metadata."""

from __future__ import annotations

from .base import Message


class CopyStore(Message, frozen=True):
    """Request a part of the metadata. Offset 0 makes a new copy, which is kept for this connection."""

    offset: int


class StorePart(Message, frozen=True):
    """A part of the copy; empty at the end. `total` is the size of the copy."""

    data: bytes
    total: int
