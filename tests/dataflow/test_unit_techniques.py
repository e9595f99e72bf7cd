"""A query whose units have different techniques: what is lost, repeated or refused at their borders.

A model computes the rows that the query must give (`oracles/row_windows.py`). A seed chooses the techniques and
failures, and is printed. PEACEFS_SEED=n plays one seed, PEACEFS_LONG=1 many.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracles.row_windows import sums_of_windows
from simulation.seeds import seeds
from support.dataflows import SCHEMA, input_rows, passed
from support.judged_networks import JUDGED_NETWORKS
from support.long_runs import often

from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.failures import Failure, Kill
from benchmarks.dataflows.outcome import Outcome
from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.admission import admit, promise
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.flux import Flux
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup
from peacefs.protocol.errors import InvalidQuery, StartupError

_SIZE, _EVERY = 3, 2
_INTERVAL_S = 0.06
_NODES = 6
_TIMES = VirtualTimes(rows_every_s=0.08, latency_s=0.02, store_s=0.05)

_PRECISE: dict[str, Callable[[], Technique]] = {
    "sguard": lambda: SGuard(interval_s=_INTERVAL_S),
    "cec": CEC,
    "active standby": lambda: ActiveStandby(interval_s=_INTERVAL_S),
    "passive standby": lambda: PassiveStandby(interval_s=_INTERVAL_S),
    "flux": lambda: Flux(interval_s=_INTERVAL_S),
    "upstream backup": lambda: UpstreamBackup(interval_s=_INTERVAL_S, precise=True),
    "upstream backup of the paper": lambda: UpstreamBackup(
        interval_s=_INTERVAL_S, precise=True, adjacent_failures=False
    ),
}


def counting() -> Network:
    query = Query("counting")
    first = passed(query.source("in", SCHEMA, time="at").unit("first"))
    windows = first.unit("second").key_by("key").count_window(_SIZE, every=_EVERY)
    return passed(windows.aggregate(F.sum("value")).unit("third")).sink("out").network()


def with_techniques(network: Network, techniques: dict[str, Technique]) -> Network:
    return replace(network, techniques=techniques)


def drawn(chance: random.Random, network: Network, names: list[str]) -> dict[str, Technique]:
    """Return random techniques, at least two of them different."""
    while True:
        chosen = {plan.name: chance.choice(names) for plan in network.units}
        if len(set(chosen.values())) > 1:
            print("techniques:", chosen)
            return {unit: _PRECISE[name]() for unit, name in chosen.items()}


def play(network: Network, rows: Any, seed: int, *failures: Failure) -> Outcome:
    return SeededRun(network, Amnesia(), rows, seed=seed, nodes=_NODES, failures=failures, times=_TIMES).run()


def kills(chance: random.Random, network: Network, steps: int) -> list[Failure]:
    """Return one random kill, or two in quick succession if all techniques survive two.

    Two dead nodes may be both replicas of a pair, or neighbours whose rows the paper's upstream backup does not
    keep.
    """
    step, nodes = chance.randrange(20, steps), chance.sample(range(1, _NODES + 1), 2)
    died = [Kill(step, f"node-{nodes[0]}", back_after_s=chance.uniform(0.05, 1.0))]
    outlives_two = not any(
        each.replicas.paired or (each.causes is not None and each.causes.level is RowStage.RECEIVED)
        for each in network.techniques.values()
    )
    if outlives_two:
        died.append(Kill(step + chance.randrange(300), f"node-{nodes[1]}", back_after_s=chance.uniform(0.05, 1.0)))
    print("failures:", died)
    return list(died)


@pytest.mark.parametrize("seed", seeds(often(36, 200)))
def test_units_that_are_each_precise_are_so_together(seed: int) -> None:
    chance = random.Random(seed)
    network = with_techniques(counting(), drawn(chance, counting(), list(_PRECISE)))
    assert promise(network, Amnesia()) is Recovery.PRECISE
    rows = input_rows(seed, batches=9, size=4)
    expected = sums_of_windows(
        ((row["key"], row["value"]) for batch in rows for row in batch.to_pylist()), _SIZE, _EVERY
    )
    whole = play(network, {"in": rows}, seed)
    for failures in ([], kills(chance, network, whole.steps), kills(chance, network, whole.steps)):
        outcome = play(network, {"in": rows}, seed, *failures) if failures else whole
        found: dict[str, list[int]] = defaultdict(list)
        for key, _, total in outcome.rows("out"):
            found[key].append(total)
        assert found == expected, f"after {failures}"


@pytest.mark.parametrize("seed", seeds(often(12, 80)))
def test_arbitrary_unit_is_precise_among_units_of_other_techniques(seed: int) -> None:
    """Each row carries a digest of all earlier rows, so the judge knows which rows may follow."""
    chance = random.Random(seed)
    judged = JUDGED_NETWORKS[OperatorClass.ARBITRARY]()
    techniques = drawn(chance, judged.network, [name for name in _PRECISE if name not in ("cec", "flux")])
    for unit in ("first", "fourth", "third"):
        if chance.random() < 0.5:
            techniques[unit] = Flux(interval_s=_INTERVAL_S)
    network = with_techniques(judged.network, techniques)
    assert promise(network, Amnesia()) is Recovery.PRECISE
    whole = play(network, judged.input(seed), seed)
    assert judged.judge(seed, whole, whole) is Recovery.PRECISE
    for failures in (kills(chance, network, whole.steps), kills(chance, network, whole.steps)):
        observed = play(network, judged.input(seed), seed, *failures)
        assert judged.judge(seed, whole, observed) is Recovery.PRECISE, f"after {failures}"


_REPEATS = SGuard(interval_s=_INTERVAL_S, precise=False)


@pytest.mark.parametrize(
    ("techniques", "promised"),
    [
        # Rows lost before a unit are missing behind it, and a unit that keeps nothing loses its state.
        ({"first": Amnesia()}, Recovery.GAP),
        ({"third": Amnesia()}, Recovery.GAP),
        # Windows of rows count repeated rows again.
        ({"first": _REPEATS}, Recovery.DIVERGENT),
        # Only the sink is behind the last unit.
        ({"third": _REPEATS}, Recovery.REPEATING),
        ({"second": CEC(), "third": Flux()}, Recovery.PRECISE),
    ],
)
def test_promise_is_that_of_the_worst_unit_and_of_what_it_does_to_the_others(
    techniques: dict[str, Technique], promised: Recovery
) -> None:
    network = with_techniques(counting(), techniques)
    assert promise(network, SGuard(interval_s=1)) is promised
    admit(network, SGuard(interval_s=1), promised)
    if promised is not Recovery.PRECISE:
        with pytest.raises(InvalidQuery, match=rf"^sguard.* gives {promised.value} recovery"):
            admit(network, SGuard(interval_s=1), Recovery.PRECISE)


def test_unit_behind_one_that_repeats_loses_nothing() -> None:
    """The unit behind renumbers its rows, too: consumers would otherwise mistake new rows for known ones."""
    judged = JUDGED_NETWORKS[OperatorClass.REPEATABLE]()
    network = with_techniques(judged.network, {"first": _REPEATS})
    rows = judged.input(1)
    values = {value for batch in rows["in"] for value in batch.column("value").to_pylist()}

    def played(*failures: Failure) -> Outcome:
        technique = SGuard(interval_s=0.3)
        return SeededRun(network, technique, rows, seed=1, nodes=3, failures=failures, times=_TIMES).run()

    whole = played()
    (first,) = (node for unit, node in whole.primaries if unit == "first")
    (second,) = (node for unit, node in whole.primaries if unit == "second")
    for step in range(60, whole.steps, often(31, 5)):
        # Both the repeating unit and the unit behind it die.
        died = [Kill(step, first, back_after_s=0.2), Kill(step, second, back_after_s=0.2)]
        assert {row[2] for row in played(*died).rows("out")} == values, f"before step {step}"


@pytest.mark.parametrize(
    ("techniques", "said"),
    [
        (
            {"first": Amnesia(), "second": CEC()},
            r"unit 'second' cannot use cec behind unit 'first', which numbers its rows anew .* \(amnesia\)",
        ),
        ({"first": _REPEATS, "second": Flux()}, r"'second' cannot use flux behind unit 'first'"),
        ({"first": _REPEATS, "second": UpstreamBackup(precise=True)}, "cannot use upstream-backup behind"),
        ({"second": PeerRing()}, "PeerRing recovers all units of a query together"),
        ({"nowhere": CEC()}, "unit 'nowhere' has a technique of its own, and no operator"),
    ],
)
def test_techniques_that_cannot_meet_are_refused(techniques: dict[str, Technique], said: str) -> None:
    with pytest.raises(InvalidQuery, match=said) as refused:
        admit(with_techniques(counting(), techniques), SGuard(interval_s=1))
    assert "\n" not in str(refused.value)


def test_technique_is_given_with_the_unit_and_to_each_part_of_a_stage() -> None:
    query = Query("written")
    stream = query.source("in", SCHEMA, time="at").unit("first", technique=CEC()).select("key", "at", "value")
    parted = stream.partition("key", parts=2, name="parts").unit("parts", technique=Flux())
    parted.key_by("key").count_window(2).aggregate(F.count()).merge("out").sink("out")
    network = query.network()
    assert network.techniques == {"first": CEC(), "parts[0]": Flux(), "parts[1]": Flux()}
    with pytest.raises(InvalidQuery, match="unit 'first' is given two techniques, cec and flux"):
        stream.unit("first", technique=Flux())
    not_one: Any = CEC
    with pytest.raises(InvalidQuery, match=r"unit 'other': a technique is wanted, .* and not <function CEC"):
        stream.unit("other", technique=not_one)


def test_query_is_not_resumed_if_one_of_its_units_keeps_nothing(tmp_path: Path) -> None:
    network = with_techniques(counting(), {"third": Amnesia()})
    host = LocalProcesses(1, DirectoryCheckpoints(tmp_path))
    with pytest.raises(StartupError, match=r"^amnesia keeps nothing that outlives"):
        host.start(network, SGuard(interval_s=1), {"in": []}, {"out": print}, RunOptions(resume=True))
