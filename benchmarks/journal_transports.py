"""Compare ways to call etcd: the journal's own, etcd's JSON gateway, and Google's gRPC library.

Each way puts entries of 1,500 bytes into one member of etcd, in the journal's transaction, and they take turns.
Then each way makes calls in two threads while an event loop of uvloop starts processes, as a coordinator's does:
once to a member that answers, and once to a frozen member. The last columns count processes that died.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import importlib.util
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import uvloop

from peacefs.client.local_cluster.etcd_process import find_etcd
from peacefs.client.local_cluster.reserved_ports import ReservedPorts
from peacefs.coordinator.journal.etcd import EtcdJournal
from peacefs.coordinator.journal.etcd_client import EtcdAccess
from peacefs.coordinator.journal.etcd_messages_pb2 import (
    Compare,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
    TxnResponse,
)

from .failover_cluster import EtcdMember
from .processor_time import cpu_s
from .report import show

_HOST = "127.0.0.1"
_ENTRY_BYTES = 1500
_PER_TURN = 60
_THREADS = 2
# Timeout of a call. It is shorter for a frozen member, so that many calls end while processes are started.
_CALL_S, _CALL_TO_FROZEN_S = 2.0, 0.3
_EPOCH = b"1 benchmark"
_LIMIT_S = 60.0
_numbers = itertools.count(1)


def main(*, quick: bool = False) -> None:
    binary = find_etcd()
    if binary is None:
        raise SystemExit("etcd is not here: `apt-get install etcd-server`, or run `make setup` again")
    with tempfile.TemporaryDirectory() as directory:
        reserved = ReservedPorts(_HOST)
        ports = reserved.take(), reserved.take()
        member = EtcdMember(binary, Path(directory), "m0", ports, f"m0=http://{_HOST}:{ports[1]}")
        member.start()
        try:
            while not member.is_healthy():
                time.sleep(0.05)
            endpoint = f"{_HOST}:{ports[0]}"
            rows, count = _rows(endpoint, member, turns=5 if quick else 40), 50 if quick else 1000
            with socket.create_server((_HOST, 0)) as frozen:
                silent = f"{_HOST}:{frozen.getsockname()[1]}"
                for row in rows:
                    for state, called in (("answers", endpoint), ("is frozen", silent)):
                        row[f"died of {count}, etcd {state}"] = _processes_died(str(row["way"]), called, count)
            show("journal_transports", "One entry to etcd by several ways", rows)
        finally:
            member.kill()
            reserved.release()


def _rows(endpoint: str, member: EtcdMember, turns: int) -> list[dict[str, Any]]:
    ways = {name: way(endpoint, _CALL_S) for name, way in _WAYS.items() if name != "grpcio" or _has_grpcio()}
    for way in ways.values():
        way.begin()
    waited_s: dict[str, list[float]] = {name: [] for name in ways}
    own_us: dict[str, list[float]] = {name: [] for name in ways}
    etcd_us: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, way in ways.items():
            entry = os.urandom(_ENTRY_BYTES)
            own_s, etcd_s = time.process_time(), cpu_s(member.pid)
            took_s = [_timed(way, entry) for _ in range(_PER_TURN)]
            if turn:
                waited_s[name] += took_s
                own_us[name].append((time.process_time() - own_s) / _PER_TURN * 1e6)
                etcd_us[name].append((cpu_s(member.pid) - etcd_s) / _PER_TURN * 1e6)
    return [
        {
            "way": name,
            "median ms": round(statistics.median(waited_s[name]) * 1e3, 2),
            "p99 ms": round(statistics.quantiles(waited_s[name], n=100)[-1] * 1e3, 2),
            "own us": round(statistics.mean(own_us[name])),
            "etcd's us": round(statistics.mean(etcd_us[name])),
        }
        for name in ways
    ]


def _timed(way: Way, entry: bytes) -> float:
    began_s = time.perf_counter()
    way.append(next(_numbers), entry)
    return time.perf_counter() - began_s


# -- the ways --------------------------------------------------------------------------------------------


class Way(Protocol):
    """One way to call etcd. `begin` writes the epoch that `append` compares."""

    def begin(self) -> None: ...

    def append(self, number: int, entry: bytes) -> None: ...


class _Own:
    def __init__(self, endpoint: str, _call_s: float) -> None:
        self._journal = EtcdJournal(EtcdAccess((endpoint,)), f"/own-{os.getpid()}")

    def begin(self) -> None:
        assert self._journal.take(0, 1)

    def append(self, number: int, entry: bytes) -> None:
        self._journal.append(1, number, entry)


class _Gateway:
    def __init__(self, endpoint: str, call_s: float) -> None:
        self._connection = http.client.HTTPConnection(endpoint, timeout=call_s)
        self._epoch = _text(_key("gateway", "epoch"))

    def begin(self) -> None:
        assert self._call({"success": [{"request_put": {"key": self._epoch, "value": _text(_EPOCH)}}]})

    def append(self, number: int, entry: bytes) -> None:
        key = _text(_key("gateway", str(number)))
        has_epoch = {"key": self._epoch, "target": "VALUE", "value": _text(_EPOCH)}
        is_absent = {"key": key, "target": "VERSION", "version": 0}
        put = {"request_put": {"key": key, "value": _text(entry)}}
        reads = [{"request_range": {"key": each}} for each in (self._epoch, key)]
        assert self._call({"compare": [has_epoch, is_absent], "success": [put], "failure": reads})

    def _call(self, asked: dict[str, Any]) -> bool:
        headers = {"Content-Type": "application/json"}
        try:
            self._connection.request("POST", "/v3/kv/txn", json.dumps(asked).encode(), headers)
            return bool(json.loads(self._connection.getresponse().read()).get("succeeded"))
        except BaseException:
            self._connection.close()
            raise


class _Grpcio:
    def __init__(self, endpoint: str, call_s: float) -> None:
        import grpc

        self._call_s = call_s
        self._txn = grpc.insecure_channel(endpoint).unary_unary(
            "/etcdserverpb.KV/Txn",
            request_serializer=TxnRequest.SerializeToString,
            response_deserializer=TxnResponse.FromString,
        )
        self._epoch = _key("grpcio", "epoch")

    def begin(self) -> None:
        put = RequestOp(request_put=PutRequest(key=self._epoch, value=_EPOCH))
        assert self._txn(TxnRequest(success=[put]), timeout=self._call_s).succeeded

    def append(self, number: int, entry: bytes) -> None:
        key = _key("grpcio", str(number))
        compare = [
            Compare(target=Compare.VALUE, key=self._epoch, value=_EPOCH),
            Compare(key=key, version=0),
        ]
        put = RequestOp(request_put=PutRequest(key=key, value=entry))
        reads = [RequestOp(request_range=RangeRequest(key=each)) for each in (self._epoch, key)]
        assert self._txn(TxnRequest(compare=compare, success=[put], failure=reads), timeout=self._call_s).succeeded


_WAYS: dict[str, Callable[[str, float], Way]] = {"own": _Own, "gateway": _Gateway, "grpcio": _Grpcio}


def _key(way: str, name: str) -> bytes:
    return f"/{way}-{os.getpid()}/{name}".encode()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _has_grpcio() -> bool:
    if importlib.util.find_spec("grpc") is not None:
        return True
    print("grpcio is not here: `make bench` installs what benchmarks compare with", flush=True)
    return False


# -- processes that are started while calls are under way ------------------------------------------------------


def _processes_died(way: str, endpoint: str, count: int) -> int | str:
    """Start this many processes from a process that makes calls. Return how many died."""
    command = [sys.executable, "-m", "benchmarks.journal_transports", way, endpoint, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            found, _ = process.communicate(timeout=_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return f"no end in {_LIMIT_S:.0f} s"
    return int(found) if found.strip() else f"ended with {process.returncode}"


def _start_processes(kind: str, endpoint: str, count: int) -> int:
    has_ended = threading.Event()

    def call() -> None:
        way = _WAYS[kind](endpoint, _CALL_TO_FROZEN_S)
        while not has_ended.is_set():
            # A frozen member answers nothing, so the content does not matter.
            with suppress(Exception):
                way.append(next(_numbers), b"entry")

    async def start() -> int:
        died = 0
        for _ in range(count):
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec("true", stdout=pipe, stderr=pipe)
            await process.communicate()
            died += process.returncode != 0
        return died

    threads = [threading.Thread(target=call) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    died = uvloop.run(start())
    has_ended.set()
    for thread in threads:
        thread.join()
    return died


if __name__ == "__main__":
    print(_start_processes(sys.argv[1], sys.argv[2], int(sys.argv[3])), flush=True)
