"""Load from Python: clients in two processes, each a thread with a connection, that repeat one operation.

The names are the same for every system, and for HDFS's JVM (`java/HadoopLoad.java`): client 3 makes the
directories `/m/3/0`, `/m/3/1`, ..., the empty files `/e/3/0`, ..., which it renames to `/e/3/r0`, ... and then
deletes, and writes `/w/3/0`, .... Files to stat and read are in `/k`, files to list in `/listed`, large files in
`/l`.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple, Protocol, Self

KEPT_FILES = 100
CLIENTS_MAX = 16
_PROCESSES = 2
_SMALL = os.urandom(1024)


class Work(NamedTuple):
    """One operation, repeated until the time is over, nothing is left to do, or each client has done it `times`
    times.
    """

    operation: str
    clients: int
    seconds: float = 3600.0
    times: int = 1 << 30
    mebibytes: int = 0


class Done(NamedTuple):
    """The number of operations of all clients, and the time of the slowest client."""

    done: int
    seconds: float


class Load(Protocol):
    """The clients of one system."""

    def run(self, work: Work) -> Done: ...

    def close(self) -> None: ...


class Client(Protocol):
    """One client of one system, used by one thread."""

    def mkdir(self, path: str) -> None: ...

    def create(self, path: str) -> None:
        """Make an empty file."""
        ...

    def status(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def delete(self, path: str) -> None: ...

    def list(self, path: str) -> None: ...

    def write(self, path: str, data: bytes) -> None: ...

    def read(self, path: str, length: int) -> None: ...

    def write_large(self, path: str, mebibytes: int) -> None: ...

    def read_large(self, path: str, mebibytes: int) -> None: ...


class _Worker:
    """A client and the files it has made. Each operation returns whether there was something to do."""

    def __init__(self, client: Client, top: str, number: int) -> None:
        self._client = client
        self._top = top
        self._number = number
        self._made: dict[str, int] = {}

    def _next(self, what: str) -> int:
        number = self._made.get(what, 0)
        self._made[what] = number + 1
        return number

    def _left(self, what: str, of: str) -> int | None:
        return None if self._made.get(what, 0) == self._made.get(of, 0) else self._next(what)

    def mkdir(self, _mebibytes: int) -> bool:
        self._client.mkdir(f"{self._top}/m/{self._number}/{self._next('mkdir')}")
        return True

    def create(self, _mebibytes: int) -> bool:
        self._client.create(f"{self._top}/e/{self._number}/{self._next('create')}")
        return True

    def rename(self, _mebibytes: int) -> bool:
        left = self._left("rename", "create")
        if left is not None:
            self._client.rename(f"{self._top}/e/{self._number}/{left}", f"{self._top}/e/{self._number}/r{left}")
        return left is not None

    def delete(self, _mebibytes: int) -> bool:
        left = self._left("delete", "rename")
        if left is not None:
            self._client.delete(f"{self._top}/e/{self._number}/r{left}")
        return left is not None

    def stat(self, _mebibytes: int) -> bool:
        self._client.status(f"{self._top}/k/{random.randrange(KEPT_FILES)}")
        return True

    def read(self, _mebibytes: int) -> bool:
        self._client.read(f"{self._top}/k/{random.randrange(KEPT_FILES)}", len(_SMALL))
        return True

    def write(self, _mebibytes: int) -> bool:
        self._client.write(f"{self._top}/w/{self._number}/{self._next('write')}", _SMALL)
        return True

    def list(self, _mebibytes: int) -> bool:
        self._client.list(f"{self._top}/listed")
        return True

    def keep(self, _mebibytes: int) -> bool:
        self._client.write(f"{self._top}/k/{self._next('keep')}", _SMALL)
        return True

    def fill(self, _mebibytes: int) -> bool:
        self._client.mkdir(f"{self._top}/listed/{self._number:02}-{self._next('fill'):05}")
        return True

    def write_large(self, mebibytes: int) -> bool:
        self._client.write_large(f"{self._top}/l/{self._number}", mebibytes)
        return True

    def read_large(self, mebibytes: int) -> bool:
        self._client.read_large(f"{self._top}/l/{self._number}", mebibytes)
        return True

    def delete_large(self, _mebibytes: int) -> bool:
        self._client.delete(f"{self._top}/l/{self._number}")
        return True


class PythonLoad:
    """Clients that `make` returns, in separate processes, until it is closed. All their files are below `top`."""

    def __init__(self, make: Callable[[], Client], top: str = "") -> None:
        context = multiprocessing.get_context("spawn")
        self._processes = []
        self._ends: list[Connection] = []
        for first in range(_PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(make, top, first, theirs))
            process.start()
            theirs.close()
            self._processes.append(process)
            self._ends.append(ours)

    def run(self, work: Work) -> Done:
        used = self._ends[: min(work.clients, _PROCESSES)]
        for end in used:
            end.send(work)
        shares: list[Done] = [end.recv() for end in used]
        return Done(sum(share.done for share in shares), max(share.seconds for share in shares))

    def close(self) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_reason: object) -> None:
        self.close()


def _serve(make: Callable[[], Client], top: str, first: int, commands: Connection) -> None:
    workers: dict[int, _Worker] = {}
    while True:
        try:
            work: Work = commands.recv()
        except EOFError:
            return
        numbers = range(first, work.clients, _PROCESSES)
        for number in numbers:
            if number not in workers:
                workers[number] = _Worker(make(), top, number)
        commands.send(_at_once([workers[number] for number in numbers], work))


def _at_once(workers: list[_Worker], work: Work) -> Done:
    counts: list[int] = []

    def run(worker: _Worker) -> None:
        operation: Callable[[int], bool] = getattr(worker, work.operation)
        count, end = 0, time.perf_counter() + work.seconds
        while count < work.times and time.perf_counter() < end and operation(work.mebibytes):
            count += 1
        counts.append(count)

    begun = time.perf_counter()
    threads = [threading.Thread(target=run, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == len(workers), "a client failed"
    return Done(sum(counts), time.perf_counter() - begun)
