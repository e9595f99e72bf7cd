"""The index of replicas: one place a chunk, and little memory."""

from __future__ import annotations

import tracemalloc

from peacefs.datanode.store.chunk_index import ChunkIndex, IndexedPlace
from peacefs.protocol.messages import Replica

CHUNK = 0x10000000001


def test_the_highest_version_is_kept_whichever_comes_first() -> None:
    index = ChunkIndex()
    old, new = IndexedPlace(5, 10, 1, 0), IndexedPlace(6, 20, 0, 0)
    assert index.publish(CHUNK, old) is None
    assert index.publish(CHUNK, new) == old
    assert index.publish(CHUNK, old) == old
    assert index.find(CHUNK) == new and new.has_own_file
    assert index.replicas() == [Replica(CHUNK, 6, 20)]


def test_a_place_moves_only_if_nothing_happened_to_it() -> None:
    index = ChunkIndex()
    here, there = IndexedPlace(5, 10, 1, 0), IndexedPlace(5, 10, 2, 300)
    index.publish(CHUNK, here)
    assert index.move(CHUNK, here, there) and not index.move(CHUNK, here, there)
    assert index.in_segment(1) == [] and index.in_segment(2) == [(CHUNK, there)]
    assert not index.forget(CHUNK, here) and index.forget(CHUNK, there)
    assert not index.move(CHUNK, there, here)
    assert len(index) == 0


def test_a_drop_spares_newer_versions() -> None:
    index = ChunkIndex()
    index.publish(CHUNK, IndexedPlace(5, 10))
    assert index.drop(CHUNK, 4) is None
    assert index.drop(CHUNK, 5) == IndexedPlace(5, 10)
    assert index.drop(CHUNK, 5) is None


def test_every_number_of_the_protocol_fits() -> None:
    index = ChunkIndex()
    place = IndexedPlace(2**63 - 1, 2**63 - 1, 2**32 - 1, 2**32 - 1)
    index.publish(2**63 - 1, place)
    assert index.find(2**63 - 1) == place


def test_a_replica_costs_less_than_200_bytes() -> None:
    tracemalloc.start()
    try:
        index = ChunkIndex()
        before, _peak = tracemalloc.get_traced_memory()
        for number in range(50_000):
            index.publish(CHUNK + number, IndexedPlace(CHUNK + number, 1024, 1, number * 1068))
        after, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 50_000 < 200
