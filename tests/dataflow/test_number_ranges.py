"""Sets of sequence numbers, compared with Python's sets."""

from __future__ import annotations

import random

import pytest
from simulation.seeds import seeds

from peacefs.dataflow.core.number_ranges import NumberRanges


@pytest.mark.parametrize("seed", seeds(20))
def test_ranges_are_the_set_of_their_numbers(seed: int) -> None:
    chance = random.Random(seed)
    ranges, numbers = NumberRanges(), set[int]()
    for _ in range(100):
        first = chance.randint(1, 60)
        last = first + chance.randint(-1, 8)
        if chance.random() < 0.8:
            ranges.add(first, last)
            numbers.update(range(first, last + 1))
        else:
            ranges.remove_above(first)
            numbers = {number for number in numbers if number <= first}
        assert {number for begin, end in ranges.ranges() for number in range(begin, end + 1)} == numbers
        assert all(
            end + 1 < begin for (_, end), (begin, _) in zip(ranges.ranges(), ranges.ranges()[1:], strict=False)
        )
        assert ranges.highest == max(numbers, default=0)
        missing = {number for gap in ranges.gaps(first, last + 3) for number in range(gap[0], gap[1] + 1)}
        assert missing == set(range(first, last + 4)) - numbers
        assert ranges.covers(first, last + 1) == (set(range(first, last + 2)) <= numbers)
        assert (first in ranges) == (first in numbers)


def test_ranges_of_numbers_in_order_take_one_entry() -> None:
    ranges = NumberRanges()
    for number in range(1, 1000):
        ranges.add(number, number)
    assert ranges.ranges() == [(1, 999)]
