"""Read bytes like Java's DataInput, which Spark's binary files are written for."""

from __future__ import annotations

import struct

from peacefs.protocol.errors import CheckpointDamaged


class DataInput:
    """Read values one after the other. Raises CheckpointDamaged if the data end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    @property
    def at_end(self) -> bool:
        return self.position == len(self._data)

    def take(self, length: int) -> bytes:
        if length < 0 or self.position + length > len(self._data):
            raise CheckpointDamaged(f"cut short: {length} bytes are wanted at byte {self.position}")
        self.position += length
        return self._data[self.position - length : self.position]

    def byte(self) -> int:
        return self.take(1)[0]

    def short(self) -> int:
        number: int = struct.unpack(">h", self.take(2))[0]
        return number

    def int(self) -> int:
        number: int = struct.unpack(">i", self.take(4))[0]
        return number

    def text(self) -> str:
        """Read a `writeUTF` text. NUL and characters beyond the BMP stay in Java's modified UTF-8."""
        return self.take(struct.unpack(">H", self.take(2))[0]).decode("utf-8", "surrogateescape")
