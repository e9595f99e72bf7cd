"""The queries of Nexmark as a user of Bytewax writes them, one object per event, and a process that runs one.

`python -m benchmarks.nexmark.bytewax_flows QUERY EVENTS SEED DIRECTORY` prints seconds, processor time and rows as
JSON. Like peacefs, it gets Arrow batches in memory, and makes an object of each row; with `--ready` the objects
are made before the clock starts. Each second an epoch ends, and the state that changed is written to SQLite in the
directory.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import bytewax.operators as op
import bytewax.operators.windowing as win
import numpy as np
import pyarrow as pa
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main

from .events import FIRST_CATEGORY, LONGEST_AUCTION, Events, events

_ROWS_A_BATCH = 1000
_EPOCH = timedelta(seconds=1)
_ALIGNED = datetime(2026, 1, 1, tzinfo=UTC)
_TEN_S = timedelta(seconds=10)
_TWO_S = timedelta(seconds=2)
_TUMBLING = win.TumblingWindower(length=_TEN_S, align_to=_ALIGNED)


class Person(NamedTuple):
    id: int
    name: str
    email: str
    card: str
    city: str
    state: str
    at: datetime
    extra: str


class Auction(NamedTuple):
    id: int
    item: str
    description: str
    first_bid: int
    reserve: int
    at: datetime
    expires: datetime
    seller: int
    category: int
    extra: str


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    at: datetime
    extra: str


#: A piece of the input: a table of each kind of event that is read.
_Turn = list[tuple[str, pa.Table]]
_KINDS: Final[dict[str, Any]] = {"persons": Person, "auctions": Auction, "bids": Bid}


def q0(bids: Any) -> Any:
    return bids


def q1(bids: Any) -> Any:
    return op.map("euros", bids, lambda bid: (bid.auction, bid.bidder, bid.at, bid.extra, bid.price * 0.908))


def q2(bids: Any) -> Any:
    some = op.filter("some", bids, lambda bid: bid.auction % 123 == 0)
    return op.map("columns", some, lambda bid: (bid.auction, bid.price, bid.at))


def q3(both: Any) -> Any:
    def wanted(event: Any) -> bool:
        if type(event) is Person:
            return event.state in ("or", "id", "ca")
        return bool(event.category == FIRST_CATEGORY)

    def match(state: Any, event: Any) -> Any:
        person, waiting = state or (None, [])
        if type(event) is Person:
            return (event, []), [(event.id, event.name, event.city, event.state, each.id) for each in waiting]
        if person is None:
            return (None, [*waiting, event]), []
        return (person, []), [(person.id, person.name, person.city, person.state, event.id)]

    keyed = op.key_on("seller", op.filter("wanted", both, wanted), lambda event: str(event[_SELLER[type(event)]]))
    return op.stateful_flat_map("match", keyed, match)


def q4(both: Any) -> Any:
    def price(state: Any, event: Any) -> Any:
        auction, waiting = state or (None, [])
        if type(event) is Auction:
            return (event, []), [(event, bid) for bid in waiting if event.at <= bid.at <= event.expires]
        if auction is None:
            return (None, [*waiting, event]), []
        return (auction, []), [(auction, event)] if auction.at <= event.at <= auction.expires else []

    def average(state: Any, final: int) -> Any:
        total, count = state or (0, 0)
        return (total + final, count + 1), (total + final) / (count + 1)

    keyed = op.key_on("auction", both, lambda event: str(event[0]))
    valid = op.stateful_flat_map("valid", keyed, price)
    finals = win.fold_window(
        "highest",
        valid,
        win.EventClock(lambda pair: pair[1].at, wait_for_system_duration=timedelta()),
        win.SessionWindower(gap=LONGEST_AUCTION),
        lambda: (0, 0),
        lambda best, pair: (pair[0].category, max(best[1], pair[1].price)),
        lambda one, other: max(one, other, key=lambda each: each[1]),
    )
    by_category = op.map("category", finals.down, lambda found: (str(found[1][1][0]), found[1][1][1]))
    return op.stateful_map("average", by_category, average)


def q5(bids: Any) -> Any:
    counted = win.count_window(
        "counted",
        bids,
        win.EventClock(lambda bid: bid.at, wait_for_system_duration=timedelta()),
        win.SlidingWindower(length=_TEN_S, offset=_TWO_S, align_to=_ALIGNED),
        lambda bid: str(bid.auction),
    )
    by_window = op.map("window", counted.down, lambda found: (str(found[1][0]), (found[0], found[1][1])))

    def most(best: Any, found: Any) -> Any:
        if not best or found[1] > best[0][1]:
            return [found]
        return [*best, found] if found[1] == best[0][1] else best

    hottest = win.fold_window(
        "hottest",
        by_window,
        # All counts of a window have one time. It is complete at the end of the input at the latest.
        win.EventClock(lambda _: _ALIGNED, wait_for_system_duration=timedelta(days=1)),
        win.TumblingWindower(length=_TWO_S, align_to=_ALIGNED),
        list,
        most,
        lambda one, other: one + other,
    )
    return op.flat_map("each", hottest.down, lambda found: found[1][1])


def q7(bids: Any) -> Any:
    def highest(best: list[Bid], bid: Bid) -> list[Bid]:
        if not best or bid.price > best[0].price:
            return [bid]
        return [*best, bid] if bid.price == best[0].price else best

    found = win.fold_window(
        "highest",
        op.key_on("all", bids, lambda _: "all"),
        win.EventClock(lambda bid: bid.at, wait_for_system_duration=timedelta()),
        _TUMBLING,
        list,
        highest,
        lambda one, other: one + other,
    )
    return op.flat_map("each", found.down, lambda each: each[1][1])


def q8(both: Any) -> Any:
    kinds = op.branch("kinds", both, lambda event: type(event) is Person)
    found = win.join_window(
        "both",
        win.EventClock(lambda event: event.at, wait_for_system_duration=timedelta()),
        _TUMBLING,
        op.key_on("person", kinds.trues, lambda person: str(person.id)),
        op.key_on("seller", kinds.falses, lambda auction: str(auction.seller)),
        insert_mode="last",
        emit_mode="final",
    )
    complete = op.filter("complete", found.down, lambda each: None not in each[1][1])
    return op.map("columns", complete, lambda each: (each[0], each[1][1][0].name, each[1][0]))


def q11(bids: Any) -> Any:
    found = win.count_window(
        "sessions",
        bids,
        win.EventClock(lambda bid: bid.at, wait_for_system_duration=timedelta()),
        win.SessionWindower(gap=_TEN_S),
        lambda bid: str(bid.bidder),
    )
    return found.down


_SELLER = {Person: 0, Auction: 7}
_FLOWS: Final[dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]]] = {
    "q0": (q0, ("bids",)),
    "q1": (q1, ("bids",)),
    "q2": (q2, ("bids",)),
    "q3": (q3, ("persons", "auctions")),
    "q4": (q4, ("auctions", "bids")),
    "q5": (q5, ("bids",)),
    "q7": (q7, ("bids",)),
    "q8": (q8, ("persons", "auctions")),
    "q11": (q11, ("bids",)),
}


class _Memory(FixedPartitionedSource[Any, int]):
    """Arrow batches in memory, of which it makes an object per row, or the objects if they are `ready`."""

    def __init__(self, turns: list[Any], *, ready: bool) -> None:
        self._turns, self._ready = turns, ready

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Reader:
        return _Reader(self._turns, resume_state or 0, ready=self._ready)


class _Reader(StatefulSourcePartition[Any, int]):
    def __init__(self, turns: list[Any], first: int, *, ready: bool) -> None:
        self._turns, self._next, self._ready = turns, first, ready

    def next_batch(self) -> list[Any]:
        if self._next >= len(self._turns):
            raise StopIteration
        self._next += 1
        turn = self._turns[self._next - 1]
        return turn if self._ready else _objects(turn)

    def snapshot(self) -> int:
        return self._next


class _Counted(DynamicSink[Any]):
    def __init__(self) -> None:
        self.rows = 0

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _CountedPart:
        return _CountedPart(self)


class _CountedPart(StatelessSinkPartition[Any]):
    def __init__(self, counted: _Counted) -> None:
        self._counted = counted

    def write_batch(self, items: list[Any]) -> None:
        self._counted.rows += len(items)


def _turns(given: Events, kinds: tuple[str, ...]) -> list[_Turn]:
    """Cut the events of some kinds into pieces of the same event time."""
    count = sum(given[kind].num_rows for kind in kinds) // _ROWS_A_BATCH + 1
    times = {kind: given[kind].column("at").cast(pa.int64()).to_numpy() for kind in kinds}
    begin = min(each[0] for each in times.values())
    bounds = np.linspace(begin, max(each[-1] for each in times.values()) + 1, count + 1)
    at = {kind: np.searchsorted(each, bounds) for kind, each in times.items()}
    return [
        [(kind, given[kind].slice(at[kind][turn], at[kind][turn + 1] - at[kind][turn])) for kind in kinds]
        for turn in range(count)
    ]


def _objects(turn: _Turn) -> list[Any]:
    """Return the events of a piece in the order of their times."""
    every = [row for kind, table in turn for row in map(_KINDS[kind], *map(_values, table.columns))]
    return sorted(every, key=lambda row: row.at) if len(turn) > 1 else every


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    # Bytewax takes no other time zone than this object, so Arrow's UTC does not do.
    return [each.replace(tzinfo=UTC) for each in values] if pa.types.is_timestamp(column.type) else values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query", choices=_FLOWS)
    parser.add_argument("events", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ready", action="store_true", help="make the objects before the clock starts")
    options = parser.parse_args()
    write, kinds = _FLOWS[options.query]
    given = events(options.events, seed=options.seed)
    turns: list[Any] = _turns(given, kinds)
    if options.ready:
        turns = [_objects(turn) for turn in turns]
    init_db_dir(options.directory, 1)
    flow, sink = Dataflow(options.query), _Counted()
    op.output("out", write(op.input("in", flow, _Memory(turns, ready=options.ready))), sink)
    begun, spent = time.perf_counter(), time.process_time()
    run_main(flow, epoch_interval=_EPOCH, recovery_config=RecoveryConfig(str(options.directory)))
    found = {
        "s": time.perf_counter() - begun,
        "cpu s": time.process_time() - spent,
        "in": sum(given[kind].num_rows for kind in kinds),
        "out": sink.rows,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
