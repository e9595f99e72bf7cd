"""A dataflow on Spark tasks: an executor is killed, and the output equals a failure-free run's."""

from __future__ import annotations

import pytest
from support.dataflows import SAMPLES, input_rows
from support.executors import Executors

from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.flux import Flux
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.peer_ring import PeerRing
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.protocol.errors import StartupError
from peacefs.spark_connector.executors_host import SparkExecutors


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "technique",
    [
        "sguard",
        "active-standby",
        *(
            pytest.param(each, marks=pytest.mark.long("half a minute"))
            for each in ("upstream-backup", "passive-standby", "cec", "flux")
        ),
    ],
)
def test_executor_that_is_killed_is_made_up_for(technique: str, executors: Executors) -> None:
    said = executors.play(technique)
    sample = SAMPLES[OperatorClass.CONVERGENT_CAPABLE]()
    expected = SeededRun(sample.network, SGuard(interval_s=1), sample.rows(1), seed=1).run().rows("out")
    assert said["rows"] == [[*map(str, row)] for row in expected]
    before, after = said["sessions"]
    assert before != after, "the unit ran in another process after the kill"


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.long("the same on units is always run")
def test_executor_of_a_ring_is_made_up_for_by_its_neighbour(executors: Executors) -> None:
    said = executors.play("peer-ring")
    rows = [row for batch in input_rows(1, batches=8, size=4) for row in batch.to_pylist()]
    assert said["rows"] == sorted([*map(str, row.values())] for row in rows if row["value"] >= 0)
    before, after = map(set, said["sessions"])
    assert before == {"node-1", "node-2"}
    assert after == {"node-1", "node-2.retry-1"}, "the next attempt of the task is on the ring, as another node"


class _Session:
    """A fake Spark session that has only settings."""

    def __init__(self, **settings: str) -> None:
        self.sparkContext = self
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}

    def getConf(self) -> dict[str, str]:
        return self._settings


def test_executors_want_tasks_that_may_fail_often() -> None:
    """With Spark's limit of four failures per task, the death of a fourth executor would end the query."""
    with pytest.raises(StartupError, match=r"spark.task.maxFailures is 4.*set it to 100 or more"):
        SparkExecutors(_Session(), 2, checkpoints=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({"spark_master": "local-cluster[2,2,512]"}, "2"),
        ({"spark_master": "spark://localhost:7077"}, "all"),
        ({"spark_master": "yarn", "spark_executor_cores": "4"}, "4"),
    ],
)
@pytest.mark.parametrize(
    "technique", [Flux(), ActiveStandby(), PassiveStandby(), PeerRing()], ids=lambda it: it.name
)
def test_executors_that_may_run_both_of_a_pair_are_refused(
    settings: dict[str, str], cores: str, technique: Technique
) -> None:
    spark = _Session(**settings, **{"spark_task_maxFailures": "1000"})
    host = SparkExecutors(spark, 2, checkpoints=None)  # type: ignore[arg-type]
    sample = SAMPLES[OperatorClass.REPEATABLE]()
    with pytest.raises(
        StartupError, match=f"an executor of {cores} cores can run two .* set spark.executor.cores to 1"
    ):
        host.start(sample.network, technique, {"in": []}, {"out": print})
