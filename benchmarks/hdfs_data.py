"""Data over HDFS's own protocol: Hadoop's client writes and reads files, as TestDFSIO does.

Three ways in turn, in one run: `hdfs://` and `webhdfs://` of peacefs, and HDFS. Needs Maven and a JDK for
HDFS; without them the other ways are measured.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from peacefs.client.local_cluster.cluster import LocalCluster

from .hadoop_client import HadoopFiles, hadoop_jvm
from .peers.hdfs import NoHadoop, hadoop_classpath, running_hdfs
from .report import show

_DATANODES = 3
_MIB = 1 << 20
_CLIENTS = (1, 4)
_READY_TIMEOUT_S = 120.0


def main(*, quick: bool = False) -> None:
    file_bytes, rounds = (8 * _MIB, 1) if quick else (128 * _MIB, 5)
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        scratch = Path(made)
        cluster = stack.enter_context(LocalCluster(scratch / "peacefs", datanodes=_DATANODES, port=0))
        uris = {"peacefs hdfs://": cluster.hdfs_uri, "peacefs webhdfs://": cluster.webhdfs_uri}
        try:
            classpath = hadoop_classpath(scratch / "java")
            uris["HDFS"] = stack.enter_context(running_hdfs(classpath, scratch / "hdfs", _DATANODES)).uri
        except NoHadoop as missing:
            sys.stdout.write(f"HDFS is left out: {missing}\n")
        gateway = stack.enter_context(hadoop_jvm(scratch))
        ways = {name: HadoopFiles(gateway, uri, file_bytes) for name, uri in uris.items()}
        for files in ways.values():
            _until_ready(files)
        rows = [row for clients in _CLIENTS for row in _rows(ways, clients, file_bytes, rounds)]
    show("hdfs_data", f"Hadoop's client, files of {file_bytes // _MIB} MiB, median of {rounds}, MiB/s", rows)


def _rows(ways: dict[str, HadoopFiles], clients: int, file_bytes: int, rounds: int) -> list[dict[str, object]]:
    found: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds + 1):
        for name, files in ways.items():
            for what, act in (("write", files.write), ("read", files.read)):
                seconds = _together(act, [f"/bench/{clients}-{client}" for client in range(clients)])
                if turn:  # the first one warms up
                    found.setdefault((what, name), []).append(clients * file_bytes / _MIB / seconds)
    return [
        {"what": what, "clients": clients, **{name: statistics.median(found[what, name]) for name in ways}}
        for what in ("write", "read")
    ]


def _together(act: Callable[[str], object], paths: list[str]) -> float:
    failed: list[BaseException] = []

    def run(path: str) -> None:
        try:
            act(path)
        except BaseException as fault:
            failed.append(fault)

    threads = [threading.Thread(target=run, args=(path,)) for path in paths]
    began_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return time.monotonic() - began_s


def _until_ready(files: HadoopFiles) -> None:
    """Wait until the datanodes of HDFS have registered."""
    deadline_s = time.monotonic() + _READY_TIMEOUT_S
    while True:
        try:
            files.mkdirs("/bench")
            files.write("/bench/ready")
        except Exception:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.5)
        else:
            return
