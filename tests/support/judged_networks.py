"""One network per operator class. Its output shows which input rows it contains, and how often.

Each has three units on separate nodes, `first`, `second` and `third`. The second fails while its producer and its
consumer continue, as in HA's Figure 1. The first and the third unit treat rows one by one.

Values are powers of four, a digit for each input row: the digits of a sum say how often each row is in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pyarrow as pa
from support.dataflows import SCHEMA, Row, passed

from benchmarks.dataflows.comparison import compare_outputs
from benchmarks.dataflows.outcome import Outcome
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.model.stream_type import TIME
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.query.streams import Stream

_ROWS = 28
_BATCH_ROWS = 4
# A replay begins at a batch. Its size is no multiple of the advance, so that replayed windows begin elsewhere.
_COUNT_WINDOW, _COUNT_ADVANCE = 4, 3


@dataclass(frozen=True)
class JudgedNetwork:
    network: Network
    subject: Callable[[Row], Hashable]
    carries: Callable[[Row], Iterable[Hashable]]
    #: Return the input rows that may be in windows which are open at the end.
    held_back: Callable[[Sequence[Row]], set[Hashable]] = lambda rows: set()
    #: Return whether a run without a failure can give an output of these input rows.
    achievable: Callable[[Sequence[Row], dict[str, list[int]]], bool] | None = None

    def input(self, seed: int) -> dict[str, list[pa.RecordBatch]]:
        """Return the rows of each source. All values differ."""
        names = [source.name for source in self.network.sources]
        return {name: _input_rows(seed + at, at, len(names)) for at, name in enumerate(names)}

    def judge(self, seed: int, expected: Outcome, observed: Outcome) -> Recovery:
        sources = self.input(seed)
        achievable = self.achievable
        values = {
            name: [value for batch in batches for value in batch.column("value").to_pylist()]
            for name, batches in sources.items()
        }
        rows = [
            tuple(row.values()) for batches in sources.values() for each in batches for row in each.to_pylist()
        ]
        return compare_outputs(
            expected.rows("out"),
            observed.rows("out"),
            subject=self.subject,
            carries=self.carries,
            held_back=self.held_back(rows),
            achievable=None if achievable is None else lambda output: achievable(output, values),
        )


def repeatable() -> JudgedNetwork:
    first = _begun(Query("judged"), "in")
    stream = first.unit("second").with_columns(doubled=F.col("value") * 2)
    return JudgedNetwork(_ended(stream), lambda row: row[2], lambda row: digits(row[2]))


def convergent() -> JudgedNetwork:
    """Cut windows of time: the input determines the windows and their rows."""
    windows = _begun(Query("judged"), "in").unit("second").key_by("key").window("4s", every="2s")
    return JudgedNetwork(
        _ended(windows.aggregate(F.count(), F.sum("value"))),
        lambda row: (row[0], row[1]),
        lambda row: (((row[0], row[1]), digit) for digit in digits(row[3])),
    )


def deterministic() -> JudgedNetwork:
    """Cut windows of rows: their bounds depend on where counting began."""
    windows = _begun(Query("judged"), "in").unit("second").count_window(_COUNT_WINDOW, _COUNT_ADVANCE)

    def held_back(rows: Sequence[Row]) -> set[Hashable]:
        return {digit for row in rows[1 - _COUNT_WINDOW :] for digit in digits(row[2])}

    return JudgedNetwork(
        _ended(windows.aggregate(F.count(), F.sum("value"))),
        lambda row: row[0],
        lambda row: digits(row[2]),
        held_back,
    )


def arbitrary() -> JudgedNetwork:
    """Return a union whose rows contain a digest of all earlier rows, and so show how inputs interleaved.

    Its inputs come from two nodes, because inputs from one node would arrive in the same order at both nodes of a
    pair. All rows are within an hour, so its state depends only on rows of one hour.
    """
    query = Query("judged")
    one, other = _begun(query, "in"), _begun(query, "more", unit="fourth")
    stream = one.unit("second").union(other).process(_chained, remembers="1h")
    return JudgedNetwork(
        _ended(stream),
        lambda row: row[2],
        lambda row: digits(row[2]),
        achievable=_is_one_interleaving,
    )


JUDGED_NETWORKS: dict[OperatorClass, Callable[[], JudgedNetwork]] = {
    OperatorClass.REPEATABLE: repeatable,
    OperatorClass.CONVERGENT_CAPABLE: convergent,
    OperatorClass.DETERMINISTIC: deterministic,
    OperatorClass.ARBITRARY: arbitrary,
}


def digits(total: int) -> list[int]:
    """Return the input rows in a sum of values. A row that is in it twice gives an effect of its own."""
    found = []
    for digit in range(total.bit_length() // 2 + 1):
        times = total >> 2 * digit & 3
        if times:
            found.append(digit if times == 1 else -digit)
    return found


def _begun(query: Query, source: str, *, unit: str = "first") -> Stream:
    return passed(query.source(source, SCHEMA, time="at").unit(unit))


def _ended(stream: Stream) -> Network:
    return passed(stream.unit("third")).sink("out").network()


def _input_rows(seed: int, at: int, sources: int) -> list[pa.RecordBatch]:
    """Return rows in the order of their times."""
    chance = random.Random(seed)
    time_us = 0
    batches = []
    numbers = list(range(at, _ROWS, sources))
    for first in range(0, len(numbers), _BATCH_ROWS):
        rows = []
        for number in numbers[first : first + _BATCH_ROWS]:
            time_us += chance.randint(0, 900_000)
            rows.append((chance.choice("abc"), time_us, 4**number))
        keys, times, values = zip(*rows, strict=True)
        arrays = [pa.array(keys), pa.array(times, pa.int64()).cast(TIME), pa.array(values, pa.int64())]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    return batches


def _chained(rows: pa.RecordBatch, state: MutableMapping[Any, Any]) -> pa.RecordBatch:
    names = []
    for value in rows.column("value").to_pylist():
        state["digest"] = _digest(state.get("digest", ""), value)
        names.append(state["digest"])
    return rows.set_column(0, "key", pa.array(names, pa.string()))


def _digest(before: str, value: int) -> str:
    return f"{crc32(f'{before} {value}'.encode()):08x}"


def _is_one_interleaving(output: Sequence[Row], values: dict[str, list[int]]) -> bool:
    """Return whether each source's rows are complete and in order, and each row follows from the one before it."""
    digest = ""
    found = [row[2] for row in output]
    for name, _, value, *_ in output:
        digest = _digest(digest, value)
        if name != digest:
            return False
    return len(found) == sum(map(len, values.values())) and all(
        [value for value in found if value in expected] == expected for expected in values.values()
    )
