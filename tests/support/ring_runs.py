"""Seeded runs of peer rings: they count words, and every word must count exactly once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import pyarrow as pa

from benchmarks.dataflows.dict_table import DictTable, places_of
from benchmarks.dataflows.seeded_ring import RingFunctions, RingOutcome, RingTimes, SeededRing
from peacefs.dataflow.recovery.ring_settings import RingArrangement, RingSettings
from peacefs.dataflow.ring.hashed_rows import HashedRows
from peacefs.dataflow.ring.keyed_table import KeyedTable

WORDS = 48
#: A ring with small queues, so that it rebalances within seconds.
BALANCES = RingSettings(
    r=1,
    checkpoint_s=0.2,
    silence_s=1.0,
    suspect_s=0.3,
    queue_rows_high=60,
    queue_rows_low=20,
    busy_high=0.5,
    busy_low=1.0,
    balance_s=0.3,
)


def batches_of(
    seed: int, *, mappers: int = 2, batches: int = 12, rows: int = 10, words: int = WORDS
) -> dict[str, list[HashedRows]]:
    chance = random.Random(seed)
    return {
        f"mapper-{mapper}": [hashed([chance.randrange(words) for _ in range(rows)]) for _ in range(batches)]
        for mapper in range(1, mappers + 1)
    }


def hashed(words: list[int]) -> HashedRows:
    return HashedRows.sort(places_of(words), pa.record_batch({"word": pa.array(words, pa.int64())}))


def count(mapper: str, table: KeyedTable, rows: HashedRows) -> Iterable[pa.RecordBatch]:
    """Count words in the state, and output the increase of each count."""
    assert isinstance(table, DictTable)
    words = rows.rows.column("word").to_pylist()
    for word in words:
        table.put(word, table.get(word, 0) + 1)
    return [pa.record_batch({"word": pa.array(words, pa.int64())})]


def expected(batches: dict[str, list[HashedRows]]) -> Counter[int]:
    return Counter(
        word for given in batches.values() for batch in given for word in batch.rows.column("word").to_pylist()
    )


def counted(ring: SeededRing) -> Counter[int]:
    """Return the counts in the states of the intervals' owners. Check that each key is in one state."""
    found: Counter[int] = Counter()
    for tables in ring.owners().values():
        for table in tables:
            items: dict[int, Any] = table.items()  # type: ignore[attr-defined]
            assert not found.keys() & items.keys(), "two nodes own the same word"
            found.update(items)
    return found


def delivered(outcome: RingOutcome) -> Counter[int]:
    return Counter(word for rows in outcome.rows for word in rows.column("word").to_pylist())


def ring_of(seed: int, batches: dict[str, list[HashedRows]], *, r: int = 1, **options: Any) -> SeededRing:
    settings = options.pop("settings", None) or RingSettings(
        r=r,
        checkpoint_s=0.15,
        silence_s=0.4,
        suspect_s=0.1,
        balances=False,
        exactly_once=options.pop("exactly_once", True),
    )
    functions = RingFunctions(
        options.pop("reduce", count), options.pop("new_table", DictTable), options.pop("relays", {})
    )
    times = RingTimes(**{each.name: options.pop(each.name) for each in fields(RingTimes) if each.name in options})
    arrangement = RingArrangement(spares=options.pop("spares", 0))
    return SeededRing(settings, batches, functions, seed=seed, arrangement=arrangement, times=times, **options)
