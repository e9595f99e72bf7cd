"""Memory of the C library for bytes that are read, so that libfuse can send them without a copy and free them."""

from __future__ import annotations

import ctypes
from typing import Final, Self

_C: Final = ctypes.CDLL(None)
_C.malloc.restype, _C.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
_C.free.restype, _C.free.argtypes = None, (ctypes.c_void_p,)


class Block:
    """A piece of memory that is freed with this object, unless it was given away."""

    def __init__(self, size: int) -> None:
        self._address: int | None = _C.malloc(size)
        if self._address is None:
            raise MemoryError
        self.length = size
        self.view = memoryview((ctypes.c_char * size).from_address(self._address)).cast("B")

    def __del__(self) -> None:
        if self._address is not None:
            _C.free(self._address)

    def cut(self, length: int) -> Self:
        """Keep the first bytes only."""
        self.view, self.length = self.view[:length], length
        return self

    def give(self) -> int:
        """Return the address. From now on, the memory is the caller's to free, and the view must not be used."""
        address, self._address = self._address, None
        assert address is not None, "a block is given away once"
        return address
