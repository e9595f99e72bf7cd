"""Determinants: a unit's nondeterministic choices are repeated wherever the unit restarts (HA 6).

By default some steps of a run are played. PEACEFS_STEPS=all plays all of them, PEACEFS_STEPS=5 every fifth.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pytest
from simulation.seeds import seeds
from support.determined_samples import ALIGNED, ARBITRARY, determined_rows
from support.judged_networks import digits
from support.steps import steps, stride

from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.failures import CutLink, Failure, Hang, Kill
from benchmarks.dataflows.outcome import Outcome
from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.admission import promise
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup

_EVERY_STEP = stride(55)
_NODES = ["node-1", "node-2", "node-3", "node-4"]
#: Techniques whose units can restart on any node, so several nodes may die.
ANYWHERE: dict[str, Callable[[], Technique]] = {
    "upstream backup": lambda: UpstreamBackup(interval_s=0.06, precise=True),
    "sguard": lambda: SGuard(interval_s=0.1),
}
STANDBYS: dict[str, Callable[[], Technique]] = {
    "active standby": lambda: ActiveStandby(interval_s=0.06),
    "passive standby": lambda: PassiveStandby(interval_s=0.06),
}
Rows = dict[str, list[pa.RecordBatch]]


def play(network: Network, rows: Rows, technique: Technique, *failures: Failure, seed: int = 1) -> Outcome:
    times = VirtualTimes(rows_every_s=0.04, latency_s=0.02, store_s=0.03)
    run = SeededRun(network, technique, rows, seed=seed, nodes=len(_NODES), failures=failures, times=times)
    return run.run()


@cache
def calm(name: str, technique: str) -> tuple[Network, Rows, Outcome]:
    network = (ALIGNED | ARBITRARY)[name]()
    rows = determined_rows(network, 1)
    return network, rows, play(network, rows, (ANYWHERE | STANDBYS)[technique]())


def check(name: str, expected: Outcome, observed: Outcome, what: object) -> None:
    """Check that both sinks have the same rows, and that no effect of a row is repeated or lost."""
    out = observed.rows("out")
    assert out == observed.rows("copy"), what
    if name in ALIGNED:
        assert out == expected.rows("out"), what
    elif name.startswith("union") and "and" not in name:
        # All rows, in any order.
        assert sorted(out, key=str) == sorted(expected.rows("out"), key=str), what
    elif "count windows" in name:
        found = [digit for row in out for digit in digits(row[-1])]
        assert sorted(set(found)) == sorted(found), what
        # Windows that are open at the end are not output.
        assert len(found) >= sum(len(digits(row[-1])) for row in expected.rows("out")) - 8, what


@pytest.mark.parametrize("technique", [*ANYWHERE, *STANDBYS])
@pytest.mark.parametrize("name", [*ALIGNED, *ARBITRARY])
def test_determinants_are_repeated_after_a_failure_at_any_step(name: str, technique: str) -> None:
    network, rows, expected = calm(name, technique)
    kind = OperatorClass.DETERMINISTIC if name in ALIGNED else OperatorClass.ARBITRARY
    assert network.operator_class is kind
    make = (ANYWHERE | STANDBYS)[technique]
    assert promise(network, make()) is Recovery.PRECISE
    check(name, expected, expected, "no failure")
    victims = sorted(expected.primaries)
    # For aligned windows only upstream backup needs determinants.
    every = _EVERY_STEP * (1 if technique == "upstream backup" or name in ARBITRARY else 4)
    for at, step in enumerate(range(0, expected.steps, every)):
        # The unit with the determinants fails twice as often as the others.
        unit, node = next(each for each in victims if each[0] == "second") if at % 2 else victims[at // 2 % 4]
        check(name, expected, play(network, rows, make(), Kill(step, node)), f"{unit} lost before step {step}")


@pytest.mark.parametrize("technique", [*ANYWHERE, *STANDBYS])
def test_determinants_are_kept_before_output_leaves(technique: str) -> None:
    """The link on which a unit sends its determinants breaks, and soon after the unit dies.

    If its output did not wait for them, one consumer would have output that differs from the repeated one.
    """
    name = "chance"
    network, rows, expected = calm(name, technique)
    nodes = dict(sorted(expected.primaries))
    # Determinants go to the controller at the edge, or to the standby beside the producer.
    keeper = "edge" if technique in ANYWHERE else nodes["first"]
    for step in steps(expected.steps, every=6, begin=10):
        failures = CutLink(step, (nodes["second"], keeper)), Kill(step + 4, nodes["second"])
        observed = play(network, rows, (ANYWHERE | STANDBYS)[technique](), *failures)
        check(name, expected, observed, f"the link broke before step {step}")


@pytest.mark.parametrize("seed", seeds(30))
def test_determinants_are_repeated_whatever_fails(seed: int) -> None:
    """Several failures of any kind, including neighbours and the node that is recovering."""
    chance = random.Random(seed)
    name, technique = chance.choice([*ALIGNED, *ARBITRARY, *ARBITRARY]), chance.choice([*ANYWHERE])
    network, rows, expected = calm(name, technique)
    failures: list[Failure] = []
    step = chance.randrange(expected.steps)
    for _ in range(chance.randint(1, 5)):
        node = chance.choice(_NODES)
        failures.append(
            chance.choice(
                [
                    Kill(step, node, back_after_s=chance.uniform(0.01, 2)),
                    Hang(step, node, for_s=chance.uniform(0.01, 3)),
                    CutLink(step, tuple(chance.sample([*_NODES, "edge"], 2))),  # type: ignore[arg-type]
                ]
            )
        )
        # Often during the recovery from the previous failure.
        step = step + chance.randrange(60) if chance.random() < 0.6 else chance.randrange(expected.steps * 2)
    check(name, expected, play(network, rows, ANYWHERE[technique](), *failures, seed=seed), failures)
