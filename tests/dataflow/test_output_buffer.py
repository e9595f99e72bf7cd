"""The output buffer of Flux's abstract producer: marks, cursors, dangling acknowledgements, retention rules."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from simulation.seeds import seeds

from peacefs.dataflow.core.output_buffer import PRODUCED, Mark, OutputBuffer
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.row_stage import RowStage

PRIMARY, SECONDARY = "primary", "secondary"
SENT, RECEIVED = Mark(RowStage.SENT, PRIMARY), Mark(RowStage.RECEIVED, PRIMARY)
BY_SECONDARY = Mark(RowStage.RECEIVED, SECONDARY)


def batch(first: int, last: int) -> Batch:
    return Batch(first, pa.record_batch({"n": pa.array(range(first, last + 1), pa.int64())}))


def numbers(found: Batch | None) -> list[int]:
    return [] if found is None else found.rows.column("n").to_pylist()


def test_retention_keeps_rows_until_both_replicas_have_them() -> None:
    """The retention rule of Flux's ingress: {PROD, PRIM, SEC}."""
    buffer = OutputBuffer(frozenset({PRODUCED, RECEIVED, BY_SECONDARY}))
    buffer.put(batch(1, 10))
    buffer.ack(1, 10, RECEIVED)
    assert buffer.first_held == 1
    buffer.ack(1, 10, BY_SECONDARY)
    assert buffer.held() == ()
    assert buffer.held_bytes == 0


def test_cursor_shows_each_destination_what_it_was_not_sent() -> None:
    buffer = OutputBuffer(frozenset({PRODUCED, RECEIVED, BY_SECONDARY}))
    buffer.put(batch(1, 3))
    buffer.put(batch(4, 6))
    assert numbers(buffer.peek(PRIMARY)) == [1, 2, 3]
    buffer.advance(PRIMARY)
    assert numbers(buffer.peek(PRIMARY)) == [4, 5, 6]
    assert numbers(buffer.peek(SECONDARY)) == [1, 2, 3]
    buffer.advance(PRIMARY)
    assert buffer.peek(PRIMARY) is None


def test_dangling_acknowledgement_filters_the_row_when_it_comes() -> None:
    """A secondary that lags behind learns that rows 1 to 5 were received before it produces them."""
    buffer = OutputBuffer(frozenset({PRODUCED, RECEIVED}))
    buffer.ack(1, 5, RECEIVED)
    assert buffer.dangling() == [(1, 5)]
    buffer.put(batch(1, 8))
    assert buffer.dangling() == []
    assert numbers(buffer.peek(PRIMARY)) == [6, 7, 8]
    buffer.ack(6, 8, RECEIVED)
    assert buffer.held() == ()


def test_reset_goes_back_to_the_first_row_that_was_not_acknowledged() -> None:
    buffer = OutputBuffer(frozenset({PRODUCED, RECEIVED}))
    buffer.put(batch(1, 10))
    buffer.advance(PRIMARY)
    buffer.ack(1, 4, RECEIVED)
    assert buffer.peek(PRIMARY) is None
    buffer.reset(PRIMARY)
    assert numbers(buffer.peek(PRIMARY)) == [5, 6, 7, 8, 9, 10]


def test_dead_destination_no_longer_holds_rows() -> None:
    """Flux 3.3.2: rows need no acknowledgement of a dead destination, which is removed from the rule."""
    buffer = OutputBuffer(frozenset({PRODUCED, RECEIVED, BY_SECONDARY}))
    buffer.put(batch(1, 10))
    buffer.ack(1, 6, BY_SECONDARY)
    buffer.retain_until(frozenset({PRODUCED, BY_SECONDARY}))
    buffer.put(batch(11, 12))
    assert numbers(buffer.peek(SECONDARY)) == [7, 8, 9, 10]
    buffer.ack(7, 12, BY_SECONDARY)
    assert buffer.held() == ()


def test_rows_that_are_produced_again_are_left_out() -> None:
    buffer = OutputBuffer(frozenset({PRODUCED, RECEIVED}))
    buffer.put(batch(1, 4))
    buffer.ack(1, 4, RECEIVED)
    buffer.put(batch(3, 7))
    assert [numbers(held) for held in buffer.held()] == [[5, 6, 7]]


def test_destination_that_lost_what_it_received_is_sent_it_again() -> None:
    """SGuard: rows are dropped when they are safe; a takeover receives all others again."""
    safe = Mark(RowStage.SAFE, PRIMARY)
    buffer = OutputBuffer(frozenset({PRODUCED, safe}))
    buffer.put(batch(1, 10))
    buffer.advance(PRIMARY)
    buffer.ack(1, 10, RECEIVED)
    buffer.ack(1, 3, safe)
    buffer.forget(RECEIVED, 3)
    buffer.reset(PRIMARY)
    assert numbers(buffer.peek(PRIMARY)) == [4, 5, 6, 7, 8, 9, 10]


def test_contents_can_be_stored_and_loaded() -> None:
    rule = frozenset({PRODUCED, RECEIVED})
    buffer = OutputBuffer(rule)
    buffer.put(batch(1, 10))
    buffer.ack(1, 10, RECEIVED)
    buffer.put(batch(11, 20))
    buffer.ack(25, 30, RECEIVED)
    loaded = OutputBuffer(rule)
    loaded.load(buffer.marks(), buffer.held())
    assert loaded.produced == 20
    assert loaded.dangling() == [(25, 30)]
    assert loaded.held_bytes == buffer.held_bytes
    assert numbers(loaded.peek(PRIMARY)) == list(range(11, 21))


@pytest.mark.parametrize("seed", seeds(30))
def test_buffer_is_loss_free_and_dup_free_in_any_order_of_calls(seed: int) -> None:
    """Compare with a model of the paper's definition: a set of marks for each row number, and a cursor."""
    chance = random.Random(seed)
    rule = frozenset({PRODUCED, RECEIVED, BY_SECONDARY})
    buffer = OutputBuffer(rule)
    marks: dict[int, set[Mark]] = {}
    shown: dict[str, set[int]] = {PRIMARY: set(), SECONDARY: set()}
    produced = 0
    for _ in range(200):
        destination = chance.choice([PRIMARY, SECONDARY])
        mark = Mark(RowStage.RECEIVED, destination)
        match chance.choice(["put", "put again", "advance", "advance", "ack", "reset"]):
            case "put":
                last = produced + chance.randint(1, 6)
                buffer.put(batch(produced + 1, last))
                for number in range(produced + 1, last + 1):
                    marks.setdefault(number, set()).add(PRODUCED)
                produced = last
            case "put again" if produced:
                first = chance.randint(1, produced)
                buffer.put(batch(first, chance.randint(first, produced)))
            case "advance":
                found = buffer.peek(destination)
                expected = [
                    number
                    for number, here in sorted(marks.items())
                    if PRODUCED in here
                    and mark not in here
                    and not rule <= here
                    and number not in shown[destination]
                ]
                assert numbers(found) == expected[: len(numbers(found))]
                assert bool(expected) == (found is not None)
                if found is not None:
                    buffer.advance(destination)
                    shown[destination].update(range(1, found.last + 1))
            case "ack":
                first = chance.randint(1, produced + 3)
                last = first + chance.randint(0, 5)
                buffer.ack(first, last, mark)
                for number in range(first, last + 1):
                    marks.setdefault(number, set()).add(mark)
            case "reset":
                buffer.reset(destination)
                shown[destination] = set()
        held = {number for one in buffer.held() for number in numbers(one)}
        needed = {number for number, here in marks.items() if PRODUCED in here and not rule <= here}
        assert needed <= held, "a row that is still needed is gone"
        assert not held - {number for number, here in marks.items() if PRODUCED in here}
        assert buffer.produced == produced
        assert buffer.held_bytes == sum(one.bytes for one in buffer.held())
