"""CRC32C of many pages in one call that releases the GIL.

One call per page would take the GIL for a moment each time. Threads that wait for the GIL would be woken at each
of these moments, mostly too late, and wait again: an operator would stand still while pages are summed. The kernel
uses the instruction of x86 processors; elsewhere a library sums page by page.
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
    """Extend a checksum by eight bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(64)
        kind = ir.FunctionType(number, [number, number])
        insert: Any = cgutils.get_or_insert_function
        return builder.call(insert(builder.module, kind, "llvm.x86.sse42.crc32.64.64"), arguments)

    return types.uint64(types.uint64, types.uint64), generate


_continued: Any = intrinsic(_crc32c_of_word)


@kernel
def sum_by_instruction(words: Any, frames: Any, sums: Any) -> None:
    """Write the CRC32C of each frame to `sums`. Sums three frames at a time, to hide the instruction's latency."""
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
    """Write the CRC32C of each frame to `sums`, on any processor."""
    for number, frame in enumerate(frames):
        sums[number] = crc32c(memoryview(words[frame]).cast("B"), gil_release_mode=1)


#: True if the processor has the instruction.
HAS_INSTRUCTION: Final = platform.machine() == "x86_64" and bool(
    llvmlite.binding.get_host_cpu_features().get("sse4.2")
)


def sums_of(words: NDArray[np.int64], frames: NDArray[np.int32]) -> NDArray[np.uint32]:
    """Return the CRC32C of each of these frames."""
    sums = np.empty(len(frames), np.uint32)
    (sum_by_instruction if HAS_INSTRUCTION else sum_by_library)(words, frames, sums)
    return sums
