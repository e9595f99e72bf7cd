"""Active and passive standby: a failure at every step of a run, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from support.dataflows import SAMPLES, Row, Sample

from peacefs.dataflow.comparison import compare_outputs
from peacefs.dataflow.hosts.seeded import Failure, Kill, Outcome, SeededRun
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.standbys import StandbyTechnique

_TECHNIQUES = [ActiveStandby, PassiveStandby]
_NODES = ("node-1", "node-2", "node-3")
_NOT_ARBITRARY = [each for each in OperatorClass if each is not OperatorClass.ARBITRARY]
_WORSE = list(Recovery)


def play(
    network: OperatorClass, technique: StandbyTechnique, *failures: Failure, seed: int = 1, **how: object
) -> Outcome:
    sample = sample_of(network)
    how = {"rows_every_s": 0.04, **how}
    return SeededRun(sample.network, technique, sample.rows(seed), seed=seed, failures=failures, **how).run()  # type: ignore[arg-type]


@cache
def sample_of(network: OperatorClass) -> Sample:
    return SAMPLES[network]()


def numbered_as_they_came(rows: list[Row], seed: int = 1) -> list[Row]:
    """Return what the union gives without a failure if its inputs interleave as they do in `rows`."""
    given = sample_of(OperatorClass.ARBITRARY).rows(seed)
    waiting = {name: [row for batch in batches for row in batch.to_pylist()] for name, batches in given.items()}
    made = []
    for number, row in enumerate(rows):
        source = next((each for each in waiting.values() if each and each[0]["value"] == row[2]), None)
        if source is None:
            break
        first = source.pop(0)
        made.append((f"row {number + 1}", first["at"], first["value"]))
    left = [row for source in waiting.values() for row in source]
    return [*made, *(("lost", row["at"], row["value"]) for row in left)]


def verdict(network: OperatorClass, expected: Outcome, observed: Outcome, seed: int = 1) -> Recovery:
    sample, rows = sample_of(network), observed.rows("out")
    precise = expected.rows("out") if network in _NOT_ARBITRARY else numbered_as_they_came(rows, seed)
    return compare_outputs(precise, rows, subject=sample.subject, carries=sample.carries)


@pytest.mark.parametrize("network", OperatorClass, ids=str)
@pytest.mark.parametrize("technique", _TECHNIQUES)
def test_standby_is_precise_after_a_failure_at_any_step(
    technique: Callable[[], StandbyTechnique], network: OperatorClass
) -> None:
    """Before each step a node is killed, with primaries and standbys; a union goes on as it was begun."""
    expected = play(network, technique())
    assert verdict(network, expected, expected) is Recovery.PRECISE
    assert technique().promises(network) is Recovery.PRECISE
    recovered = 0
    for first, node in enumerate(_NODES):
        for step in range(first, expected.steps, len(_NODES)):
            observed = play(network, technique(), Kill(step, node))
            assert verdict(network, expected, observed) is Recovery.PRECISE, f"{node} killed before step {step}"
            recovered += observed.recoveries
    assert recovered > expected.steps / 3, "many failures were those of a primary"


@pytest.mark.parametrize("network", OperatorClass, ids=str)
@pytest.mark.parametrize("technique", _TECHNIQUES)
def test_standby_without_precision_gives_the_row_of_the_table(
    technique: Callable[..., StandbyTechnique], network: OperatorClass
) -> None:
    """HA's Table 2 of the output of the unit that failed: repeating, and divergent for arbitrary networks."""
    promised = Recovery.DIVERGENT if network is OperatorClass.ARBITRARY else Recovery.REPEATING
    assert technique(precise=False).promises(network) is promised
    expected = play(network, technique(precise=False))
    (node,) = [node for unit, node in expected.primaries if unit == sample_of(network).unit]
    seen = {
        verdict(network, expected, play(network, technique(precise=False), Kill(step, node)))
        for step in range(0, expected.steps, 3)
    }
    assert max(seen, key=_WORSE.index) is promised, "nothing that is worse than promised"
