"""Virtual time with costs: the time of links and processors, counted bytes, and the end of a recovery."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from support.dataflows import SCHEMA, input_rows

from benchmarks.dataflows.costs import Costs, Flow, Traffic, VirtualLinks, VirtualTimes
from benchmarks.dataflows.failures import KillRunning
from benchmarks.dataflows.seeded import Outcome, SeededRun
from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.core.messages import Ack, Data, Subscribe, Subscription
from peacefs.dataflow.model.batches import START, Batch
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.sguard import SGuard

_SUBSCRIPTION = Subscription("second", 1, 1)
#: 50 bytes take a millisecond, and 8 bytes 0.16 ms.
_SLOW = Costs(bandwidth_bits_s=400_000, delay_s=0.005, redirection_s=0.04)


def data(rows: int) -> Data:
    return Data("in", _SUBSCRIPTION, Batch(1, pa.record_batch({"value": list(range(rows))})))


def test_link_carries_one_message_after_the_other() -> None:
    links = VirtualLinks(_SLOW)
    assert links.send(0.0, "a", "b", data(10), told=False) == pytest.approx(0.010 + 0.005)
    assert links.send(0.0, "a", "b", data(5), told=False) == pytest.approx(0.015 + 0.005)
    # The other directions are free, also the way back; after a while this one is free as well.
    assert links.send(0.0, "b", "a", data(1), told=False) == pytest.approx(0.006)
    assert links.send(1.0, "a", "b", data(1), told=False) == pytest.approx(1.006)


def test_link_remembers_when_rows_left_after_a_failure() -> None:
    links = VirtualLinks(_SLOW)
    links.send(0.0, "a", "b", data(3), told=False)
    links.counting = False
    links.send(1.0, "a", "b", data(3), told=False)
    assert links.left_s("a", "in", 3) == pytest.approx(1.003)
    assert links.left_s("a", "in", 4) == links.left_s("b", "in", 3) == 0.0


def test_link_keeps_the_order_behind_a_subscription() -> None:
    """A subscription takes the redirection time. Later messages do not overtake it."""
    links = VirtualLinks(_SLOW)
    asked_s = links.send(0.0, "b", "a", Subscribe("in", _SUBSCRIPTION, 1, START, 100), told=False)
    assert asked_s == pytest.approx(8 / 50_000 + 0.04)
    assert links.send(0.0, "b", "a", Ack("in", "second", 1, RowStage.SAFE, START), told=False) == asked_s


def test_link_is_not_used_by_what_the_controller_says() -> None:
    """In HA, the node that takes over detects the failure itself, so the controller's messages cost nothing."""
    links = VirtualLinks(_SLOW)
    links.send(0.0, "a", "b", data(10), told=False)
    assert links.send(0.002, "a", "c", data(1), told=True) == 0.002


def test_traffic_is_counted_by_kind_stream_and_way() -> None:
    links = VirtualLinks(Costs(counted_from_s=1.0))
    ack = Ack("in", "second", 1, RowStage.SAFE, START)
    links.send(0.9, "a", "b", data(3), told=False)
    for _ in range(2):
        links.send(1.0, "a", "b", data(3), told=False)
        links.send(1.0, "b", "a", ack, told=False)
        links.send(1.0, "b", "b", ack, told=False)
    links.counting = False
    links.send(1.0, "a", "b", data(3), told=False)
    assert links.bytes == {
        Flow(Traffic.DATA, "in", "a", "b"): 300,
        Flow(Traffic.ACKNOWLEDGEMENT, "in", "b", "a"): 16,
    }


# -- whole runs ----------------------------------------------------------------------------------------------


def network() -> Network:
    query = Query("first")
    stream = query.source("in", SCHEMA, time="at").filter(F.col("value") >= 0)
    return stream.unit("second").filter(F.col("value") >= 0, name="slow").sink("out").network()


def run(costs: Costs, *failures: KillRunning, batches: int = 40) -> Outcome:
    rows = [batch.slice(0, 1) for batch in input_rows(1, batches=batches, size=1)]
    played = SeededRun(
        network(),
        SGuard(interval_s=0.05),
        {"in": rows},
        seed=1,
        failures=failures,
        times=VirtualTimes(rows_every_s=0.01, store_s=0.001, costs=costs),
    )
    return played.run(until_s=120)


def test_run_with_costs_gives_the_same_rows() -> None:
    cheap, dear = run(Costs()), run(Costs(processing_s={"slow": 0.03}, bandwidth_bits_s=100_000))
    assert len(cheap.rows("out")) == 40
    assert dear.rows("out") == cheap.rows("out")
    # 40 rows of 30 ms each, one after another, although they arrive every 10 ms.
    assert cheap.seconds < 1.0
    assert 1.2 < dear.seconds < 1.6


def test_run_counts_each_row_on_each_link_once() -> None:
    outcome = run(Costs(delay_s=0.001))
    carried = [flow for flow in outcome.bytes if flow.kind is Traffic.DATA]
    assert len(carried) == 3, "from the edge to the first unit, to the second, and back"
    assert {outcome.bytes[flow] for flow in carried} == {40 * 50}


def test_recovery_takes_the_redirection_and_the_replay() -> None:
    """Rows since the last checkpoint are processed again at 2 ms each; the detection time is not included."""
    costs = Costs(processing_s={"slow": 0.002}, delay_s=0.005, detection_s=0.25, redirection_s=0.04)
    outcome = run(costs, KillRunning(0.4, "second"), batches=200)
    assert outcome.recovery_s.keys() == {"second"}
    # Load the checkpoint, redirect the input, and process at most 0.05 s of input and what arrived meanwhile.
    assert 0.045 < outcome.recovery_s["second"] < 0.045 + 0.002 + timedelta(milliseconds=30).total_seconds()
    assert len(outcome.rows("out")) == 200
    later = run(Costs(processing_s={"slow": 0.002}, redirection_s=0.14), KillRunning(0.4, "second"), batches=200)
    assert later.recovery_s["second"] - outcome.recovery_s["second"] == pytest.approx(0.1, abs=0.03)


def test_recovery_ends_before_the_rows_that_came_meanwhile_are_processed() -> None:
    """Detection takes long, so many rows wait; but they are not part of what the unit had lost."""
    costs = Costs(processing_s={"slow": 0.004}, detection_s=1.0)
    outcome = run(costs, KillRunning(0.4, "second"), batches=200)
    assert outcome.recovery_s["second"] < 0.1
