import pyarrow as pa

from benchmarks.dataflows.seeded_ring import KillSet, RingFunctions, SeededRing
from benchmarks.dataflows.dict_table import DictTable, places_of
from peacefs.dataflow.ring.edge import RingRelay
from peacefs.dataflow.ring.hashed_rows import HashedRows
from peacefs.dataflow.recovery.ring_settings import RingSettings
from peacefs.dataflow.ring.stage_tables import StageTables


def hashed(words):
    return HashedRows.sort(places_of(words), pa.record_batch({"word": pa.array(words, pa.int64())}))


def count(mapper, tables, rows):
    table = tables.of(1 if mapper == "classes" else 0)
    words = rows.rows.column("word").to_pylist()
    for word in words:
        table.put(word, table.get(word, 0) + 1)
    return [pa.record_batch({"word": pa.array(words, pa.int64())})]


def by_class(rows):
    return hashed([word % 3 for word in rows.column("word").to_pylist()])


batches = {"words": [hashed([number % 7, number % 5]) for number in range(40)]}
settings = RingSettings(r=1, checkpoint_s=0.15, silence_s=0.4, suspect_s=0.1, balances=False)
relays = {"classes": RingRelay(frozenset(batches), by_class)}
functions = RingFunctions(count, lambda: StageTables([DictTable(), DictTable()]), relays)
events = [KillSet(200, ("node-2", "node-4"))]
ring = SeededRing(settings, batches, functions, seed=1, nodes=4, events=events)
outcome = ring.run()
assert len(outcome.killed_s) == 2 and not outcome.losses
made = [word for rows in outcome.rows for word in rows.column("word").to_pylist()]
expected = [word % 3 for number in range(40) for word in (number % 7, number % 5)]
assert sorted(made) == sorted(expected)
counts = {}
for tables in ring.owners().values():
    for table in tables:
        counts.update(table.of(1).items())
assert counts == {word: expected.count(word) for word in range(3)}
