"""HA's Table 2, written by hand: the worst effect of a failure for each technique and class of networks.

A node is killed before a step of a seeded run, and the judge of recovery classifies the output. By default some of
the steps are played (`support.steps`), with the nodes in turn. PEACEFS_STEPS=all plays all steps for each node,
and PEACEFS_SEEDS=n the first n seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
from simulation.seeds import seeds
from support.judged_networks import JUDGED_NETWORKS, JudgedNetwork
from support.steps import steps

from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.failures import Kill
from benchmarks.dataflows.outcome import Outcome
from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup

REPEATABLE, CONVERGENT_CAPABLE, DETERMINISTIC, ARBITRARY = OperatorClass
PRECISE, REPEATING, CONVERGENT, DIVERGENT, GAP = Recovery
_INTERVAL_S = 0.06
_LATENCY_S = 0.02


@dataclass(frozen=True)
class Line:
    technique: Callable[[], Technique]
    cells: Mapping[OperatorClass, Recovery]
    #: The mean delay of links for the network with a union; it varies by half.
    union_latency_s: float = _LATENCY_S


_ALWAYS_PRECISE = dict.fromkeys(OperatorClass, PRECISE)

#: HA's Table 2 (section 5), and rows for statements in the papers' text.
TABLE_TWO = {
    # HA 4: "a gap recovery for all types of query networks".
    "amnesia": Line(Amnesia, {REPEATABLE: GAP, CONVERGENT_CAPABLE: GAP, DETERMINISTIC: GAP, ARBITRARY: GAP}),
    # SGuard 3: a checkpoint of the unit and a replay of its input, as with passive standby.
    "sguard": Line(
        lambda: SGuard(interval_s=_INTERVAL_S, precise=False),
        {REPEATABLE: REPEATING, CONVERGENT_CAPABLE: REPEATING, DETERMINISTIC: REPEATING, ARBITRARY: DIVERGENT},
    ),
    # Arbitrary networks need determinants (HA 6).
    "sguard, precise": Line(lambda: SGuard(interval_s=_INTERVAL_S), _ALWAYS_PRECISE),
    "upstream backup": Line(
        lambda: UpstreamBackup(interval_s=_INTERVAL_S),
        {REPEATABLE: REPEATING, CONVERGENT_CAPABLE: CONVERGENT, DETERMINISTIC: DIVERGENT, ARBITRARY: DIVERGENT},
    ),
    # As in the paper, a row is dropped as soon as live nodes have received everything it caused.
    "upstream backup of the paper": Line(
        lambda: UpstreamBackup(interval_s=_INTERVAL_S, adjacent_failures=False),
        {REPEATABLE: REPEATING, CONVERGENT_CAPABLE: CONVERGENT, DETERMINISTIC: DIVERGENT, ARBITRARY: DIVERGENT},
    ),
    # HA 6 and Table 4: the last two classes need determinants.
    "upstream backup, precise": Line(
        lambda: UpstreamBackup(interval_s=_INTERVAL_S, precise=True), _ALWAYS_PRECISE
    ),
    "upstream backup of the paper, precise": Line(
        lambda: UpstreamBackup(interval_s=_INTERVAL_S, precise=True, adjacent_failures=False), _ALWAYS_PRECISE
    ),
    # Refused for operators without windows whose state it cannot log, such as unions.
    "cec": Line(CEC, dict.fromkeys((REPEATABLE, CONVERGENT_CAPABLE, DETERMINISTIC), PRECISE)),
    "passive standby": Line(
        lambda: PassiveStandby(interval_s=_INTERVAL_S, precise=False),
        {REPEATABLE: REPEATING, CONVERGENT_CAPABLE: REPEATING, DETERMINISTIC: REPEATING, ARBITRARY: DIVERGENT},
    ),
    "passive standby, precise": Line(lambda: PassiveStandby(interval_s=_INTERVAL_S), _ALWAYS_PRECISE),
    "active standby": Line(
        lambda: ActiveStandby(interval_s=_INTERVAL_S, precise=False),
        {REPEATABLE: REPEATING, CONVERGENT_CAPABLE: REPEATING, DETERMINISTIC: REPEATING, ARBITRARY: DIVERGENT},
        # Longer than the time between rows, so that the nodes of a pair see different orders.
        union_latency_s=0.1,
    ),
    "active standby, precise": Line(lambda: ActiveStandby(interval_s=_INTERVAL_S), _ALWAYS_PRECISE),
}

CELLS = [
    pytest.param(line, network, seed, id=f"{name}-{network}-seed {seed}")
    for name, line in TABLE_TWO.items()
    for network in line.cells
    for seed in seeds(1)
]


@pytest.mark.parametrize(("line", "network", "seed"), CELLS)
def test_table_two_is_what_failures_do(line: Line, network: OperatorClass, seed: int) -> None:
    """The worst observed result equals the cell, and the technique's own promise."""
    promised = line.cells[network]
    judged = JUDGED_NETWORKS[network]()
    assert judged.network.operator_class is network
    assert line.technique().promises(network) is promised
    expected = play(judged, line, seed)
    assert judged.judge(seed, expected, expected) is PRECISE
    # A precise cell holds whichever node fails. The others describe the output of the failed node.
    units = ["first", "second", "third"] if promised is PRECISE else ["second"]
    victims = [node for unit, node in sorted(expected.primaries) if unit in units]
    assert len(victims) == len(units)
    kills = kills_of(victims, expected.steps, every=30 if promised is PRECISE else 15)
    print(f"seed {seed}, {len(kills)} runs of {expected.steps} steps, with {kills[0]} to {kills[-1]}")
    seen: dict[Recovery, Kill] = {}
    for kill in kills:
        seen.setdefault(judged.judge(seed, expected, play(judged, line, seed, kill)), kill)
    assert max(seen, key=list(Recovery).index) is promised, f"first seen after {seen}"


def play(judged: JudgedNetwork, line: Line, seed: int, *failures: Kill) -> Outcome:
    return SeededRun(
        judged.network,
        line.technique(),
        judged.input(seed),
        seed=seed,
        # A node for each unit, and a node for its standby.
        nodes=2 * len(judged.network.units),
        failures=failures,
        times=VirtualTimes(
            rows_every_s=0.08,
            latency_s=line.union_latency_s if judged.achievable is not None else _LATENCY_S,
            store_s=0.05,
        ),
    ).run()


def kills_of(nodes: list[str], count: int, *, every: int) -> list[Kill]:
    """Return a kill of each node before each step, or of the nodes in turn if only some steps are played."""
    chosen = steps(count, every=every)
    if chosen.step == 1:
        return [Kill(step, node) for step in chosen for node in nodes]
    return [Kill(step, nodes[at % len(nodes)]) for at, step in enumerate(chosen)]
