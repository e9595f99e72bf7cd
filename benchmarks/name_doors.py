"""Names through three entry points of one coordinator: our client, and bare sockets with WebHDFS and HDFS.

Sixteen clients run in two processes; each is a thread with its own connection. The entry points take turns for
each operation, so that a busy moment of the machine affects all of them. The WebHDFS clients here do not parse
their answers, unlike our client. CPU is per call, of the coordinator's process and of the clients.
"""

from __future__ import annotations

import getpass
import multiprocessing
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.hadoop import namenode_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import FsPermissionProto

from .plain_hdfs import PlainHdfs
from .plain_http import PlainHttp
from .processor_time import cpu_s
from .report import show

_CLIENTS, _PROCESSES = 16, 2
_LISTED = 100
_OPERATIONS = ("mkdirs", "status", "list", "rename", "delete")
OUR_CLIENT, WEBHDFS, HDFS = "our client, frames", "WebHDFS", "HDFS's RPC"
_DOORS = (WEBHDFS, HDFS, OUR_CLIENT)


class _Part(NamedTuple):
    """The results of one process."""

    calls: int
    seconds: float
    cpu_s: float


class _Names:
    """One client's directories. The client renames and then deletes the first of them."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._made = self._renamed = self._deleted = 0

    def mkdirs(self) -> bool:
        self._mkdirs(f"{self._top}/{self._made}")
        self._made += 1
        return True

    def status(self) -> bool:
        self._status(f"/listed/{random.randrange(_LISTED):03}")
        return True

    def list(self) -> bool:
        self._list("/listed")
        return True

    def rename(self) -> bool:
        if self._renamed == self._made:
            return False
        self._rename(f"{self._top}/{self._renamed}", f"{self._top}/r{self._renamed}")
        self._renamed += 1
        return True

    def delete(self) -> bool:
        if self._deleted == self._renamed:
            return False
        self._delete(f"{self._top}/r{self._deleted}")
        self._deleted += 1
        return True

    def _mkdirs(self, path: str) -> None: ...

    def _status(self, path: str) -> None: ...

    def _list(self, path: str) -> None: ...

    def _rename(self, source: str, target: str) -> None: ...

    def _delete(self, path: str) -> None: ...


class _OurNames(_Names):
    def __init__(self, address: str, top: str) -> None:
        super().__init__(top)
        self._files = PeaceFileSystem(address)

    def _mkdirs(self, path: str) -> None:
        self._files.mkdirs(path)

    def _status(self, path: str) -> None:
        self._files.status(path)

    def _list(self, path: str) -> None:
        assert len(self._files.list(path)) == _LISTED

    def _rename(self, source: str, target: str) -> None:
        self._files.rename(source, target)

    def _delete(self, path: str) -> None:
        assert self._files.delete(path)


class _WebHdfsNames(_Names):
    def __init__(self, address: str, top: str) -> None:
        super().__init__(top)
        self._http = PlainHttp(address.removeprefix("http://"))
        self._user = getpass.getuser()

    def _ask(self, method: str, path: str, operation: str) -> None:
        self._http.ask(method, f"/webhdfs/v1{path}?user.name={self._user}&op={operation}", 200, "")

    def _mkdirs(self, path: str) -> None:
        self._ask("PUT", path, "MKDIRS")

    def _status(self, path: str) -> None:
        self._ask("GET", path, "GETFILESTATUS")

    def _list(self, path: str) -> None:
        self._ask("GET", path, "LISTSTATUS")

    def _rename(self, source: str, target: str) -> None:
        self._ask("PUT", source, f"RENAME&renameoptions=NONE&destination={target}")

    def _delete(self, path: str) -> None:
        self._ask("DELETE", path, "DELETE")


class _HdfsNames(_Names):
    def __init__(self, uri: str, top: str) -> None:
        super().__init__(top)
        host, _, port = uri.removeprefix("hdfs://").partition(":")
        self._rpc = PlainHdfs(host, int(port), getpass.getuser())

    def _mkdirs(self, path: str) -> None:
        masked = FsPermissionProto(perm=0o755)
        made = pb.MkdirsRequestProto(src=path, masked=masked, createParent=True)
        self._rpc.ask("mkdirs", made, pb.MkdirsResponseProto)

    def _status(self, path: str) -> None:
        self._rpc.ask("getFileInfo", pb.GetFileInfoRequestProto(src=path), pb.GetFileInfoResponseProto)

    def _list(self, path: str) -> None:
        asked = pb.GetListingRequestProto(src=path, startAfter=b"", needLocation=False)
        found = self._rpc.ask("getListing", asked, pb.GetListingResponseProto)
        assert len(found.dirList.partialListing) == _LISTED

    def _rename(self, source: str, target: str) -> None:
        renamed = pb.Rename2RequestProto(src=source, dst=target, overwriteDest=False)
        self._rpc.ask("rename2", renamed, pb.Rename2ResponseProto)

    def _delete(self, path: str) -> None:
        gone = pb.DeleteRequestProto(src=path, recursive=False)
        assert self._rpc.ask("delete", gone, pb.DeleteResponseProto).result


def compare_doors(*, quick: bool) -> None:
    """Measure each operation through each door in turn, in several rounds, and show the medians."""
    seconds, rounds = (0.3, 2) if quick else (2.0, 5)
    measured: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(Path(directory), datanodes=1, port=0) as cluster,
    ):
        with PeaceFileSystem(cluster.http_address) as files:
            for number in range(_LISTED):
                files.mkdirs(f"/listed/{number:03}")
        parts: Queue[_Part] = context.Queue()
        barrier = context.Barrier(_PROCESSES + 1)
        workers = [
            context.Process(
                target=_work,
                args=((cluster.http_address, cluster.hdfs_uri), number, seconds, rounds, barrier, parts),
            )
            for number in range(_PROCESSES)
        ]
        for worker in workers:
            worker.start()
        for _ in range(rounds):
            for operation in _OPERATIONS:
                for door in _DOORS:
                    barrier.wait()
                    before = cpu_s(cluster.coordinator.pid)
                    barrier.wait()
                    spent = cpu_s(cluster.coordinator.pid) - before
                    shares = [parts.get() for _ in workers]
                    calls = max(1, sum(share.calls for share in shares))
                    rate = calls / max(share.seconds for share in shares)
                    clients_s = sum(share.cpu_s for share in shares)
                    measured.setdefault((operation, door), []).append(
                        (rate, spent / calls * 1000, clients_s / calls * 1000)
                    )
        for worker in workers:
            worker.join()
    rows: list[dict[str, object]] = []
    for operation in _OPERATIONS:
        for door in _DOORS:
            rate, coordinator, clients = map(statistics.median, zip(*measured[operation, door], strict=True))
            rows.append(
                {
                    "operation": operation,
                    "door": door,
                    "ops/s": rate,
                    "CPU ms, coordinator": coordinator,
                    "CPU ms, client": clients,
                }
            )
    title = f"names, {_CLIENTS} clients, {seconds:g} s each, the median of {rounds} rounds, doors in turn"
    show("metadata_ops_doors", title, rows)


def _work(
    addresses: tuple[str, str], number: int, seconds: float, rounds: int, barrier: Barrier, parts: Queue[_Part]
) -> None:
    address, hdfs = addresses
    made: dict[str, list[_Names]] = {
        HDFS: [_HdfsNames(hdfs, f"/h/{number}-{each}") for each in range(_CLIENTS // _PROCESSES)],
        WEBHDFS: [_WebHdfsNames(address, f"/w/{number}-{each}") for each in range(_CLIENTS // _PROCESSES)],
        OUR_CLIENT: [_OurNames(address, f"/o/{number}-{each}") for each in range(_CLIENTS // _PROCESSES)],
    }
    for _ in range(rounds):
        for operation in _OPERATIONS:
            for door in _DOORS:
                barrier.wait()
                part = _measure([getattr(client, operation) for client in made[door]], seconds)
                barrier.wait()
                parts.put(part)


def _measure(calls: list[Callable[[], bool]], seconds: float) -> _Part:
    counts: list[int] = []

    def run(call: Callable[[], bool]) -> None:
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end and call():
            count += 1
        counts.append(count)

    begun, cpu_before = time.perf_counter(), time.process_time()
    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == len(calls), "a client failed"
    return _Part(sum(counts), time.perf_counter() - begun, time.process_time() - cpu_before)
