"""Freed memory of large buffers is kept for reuse, up to a limit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from peacefs.protocol.limits import MIB
from peacefs.service.process import heap_kept_bytes, heaps_max

_PIECES = """
import resource, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from peacefs.datanode.gateway.local_large_reads import gateway_local_piece_bytes
from peacefs.service.process import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def resident_kib():
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])

with ThreadPoolExecutor(8) as threads:
    def come_and_go(count):
        pieces = list(threads.map(lambda number: b"x" * gateway_local_piece_bytes, range(count)))

    began_kib = resident_kib()
    come_and_go(400)
    left_mib = (resident_kib() - began_kib) // 1024
    come_and_go(16)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        come_and_go(16)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults // 20 // 16, left_mib)
"""


def pieces(how: str) -> tuple[int, int]:
    """Return page faults per piece, and how many of 200 MiB the process keeps after freeing them."""
    ran = subprocess.run(
        [sys.executable, "-c", _PIECES, how], capture_output=True, text=True, check=True, timeout=180
    )
    faults, left_mib = map(int, ran.stdout.split())
    return faults, left_mib


@pytest.mark.skipif(sys.platform != "linux", reason="it is for glibc")
def test_pieces_that_come_and_go_take_no_new_memory_and_little_is_kept():
    freed, _left = pieces("freed")
    faults, left_mib = pieces("kept")
    assert freed > 50, "this is what it is good for"
    assert faults < freed / 4
    assert left_mib * MIB < 2 * heaps_max * heap_kept_bytes
