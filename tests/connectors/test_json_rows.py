"""Rows as JSON. The judge is Python's own reader. No I/O."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.dataflow.connectors.json_rows import UnreadableRow, read_readable_rows, read_rows

_SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64())])
_GOOD = [b'{"user": "a", "n": 1}', '{"n": 2, "user": "ü"}'.encode(), b"{}"]
_BAD = [b"", b'{"n": "many"}', b"{}{}", b'{"user": "\xff"}', b"null", b'{"other": 1}']


@given(values=st.lists(st.sampled_from(_GOOD + _BAD), max_size=40))
def test_readable_rows_are_those_that_are_rows_alone(values: list[bytes]) -> None:
    rows, kept, reasons = read_readable_rows(values, _SCHEMA)
    assert kept == [at for at, value in enumerate(values) if value in _GOOD]
    assert rows.to_pylist() == [{"user": None, "n": None, **json.loads(values[at])} for at in kept]
    assert len(kept) + len(reasons) == len(values)


def test_text_that_is_not_utf_8_is_no_row() -> None:
    with pytest.raises(UnreadableRow, match="'utf-8' codec") as refused:
        read_rows([_GOOD[0], b'{"user": "\xff"}'], _SCHEMA)
    assert refused.value.index == 1


def test_many_values_that_are_no_rows_are_skipped_in_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bad value is parsed as often as its list can be halved, and not once for each other bad value."""
    parsed: list[int] = []
    read = read_readable_rows.__globals__["_read"]

    def counted(values: list[bytes], schema: pa.Schema) -> pa.RecordBatch:
        parsed.append(len(values))
        return read(values, schema)

    monkeypatch.setattr("peacefs.dataflow.connectors.json_rows._read", counted)
    rows, _, reasons = read_readable_rows([_GOOD[0], b'{"n": "many"}'] * 128, _SCHEMA)
    assert (rows.num_rows, len(reasons)) == (128, 128)
    assert sum(parsed) == 256 * 9
