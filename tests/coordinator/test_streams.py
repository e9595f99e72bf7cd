"""Writes under way are counted by node until they end, one way or another."""

from __future__ import annotations

from peacefs.coordinator.streams import Streams


def test_a_stream_counts_for_each_of_its_nodes_until_it_is_closed() -> None:
    streams = Streams()
    streams.open(1, ["a", "b"], 100.0)
    streams.open(2, ["b"], 110.0)
    assert (streams.through("a"), streams.through("b"), streams.through("c")) == (1, 2, 0)
    streams.close(1)
    streams.close(1)
    assert (streams.through("a"), streams.through("b")) == (0, 1)


def test_one_whose_token_has_expired_is_over() -> None:
    streams = Streams()
    streams.open(1, ["a"], 100.0)
    streams.open(2, ["a"], 110.0)
    streams.close_overdue(99.9)
    assert streams.through("a") == 2
    streams.close_overdue(105.0)
    assert streams.through("a") == 1
    streams.close_overdue(110.0)
    assert streams.through("a") == 0


def test_what_has_ended_takes_no_room() -> None:
    streams = Streams()
    for chunk in range(10_000):
        streams.open(chunk, ["a"], 100.0)
        streams.close(chunk)
    assert len(streams._deadlines) <= 1001
