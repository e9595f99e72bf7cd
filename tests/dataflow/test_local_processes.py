"""Local processes as nodes, some of which are killed: the output is that of a run without a failure."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from support.dataflows import SAMPLES, Row, Sample, repeatable
from support.waiting import wait_until

from benchmarks.dataflows.seeded import SeededRun
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.dataflow import Query
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints, UnitCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.protocol.errors import InvalidQuery, QueryFailed

# Ends of processes are detected at once; silence must not count as death on a busy machine.
_PATIENT_S = 100.0


class Played:
    """A run of a sample whose source waits in the middle until something was done."""

    def __init__(
        self, sample: Sample, checkpoints: UnitCheckpoints, *, in_the_middle: Callable[[Played], None]
    ) -> None:
        self.sample = sample
        self.rows: list[Row] = []
        self._in_the_middle = in_the_middle
        self._begun = threading.Event()
        self.host = host = LocalProcesses(2, checkpoints, node_timeout_s=_PATIENT_S)
        batches = sample.rows(1)["in"]
        with host.start(
            sample.network, SGuard(interval_s=0.1), {"in": self._feed(batches)}, {"out": self._take}
        ) as run:
            self.run = run
            self._begun.set()
            run.wait(_PATIENT_S)

    def _feed(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        half = len(batches) // 2
        yield from batches[:half]
        self._begun.wait(_PATIENT_S)
        self._in_the_middle(self)
        yield from batches[half:]

    def _take(self, rows: pa.RecordBatch) -> None:
        self.rows += zip(*(column.to_pylist() for column in rows.columns), strict=True)


def kill_the_node_of(unit: str) -> Callable[[Played], None]:
    def kill(played: Played) -> None:
        wait_until(lambda: played.run.checkpoint_of(unit), f"a checkpoint of unit {unit}")
        node = played.run.place_of(unit)
        assert node is not None
        os.kill(played.host.pids()[node], signal.SIGKILL)

    return kill


def expected_rows(sample: Sample) -> list[Row]:
    return SeededRun(sample.network, SGuard(interval_s=1), sample.rows(1), seed=1).run().rows("out")


@pytest.mark.cluster
@pytest.mark.parametrize("unit", ["first", "second"])
def test_process_that_is_killed_is_made_up_for(unit: str, tmp_path: Path) -> None:
    """The unit restarts on the other node from its last checkpoint; nothing is lost, repeated or changed."""
    sample = SAMPLES[OperatorClass.CONVERGENT_CAPABLE]()
    played = Played(sample, DirectoryCheckpoints(tmp_path), in_the_middle=kill_the_node_of(unit))
    assert played.rows == expected_rows(sample)


@pytest.mark.cluster
def test_process_that_is_killed_is_made_up_for_from_peacefs(shared_cluster: LocalCluster, home: str) -> None:
    sample = SAMPLES[OperatorClass.CONVERGENT_CAPABLE]()
    checkpoints = PeaceCheckpoints(shared_cluster.http_address, home, user="alice")
    try:
        played = Played(sample, checkpoints, in_the_middle=kill_the_node_of("second"))
    finally:
        checkpoints.close()
    assert played.rows == expected_rows(sample)


@pytest.mark.cluster
def test_processes_end_with_the_run(tmp_path: Path) -> None:
    pids: list[int] = []

    def note(played: Played) -> None:
        wait_until(lambda: len(played.host.pids()) == 2, "both nodes")
        pids.extend(played.host.pids().values())

    Played(repeatable(), DirectoryCheckpoints(tmp_path), in_the_middle=note)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.cluster
def test_operator_that_raises_in_a_process_stops_the_query(tmp_path: Path) -> None:
    sample = repeatable()
    query = Query("q")
    schema = sample.network.sources[0].type.schema
    query.source("in", schema, time="at").map(lambda rows: rows.slice(1), name="short").sink("out")
    host = LocalProcesses(1, DirectoryCheckpoints(tmp_path), node_timeout_s=_PATIENT_S)
    with (
        host.start(query.network(), SGuard(interval_s=1), {"in": sample.rows(1)["in"]}, {"out": print}) as run,
        pytest.raises(QueryFailed, match=r"operator 'short' failed on rows 1 to 4 of 'in'.*use flat_map"),
    ):
        run.wait(_PATIENT_S)


def test_host_wants_every_source_and_sink(tmp_path: Path) -> None:
    with pytest.raises(InvalidQuery, match="sink 'out' is in the query or in what was given"):
        LocalProcesses(1, DirectoryCheckpoints(tmp_path)).start(
            repeatable().network, SGuard(interval_s=1), {"in": []}, {}
        )


_MORE = pa.record_batch({"n": [1]})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([_MORE], "source 'in' failed: column"),
        ([1], "source 'in' failed: rows come as a pyarrow.RecordBatch, and not as int"),
        ((1 / 0 for _ in "x"), "source 'in' failed: ZeroDivisionError"),
    ],
)
def test_rows_of_a_source_that_do_not_fit_stop_the_query(tmp_path: Path, given: object, said: str) -> None:
    sample = repeatable()
    host = LocalProcesses(1, DirectoryCheckpoints(tmp_path), node_timeout_s=_PATIENT_S)
    sources = {"in": cast("list[pa.RecordBatch]", given)}
    with (
        host.start(sample.network, SGuard(interval_s=1), sources, {"out": print}) as run,
        pytest.raises(QueryFailed, match=said),
    ):
        run.wait(_PATIENT_S)


def test_host_wants_rows_of_sources_and_functions_of_sinks(tmp_path: Path) -> None:
    network, host = repeatable().network, LocalProcesses(1, DirectoryCheckpoints(tmp_path))
    nothing = cast("list[pa.RecordBatch]", None)
    with pytest.raises(InvalidQuery, match="source 'in' must be an iterable of record batches"):
        host.start(network, SGuard(interval_s=1), {"in": nothing}, {"out": print})
    with pytest.raises(InvalidQuery, match="sink 'out' must be a function of a record batch"):
        host.start(network, SGuard(interval_s=1), {"in": []}, {"out": nothing})  # type: ignore[dict-item]
