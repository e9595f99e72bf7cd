"""Read-ahead requests data from the disk before the reader needs it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peacefs.datanode.store.readahead import ReadingAhead, readahead_bytes


@given(
    st.integers(0, 20 * readahead_bytes),
    st.integers(0, 20 * readahead_bytes),
    st.lists(st.integers(1, 3 * readahead_bytes)),
)
def test_every_byte_is_asked_for_once_and_in_time(start: int, length: int, steps: list[int]) -> None:
    ahead, at, end = ReadingAhead(), start, start + length
    asked_to = start
    for step in [*steps, length]:
        if at >= end:
            break
        due = ahead.due(at, end)
        if due is not None:
            first, count = due
            assert first == max(at, asked_to) and count > 0
            asked_to = first + count
        assert min(at + readahead_bytes, end) <= asked_to <= min(at + 2 * readahead_bytes, end)
        at += step
    assert ahead.due(end, end) is None
