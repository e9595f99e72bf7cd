"""An overloaded node is relieved, also if its waiting rows have not reached it yet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.dataflows.dict_table import DictTable
from peacefs.dataflow import Query
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.ring_run import RingRun
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.recovery.ring_settings import RingSettings
from peacefs.dataflow.ring.arrangement import arrange
from peacefs.dataflow.ring.effects import RingEffect, SendTo
from peacefs.dataflow.ring.key_places import key_places
from peacefs.dataflow.ring.mapper import MapperCore
from peacefs.dataflow.ring.messages import Relieve, Tuples
from peacefs.dataflow.ring.reducer import ReducerCore
from peacefs.dataflow.ring.tokens import RING, Interval
from peacefs.dataflow.ring.view import RingView
from peacefs.dataflow.techniques.peer_ring import PeerRing
from tests.support.ring_runs import count, hashed

_SCHEMA = pa.schema([("word", pa.int64()), ("at", TIME)])
_SETTINGS = RingSettings(r=1, queue_rows_high=60, queue_rows_low=20, balance_s=0.5)
_SIX_WORDS = hashed([1, 2, 3, 4, 5, 6])


def _asked(effects: list[RingEffect]) -> list[Relieve]:
    return [each.message for each in effects if isinstance(each, SendTo) and isinstance(each.message, Relieve)]


def _node_told_of(unheld_rows: int) -> ReducerCore:
    """Return a node with an empty queue; a mapper has reported this many unacknowledged rows for it."""
    core = ReducerCore(0.0, "node-1", arrange(["node-1", "node-2"], 1), ["mapper-1"], count, DictTable, _SETTINGS)
    whole = (Interval(0, RING),)
    core.received(0.1, "edge", Tuples("mapper-1", 1, 0, 1, 0, whole, _SIX_WORDS, unheld_rows))
    core.work(0.1)
    return core


def test_ring_node_asks_for_relief_for_rows_that_it_has_not_read() -> None:
    """Half of the rows that a mapper reports are for a neighbour."""
    assert _asked(_node_told_of(120).tick(1.0, busy=0.9)) == [Relieve(("node-1",))]
    assert _asked(_node_told_of(118).tick(1.0, busy=0.9)) == []


def test_ring_node_that_has_caught_up_forgets_what_mappers_said_last() -> None:
    core = _node_told_of(120)
    assert _asked(core.tick(1.0, busy=0.1)) == []
    assert core.waiting_rows == 0
    assert _asked(core.tick(2.0, busy=0.9)) == []


def test_mapper_tells_nodes_how_many_rows_they_have_not_acknowledged() -> None:
    mapper = MapperCore("mapper-1", RingView(1, arrange(["node-1", "node-2"], 1)), RingSettings(r=1))
    told = [dict(mapper.offer(0, _SIX_WORDS)) for _ in range(3)]
    assert [each["node-1"].unheld_rows for each in told] == [0, 6, 12]
    mapper.held("node-1", told[1]["node-1"].serial)
    after = dict(mapper.offer(0, _SIX_WORDS))
    assert (after["node-1"].unheld_rows, after["node-2"].unheld_rows) == (6, 18)
    mapper.disconnected("node-2")
    resent = [message for node, message in mapper.offer(0, _SIX_WORDS) if node == "node-2"]
    assert resent[0].unheld_rows == 0


def test_mapper_has_batches_acknowledged_whose_feeds_became_one_meanwhile() -> None:
    """A node moves; it received its interval, and the new part of the interval, in separate messages."""
    one, two = arrange(["node-1", "node-2"], 0)
    view = RingView(0, [one, two])
    mapper = MapperCore("mapper-1", view, RingSettings(r=0))
    many = hashed(list(range(64)))
    told = [message for _ in range(3) for _, message in mapper.offer(0, many)]
    view.merge([replace(two, moves_to=RING // 4, version=2)])
    mapper.assign()
    told += [message for _, message in mapper.progress()]
    view.merge([replace(two, token=RING // 4, moves_to=None, version=3)])
    mapper.assign()
    told += [message for _, message in mapper.progress()]
    for node in ("node-1", "node-2"):
        mapper.held(node, max(each.serial for each in told))
    list(mapper.progress())
    assert mapper.held_bytes == 0


# -- real processes -------------------------------------------------------------------------------------

_ROW_S = 10e-6


def _count_slowly(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    state.add_at(rows.column("word"), 1)
    time.sleep(len(rows) * _ROW_S)
    return rows.slice(0, 0)


def _hot_rows(tokens_before: dict[str, int | None], run: list[RingRun]) -> Iterator[pa.RecordBatch]:
    """Yield words of one node's interval, faster than the node can count them, until a token has moved."""
    words = np.arange(3000)
    hot = words[key_places([pa.array(words)]) < RING // 3]
    chance = np.random.default_rng(1)
    for _ in range(300):
        given = chance.choice(hot, 2000)
        yield pa.record_batch([pa.array(given), pa.array(np.zeros(2000, np.int64)).cast(TIME)], schema=_SCHEMA)
    while not any(member.token != tokens_before[name] for name, member in run[0].members().items()):
        time.sleep(0.05)


def test_overloaded_process_is_relieved_by_its_neighbour(tmp_path: Path) -> None:
    """Most rows wait in sockets and in the sending program, where the node cannot count them."""
    text = Query("words").source("text", _SCHEMA, time="at")
    query = text.process(_count_slowly, state={"word": "int64", "count": "int64"}, key="word").sink("out")
    technique = PeerRing(r=1, silence_s=60.0)
    members = arrange([f"node-{number}" for number in (1, 2, 3)], 1)
    before: dict[str, int | None] = {member.name: member.token for member in members}
    runs: list[RingRun] = []
    host = LocalProcesses(3, DirectoryCheckpoints(tmp_path))
    rows = _hot_rows(before, runs)
    with host.start(query.network(), technique, {"text": rows}, {"out": lambda _: None}) as run:
        assert isinstance(run, RingRun)
        runs.append(run)
        run.wait(300.0)
        assert {member.name for member in run.members().values() if member.token != before[member.name]}
