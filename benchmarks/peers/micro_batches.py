"""Micro-batches of Spark with checkpoints on each system that Hadoop's client can reach, and on `file://`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.report import show
from benchmarks.spark_batches import compare_places

from .systems import WEBHDFS, System

_KINDS = (("RocksDB", 8, 1), ("HDFS-backed", 8, 1))


def compare_batches(directory: Path, systems: Sequence[System], *, quick: bool) -> None:
    """Show median durations of batches, and of starts until the first commit. HDFS syncs only names here."""
    counted, turn = (2, 2) if quick else (48, 6)
    places = {each.name: f"{each.hadoop_uri}/batches" for each in systems if each.hadoop_uri}
    places["file://"] = f"file://{directory}/batches"
    (coordinator,) = (urlsplit(each.hadoop_uri).netloc for each in systems if each.name == WEBHDFS)
    rows = compare_places(f"http://{coordinator}", directory, places, _KINDS, counted, turn)
    show("peers_batches", "stateful micro-batches: median ms", rows)
