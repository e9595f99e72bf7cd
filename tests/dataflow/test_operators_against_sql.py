"""Every operator, alone and behind every other operator, gives the rows that DuckDB gives."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from oracles import sql_streams as sql
from oracles.exact_aggregates import key_of
from simulation.seeds import seeds
from support.judged_operators import BINARY, UNARY, Judged, outer, outer_sql
from support.long_runs import IS_LONG, often

from benchmarks.dataflows.failures import Kill
from benchmarks.dataflows.outcome import Outcome
from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.query.streams import Stream
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup

_TEXTS = ["a", "b", "rare", None]
_NUMBERS = [1.5, 0.0, -0.0, float("nan"), -float("nan"), None]
_SOURCES = ("left", "right")
Build = tuple[Callable[..., Stream], Callable[..., str], int, bool]


def rows_of(chance: random.Random, keys: list[Any], port: int) -> pa.Table:
    """Return rows ordered by time. No two rows of the two streams have the same time."""
    at, rows = 0, []
    for _ in range(often(45, 90)):
        at += 2 * chance.choice([1, 300_000, 500_000, 900_000, 7_000_000])
        key = chance.choice(keys)
        if key == "rare" and chance.random() < 0.8:
            key = "a"
        rows.append((key, at + port, chance.randint(0, 60)))
    kind = pa.string() if "a" in keys else pa.float64()
    columns = zip(*rows, strict=True)
    kinds = (kind, pa.int64(), pa.int64())
    arrays = [pa.array(column, each) for column, each in zip(columns, kinds, strict=True)]
    return pa.table([arrays[0], arrays[1].cast(pa.timestamp("us")), arrays[2]], names=["key", "at", "value"])


def network_of(write: Callable[..., Stream], schema: pa.Schema, ports: int) -> Network:
    query = Query("judged")
    write(*(query.source(name, schema, time="at") for name in _SOURCES[:ports])).sink("out")
    return query.network()


def play(network: Network, tables: list[pa.Table], seed: int, technique: Technique, **how: Any) -> Outcome:
    # One source sends many rows at a time, the other few.
    sizes = random.Random(seed).sample([2, 9], 2)
    given = {
        source.name: table.to_batches(max_chunksize=size)
        for source, table, size in zip(network.sources, tables, sizes, strict=False)
    }
    bounds = Bounds(page_bytes=8192, state_bytes_max=16 << 20)
    return SeededRun(network, technique, given, seed=seed, bounds=bounds, **how).run(until_s=600)


def told(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter((key_of(key), at, value) for key, at, value in rows)


def shown(outcome: Outcome) -> list[tuple[Any, ...]]:
    tables = [pa.Table.from_batches([rows]) for rows in outcome.sinks["out"]]
    return [
        (key, at, value)
        for table in tables
        for key, at, value in zip(
            table.column("key").to_pylist(),
            table.column("at").cast(pa.int64()).to_pylist(),
            table.column("value").to_pylist(),
            strict=True,
        )
    ]


def judge(build: Build, seed: int, technique: Technique | None = None, **how: Any) -> Outcome:
    write, statement, ports, parts = build
    chance = random.Random(seed)
    keys = _TEXTS if parts or seed % 2 else _NUMBERS
    tables = [rows_of(chance, keys, port) for port in range(ports)]
    outcome = play(network_of(write, tables[0].schema, ports), tables, seed, technique or Amnesia(), **how)
    assert told(shown(outcome)) == told(sql.rows_of(statement, *tables))
    assert outcome.late.by_operator() == {}, "no row was late"
    return outcome


def alone(one: Judged, ports: int) -> Build:
    return one.write, one.sql, ports, one.parts


def behind(first: Judged, second: Judged, ports: int) -> Build:
    """Return a unary operator that reads from another operator."""
    return (
        lambda *streams: second.write(first.write(*streams)),
        lambda *rows: second.sql(first.sql(*rows)),
        ports,
        first.parts or second.parts,
    )


def before(first: Judged, second: Judged) -> Build:
    """Return a binary operator whose left input is a unary operator."""
    return (
        lambda left, right: second.write(first.write(left), right),
        lambda left, right: second.sql(first.sql(left), right),
        2,
        first.parts or second.parts,
    )


ALONE = {name: alone(one, 1) for name, one in UNARY.items()} | {
    name: alone(one, 2) for name, one in BINARY.items()
}
PAIRS: dict[str, Build] = {}
for (first, one), (second, other) in itertools.product((UNARY | BINARY).items(), UNARY.items()):
    if not (one.ties and other.orders_rows) and not (one.disorders and other.wants_order):
        PAIRS[f"{first}, then {second}"] = behind(one, other, 2 if first in BINARY else 1)
for (first, one), (second, other) in itertools.product(UNARY.items(), BINARY.items()):
    PAIRS[f"{first}, then {second}"] = before(one, other)

_KEYED = [
    "tumbling",
    "sessions",
    "silences",
    "so far",
    "every two",
    "count window",
    "resample",
    "process",
    "join",
    "full join",
    "left table",
]

#: The pairs in which bugs were found.
_ALWAYS = [
    "join, then tumbling",
    "union, then tumbling",
    "tumbling, then join",
    "union, then sort",
    "sliding, then tumbling",
    "windows in parts, then tumbling",
    "parts, then count window",
    "join in parts, then sliding",
    "union in parts, then tumbling",
    "full join, then tumbling",
    "sessions, then join",
    "silences in parts, then sessions",
    "table, then sessions",
]
_SHORT = [*_ALWAYS, *random.Random(1).sample(sorted(PAIRS.keys() - set(_ALWAYS)), 6)]


@pytest.mark.parametrize("seed", seeds(often(1, 12)))
@pytest.mark.parametrize("name", ALONE)
def test_operator_gives_the_rows_that_sql_gives(name: str, seed: int) -> None:
    judge(ALONE[name], seed)


@pytest.mark.parametrize("name", _KEYED)
def test_keys_are_compared_by_one_rule(name: str) -> None:
    """Keys include null, NaNs with different bits, and zeros of both signs."""
    judge(ALONE[name], 2)


@pytest.mark.parametrize("bounds_s", [(-5, -1), (-7, -7), (1, 9), (7, 7)])
def test_outer_join_with_partners_on_one_side_in_time_gives_the_rows_that_sql_gives(
    bounds_s: tuple[int, int],
) -> None:
    lower, upper = bounds_s
    judge((outer("full", *bounds_s), outer_sql("FULL", lower, upper), 2, False), 1)


@pytest.mark.parametrize("seed", seeds(often(1, 2)))
@pytest.mark.parametrize("name", list(PAIRS) if IS_LONG else _SHORT)
def test_pair_of_operators_gives_the_rows_that_sql_gives(name: str, seed: int) -> None:
    judge(PAIRS[name], seed)


_TECHNIQUES: dict[str, Callable[[], Technique]] = {
    "sguard": lambda: SGuard(interval_s=0.1),
    "upstream backup": lambda: UpstreamBackup(interval_s=0.06, precise=True),
    "active standby": lambda: ActiveStandby(interval_s=0.06),
    "passive standby": lambda: PassiveStandby(interval_s=0.06),
}


#: Queries whose recovery is judged, and whether it is known which rows their state depends on.
_RECOVERED = {
    "union, then tumbling": True,
    "full join, then tumbling": True,
    "sessions, then tumbling": False,
    "silences, then sessions": False,
    "every two, then so far": False,
    "sessions, then left table": False,
}
_CASES = [
    (name, technique)
    for name, is_bounded in _RECOVERED.items()
    for technique in _TECHNIQUES
    if is_bounded or technique != "upstream backup"
]


@pytest.mark.parametrize(("name", "technique"), _CASES if IS_LONG else _CASES[::2])
def test_recovered_query_gives_the_rows_that_sql_gives(name: str, technique: str) -> None:
    """Nodes die one after another, at steps throughout the run."""
    calm = judge(PAIRS[name], 1, _TECHNIQUES[technique]())
    for step in range(5, calm.steps, max(1, calm.steps // often(2, 60))):
        node = f"node-{step % 3 + 1}"
        judge(PAIRS[name], 1, _TECHNIQUES[technique](), failures=[Kill(step, node)])
