"""Measure a micro-batch with its checkpoint on peacefs (r = 3) and on `file://`, alternating in one run.

A stateful query (a count per key) with 1, 8 and 32 shuffle partitions, with state in RocksDB with change logs or
in Spark's HDFS-backed store, alone or four at once in one session. The variants take turns of a few batches. Their
first turns do not count, and neither does the first batch of each turn, which loads the state; its time, from the
query's start to its first commit, is reported separately.

Then a query with `--state-mebibytes N` of new state in one batch, uploaded in that batch's commit (no change
logs). Before and after it, bare chains write as many bytes with the same fsyncs, one per store.

With `--tls` instead: batches without guards, with tokens, and over TLS (`spark_guards`).

The guarantees differ: peacefs acknowledges after an fsync on three datanodes, `file://` never syncs.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.spark_connector.demo.scratch import scratch_environment
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.session import configure

from . import bare_chain, spark_guards
from .report import show
from .stateful_query import Progress, StatefulQuery, Turn

_MIB = 1 << 20
_CORES = 2
#: State store, partitions, concurrent queries.
Kind = tuple[str, int, int]
_SMALL: tuple[Kind, ...] = (
    ("RocksDB", 1, 1),
    ("RocksDB", 8, 1),
    ("RocksDB", 32, 1),
    ("RocksDB", 8, 4),
    ("HDFS-backed", 8, 1),
)
# No new round begins after this time.
_SECONDS_MAX = 300.0
_STATE_MEBIBYTES = 64
_KEY_BYTES = 4096
_CHANGELOGS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


def main(*, quick: bool = False, state_mebibytes: int | None = None, tls: bool = False) -> None:
    if tls:
        spark_guards.compare(quick=quick)
        return
    counted, turn = (2, 2) if quick else (24, 6)
    mebibytes = state_mebibytes or (8 if quick else _STATE_MEBIBYTES)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with LocalCluster(directory / "cluster", datanodes=4, port=0) as cluster:
            spark = start_spark(cluster.http_address, directory)
            places = {"peacefs": f"{cluster.webhdfs_uri}/benchmark", "file://": f"file://{directory}/checkpoints"}
            try:
                small = _small_state(spark, directory, places, _SMALL, counted, turn)
                large = _large_state(spark, directory, places, mebibytes)
            finally:
                spark.stop()
    show("spark_batches", "stateful micro-batches: median ms", small)
    show("spark_state", f"a batch that makes {mebibytes} MiB of new state, {_CORES} stores", large)


def compare_places(
    address: str, directory: Path, places: dict[str, str], kinds: Sequence[Kind], counted: int, turn: int
) -> list[dict[str, Any]]:
    """Return a row for each kind of batch in each place; `address` is a coordinator's, for Spark's settings."""
    spark = start_spark(address, directory)
    try:
        return _small_state(spark, directory, places, kinds, counted, turn)
    finally:
        spark.stop()


def start_spark(address: str, directory: Path) -> SparkSession:
    os.environ.update(
        java_environment(find_java(), directory / "java"),
        **scratch_environment(directory / "scratch"),
        SPARK_LOCAL_IP="127.0.0.1",
    )
    session: SparkSession = (
        configure(SparkSession.builder, address)
        .master(f"local[{_CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


# -- small state -----------------------------------------------------------------------------------


@dataclass
class _Variant:
    """Concurrent queries with their checkpoints in one place."""

    store: str
    partitions: int
    place: str
    queries: list[StatefulQuery]
    restarts_ms: list[float] = field(default_factory=list)
    batches: list[Progress] = field(default_factory=list)

    def take_turn(self, rng: random.Random, batches: int) -> list[Turn]:
        """Run one batch that does not count, then `batches` batches."""
        for query in self.queries:
            for _ in range(batches + 1):
                query.add_input(rng)
        return [started.turn() for started in [query.start() for query in self.queries]]

    def keep(self, turns: list[Turn]) -> None:
        for turn in turns:
            self.restarts_ms.append(turn.restart_ms)
            self.batches += turn.batches

    def row(self) -> dict[str, Any]:
        durations = [batch["durationMs"] for batch in self.batches]
        return {
            "state store": self.store,
            "partitions": self.partitions,
            "queries": len(self.queries),
            "checkpoint": self.place,
            "batches": len(self.batches),
            "batch": _median(spent["triggerExecution"] for spent in durations),
            "log writes": _median(spent["walCommit"] + spent["commitOffsets"] for spent in durations),
            "a store's commit": _median(map(_store_commit_ms, self.batches)),
            "start to commit": _median(self.restarts_ms),
        }


def _small_state(
    spark: SparkSession,
    directory: Path,
    places: dict[str, str],
    kinds: Sequence[Kind],
    counted: int,
    turn: int,
) -> list[dict[str, Any]]:
    began = time.monotonic()
    rng = random.Random(1)
    variants = list(_variants(spark, directory, places, kinds))
    for variant in variants:
        variant.take_turn(rng, turn)
    while not variants[0].batches or (
        len(variants[0].batches) < counted and time.monotonic() - began < _SECONDS_MAX
    ):
        for variant in rng.sample(variants, len(variants)):
            variant.keep(variant.take_turn(rng, turn))
    rows = [variant.row() for variant in variants]
    local = {_kind(row): row["batch"] for row in rows if row["checkpoint"] == "file://"}
    return [{**row, "of file://": row["batch"] / local[_kind(row)]} for row in rows]


def _variants(
    spark: SparkSession, directory: Path, places: dict[str, str], kinds: Sequence[Kind]
) -> Iterator[_Variant]:
    for store, partitions, at_once in kinds:
        for place, root in places.items():
            names = [f"{place.strip(':/')}-{store}-{partitions}-{at_once}-{number}" for number in range(at_once)]
            queries = [
                StatefulQuery(spark, store, partitions, directory / name, f"{root}/{name}") for name in names
            ]
            yield _Variant(store, partitions, place, queries)


def _kind(row: dict[str, Any]) -> Kind:
    return row["state store"], row["partitions"], row["queries"]


def _store_commit_ms(batch: Progress) -> float:
    (operator,) = batch["stateOperators"]
    spent: float = operator["commitTimeMs"] / operator["numStateStoreInstances"]
    return spent


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


# -- large state -----------------------------------------------------------------------------------


def _large_state(
    spark: SparkSession, directory: Path, places: dict[str, str], mebibytes: int
) -> list[dict[str, Any]]:
    spark.conf.set(_CHANGELOGS, "false")
    rows: list[dict[str, Any]] = []
    chain = _chain_mebibytes_a_s(mebibytes, directory)
    for place, root in places.items():
        query = StatefulQuery(
            spark,
            "RocksDB",
            _CORES,
            directory / f"large-{len(rows)}",
            f"{root}/large",
            key_bytes=_KEY_BYTES,
        )
        grown = _grow(query, mebibytes)
        before_it, chain = chain, _chain_mebibytes_a_s(mebibytes, directory)
        beside = (before_it + chain) / 2
        of_chain = grown["MiB/s a store"] / beside
        rows.append({"checkpoint": place, **grown, "a bare chain, MiB/s": beside, "of the chain": of_chain})
    return rows


def _grow(query: StatefulQuery, mebibytes: int) -> dict[str, Any]:
    """Run one batch that opens the stores and one that fills them; then start again, which loads them."""
    rng = random.Random(1)
    rows = mebibytes * _MIB // _KEY_BYTES
    query.add_input(rng)
    query.add_input(rng, rows, keys=1 << 62)
    (batch,) = query.start().turn().batches
    query.add_input(rng)
    again = query.start().turn()
    (operator,) = batch["stateOperators"]
    metrics = operator["customMetrics"]
    copied = metrics["rocksdbBytesCopied"] / _MIB
    return {
        "MiB uploaded": copied,
        "batch, s": batch["durationMs"]["triggerExecution"] / 1000,
        "upload, s a store": metrics["rocksdbCommitFileSyncLatencyMs"] / _CORES / 1000,
        "MiB/s a store": copied / (metrics["rocksdbCommitFileSyncLatencyMs"] / 1000),
        "start to commit, s": again.restart_ms / 1000,
    }


def _chain_mebibytes_a_s(mebibytes: int, directory: Path) -> float:
    """Measure as many concurrent bare chains as there are stores."""
    share = mebibytes * _MIB // _CORES
    start = threading.Barrier(_CORES)
    seconds: list[float] = []
    chains = [
        threading.Thread(target=lambda: seconds.append(bare_chain.run(share, 3, directory, start=start)))
        for _ in range(_CORES)
    ]
    for chain in chains:
        chain.start()
    for chain in chains:
        chain.join()
    return share / _MIB / statistics.mean(seconds)
