"""Preallocated chunks: each can be used once, for a short time, by a client that writes file after file."""

from __future__ import annotations

import itertools

from peacefs.client.transfer.small_writes import (
    PreallocatedChunks,
    preallocated_chunk_kept_s,
    preallocated_chunks_max,
)
from peacefs.protocol.messages import Allocated


def preallocated() -> PreallocatedChunks:
    numbers = itertools.count(1)
    return PreallocatedChunks(new_id=lambda: f"request {next(numbers)}")


def chunk(number: int) -> Allocated:
    return Allocated(number, 1, [], f"token {number}")


def taken(from_stock: PreallocatedChunks, now_s: float, replication: int = 0) -> tuple[str, int] | None:
    placed = from_stock.take(now_s, replication)
    return None if placed is None else (placed.request_id, placed.allocated.chunk)


def test_each_is_taken_once_under_its_own_id_and_the_latest_first() -> None:
    held = preallocated()
    held.put(1.0, 0, "a", chunk(1))
    held.put(2.0, 0, "b", chunk(2))
    assert [taken(held, 3.0) for _ in range(3)] == [("b", 2), ("a", 1), None]


def test_preallocated_chunk_that_is_too_old_is_never_taken() -> None:
    held = preallocated()
    held.put(1.0, 0, "old", chunk(1))
    held.put(3.0, 0, "new", chunk(2))
    assert taken(held, 1.0 + preallocated_chunk_kept_s) == ("new", 2)
    held.put(3.0, 0, "new", chunk(2))
    assert taken(held, 3.0 + preallocated_chunk_kept_s) is None
    assert taken(held, 3.0) is None, "it is gone"


def test_those_of_another_replication_are_left_where_they_are() -> None:
    held = preallocated()
    held.put(1.0, 2, "a", chunk(1))
    assert taken(held, 1.0) is None and taken(held, 1.0, 3) is None
    assert taken(held, 1.0, 2) == ("a", 1)


def test_preallocation_is_asked_for_only_by_a_client_that_writes_on() -> None:
    held = preallocated()
    assert held.next_request_id(1.0, 0) == ""
    assert held.next_request_id(1.1, 2) == "", "the one before was of another replication"
    assert held.next_request_id(1.2, 0) == "request 1"
    assert held.next_request_id(1.3, 0) == "request 2"
    assert held.next_request_id(1.3 + preallocated_chunk_kept_s, 0) == ""
    assert held.next_request_id(1.4 + preallocated_chunk_kept_s, 0) == "request 3"


def test_preallocated_chunks_over_the_limit_go_oldest_first_and_none_of_a_broken_way_is_kept() -> None:
    held = preallocated()
    for number in range(preallocated_chunks_max + 5):
        held.put(1.0, 0, f"{number}", chunk(number))
    held.put(1.0, 0, "nothing was placed", None)
    chunks = [placed[1] for placed in iter(lambda: taken(held, 1.0), None)]
    assert chunks == list(range(preallocated_chunks_max + 4, 4, -1))
    held.put(1.0, 0, "a", chunk(1))
    held.clear()
    assert taken(held, 1.0) is None
