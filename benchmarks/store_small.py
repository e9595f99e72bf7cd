"""Measure one datanode's chunk store on one disk: small chunks per second, large ones in MB/s, and a start.


python benchmarks/store_small.py --directory /data --chunks 8000
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from peacefs.datanode.store.chunk_store import ChunkStore
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import Message
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

SMALL_BYTES = 1024
LARGE_BYTES = 64 * MIB
VERSION = 1


def _no_coordinator(message: Message, timeout_s: float) -> Message:
    raise AssertionError("the store calls nobody")


def _driver(*, sync_to_disk: bool) -> ThreadDriver:
    pool = ConnectionPool(Identity("", "datanode", "benchmark", None))
    return ThreadDriver(pool, _no_coordinator, sync_to_disk=sync_to_disk)


def _write(store: ChunkStore, chunk: int, packets: list[tuple[bytes, bytes]]) -> fx.Steps[None]:
    staged = store.stage(chunk, VERSION)
    for sums, data in packets:
        yield from store.write(staged, sums, data)
    yield from store.seal(staged)


def _read(store: ChunkStore, chunk: int) -> fx.Steps[None]:
    plan = yield from store.open_read(chunk, VERSION, 0, LARGE_BYTES)
    while (yield from store.read_blocks(plan)) is not None:
        pass


def _packets(length: int) -> list[tuple[bytes, bytes]]:
    pieces = [random.randbytes(min(MIB, length - at)) for at in range(0, length, MIB)]
    return [(block_checksums(piece), piece) for piece in pieces]


def _elapsed_s(work: Callable[[int], None], count: int, threads: int) -> float:
    """Call `work` with each of `count` numbers, divided evenly among `threads` threads; return the seconds."""

    def share(first: int) -> None:
        for number in range(first, count, threads):
            work(number)

    started = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(share, range(threads)))
    return time.monotonic() - started


def _measure(
    directory: str, count: int, length: int, threads: int, *, sync_to_disk: bool = True
) -> tuple[float, ...]:
    """Return the seconds to write, to read, and to restart with `count` chunks of `length` bytes."""
    driver = _driver(sync_to_disk=sync_to_disk)
    packets = _packets(length)
    with tempfile.TemporaryDirectory(dir=directory) as path:
        store = ChunkStore(path, reserved_bytes=0)
        driver.run(store.recover())
        write_s = _elapsed_s(lambda number: driver.run(_write(store, number, packets)), count, threads)
        read_s = _elapsed_s(lambda number: driver.run(_read(store, number)), count, threads)
        driver.run(store.close())
        started = time.monotonic()
        again = ChunkStore(path, reserved_bytes=0)
        assert driver.run(again.recover()).replicas == count
        start_s = time.monotonic() - started
        driver.run(again.close())
    os.sync()
    return write_s, read_s, start_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=tempfile.gettempdir())
    parser.add_argument("--chunks", type=int, default=8000, help="small chunks to write on 16 threads")
    options = parser.parse_args()
    for threads, sync_to_disk in [(1, True), (16, True), (1, False), (16, False)]:
        count = options.chunks if threads > 1 or not sync_to_disk else options.chunks // 4
        write_s, read_s, start_s = _measure(
            options.directory, count, SMALL_BYTES, threads, sync_to_disk=sync_to_disk
        )
        print(
            f"{SMALL_BYTES} bytes, {threads:2} threads, {'with' if sync_to_disk else 'without'} fsync: "
            f"{count / write_s:6.0f} sealed/s, {count / read_s:6.0f} read/s, "
            f"start {start_s / count * 1e6:.1f} us a chunk"
        )
    for threads in (1, 2):
        write_s, read_s, _start_s = _measure(options.directory, 8, LARGE_BYTES, threads)
        megabytes = 8 * LARGE_BYTES / 1e6
        print(
            f"64 MiB, {threads:2} threads, with fsync: {megabytes / write_s:6.0f} MB/s written, "
            f"{megabytes / read_s:6.0f} MB/s read from memory"
        )


if __name__ == "__main__":
    main()
