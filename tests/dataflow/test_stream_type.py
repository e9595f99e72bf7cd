"""The type of a stream, and whether rows match it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from peacefs.dataflow.model.stream_type import TIME, StreamType
from peacefs.protocol.errors import InvalidQuery

_TYPE = StreamType(pa.schema([("at", TIME), ("who", pa.string()), ("n", pa.int64())]), "at")


def test_rows_get_the_order_and_width_of_the_stream() -> None:
    rows = pa.record_batch(
        {
            "n": pa.array([1, 2], pa.int8()),
            "who": pa.array([None, None]),
            "at": pa.array([5, 6], pa.timestamp("ms")),
        }
    )
    fitting = _TYPE.conform(rows)
    assert fitting.schema == _TYPE.schema
    assert fitting.column("n").to_pylist() == [1, 2]
    assert fitting.column("at").cast(pa.int64()).to_pylist() == [5000, 6000]
    assert _TYPE.conform(pa.Table.from_batches([rows])).equals(fitting)
    assert _TYPE.conform(pa.Table.from_batches([rows]).slice(0, 0)).num_rows == 0


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"at": [1], "who": ["a"]}, "column 'n' is missing: the rows have 'at', 'who', and the stream has"),
        ({"at": [1], "who": ["a"], "n": [1], "x": [1]}, "column 'x' is too much"),
        ({"at": [1], "who": ["a"], "n": ["1"]}, "column 'n' has type string: it must be int64"),
        ({"at": [1], "who": ["a"], "n": [1.5]}, "column 'n' has type double"),
        ({"at": [None], "who": ["a"], "n": [1]}, "the time column 'at' has nulls"),
        ({"at": [1], "who": ["a"], "n": pa.array([2**63], pa.uint64())}, "column 'n' does not fit into int64"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_the_difference(rows: dict[str, object], said: str) -> None:
    times = pa.array(rows["at"], pa.int64()).cast(TIME)
    with pytest.raises(InvalidQuery) as raised:
        _TYPE.conform(pa.record_batch({**rows, "at": times}))
    assert said in raised.value.message
    assert "\n" not in raised.value.message
