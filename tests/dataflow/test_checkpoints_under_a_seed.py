"""Checkpoints that wait, are postponed or interrupted, and crashes at every step of a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulation.seeds import seeds
from support.dataflows import SAMPLES, Sample, repeatable
from support.steps import steps

from benchmarks.dataflows.comparison import compare_outputs
from benchmarks.dataflows.costs import VirtualTimes
from benchmarks.dataflows.seeded import Failure, Kill, Outcome, SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.model.operator_class import OperatorClass, Recovery
from peacefs.dataflow.techniques.sguard import SGuard

_NOT_ARBITRARY = [each for each in OperatorClass if each is not OperatorClass.ARBITRARY]


def play(sample: Sample, *failures: Failure, seed: int = 1, **other_times: float) -> Outcome:
    times = replace(VirtualTimes(rows_every_s=0.04, store_s=0.05), **other_times)  # type: ignore[arg-type]
    rows = sample.rows(seed)
    return SeededRun(
        sample.network, SGuard(interval_s=0.06), rows, seed=seed, failures=failures, times=times
    ).run()


@pytest.mark.parametrize("network", _NOT_ARBITRARY, ids=str)
def test_checkpoint_that_is_told_not_now_comes_back(network: OperatorClass) -> None:
    """Half of all checkpoints are postponed; later ones contain all changes since the last one."""
    sample = SAMPLES[network]()
    expected = play(sample)
    calm = play(sample, not_now=0.5)
    assert calm.checkpoints_cancelled > 0
    assert calm.checkpoints_stored > 1
    for first, node in enumerate(("node-1", "node-2")):
        for step in steps(calm.steps, every=20, offset=9 * first):
            observed = play(sample, Kill(step, node), not_now=0.5)
            assert observed.rows("out") == expected.rows("out"), (step, node)


@pytest.mark.parametrize("store_s", [0.0, 0.3], ids=["quick store", "slow store"])
def test_checkpoint_survives_a_crash_at_each_of_its_steps(store_s: float) -> None:
    """Either node crashes between any two steps: taken, stored, recorded, acknowledged, trimmed."""
    sample = SAMPLES[OperatorClass.DETERMINISTIC]()
    expected = play(sample, store_s=store_s)
    for first, node in enumerate(("node-1", "node-2")):
        for step in steps(expected.steps, every=16, offset=8 * first):
            observed = play(sample, Kill(step, node, back_after_s=0.1), store_s=store_s)
            found = compare_outputs(expected.rows("out"), observed.rows("out"), subject=sample.subject)
            assert found is Recovery.PRECISE, (step, node)


@pytest.mark.parametrize("seed", seeds(8))
def test_recovery_survives_a_crash_at_any_of_its_steps(seed: int) -> None:
    """The node that takes over dies at every step after the first death; then the first node is back."""
    sample = SAMPLES[_NOT_ARBITRARY[seed % len(_NOT_ARBITRARY)]]()
    expected = play(sample, seed=seed)
    first = expected.steps // 2
    for second in (first + after for after in steps(60, every=15)):
        killed = [Kill(first, "node-1", back_after_s=0.3), Kill(second, "node-2", back_after_s=0.3)]
        observed = play(sample, *killed, seed=seed)
        assert observed.rows("out") == expected.rows("out"), second


def test_recovery_is_reported_when_the_unit_has_caught_up() -> None:
    """Rows keep coming for long afterwards, so that the run does not end before the report arrives."""
    sample = SAMPLES[OperatorClass.CONVERGENT_CAPABLE]()
    expected = play(sample, rows_every_s=1.0)
    assert expected.recoveries == 0
    (node,) = {node for unit, node in expected.places if unit == "second"}
    for step in steps(expected.steps // 2, every=40, begin=expected.steps // 4):
        assert play(sample, Kill(step, node), rows_every_s=1.0).recoveries == 1, step


def test_memory_is_bounded_while_no_checkpoint_can_start_for_a_minute() -> None:
    """All checkpoints are postponed: producers keep what they may, and the source waits; then all continues."""
    sample = repeatable()
    rows = sample.rows(1, batches=60)
    batch = max(batch.nbytes for batch in rows["in"])
    bounds = Bounds(credit_bytes=4 * batch, buffer_bytes_max=10 * batch, page_bytes=8192, state_bytes_max=1 << 24)

    def run(not_now_until_s: float) -> Outcome:
        run = SeededRun(
            sample.network,
            SGuard(interval_s=0.06),
            rows,
            seed=1,
            bounds=bounds,
            times=VirtualTimes(
                rows_every_s=0.01,
                store_s=0.01,
                not_now=1.0 if not_now_until_s else 0.0,
                not_now_until_s=not_now_until_s,
            ),
        )
        return run.run(until_s=180.0)

    expected, observed = run(0.0), run(60.0)
    assert observed.rows("out") == expected.rows("out")
    assert observed.seconds > 60
    assert observed.checkpoints_cancelled > 30
    assert 0 < observed.held_bytes_max < bounds.buffer_bytes_max + 2 * batch
    assert observed.queued_bytes_max < bounds.credit_bytes + 2 * batch
    # The whole state of a unit, and a copy of each page that changed while a checkpoint waited.
    assert observed.state_bytes_max < 40 * bounds.page_bytes


def test_checkpoint_is_taken_early_when_producers_run_out_of_room() -> None:
    """Within the interval of a minute, the rows would fill the producers' buffers several times; no row waits."""
    sample = repeatable()
    rows = sample.rows(1, batches=60)
    batch = max(batch.nbytes for batch in rows["in"])
    bounds = Bounds(credit_bytes=2 * batch, buffer_bytes_max=20 * batch)
    technique = SGuard(interval_s=60.0)
    how = {"seed": 1, "bounds": bounds, "times": VirtualTimes(rows_every_s=0.05, store_s=0.05)}
    observed = SeededRun(sample.network, technique, rows, **how).run(until_s=180.0)  # type: ignore[arg-type]
    assert sum(batch.nbytes for batch in rows["in"]) > 2 * bounds.buffer_bytes_max
    assert observed.checkpoints_stored >= 2
    assert observed.source_held_bytes_max < bounds.buffer_bytes_max, "the source waited for a checkpoint"
    assert observed.seconds < 10


def test_unit_with_a_function_of_its_own_state_is_precise() -> None:
    """The function keeps a table, changes it batch by batch, and outputs its previous values."""
    import pyarrow as pa

    from peacefs.state import UnorderedMap

    def numbered(rows: pa.RecordBatch, state: UnorderedMap) -> pa.RecordBatch:
        # Return each row with the number of earlier rows of its key, whatever the batches.
        found = dict(
            zip(rows.column("key").to_pylist(), state.find(rows.column("key"))["seen"].to_pylist(), strict=True)
        )
        values = []
        for key in rows.column("key").to_pylist():
            values.append(found[key] or 0)
            found[key] = (found[key] or 0) + 1
        state.add_at(rows.column("key"), 1, "seen")
        return rows.set_column(2, "value", pa.array(values, pa.int64()))

    sample = repeatable()
    query = Query("first")
    stream = query.source("in", sample.network.sources[0].type.schema, time="at")
    stream.unit("second").process(numbered, state={"key": "string", "seen": "int64"}, key="key").sink("out")
    own = Sample(query.network(), sample.subject)
    expected = play(own)
    counts = [row[2] for row in expected.rows("out") if row[0] == "a"]
    assert counts == list(range(len(counts)))
    for step in steps(expected.steps, every=25):
        assert play(own, Kill(step, "node-1")).rows("out") == expected.rows("out"), step
