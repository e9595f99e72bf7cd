import tempfile
from pathlib import Path

import pyarrow as pa

from peacefs.dataflow.logs.directory_segments import DirectorySegments
from peacefs.dataflow.logs.log_reader import LogReader
from peacefs.dataflow.logs.stream_log import StreamLogs
from peacefs.dataflow.model.stream_type import TIME, StreamType

kind = StreamType(pa.schema([("at", TIME), ("n", pa.int64())]), "at")


def rows(*numbers):
    return pa.record_batch([pa.array(numbers, TIME), pa.array(numbers, pa.int64())], schema=kind.schema)


def commit(store, query, batch, *parts):
    """As the sink does, in a process of its own for each batch."""
    logs = StreamLogs(store, verify=False)
    fresh = logs.open("out", kind).append_epoch(query, batch, parts)
    logs.commit()
    return fresh


with tempfile.TemporaryDirectory() as name, DirectorySegments(Path(name)) as store:
    assert commit(store, "query", 0, rows(1, 2), rows(3))
    # The driver was killed, and the batch is run again: two partitions are the other way round.
    assert not commit(store, "query", 0, rows(3), rows(1, 2))
    assert commit(store, "query", 1, rows(4))
    assert commit(store, "another query", 0, rows(5))
    found = [n for batch in LogReader(store, "out").read() for n in batch.rows.column("n").to_pylist()]
    assert found == [1, 2, 3, 4, 5]

    # A writer that died in the middle of a transaction leaves nothing that anybody sees.
    (segment,) = Path(name, "out").glob("*.log")
    whole = segment.read_bytes()
    commit(store, "query", 2, rows(6, 7), rows(8))
    added = segment.stat().st_size - len(whole)
    for cut in range(0, added, 7):
        data = segment.read_bytes()[: len(whole) + cut]
        torn = Path(name, "torn")
        torn.mkdir(exist_ok=True)
        (torn / segment.name).write_bytes(data)
        assert LogReader(store, "torn").extent() == (1, 5)
