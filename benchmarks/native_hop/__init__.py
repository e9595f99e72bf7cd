"""What a native hop could gain: files of 1 KiB through our datanodes, and chunks as large through bare hops in C.

The bare hops do what any hop has to (take, read, forward, append, sync in groups, acknowledge) and nothing else,
so a datanode with a native hop would take longer than they do. A file whose datanodes took no longer than they do
is the cheapest that there could be, and the ratio of the two the most that a native hop could gain (Amdahl's law).
Both take turns on the same disk. Wants a C compiler.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.processor_time import cluster_cpu_s
from benchmarks.report import show
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster

_SOURCE = Path(__file__).with_name("bare_hops.c")
_DATA = bytes(1024)
_WRITERS = (1, 16)
_DATANODES = 3
_BUILT_WITHIN_S = 60


class _Turn(NamedTuple):
    """One turn of both: chunks a second, and the processor time of one in ms by who took it."""

    ours: float
    bare: float
    clients_ms: float
    coordinator_ms: float
    datanodes_ms: float
    bare_ms: float

    @property
    def gain(self) -> float:
        others_ms = self.clients_ms + self.coordinator_ms
        return (others_ms + self.datanodes_ms) / (others_ms + self.bare_ms)


def main(*, quick: bool = False) -> None:
    seconds, rounds = (0.5, 2) if quick else (3.0, 7)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        bare_hops = _built(directory)
        with (
            LocalCluster(directory / "cluster", datanodes=_DATANODES, port=0) as cluster,
            PeaceFileSystem(cluster.http_address) as files,
        ):
            rows = []
            for writers in _WRITERS:
                _write(cluster, files, writers, seconds, f"/warm-{writers}")
                turns = [
                    _turn(cluster, files, bare_hops, directory, writers, seconds, f"/{writers}-{turn}")
                    for turn in range(rounds)
                ]
                rows.append(_row(writers, turns))
    title = f"files of 1 KiB, three replicas, fsync; the median of {rounds} turns of {seconds:g} s"
    show("native_hop", title, rows)


def _built(directory: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("the bare hops are of C, and there is no cc on the path: install a C compiler")
    program = directory / "bare_hops"
    subprocess.run([compiler, "-O2", "-o", program, _SOURCE], check=True, timeout=_BUILT_WITHIN_S)
    return program


def _turn(
    cluster: LocalCluster,
    files: PeaceFileSystem,
    bare_hops: Path,
    directory: Path,
    writers: int,
    seconds: float,
    path: str,
) -> _Turn:
    rate, cpu_ms = _write(cluster, files, writers, seconds, path)
    command = [str(bare_hops), str(writers), str(seconds), str(directory)]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 60).stdout
    acknowledged, taken_s, bare_cpu_s = map(float, told.split())
    return _Turn(
        rate,
        acknowledged / taken_s,
        cpu_ms["clients"],
        cpu_ms["coordinator"],
        cpu_ms["datanodes"],
        bare_cpu_s / acknowledged * 1000,
    )


def _write(
    cluster: LocalCluster, files: PeaceFileSystem, writers: int, seconds: float, path: str
) -> tuple[float, dict[str, float]]:
    """Return files a second, and the processor time of one in ms."""
    written = [0] * writers
    before_s = cluster_cpu_s(cluster, "clients")
    begun_s = time.monotonic()

    def work(writer: int) -> None:
        while time.monotonic() - begun_s < seconds:
            files.write(f"{path}/{writer}-{written[writer]}", _DATA, replication=_DATANODES)
            written[writer] += 1

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken_s = time.monotonic() - begun_s
    after_s = cluster_cpu_s(cluster, "clients")
    count = sum(written)
    assert all(written), "a writer failed"
    return count / taken_s, {who: (after_s[who] - before_s[who]) / count * 1000 for who in before_s}


def _row(writers: int, turns: list[_Turn]) -> dict[str, object]:
    middle = _Turn(*(statistics.median(figures) for figures in zip(*turns, strict=True)))
    gains = sorted(turn.gain for turn in turns)
    return {
        "writers": writers,
        "files/s": middle.ours,
        "bare hops, chunks/s": middle.bare,
        "CPU ms: clients": middle.clients_ms,
        "coordinator": middle.coordinator_ms,
        "datanodes": middle.datanodes_ms,
        "bare hops": middle.bare_ms,
        "most that a native hop could gain": f"{statistics.median(gains):.2f} ({gains[0]:.2f} to {gains[-1]:.2f})",
    }
