"""CRC32C of pages, all of them in one call that leaves the interpreter's lock to others.

A call for each page takes the interpreter's lock for a moment each time. Whoever waits for it is woken at every
one of those moments, mostly too late, and begins to wait anew: an operator stood still while pages were summed.
The kernel uses the instruction of x86 processors; elsewhere the library sums page by page.
"""

from __future__ import annotations

import platform
from typing import Any, Final

import llvmlite.binding
import numpy as np
from crc32c import crc32c
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .compiler import kernel

_ALL = np.uint64(0xFFFF_FFFF)


def _crc32c_of_word(typing_context: Any, checksum: Any, word: Any) -> Any:
    """Continue a checksum by eight bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        kind = ir.FunctionType(number, [number, number])
        insert: Any = cgutils.get_or_insert_function
        return builder.call(insert(builder.module, kind, "llvm.x86.sse42.crc32.64.64"), arguments)

    return types.uint64(types.uint64, types.uint64), generate


_continued: Any = intrinsic(_crc32c_of_word)


@kernel
def sum_by_instruction(words: Any, frames: Any, sums: Any) -> None:
    """Put the CRC32C of the words of each frame into `sums`; three pages at a time, since one waits for itself."""
    last = frames.shape[0] - 1
    for number in range(0, frames.shape[0], 3):
        second, third = min(number + 1, last), min(number + 2, last)
        a, b, c = frames[number], frames[second], frames[third]
        x, y, z = _ALL, _ALL, _ALL
        for word in range(words.shape[1]):
            x = _continued(x, np.uint64(words[a, word]))
            y = _continued(y, np.uint64(words[b, word]))
            z = _continued(z, np.uint64(words[c, word]))
        sums[number] = np.uint32(x ^ _ALL)
        sums[second] = np.uint32(y ^ _ALL)
        sums[third] = np.uint32(z ^ _ALL)


def sum_by_library(words: NDArray[np.int64], frames: NDArray[np.int32], sums: NDArray[np.uint32]) -> None:
    """Do the same on any processor."""
    for number, frame in enumerate(frames):
        sums[number] = crc32c(memoryview(words[frame]).cast("B"), gil_release_mode=1)


#: True if the processor has the instruction.
HAS_INSTRUCTION: Final = platform.machine() == "x86_64" and bool(
    llvmlite.binding.get_host_cpu_features().get("sse4.2")
)


def sums_of(words: NDArray[np.int64], frames: NDArray[np.int32]) -> NDArray[np.uint32]:
    """Return the CRC32C of the pages in some frames."""
    sums = np.empty(len(frames), np.uint32)
    (sum_by_instruction if HAS_INSTRUCTION else sum_by_library)(words, frames, sums)
    return sums
