"""Readers of checkpoints share datanodes: at most two reads each, one if chunks are written there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.coordinator.scheduling.read_scheduler import (
    ReadRequest,
    RecoveryReads,
    read_grant_silence_s,
    readers_waiting_max,
)
from peacefs.protocol.errors import BadRequest, Overloaded
from peacefs.protocol.limits import checkpoint_workers_max, readers_per_datanode_max, reads_stated_max


def request(
    reader: str,
    wanted: Sequence[str] = (),
    holding: Mapping[int, str] | None = None,
    *,
    at_once: int = 8,
    number: int = 0,
    waited_s: float = 0.0,
) -> ReadRequest:
    """Request chunks by their place in the list; letters are datanodes that have them. Held ones are not
    requested.
    """
    held = holding or {}
    chunks = {at: list(nodes) for at, nodes in enumerate(wanted) if at not in held}
    return ReadRequest(reader, number, chunks, held, at_once, waited_s)


def quiet(node: str) -> bool:
    """Return whether no chunk is being written."""
    return True


def test_two_readers_a_datanode_whoever_they_are_and_the_idle_one_first() -> None:
    reads = RecoveryReads(quiet)
    assert reads.state(0.0, request("one", ["ab", "ab", "a"])) == ["one"]
    assert reads.grants("one") == {0: "a", 1: "b", 2: "a"}
    assert reads.state(1.0, request("two", ["a", "ab", "c", ""])) == ["two"]
    # `a` has its two reads. A chunk without a live datanode does not count; the reader will report it.
    assert reads.grants("two") == {1: "b", 2: "c", 3: ""}
    assert reads.at_node == {"a": 2, "b": 2, "c": 1}
    # One reader finishes its first chunk, and the other, which is waiting, is told.
    assert reads.state(2.0, request("one", [], {1: "b", 2: "a"})) == ["two"]
    assert reads.grants("two")[0] == "a"


def test_reader_that_asked_first_gets_the_datanode_and_others_pass_meanwhile() -> None:
    reads = RecoveryReads(quiet)
    reads.state(0.0, request("reads", ["a", "a"]))
    reads.state(1.0, request("first", ["a"]))
    reads.state(2.0, request("second", ["a", "b"]))
    assert (reads.grants("first"), reads.grants("second")) == ({}, {1: "b"})
    # A third has waited longer, at an earlier coordinator.
    reads.state(3.0, request("third", ["a"], waited_s=9.0))
    assert reads.state(4.0, request("reads", [], {0: "a"})) == ["third"]
    assert reads.state(5.0, request("reads")) == ["first"]
    assert [reader.request.reader for reader in reads.readers] == ["third", "first", "second"]
    assert [reader.waiting for reader in reads.readers] == [0, 0, 1]


def test_reader_gets_one_slot_where_writers_have_taken_all() -> None:
    busy = {"a"}
    reads = RecoveryReads(lambda node: node not in busy)
    reads.state(0.0, request("one", ["a", "a", "b", "b"]))
    assert reads.grants("one") == {0: "a", 2: "b", 3: "b"}
    assert reads.tick(1.0) == []
    busy.clear()
    assert reads.tick(2.0) == ["one"]
    assert reads.grants("one")[1] == "a"


def test_read_grants_of_a_reader_are_no_more_than_it_reads_at_once() -> None:
    reads = RecoveryReads(quiet)
    reads.state(0.0, request("one", ["a", "b", "c"], at_once=2))
    assert reads.grants("one") == {0: "a", 1: "b"}
    reads.state(1.0, request("one", ["a", "b", "c"], {1: "b"}, at_once=2))
    assert reads.grants("one") == {0: "a", 1: "b"}, "what it was given and did not hear of comes again"


@pytest.mark.evidence("recovery-storm")
def test_reader_that_is_gone_gives_its_grants_back() -> None:
    reads = RecoveryReads(quiet)
    reads.state(0.0, request("gone", ["a", "a"]))
    reads.state(1.0, request("waits", ["a"]))
    assert reads.tick(read_grant_silence_s) == []
    reads.state(read_grant_silence_s, request("waits", ["a"]))
    assert reads.tick(read_grant_silence_s + 0.1) == ["waits"]
    # It was only paused, and continues to read. It is counted again, and nobody is admitted until few enough
    # remain.
    reads.state(20.0, request("gone", [], {0: "a", 1: "a"}))
    assert reads.at_node == {"a": 3}
    reads.state(20.0, request("another", ["a"]))
    reads.state(21.0, request("waits"))
    assert (reads.at_node, reads.grants("another")) == ({"a": 2}, {})
    reads.state(22.0, request("gone"))
    assert reads.grants("another") == {0: "a"}


def test_read_allowed_by_an_earlier_coordinator_is_counted() -> None:
    reads = RecoveryReads(quiet)
    reads.state(0.0, request("new", ["a", "a"]))
    reads.state(0.1, request("old", ["a", "a", "a"], {0: "a", 1: "a"}))
    assert reads.at_node == {"a": 4}
    reads.state(1.0, request("new"))
    assert reads.grants("old") == {0: "a", 1: "a"}
    reads.state(2.0, request("old", ["a", "a", "a"], {1: "a"}, at_once=2))
    assert reads.grants("old") == {0: "a", 1: "a"}


def test_a_statement_that_a_later_one_has_overtaken_takes_nothing_back_from_others() -> None:
    reads = RecoveryReads(quiet)
    reads.state(0.0, request("one", ["a", "a"], number=1))
    reads.state(1.0, request("two", ["a"]))
    # Its threads use separate connections, so its outdated report about both reads arrives last.
    reads.state(2.0, request("one", [], {1: "a"}, number=3))
    assert reads.grants("two") == {0: "a"}
    assert reads.state(2.1, request("one", [], {0: "a", 1: "a"}, number=2)) == []
    assert reads.at_node == {"a": 2}


def test_read_request_without_sense_is_refused() -> None:
    reads = RecoveryReads(quiet)
    with pytest.raises(BadRequest, match="0 reads at once"):
        reads.state(0.0, request("x", ["a"], at_once=0))
    with pytest.raises(BadRequest, match=f"1 to {checkpoint_workers_max}"):
        reads.state(0.0, request("x", ["a"], at_once=checkpoint_workers_max + 1))
    with pytest.raises(BadRequest, match="over the limit of 128"):
        reads.state(0.0, request("x", ["a"] * (reads_stated_max + 1)))
    assert reads.state(0.0, request("has nothing to read")) == []
    for number in range(readers_waiting_max):
        reads.state(0.0, request(f"reader-{number}", ["a"]))
    with pytest.raises(Overloaded, match="500 readers"):
        reads.state(0.0, request("one too many", ["a"]))
    reads.state(0.0, request("reader-0"))
    reads.state(0.0, request("one too many", ["a"]))


@given(st.integers(0, 2**32))
def test_the_bound_holds_whatever_readers_do_and_all_come_to_their_end(seed: int) -> None:
    random = Random(seed)
    busy = set(random.sample("abcd", random.randint(0, 4)))
    reads = RecoveryReads(lambda node: node not in busy)
    at_once = random.randint(1, 4)
    left: dict[str, dict[int, str]] = {}
    held: dict[str, dict[int, str]] = {}
    for number in range(random.randint(1, 5)):
        chunks = ("".join(random.sample("abcd", random.randint(1, 3))) for _ in range(random.randint(1, 6)))
        left[f"r{number}"], held[f"r{number}"] = dict(enumerate(chunks)), {}
    rounds = 0
    while left:
        rounds += 1
        assert rounds < 2000, "somebody waits for ever"
        name = random.choice(sorted(left))
        held[name] = {number: node for number, node in held[name].items() if random.random() < 0.5}
        if not left[name] and not held[name]:
            del left[name]
            reads.state(float(rounds), ReadRequest(name, rounds, {}, {}, at_once))
            continue
        reads.state(float(rounds), ReadRequest(name, rounds, left[name], held[name], at_once))
        if random.random() < 0.7:  # else the answer was lost
            held[name] = reads.grants(name)
            left[name] = {number: nodes for number, nodes in left[name].items() if number not in held[name]}
        assert len(reads.grants(name)) <= at_once
        for node, count in Counter(node for reader in reads.readers for node in reader.grants.values()).items():
            assert count <= (1 if node in busy else readers_per_datanode_max)
            assert reads.at_node[node] == count
    assert reads.at_node == {} and reads.readers == []
