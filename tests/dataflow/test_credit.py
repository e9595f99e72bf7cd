"""Credit of a stream is counted by the producer's measure, whatever happens to rows in transit."""

from __future__ import annotations

import pyarrow as pa
import pytest

from peacefs.dataflow.core.ha_input import HAInput
from peacefs.dataflow.core.messages import Data, Subscribed
from peacefs.dataflow.hosts.wire import MessageReader, encode
from peacefs.dataflow.model.batches import START, Batch

_ROWS = 1000
_CREDIT_BYTES = 40_000


def rows_with_bitmaps() -> pa.RecordBatch:
    """Return rows without nulls that have a validity bitmap, as after a cast. IPC omits such a bitmap."""
    bitmap = pa.py_buffer(b"\xff" * (_ROWS // 8))
    values = pa.py_buffer(bytes(8 * _ROWS))
    return pa.record_batch({"value": pa.Array.from_buffers(pa.int64(), _ROWS, [bitmap, values])})


@pytest.mark.parametrize("cut", [None, 7], ids=["whole", "cut"])
def test_credit_lasts_for_rows_that_are_smaller_when_they_arrive(cut: int | None) -> None:
    rows = rows_with_bitmaps()
    source = HAInput("in", "unit", 1, credit_bytes=_CREDIT_BYTES)
    reader = MessageReader({"in": rows.schema})
    asked = source.subscribe(0.0, 1, 1.0)
    assert asked is not None
    source.subscribed(Subscribed("in", asked.subscription, START, 0), "node")
    limit, sent = asked.credit_bytes, 0
    for number in range(500):
        assert sent < limit, f"the producer may send no more after {number} batches"
        batch = Batch(1 + number * _ROWS, rows)
        sent += batch.bytes
        message = Data("in", asked.subscription, batch, sent)
        (arrived,) = reader.feed(b"".join(bytes(part) for part in encode(message)))
        assert isinstance(arrived, Data) and arrived.batch.bytes < batch.bytes
        assert source.accept(arrived)
        if cut is not None:
            source.take(batch.first + cut)
        source.take()
        if (more := source.credit()) is not None:
            limit = more.limit_bytes
    assert limit == sent + _CREDIT_BYTES or limit - sent > _CREDIT_BYTES // 2
