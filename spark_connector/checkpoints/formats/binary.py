"""Java's DataInput over bytes: what Spark's binary files are made of."""

from __future__ import annotations

import struct

from peacefs.protocol.errors import CheckpointDamaged


class DataInput:
    """Reads on from a position; raises CheckpointDamaged where the data end too early."""

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
        """Read what `writeUTF` wrote; Java's spelling of NUL and of what lies beyond the BMP is kept as it is."""
        return self.take(struct.unpack(">H", self.take(2))[0]).decode("utf-8", "surrogateescape")
