"""Messages between coordinators: a standby copies the metadata of the one that leads."""

from __future__ import annotations

from .base import Message


class CopyStore(Message, frozen=True):
    """Send the bytes of the metadata from there on; at 0 a copy is made, and kept for this connection."""

    offset: int


class StorePart(Message, frozen=True):
    """Some of the bytes that were asked for; none at the end. `total` is how many there are."""

    data: bytes
    total: int
