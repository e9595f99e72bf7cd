"""Turns of a node: however many batches wait, it sends heartbeats on time and processes all batches."""

from __future__ import annotations

from support.dataflows import input_rows, repeatable

from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.failures import Kill
from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.core.effects import Effect, SendMessage
from peacefs.dataflow.core.messages import (
    CONTROLLER,
    Data,
    NodeHeartbeat,
    Placement,
    Subscribe,
    Subscribed,
    UnitPlacement,
)
from peacefs.dataflow.core.node import NodeCore
from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.hosts.checkpoint_store import MemoryCheckpoints
from peacefs.dataflow.hosts.unit_states import UnitStates
from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup

_BOUNDS = Bounds(page_bytes=8192, state_bytes_max=1 << 26, events_per_turn=3)


def _beats(effects: list[Effect]) -> int:
    return sum(isinstance(each, SendMessage) and isinstance(each.message, NodeHeartbeat) for each in effects)


def test_node_beats_between_turns_while_it_catches_up() -> None:
    network = repeatable().network
    first, *_ = (plan.name for plan in network.units)
    states = UnitStates(MemoryCheckpoints(), _BOUNDS)
    core = NodeCore("node", "1", QueryRecovery(network, Amnesia()), states.new, _BOUNDS)
    placed = {first: UnitPlacement("node", 1), "source in": UnitPlacement("edge", 1)}
    effects = core.received(0.0, CONTROLLER, Placement(2, placed))
    (asked,) = (
        each.message for each in effects if isinstance(each, SendMessage) and isinstance(each.message, Subscribe)
    )
    core.received(0.0, "edge", Subscribed("in", asked.subscription, asked.after, 0))
    for at, rows in enumerate(input_rows(1, batches=10, size=2)):
        assert (
            core.received(0.0, "edge", Data("in", asked.subscription, Batch(1 + 2 * at, rows)), later=True) == []
        )
    assert core.units[first]["in"].number == 0, "messages are taken before units look at them"
    core.tick(0.0)
    turns = []
    now_s = 0.0
    while core.has_work:
        now_s += _BOUNDS.heartbeat_s
        core.work(now_s)
        turns.append(core.units[first]["in"].number)
        assert _beats(core.tick(now_s)) == 1
    # Units are checked after three batches of two rows, in `tick` and in `work`.
    assert turns == [12, 20]


def test_runs_in_short_turns_give_the_same_rows_after_a_failure() -> None:
    sample = repeatable()
    rows = sample.rows(1, batches=30)

    def play(events_per_turn: int, *failures: Kill) -> list[tuple[object, ...]]:
        bounds = Bounds(page_bytes=8192, state_bytes_max=1 << 26, events_per_turn=events_per_turn)
        technique = UpstreamBackup(interval_s=0.06, precise=True)
        run = SeededRun(
            sample.network,
            technique,
            rows,
            seed=1,
            failures=failures,
            bounds=bounds,
            times=VirtualTimes(rows_every_s=0.01),
        )
        return run.run().rows("out")

    expected = play(1000)
    for step in range(40, 160, 40):
        assert play(1, Kill(step, "node-1")) == expected, f"killed before step {step}"
