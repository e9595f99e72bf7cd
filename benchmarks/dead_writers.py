"""Kill writers, datanodes and the coordinator repeatedly; measure how much space belongs to no file, and how long.

Three writer processes write files of 64 MiB in chunks of 8 MiB, r = 3, on four datanodes. Every few seconds a
random process is killed with SIGKILL and restarted. Aim: the space that belongs to no file is at most what was
written in the last `limits.unreferenced_chunk_kept_s`, and is free that long after the last kill.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import unreferenced_chunk_kept_s

from .report import show

_DATANODES = 4
_WRITERS = 3
_KILL_INTERVAL_S = (2.0, 6.0)
_LIMIT_S = 300.0
_SEED = 20

#: Writes files at a rate that leaves processor time to others, and keeps the last two.
_WRITER = """
import itertools, os, sys, time
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import PeacefsError

address, name = sys.argv[1:]
piece = os.urandom(1 << 20)
with PeaceFileSystem(address) as files:
    for number in itertools.count():
        try:
            path = f"/{name}/{number % 2}"
            with files.open_for_writing(path, replication=3, overwrite=True, block_bytes=8 << 20) as sink:
                for _ in range(64):
                    sink.write(piece)
                    time.sleep(0.05)
        except PeacefsError:
            time.sleep(0.5)
"""


def main(*, quick: bool = False, kept_s: float | None = None) -> None:
    kills_s = 45.0 if quick else 360.0
    kept_s = kept_s or (15.0 if quick else unreferenced_chunk_kept_s)
    rng = random.Random(_SEED)
    options = [f"--unreferenced-kept={kept_s:g}"]
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(Path(directory), datanodes=_DATANODES, port=0, coordinator_options=options) as cluster,
        PeaceFileSystem(cluster.http_address) as files,
    ):
        writers = {name: _start(cluster, name) for name in (f"writer-{n}" for n in range(_WRITERS))}
        try:
            samples = _kill_for(kills_s, cluster, files, writers, rng)
        finally:
            for writer in writers.values():
                writer.kill()
                writer.wait()
        ended_s = time.monotonic()
        left = _unreferenced_bytes(files)
        gone_s = None
        while time.monotonic() - ended_s < min(_LIMIT_S, 2 * kept_s + 60.0):
            if _unreferenced_bytes(files) == 0:
                gone_s = time.monotonic() - ended_s
                break
            time.sleep(1.0)
        live = 3 * files.content_summary("/").length
    rows = [
        {"what": "for no file at the most, MB", "value": max(samples, default=0) / 1e6},
        {"what": "for no file after the last kill, MB", "value": (left or 0) / 1e6},
        {"what": "of files then, MB", "value": live / 1e6},
        {"what": "gone after the last kill, s", "value": float("nan") if gone_s is None else gone_s},
    ]
    show("dead_writers", f"{kills_s:g} s of kills, kept for {kept_s:g} s without a word of the writer", rows)


def _start(cluster: LocalCluster, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-c", _WRITER, cluster.http_address, name]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def _kill_for(
    seconds: float,
    cluster: LocalCluster,
    files: PeaceFileSystem,
    writers: dict[str, subprocess.Popen[bytes]],
    rng: random.Random,
) -> list[int]:
    """Kill one process after the other. Return the bytes that belonged to no file, at each sample."""
    samples = []
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        time.sleep(rng.uniform(*_KILL_INTERVAL_S))
        victim = rng.choice([*writers, "coordinator", "datanode"])
        if victim in writers:
            writers[victim].kill()
            writers[victim].wait()
            writers[victim] = _start(cluster, victim)
        else:
            member = cluster.coordinator if victim == "coordinator" else rng.choice(cluster.datanodes)
            member.kill()
            cluster.restart(member)
        if (unreferenced := _unreferenced_bytes(files)) is not None:
            samples.append(unreferenced)
    return samples


def _unreferenced_bytes(files: PeaceFileSystem) -> int | None:
    """Return the bytes without a file on all disks; None while the coordinator waits for its datanodes."""
    try:
        status = files.cluster_status()
    except PeacefsError:
        return None
    return int(status["unreferenced"]["bytes"]) if status["ready"] else None
