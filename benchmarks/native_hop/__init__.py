"""Bound what a native hop could gain: files of 1 KiB through our datanodes, and chunks through hops in C.

The bare hops do only what every hop must do (receive, read, forward, append, sync in groups, acknowledge), so a
datanode with a native hop would take longer than they do. If datanodes took only as long as these hops, a file
would be as cheap as possible; the ratio to the measured cost bounds the gain of a native hop (Amdahl's law). Both
take turns on the same disk. Needs a C compiler.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import show
from benchmarks.small_files import over_client, write_files
from peacefs.client.local_cluster.cluster import LocalCluster

_SOURCE = Path(__file__).with_name("bare_hops.c")
_WRITERS = (1, 16)
_DATANODES = 3
_BUILT_WITHIN_S = 60


class _Turn(NamedTuple):
    """One turn of both: chunks per second, and processor time per chunk in ms, by process."""

    ours: float
    bare: float
    writers_ms: float
    coordinator_ms: float
    datanodes_ms: float
    bare_ms: float

    @property
    def gain(self) -> float:
        others_ms = self.writers_ms + self.coordinator_ms
        return (others_ms + self.datanodes_ms) / (others_ms + self.bare_ms)


def main(*, quick: bool = False) -> None:
    seconds, files_a_writer, rounds = (0.5, 20, 2) if quick else (3.0, 150, 7)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        bare_hops = _built(directory)
        with LocalCluster(directory / "cluster", datanodes=_DATANODES, port=0) as cluster:
            for writers in _WRITERS:
                turns = []
                for turn in range(rounds):
                    cost = write_files(cluster, over_client, writers, files_a_writer, f"/{writers}/{turn}")
                    turns.append(_turn(cost, bare_hops, [str(writers), str(seconds), str(directory)], seconds))
                rows.append(_row(writers, turns))
    title = f"files of 1 KiB, three replicas, fsync; the median of {rounds} turns, alternating"
    show("native_hop", title, rows)


def _built(directory: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("the bare hops are of C, and there is no cc on the path: install a C compiler")
    program = directory / "bare_hops"
    subprocess.run([compiler, "-O2", "-o", program, _SOURCE], check=True, timeout=_BUILT_WITHIN_S)
    return program


def _turn(cost: dict[str, float], bare_hops: Path, arguments: list[str], seconds: float) -> _Turn:
    command = [str(bare_hops), *arguments]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 60).stdout
    acknowledged, taken_s, cpu_s = map(float, told.split())
    return _Turn(
        cost["files/s"],
        acknowledged / taken_s,
        cost["CPU ms/file: writers"],
        cost["CPU ms/file: coordinator"],
        cost["CPU ms/file: datanodes"],
        cpu_s / acknowledged * 1000,
    )


def _row(writers: int, turns: list[_Turn]) -> dict[str, object]:
    middle = _Turn(*(statistics.median(figures) for figures in zip(*turns, strict=True)))
    gains = sorted(turn.gain for turn in turns)
    return {
        "writers": writers,
        "files/s": middle.ours,
        "bare hops, chunks/s": middle.bare,
        "CPU ms: writers": middle.writers_ms,
        "coordinator": middle.coordinator_ms,
        "datanodes": middle.datanodes_ms,
        "bare hops": middle.bare_ms,
        "most that a native hop could gain": f"{statistics.median(gains):.2f} ({gains[0]:.2f} to {gains[-1]:.2f})",
    }
