"""Show the processor time of each step of a large write, beside the whole chain of three datanodes.

A MiB crosses three links, is checksummed four times (by the writer and by each hop), and is copied into the page
cache of three files. The benchmark does each step alone, in one process, and multiplies its time by how often the
chain does it. The chain's additional time is that of the interpreter, of seals, and of four processes that share
cores and caches.

The copy has three rows, because in a virtual machine the first use of free memory may cost far more than the copy
itself: the host has to find it. One row copies into any free memory, one into the memory of a file just removed,
one into existing pages of the file. Two more rows write around the page cache (`peacefs datanode
--write-around-cache`): one for a single file, one for the whole chain.
"""

from __future__ import annotations

import mmap
import os
import resource
import socket
import statistics
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from benchmarks import own_chain
from benchmarks.report import show
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.limits import packet_bytes

_MIB = 1 << 20
_REPLICAS = 3


def main(*, quick: bool = False) -> None:
    mebibytes, rounds = (64, 2) if quick else (1024, 5)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        first = _spent(lambda: _write_file(directory / "first", mebibytes), mebibytes)
        link, sums, recycled, again, direct = ([] for _ in range(5))
        through, around, chosen = _Chain(around_cache=False), _Chain(around_cache=True), _Chain(around_cache=None)
        for _ in range(rounds):
            link.append(_spent(lambda: _cross_link(mebibytes), mebibytes))
            sums.append(_spent(lambda: _sum_up(mebibytes), mebibytes))
            (directory / "first").unlink()
            recycled.append(_spent(lambda: _write_file(directory / "first", mebibytes), mebibytes))
            again.append(_spent(lambda: _write_file(directory / "first", mebibytes), mebibytes))
            direct.append(_spent(lambda: _write_file(directory / "direct", mebibytes, os.O_DIRECT), mebibytes))
            (directory / "direct").unlink()
            for chain in (through, around, chosen):
                chain.measure(directory, mebibytes)
    rows = [
        _row("a link: sent and received", statistics.median(link), _REPLICAS),
        _row("checksums of 64 KiB blocks", statistics.median(sums), _REPLICAS + 1),
        _row("copied into a file, memory as it was found", first, _REPLICAS),
        _row("... memory of a file just removed", statistics.median(recycled), _REPLICAS),
        _row("... pages that the file has already", statistics.median(again), _REPLICAS),
        _row("... around the page cache", statistics.median(direct), _REPLICAS),
        _row("writer and three datanodes", statistics.median(through.spent_ms), 1, through),
        _row("... around the page cache", statistics.median(around.spent_ms), 1, around),
        _row("... the way that each disk chooses", statistics.median(chosen.spent_ms), 1, chosen),
    ]
    show("copies", f"{mebibytes} MiB, fsync included, the median of {rounds} rounds", rows)


class _Chain:
    """A writer and three datanodes, measured round by round."""

    def __init__(self, *, around_cache: bool | None) -> None:
        self._around_cache = around_cache
        self.spent_ms: list[float] = []
        self.rates: list[float] = []

    def measure(self, directory: Path, mebibytes: int) -> None:
        def run() -> None:
            took_s = own_chain.run(mebibytes * _MIB, _REPLICAS, directory, around_cache=self._around_cache)
            self.rates.append(mebibytes / took_s)

        self.spent_ms.append(_spent(run, mebibytes))


def _row(step: str, each_ms: float, times: int, chain: _Chain | None = None) -> dict[str, object]:
    return {
        "step": step,
        "processor time, ms a MiB": round(each_ms, 3),
        "times": times,
        "in all": round(each_ms * times, 3),
        "MiB/s": "" if chain is None else f"{statistics.median(chain.rates):.0f}",
    }


def _spent(work: Callable[[], object], mebibytes: int) -> float:
    """Return the milliseconds of processor time per MiB, including processes that have ended."""
    before_s = _processor_s()
    work()
    return (_processor_s() - before_s) * 1000 / mebibytes


def _processor_s() -> float:
    ours, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return ours.ru_utime + ours.ru_stime + theirs.ru_utime + theirs.ru_stime


def _cross_link(mebibytes: int) -> None:
    piece, count = os.urandom(packet_bytes), mebibytes * _MIB // packet_bytes
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()

    def send() -> None:
        for _ in range(count):
            near.sendall(piece)
        near.close()

    sender, buffer = threading.Thread(target=send), bytearray(packet_bytes)
    sender.start()
    while far.recv_into(buffer, 0, socket.MSG_WAITALL):
        pass
    sender.join()
    far.close()


def _sum_up(mebibytes: int) -> None:
    piece = os.urandom(packet_bytes)
    for _ in range(mebibytes * _MIB // packet_bytes):
        block_checksums(piece)


def _write_file(path: Path, mebibytes: int, flags: int = 0) -> None:
    # O_DIRECT needs aligned memory.
    piece = mmap.mmap(-1, packet_bytes)
    piece.write(os.urandom(packet_bytes))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
    try:
        for at in range(0, mebibytes * _MIB, packet_bytes):
            os.pwrite(descriptor, piece, at)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main()
