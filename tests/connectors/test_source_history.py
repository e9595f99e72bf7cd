"""What a source remembers, against a model that remembers everything. No I/O."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.dataflow.connectors.interface import PartPlace, Slice
from peacefs.dataflow.connectors.source_history import SourceHistory
from peacefs.protocol.errors import CheckpointDamaged

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(1, 9), st.integers(0, 3)),
        st.tuples(st.just("release"), st.integers(0, 60)),
        st.tuples(st.just("again")),
    )
)


@given(steps=_STEPS)
def test_source_history_gives_every_row_again_that_is_not_released(steps: list[tuple[object, ...]]) -> None:
    history = SourceHistory("source")
    # The rows of the source: part and position of each.
    given_rows: list[tuple[str, int]] = []
    ends = dict.fromkeys("abc", 0)
    released = 0
    for step in steps:
        match step:
            case ("add", str(part), int(rows), int(gap)):
                begin = ends[part]
                # Positions without rows, such as markers of transactions, may be within a slice.
                ends[part] = begin + rows + gap
                history.add([Slice(part, begin, ends[part], rows)])
                given_rows += [(part, begin + at) for at in range(rows)]
            case ("release", int(number)):
                released = max(released, min(number, len(given_rows)))
                history.release(released)
            case _:
                history = SourceHistory.decode(history.encode())
    assert history.before <= released
    again = [(each.part, each.begin) for each in history.slices]
    assert sum(each.rows for each in history.slices) == len(given_rows) - history.before
    number = history.before
    for (part, begin), each in zip(again, history.slices, strict=True):
        assert given_rows[number] == (part, begin)
        number += each.rows
    for part, place in history.places.items():
        assert place.end == ends[part]
        assert history.starts[part].end == min([b for p, b in again if p == part], default=ends[part])


def test_source_history_that_is_damaged_is_refused() -> None:
    with pytest.raises(CheckpointDamaged, match="cannot be read"):
        SourceHistory.decode(b"{")
    made = SourceHistory("source")
    made.add([Slice("a", 0, 1, 1, "stamp", True)])
    assert made.places == {"a": PartPlace(1, "stamp", True)}
    with pytest.raises(CheckpointDamaged, match="format 9"):
        SourceHistory.decode(made.encode().replace(b'"format":1', b'"format":9'))
