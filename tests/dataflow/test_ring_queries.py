"""Queries on a peer ring: refusals, in one line, and a real ring of which a node is killed."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.dataflows.dict_table import DictTable, places_of
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.ring_run import RingRun
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.recovery.ring_settings import RingArrangement
from peacefs.dataflow.ring.arrangement import arrange, by_racks, shared_racks
from peacefs.dataflow.ring.key_places import key_places
from peacefs.dataflow.ring.keyed_table import KeyedTable
from peacefs.dataflow.ring.paged_table import PagedTable, TableKind
from peacefs.dataflow.ring.tokens import RING, Interval
from peacefs.dataflow.techniques.admission import admit
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.protocol.errors import InvalidQuery
from peacefs.state import PageManager

_SCHEMA = pa.schema([("word", pa.string()), ("at", TIME)])
_STATE = {"word": "string", "count": "int64"}


def _count(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    state.add_at(rows.column("word"), 1)
    return rows


def _words() -> Query:
    query = Query("words")
    text = query.source("text", _SCHEMA, time="at").filter(F.col("word") != "stop")
    return text.process(_count, state=_STATE, key="word").sink("out")


# -- refusals ---------------------------------------------------------------------------------------


def _windows() -> Query:
    text = Query("windows").source("text", _SCHEMA, time="at")
    return text.key_by("word").window("1s").aggregate(F.count()).sink("out")


def _undeclared() -> Query:
    return Query("plain").source("text", _SCHEMA, time="at").process(lambda rows, state: rows).sink("out")


def _other_key() -> Query:
    text = Query("other").source("text", _SCHEMA, time="at")
    return text.process(_count, state={"name": "string", "count": "int64"}, key="name").sink("out")


def _used_twice() -> Query:
    text = Query("twice").source("text", _SCHEMA, time="at")
    counted = text.process(_count, state=_STATE, key="word")
    longer = counted.filter(F.col("word") != "")
    return longer.union(counted).process(_count, state=_STATE, key="word").sink("out")


def _around() -> Query:
    query = Query("around")
    counted = query.source("text", _SCHEMA, time="at").process(_count, state=_STATE, key="word")
    return counted.union(query.source("more", _SCHEMA, time="at")).sink("out")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (_used_twice, "comes to the ring twice: give each way a source of its own"),
        (_around, "source 'more' comes to the sink of query 'around' without a function with state by key"),
        (_windows, "is aggregate"),
        (_undeclared, "declare it with state="),
        (_other_key, "have no such column: name it alike"),
    ],
)
def test_peer_ring_refuses_queries_that_it_cannot_cut_by_key(query: Any, reason: str) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(reason)) as refusal:
        admit(query().network(), PeerRing())
    assert "\n" not in refusal.value.message


def test_peer_ring_refuses_fewer_nodes_than_copies() -> None:
    with pytest.raises(InvalidQuery, match="keeps each tuple on 3 nodes, and the ring has 2: start 3 nodes"):
        PeerRing(r=2).check_nodes(2)
    with pytest.raises(InvalidQuery, match="choose r=1"):
        arrange(["node-1", "node-2"], 2)


def test_peer_ring_refuses_tokens_that_collide_or_are_not_on_the_ring() -> None:
    with pytest.raises(InvalidQuery, match="'node-1' and 'node-2' have the same token, 5"):
        arrange(["node-1", "node-2"], 1, RingArrangement(tokens={"node-1": 5, "node-2": 5}))
    with pytest.raises(InvalidQuery, match="is not on the ring"):
        arrange(["node-1", "node-2"], 1, RingArrangement(tokens={"node-1": 5, "node-2": RING}))


@pytest.mark.parametrize(
    ("technique", "nodes", "reason"),
    [
        (
            PeerRing(arrangement=RingArrangement(tokens={"node-1": 5, "node-2": 5, "node-3": 7})),
            3,
            "'node-1' and 'node-2' have the same token",
        ),
        (PeerRing(arrangement=RingArrangement(tokens={"node-1": 5, "node-2": 6})), 3, "'node-3' has no token"),
        (PeerRing(r=2, arrangement=RingArrangement(spares=1)), 3, "the ring has 2: start 4 nodes or more"),
    ],
)
def test_peer_ring_refuses_to_start_what_cannot_be_a_ring(
    technique: PeerRing, nodes: int, reason: str, tmp_path: Path
) -> None:
    host = LocalProcesses(nodes, DirectoryCheckpoints(tmp_path))
    with pytest.raises(InvalidQuery, match=re.escape(reason)) as refusal:
        host.start(_words().network(), technique, {"text": []}, {"out": print})
    assert "\n" not in refusal.value.message


@pytest.mark.parametrize(
    ("sources", "sinks", "reason"),
    [
        ({"text": 5}, {"out": print}, "source 'text' must be an iterable of record batches"),
        ({"text": []}, {"out": 5}, "sink 'out' must be a function of a record batch"),
        ({}, {"out": print}, "source 'text' is in the query or in what was given"),
    ],
)
def test_peer_ring_wants_rows_of_sources_and_functions_of_sinks(
    sources: Any, sinks: Any, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidQuery, match=re.escape(reason)):
        LocalProcesses(2, DirectoryCheckpoints(tmp_path)).start(_words().network(), PeerRing(), sources, sinks)


def test_neighbours_of_a_ring_are_in_different_racks() -> None:
    racks = {f"node-{number}": f"/rack-{number % 3}" for number in range(12)}
    assert not shared_racks(by_racks(list(racks), racks), racks, 2)
    alike = dict.fromkeys(racks, "/rack-0")
    assert len(shared_racks(by_racks(list(racks), alike), alike, 1)) == 12


# -- state in pages -----------------------------------------------------------------------------------


class _Tables:
    """Both kinds of table, given the same changes."""

    def __init__(self) -> None:
        schema = pa.schema([("word", pa.int64()), ("count", pa.int64())])
        pages = PageManager(page_bytes=8192, memory_bytes_max=1 << 26)
        self.paged = PagedTable(TableKind(pages, schema, ("word",)))
        self.twin = DictTable()

    def count(self, words: list[int]) -> None:
        self.paged.add_at(pa.array(words), 1)
        for word in words:
            self.twin.put(word, self.twin.get(word, 0) + 1)

    def both(self) -> tuple[KeyedTable, KeyedTable]:
        return self.paged, self.twin


def _contents(paged: PagedTable) -> dict[int, int]:
    return {
        word: number for batch in paged.scan() for word, number in zip(*batch.to_pydict().values(), strict=True)
    }


def test_paged_table_is_like_its_twin_through_checkpoints_and_splits() -> None:
    tables, chance = _Tables(), np.random.default_rng(7)
    for step in range(12):
        tables.count(chance.integers(0, 300, 200).tolist())
        for each in tables.both():
            each.cut()
        tables.count(chance.integers(0, 300, 50).tolist())
        for each in tables.both():
            each.undo_cut() if step % 3 == 2 else each.merge()
        assert _contents(tables.paged) == tables.twin.items()
    low, high = tables.paged.split(RING // 3)
    both = _contents(low) | _contents(high)
    assert both == tables.twin.items()
    assert max(places_of(_contents(low))) < RING // 3 <= min(places_of(_contents(high)))
    copy = tables.paged.empty()
    for each in tables.both():
        each.cut()
    copy.take(tables.paged.everything(), Interval(0, RING), anew=True)
    assert _contents(copy) == tables.twin.items()


def test_places_of_keys_are_the_same_for_every_type_of_text() -> None:
    words = ["a", "", "peer", "ring", "ä"]
    places = key_places([pa.array(words)])
    assert (places == key_places([pa.array(words, pa.large_string())])).all()
    assert (places[2:4] == key_places([pa.array(words).slice(2, 2)])).all()
    assert (places == key_places([pa.array(words).dictionary_encode()])).all()
    assert len(set(places.tolist())) == 5


# -- a real ring ----------------------------------------------------------------------------------------

#: Effectively never: an ended process is detected at once.
_SILENCE_S = 1000.0


def _first_letter(rows: pa.RecordBatch) -> pa.RecordBatch:
    letters = pc.utf8_slice_codeunits(rows.column("word"), 0, 6)
    return rows.set_column(0, "word", letters)


def _counts(rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
    """Count words, and output each count as it changes: the highest count of a word is the last."""
    state.add_at(rows.column("word"), 1)
    found = state.find(rows.column("word")).column("count")
    return rows.append_column("count", found)


def test_ring_of_processes_runs_two_functions_one_behind_the_other(tmp_path: Path) -> None:
    """A node that has state of both functions is killed in the middle: neither loses a word."""
    batches, size = 30, 200
    chance = np.random.default_rng(5)
    made = [[f"word-{word}" for word in chance.integers(0, 90, size)] for _ in range(batches)]
    host = LocalProcesses(3, DirectoryCheckpoints(tmp_path))
    highest: dict[str, int] = {}
    some = threading.Event()

    def rows() -> Iterator[pa.RecordBatch]:
        for number, words in enumerate(made):
            yield pa.record_batch({"word": words, "at": pa.array([number] * size, TIME)}, schema=_SCHEMA)
            if number == batches // 2:
                assert some.wait(120)
                os.kill(host.pids()["node-2"], signal.SIGKILL)

    def take(rows: pa.RecordBatch) -> None:
        for letter, count in zip(rows.column("word").to_pylist(), rows.column("count").to_pylist(), strict=True):
            highest[letter] = max(highest.get(letter, 0), count)
        some.set()

    query = Query("letters")
    words = query.source("text", _SCHEMA, time="at").process(_count, state=_STATE, key="word")
    schema = pa.schema([*_SCHEMA, ("count", pa.int64())])
    letters = words.map(_first_letter).process(_counts, schema=schema, state=_STATE, key="word")
    letters.sink("out")
    technique = PeerRing(r=1, checkpoint_s=0.3, silence_s=_SILENCE_S)
    with host.start(query.network(), technique, {"text": rows()}, {"out": take}) as run:
        run.wait(200)
    assert highest == Counter(word[:6] for words in made for word in words)


def test_ring_of_processes_outlives_a_sigkill(tmp_path: Path) -> None:
    fed: Counter[str] = Counter()
    got: Counter[str] = Counter()
    chance = np.random.default_rng(3)
    host = LocalProcesses(3, DirectoryCheckpoints(tmp_path))
    killed: list[str] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(40):
            words = [f"word-{word}" for word in chance.integers(0, 500, 300)]
            fed.update(words)
            yield pa.record_batch({"word": words, "at": pa.array([number] * 300, TIME)}, schema=_SCHEMA)
            if number == 20:
                run.wait_output()
                os.kill(host.pids()["node-2"], signal.SIGKILL)
                killed.append("node-2")

    class _Seen:
        """A sink that records whether it has received anything."""

        def __init__(self) -> None:
            import threading

            self.event = threading.Event()

        def __call__(self, batch: pa.RecordBatch) -> None:
            got.update(batch.column("word").to_pylist())
            self.event.set()

        def wait_output(self) -> None:
            assert self.event.wait(120)

    run = _Seen()
    technique = PeerRing(r=1, checkpoint_s=0.3, silence_s=_SILENCE_S)
    with host.start(_words().network(), technique, {"text": rows()}, {"out": run}) as query:
        assert isinstance(query, RingRun)
        query.wait(200)
        assert killed
        assert "node-2" not in query.ring()
    assert got == fed
