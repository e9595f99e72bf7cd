"""Measure what a small chunk costs the datanodes, for two source trees in one alternating run.

    python -m benchmarks hops --against ../peacefs-before

Three hops of each tree run side by side and take turns. They have tokens, seals, receipts and fsync, but neither a
coordinator nor a gateway; the writers and readers are this tree's for both. Without `--against`, only this tree is
measured.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.chunk_buffer import ChunkBuffer
from peacefs.client.transfer.chunk_writer import send_chunk
from peacefs.protocol.handshake import Identity
from peacefs.protocol.limits import chunk_bytes_max
from peacefs.protocol.messages import Allocated, ChunkLayout, Hop, Message, ReadChunk
from peacefs.protocol.tokens import ChunkRead, ChunkWrite, Signer
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.thread_driver import ThreadDriver

from .processor_time import cpu_s
from .report import show

_TREE = Path(__file__).parents[1]
_SIGNER = Signer(b"benchmark")
_REPLICAS = 3
_CLIENTS = (1, 16)
_DATA = os.urandom(1024)
_TOKEN_S = 600.0
_ANSWER_S = 15.0


class _Hops(NamedTuple):
    """Three datanodes of one source tree."""

    pids: list[int]
    pipeline: list[Hop]

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.pids))


class _Turn(NamedTuple):
    chunks_per_s: float
    cpu_ms: float
    p99_ms: float


def main(*, quick: bool = False, against: Path | None = None) -> None:
    chunks, rounds = (160, 1) if quick else (3200, 7)
    trees = {"this tree": _TREE} if against is None else {"before": against.resolve(), "this tree": _TREE}
    numbers = itertools.count(1)
    rows: list[dict[str, object]] = []
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hops = {
            name: stack.enter_context(_hops(tree, directory / str(at)))
            for at, (name, tree) in enumerate(trees.items())
        }
        for clients in _CLIENTS:
            # With one writer each chunk takes longer, so fewer are written.
            count = chunks if clients > 1 else chunks // 4
            written: dict[str, list[ChunkLayout]] = {name: [] for name in hops}
            turns: dict[tuple[str, str], list[_Turn]] = {
                (what, name): [] for what in ("write", "read") for name in hops
            }
            for turn in range(rounds):
                order = list(hops.items())
                for name, three in order if turn % 2 else reversed(order):
                    turns["write", name].append(_write(three, numbers, clients, count, written[name]))
                    turns["read", name].append(_read(three, clients, written[name][-count:]))
            rows += [_row(what, clients, name, came) for (what, name), came in turns.items()]
    show("hops", f"chunks of 1 KiB, {_REPLICAS} hops, fsync; the median of {rounds} turns, alternating", rows)


def _row(what: str, clients: int, name: str, turns: list[_Turn]) -> dict[str, object]:
    middle = _Turn(*(statistics.median(figures) for figures in zip(*turns, strict=True)))
    return {
        "what": what,
        "clients": clients,
        "datanodes": name,
        "chunks/s": middle.chunks_per_s,
        "p99 ms": middle.p99_ms,
        "CPU ms/chunk: all datanodes": middle.cpu_ms,
        "least": min(turn.cpu_ms for turn in turns),
        "most": max(turn.cpu_ms for turn in turns),
    }


def _write(hops: _Hops, numbers: Iterator[int], clients: int, chunks: int, written: list[ChunkLayout]) -> _Turn:
    tokens_until_s = time.time() + _TOKEN_S
    allocated = []
    for number in itertools.islice(numbers, chunks):
        token = _SIGNER.sign(ChunkWrite(tokens_until_s, number, number, hops.pipeline))
        allocated.append(Allocated(number, number, hops.pipeline, token))
        reading = _SIGNER.sign(ChunkRead(tokens_until_s, number))
        written.append(ChunkLayout(number, number, len(_DATA), reading, hops.pipeline))

    def write(driver: ThreadDriver, index: int) -> None:
        driver.run(send_chunk(allocated[index], ChunkBuffer(ByteStream.of(_DATA), chunk_bytes_max)))

    return _measured(hops, clients, chunks, write)


def _read(hops: _Hops, clients: int, written: list[ChunkLayout]) -> _Turn:
    def read(driver: ThreadDriver, index: int) -> None:
        assert driver.run(_read_one(written[index], hops.pipeline[index % _REPLICAS])) == _DATA

    return _measured(hops, clients, len(written), read)


def _read_one(chunk: ChunkLayout, hop: Hop) -> fx.Steps[bytes]:
    connection = yield from fx.connect(hop.address, hop.node)
    asked = ReadChunk(chunk.token, chunk.chunk, chunk.version, 0, chunk.length)
    yield from fx.send(connection, asked, timeout_s=_ANSWER_S)
    data = bytes((yield from fx.receive(connection, timeout_s=_ANSWER_S)).payload)
    yield from fx.release(connection)
    return data


def _measured(hops: _Hops, clients: int, count: int, work: Callable[[ThreadDriver, int], None]) -> _Turn:
    pool = ConnectionPool(Identity("benchmark", "client", "benchmark", None), local_sockets=False)
    driver = ThreadDriver(pool, _no_coordinator)
    turns, took_s = iter(range(count)), list[float]()

    def client() -> None:
        for index in turns:
            began_s = time.perf_counter()
            work(driver, index)
            took_s.append(time.perf_counter() - began_s)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    cpu_before_s, began_s = hops.cpu_s(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lasted_s, cpu_took_s = time.perf_counter() - began_s, hops.cpu_s() - cpu_before_s
    pool.close_all()
    driver.close()
    assert len(took_s) == count, "a client failed"
    return _Turn(count / lasted_s, cpu_took_s / count * 1000, statistics.quantiles(took_s, n=100)[98] * 1000)


def _no_coordinator(message: Message, timeout_s: float) -> Message:
    raise AssertionError(f"{type(message).__name__}: there is no coordinator here")


@contextlib.contextmanager
def _hops(tree: Path, directory: Path) -> Iterator[_Hops]:
    """Run three datanodes with the code of a source tree."""
    directory.mkdir()
    nodes = []
    try:
        for number in range(_REPLICAS):
            program = Path(__file__).with_name("own_chain.py")
            nodes.append(
                subprocess.Popen(
                    [sys.executable, program, "--serve", f"n{number}", "--directory", directory / f"n{number}"],
                    env={**os.environ, "PYTHONPATH": str(tree)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        ports = [int(node.stdout.readline()) for node in nodes if node.stdout is not None]
        hops = [Hop(f"n{number}", "127.0.0.1", port) for number, port in enumerate(ports)]
        yield _Hops([node.pid for node in nodes], hops)
    finally:
        for node in nodes:
            node.communicate()
