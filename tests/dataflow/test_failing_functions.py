"""User functions that fail: the query stops with one line that names the place, and never hangs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.dataflows import SCHEMA, input_rows
from support.waiting import PATIENCE_S

from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.model import batches
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.ring.hashed_rows import HashedRows
from peacefs.dataflow.ring.program import Reducing, plan_of
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.protocol.errors import InvalidQuery, OperatorFailed, QueryFailed

_ROWS = input_rows(1, batches=3, size=4)
Function = Callable[[pa.RecordBatch, Any], Any]


def _keyed(function: Function) -> Network:
    query = Query("failing")
    rows = query.source("in", SCHEMA, time="at")
    rows.process(function, state={"key": "string", "count": "int64"}, key="key").sink("out")
    return query.network()


def _raising(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    raise ValueError("bad\n   row")


def _exiting(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    sys.exit("enough")


_FAILING: list[tuple[Function, str]] = [
    (_raising, r"ValueError: bad row \(test_failing_functions.py, line \d+\)$"),
    (_exiting, r"SystemExit: enough \(test_failing_functions.py, line \d+\)$"),
    (lambda rows, state: None, r"returned NoneType: a pyarrow.RecordBatch is wanted$"),
    (lambda rows, state: rows.select(["at", "key", "value"]), r"where \(key: string, at: .*\) was promised$"),
    (
        lambda rows, state: rows.set_column(1, "at", pa.nulls(rows.num_rows, SCHEMA.field("at").type)),
        r"the time column 'at' with nulls: give every row a time$",
    ),
]


@pytest.mark.parametrize(("function", "said"), _FAILING, ids=[said for _, said in _FAILING])
def test_failing_function_is_told_in_one_line(function: Function, said: str) -> None:
    with pytest.raises(QueryFailed, match=r"^operator 'process-1' failed on rows 1 to 4 of 'in': .*" + said):
        SeededRun(_keyed(function), SGuard(interval_s=1), {"in": _ROWS}, seed=1).run()


@pytest.mark.parametrize(("function", "said"), _FAILING, ids=[said for _, said in _FAILING])
def test_failing_function_on_a_ring_is_told_in_one_line(function: Function, said: str) -> None:
    reducing = Reducing(plan_of(_keyed(function)))
    state: Any = None
    with pytest.raises(OperatorFailed, match=r"^operator 'process-1' failed: .*" + said):
        list(reducing("in", state, HashedRows.sort(np.arange(4), _ROWS[0])))


def _run(
    directory: Path, network: Network, technique: Technique, source: Any, sink: Callable[[pa.RecordBatch], None]
) -> None:
    host = LocalProcesses(2, DirectoryCheckpoints(directory), node_timeout_s=100.0)
    with host.start(network, technique, {"in": source}, {"out": sink}) as run:
        run.wait(PATIENCE_S)


@pytest.mark.cluster
@pytest.mark.parametrize("technique", [SGuard(interval_s=1), PeerRing()], ids=lambda technique: technique.name)
def test_failing_sink_is_called_once(technique: Technique, tmp_path: Path) -> None:
    calls = []

    def leave(rows: pa.RecordBatch) -> None:
        calls.append(rows)
        sys.exit("no room")

    with pytest.raises(QueryFailed, match=r"^sink 'out' failed: SystemExit: no room \(.*, line \d+\)$"):
        _run(tmp_path, _keyed(lambda rows, state: rows), technique, _ROWS, leave)
    assert len(calls) == 1


@pytest.mark.cluster
def test_source_that_gives_nothing_fails_and_does_not_end(tmp_path: Path) -> None:
    def source() -> Iterator[pa.RecordBatch | None]:
        yield from _ROWS
        yield None
        yield from _ROWS

    with pytest.raises(QueryFailed, match=r"source 'in' failed: rows come as a .*, and not as None"):
        _run(tmp_path, _keyed(lambda rows, state: rows), SGuard(interval_s=1), source(), lambda rows: None)


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_function_that_ends_its_process_stops_the_query(tmp_path: Path) -> None:
    """The row would crash every node that handles it."""

    def aborting(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        os._exit(3)

    with pytest.raises(QueryFailed, match="unit 'failing' has begun 10 times in a row"):
        _run(tmp_path, _keyed(aborting), SGuard(interval_s=1), _ROWS, lambda rows: None)


@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize("technique", [SGuard(interval_s=1), PeerRing()], ids=lambda technique: technique.name)
def test_function_that_no_node_can_load_stops_the_query(technique: Technique, tmp_path: Path) -> None:
    class Unloadable:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.path.join, ()

        def __call__(self, rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
            return rows

    with pytest.raises(QueryFailed, match=r"node 'node-\d' has ended 5 times in a row before it could begin"):
        _run(tmp_path, _keyed(Unloadable()), technique, _ROWS, lambda rows: None)


def test_function_that_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        with lock:
            return rows

    with pytest.raises(InvalidQuery, match="'process-1' cannot be sent to nodes: TypeError: cannot"):
        _run(tmp_path, _keyed(locked), SGuard(interval_s=1), _ROWS, lambda rows: None)


@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize("technique", [SGuard(interval_s=1), PeerRing()], ids=lambda technique: technique.name)
def test_source_that_waits_for_ever_holds_no_query_up(technique: Technique, tmp_path: Path) -> None:
    never = threading.Event()
    asked = threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        yield from _ROWS
        asked.set()
        never.wait()

    host = LocalProcesses(2, DirectoryCheckpoints(tmp_path), node_timeout_s=100.0)
    network = _keyed(lambda rows, state: rows)
    run = host.start(network, technique, {"in": source()}, {"out": lambda rows: None})
    closing = threading.Thread(target=run.close, daemon=True)
    try:
        assert asked.wait(PATIENCE_S)
        closing.start()
        closing.join(PATIENCE_S)
        assert not closing.is_alive(), "a query is closed whatever its source waits for"
    finally:
        never.set()


def _passed(network: Network, rows: pa.RecordBatch) -> int:
    outcome = SeededRun(network, SGuard(interval_s=1), {"in": [rows]}, seed=1).run()
    assert max(each.nbytes for each in outcome.sinks["out"]) <= batches.dataflow_batch_bytes_max
    return len(outcome.rows("out"))


def test_batch_that_is_longer_than_a_message_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of a message is limited; without a split, the connection would break again and again."""
    monkeypatch.setattr(batches, "dataflow_batch_bytes_max", 500)
    monkeypatch.setattr(batches, "dataflow_row_bytes_max", 1000)

    def short(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        return rows.set_column(0, "key", pa.array(["a"] * rows.num_rows))

    def longer(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        return rows.set_column(0, "key", pa.array(["a" * 300] * rows.num_rows))

    (many,) = input_rows(1, batches=1, size=100)
    assert _passed(_keyed(longer), many) == 100
    assert _passed(_keyed(short), longer(many, None)) == 100
    too_long = many.slice(0, 1).set_column(0, "key", pa.array(["a" * 1000]))
    with pytest.raises(OperatorFailed, match=r"a row of 'in' has 1,\d+ bytes, and 1,000 can be sent: cut it"):
        _passed(_keyed(short), too_long)


@pytest.mark.cluster
def test_function_of_a_module_beside_the_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_the_program.py").write_text("def same(rows, state):\n    return rows\n")
    monkeypatch.syspath_prepend(tmp_path)
    import beside_the_program  # type: ignore[import-not-found]

    taken: list[pa.RecordBatch] = []
    network = _keyed(beside_the_program.same)
    _run(tmp_path / "checkpoints", network, SGuard(interval_s=1), _ROWS, taken.append)
    assert sum(rows.num_rows for rows in taken) == 12
