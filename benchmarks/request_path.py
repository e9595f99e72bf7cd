"""Measure the coordinator's processor time per operation on names, for two source trees in one alternating run.

    python -m benchmarks request_path --against ../peacefs-before

Each tree runs a cluster. The clients are the same for both (`lean_clients`): 16 connections in one thread. The
trees take turns in many short series, of which the cheapest counts, because other work on the machine can only add
to it. `image` is the process that writes the image of the metadata.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import structs

from peacefs.protocol.frames import encode
from peacefs.protocol.hadoop import namenode_pb2 as pb
from peacefs.protocol.hadoop.hdfs_pb2 import FsPermissionProto
from peacefs.protocol.messages import (
    ChangeOwner,
    CreateFile,
    DeletePath,
    GetFileInfo,
    Message,
    Mkdirs,
    RenamePath,
)
from peacefs.protocol.new_file import NewFile

from .lean_clients import (
    framed_connection,
    hdfs_connection,
    http_connection,
    http_request,
    run,
    take_frame,
    take_hdfs,
    take_http,
)
from .plain_hdfs import request
from .report import show

_TREE = Path(__file__).parents[1]
_CLIENTS: Final = 16
#: An ordinary user, whose permissions are checked, and the user that runs the coordinator.
_ANN: Final = "ann"
_IDLE_S: Final = 0.4


class _Path(NamedTuple):
    """The place of one call."""

    top: str
    turn: str
    client: int
    number: int

    def of(self, kind: str, name: str) -> str:
        return f"{self.top}/{kind}/{self.client}/{self.turn}{name}{self.number}"


def _request_id() -> str:
    return f"{time.time_ns() // 1000000:011x}{os.urandom(10).hex()}"


def _stat(at: _Path, user: str) -> Message:
    return GetFileInfo(f"{at.top}/stat/{at.number % 50}", user)


def _mkdir(at: _Path, user: str) -> Message:
    return Mkdirs(at.of("d", "d"), user, request_id=_request_id(), permission=0o755)


def _create(at: _Path, user: str) -> Message:
    return _create_at(at.of("f", "f"), user)


def _create_at(path: str, user: str) -> Message:
    new = NewFile(path=path, user=user, replication=1, request_id=_request_id())
    return CreateFile(new, is_empty=True)


def _rename(at: _Path, user: str) -> Message:
    return RenamePath(at.of("f", "f"), user, request_id=_request_id(), target=at.of("f", "r"), overwrite=False)


def _delete(at: _Path, user: str) -> Message:
    return DeletePath(at.of("f", "r"), user, request_id=_request_id(), recursive=False)


def _frame(message: Message) -> bytes:
    """Return the frame of a message with a trace id, which clients send."""
    return encode(structs.replace(message, trace=os.urandom(16).hex()))


_STEPS: Final[tuple[tuple[str, Callable[[_Path, str], Message]], ...]] = (
    ("stat", _stat),
    ("mkdir", _mkdir),
    ("create", _create),
    ("rename", _rename),
    ("delete", _delete),
)


def _hdfs_stat(at: _Path) -> pb.GetFileInfoRequestProto:
    return pb.GetFileInfoRequestProto(src=f"{at.top}/stat/{at.number % 50}")


def _hdfs_mkdir(at: _Path) -> pb.MkdirsRequestProto:
    return pb.MkdirsRequestProto(src=at.of("d", "h"), masked=FsPermissionProto(perm=0o755), createParent=True)


def _hdfs_delete(at: _Path) -> pb.DeleteRequestProto:
    return pb.DeleteRequestProto(src=at.of("d", "h"), recursive=False)


_HDFS_STEPS: Final = (
    ("stat", "getFileInfo", _hdfs_stat),
    ("mkdir", "mkdirs", _hdfs_mkdir),
    ("delete", "delete", _hdfs_delete),
)


def main(*, quick: bool = False, against: Path | None = None) -> None:
    rounds, calls = (2, 40) if quick else (8, 100)
    trees = {"this tree": _TREE} if against is None else {"before": against.resolve(), "this tree": _TREE}
    came: dict[tuple[str, str], list[dict[str, float]]] = {}
    with contextlib.ExitStack() as stack:
        clusters = {name: stack.enter_context(_cluster(tree)) for name, tree in trees.items()}
        for turn in range(rounds):
            order = list(clusters.items())
            for name, cluster in order if turn % 2 else reversed(order):
                for what, costs in cluster.measure(turn, calls):
                    came.setdefault((what, name), []).append(costs)
    rows: list[dict[str, object]] = []
    operations = dict.fromkeys(what for what, _ in came)
    for what, name in ((what, name) for what in operations for name in trees):
        turns = came[what, name]
        rows.append(
            {
                "what": what,
                "tree": name,
                "calls/s": statistics.median(each["calls/s"] for each in turns),
                "CPU ms/call: coordinator": min(each["coordinator"] for each in turns),
                "CPU ms/call: image": min(each["image"] for each in turns),
            }
        )
    show("request_path", f"names, {_CLIENTS} lean clients; least CPU of {rounds} turns, alternating", rows)


class _Cluster:
    """One tree's cluster, and connections to it."""

    def __init__(self, host: str, port: int, hdfs_port: int, process: int) -> None:
        self._process = process
        self._address = (host, port)
        self._hdfs = (host, hdfs_port)
        self._own = framed_connection(host, port)
        me = getpass.getuser()
        self._tops = {me: "/bench-root", _ANN: "/bench-ann"}
        for user, top in self._tops.items():
            self._ask(Mkdirs(top, me, request_id="", permission=0o755))
            self._ask(ChangeOwner(top, me, request_id="", owner=user, group=None))
            for number in range(50):
                self._ask(_create_at(f"{top}/stat/{number}", user))
            for kind in "df":
                for client in range(_CLIENTS):
                    self._ask(Mkdirs(f"{top}/{kind}/{client}", user, request_id="", permission=0o755))
        self._settle()
        self._own.close()

    def _ask(self, message: Message) -> None:
        run([self._own], [[encode(message)]], take_frame)

    def measure(self, turn: int, calls: int) -> Iterator[tuple[str, dict[str, float]]]:
        """Make calls of each kind, and yield the kind and its costs."""
        # New connections for each turn, because idle ones could be closed between two turns.
        framed = [framed_connection(*self._address) for _ in range(_CLIENTS)]
        http = [http_connection(*self._address) for _ in range(_CLIENTS)]
        for user, top in self._tops.items():
            for what, message in _STEPS:
                requests = [
                    [_frame(message(_Path(top, f"{turn}-", client, number), user)) for number in range(calls)]
                    for client in range(_CLIENTS)
                ]
                name = what if user != _ANN else f"{what}, checked user"
                yield name, self._costs(framed, requests, take_frame)
        asked = [
            http_request("GET", f"/bench-root/stat/{number % 50}", "op=GETFILESTATUS") for number in range(calls)
        ]
        yield "WebHDFS stat", self._costs(http, [asked] * _CLIENTS, take_http)
        hdfs = [hdfs_connection(*self._hdfs) for _ in range(_CLIENTS)]
        for what, method, asked_at in _HDFS_STEPS:
            requests = [
                [
                    request(
                        number, os.urandom(16), method, asked_at(_Path("/bench-root", f"{turn}-", client, number))
                    )
                    for number in range(calls)
                ]
                for client in range(_CLIENTS)
            ]
            yield f"HDFS {what}", self._costs(hdfs, requests, take_hdfs)
        for sock in (*framed, *http, *hdfs):
            sock.close()

    def _costs(
        self, sockets: list[socket.socket], requests: list[list[bytes]], take: Callable[[bytes], int]
    ) -> dict[str, float]:
        before, began_s = _cpu_s(self._process), time.perf_counter()
        run(sockets, requests, take)
        took_s = time.perf_counter() - began_s
        loop_s = _cpu_s(self._process)[0]
        self._settle()
        after = _cpu_s(self._process)
        count = sum(map(len, requests))
        return {
            "calls/s": count / took_s,
            "coordinator": (loop_s - before[0]) / count * 1000,
            "image": (after[1] - before[1]) / count * 1000,
        }

    def _settle(self) -> None:
        """Wait until the process of the image has nothing to do."""
        while True:
            before = _cpu_s(self._process)[1]
            time.sleep(_IDLE_S)
            if _cpu_s(self._process)[1] - before < _IDLE_S / 100:
                return


@contextlib.contextmanager
def _cluster(tree: Path) -> Iterator[_Cluster]:
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("request_path_worker.py")],
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield _Cluster(*json.loads(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.wait()


def _cpu_s(process: int) -> tuple[float, float]:
    """Return the processor time of a process, and that of its children together."""
    tasks = list(Path(f"/proc/{process}/task").iterdir())
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return _of_process(process), sum(map(_of_process, children))


def _of_process(process: int) -> float:
    return (
        sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{process}/task").glob("*/schedstat")) / 1e9
    )
