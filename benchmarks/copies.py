"""Tell what each step of a large write costs the processors, beside the whole chain of three datanodes.

A MiB crosses three links, is summed four times (by the writer and by each hop, which verifies it), and is copied
into the page cache of three files. Each of these is done alone, in one process, as often as there are MiB, and
multiplied by how often the chain does it. What the chain takes beyond the sum of them is the interpreter, seals,
and three processes and a writer that share the cores and their caches.

Pages for a file come from memory that is free. In a virtual machine the first use of such memory may cost far more
than the copy, because the host has to find it first: so the copy has three rows, into memory as it is found, into
that of a file just removed, and into pages that the file has already.
"""

from __future__ import annotations

import os
import resource
import socket
import statistics
import tempfile
import threading
import time
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
        link, sums, recycled, again, chain, chain_s = ([] for _ in range(6))
        for _ in range(rounds):
            link.append(_spent(lambda: _cross_link(mebibytes), mebibytes))
            sums.append(_spent(lambda: _sum_up(mebibytes), mebibytes))
            (directory / "first").unlink()
            recycled.append(_spent(lambda: _write_file(directory / "first", mebibytes), mebibytes))
            again.append(_spent(lambda: _write_file(directory / "first", mebibytes), mebibytes))
            began_s = time.perf_counter()
            chain.append(_spent(lambda: own_chain.run(mebibytes * _MIB, _REPLICAS, directory), mebibytes))
            chain_s.append(time.perf_counter() - began_s)
    rows = [
        _row("a link: sent and received", statistics.median(link), _REPLICAS),
        _row("checksums of 64 KiB blocks", statistics.median(sums), _REPLICAS + 1),
        _row("copied into a file, memory as it was found", first, _REPLICAS),
        _row("... memory of a file just removed", statistics.median(recycled), _REPLICAS),
        _row("... pages that the file has already", statistics.median(again), _REPLICAS),
        _row("writer and three datanodes", statistics.median(chain), 1),
    ]
    rate = mebibytes / statistics.median(chain_s)
    title = f"{mebibytes} MiB, the median of {rounds} rounds; the chain wrote {rate:.0f} MiB/s, fsync included"
    show("copies", title, rows)


def _row(step: str, each_ms: float, times: int) -> dict[str, object]:
    return {
        "step": step,
        "processor time, ms a MiB": round(each_ms, 3),
        "times": times,
        "in all": round(each_ms * times, 3),
    }


def _spent(work: Callable[[], object], mebibytes: int) -> float:
    """Return the milliseconds of processor time for one MiB, with that of processes that have ended."""
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


def _write_file(path: Path, mebibytes: int) -> None:
    piece = os.urandom(packet_bytes)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for at in range(0, mebibytes * _MIB, packet_bytes):
            os.pwrite(descriptor, piece, at)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main()
