"""Verdicts, repairs, rollbacks and forks of checkpoints with a history are compared with Spark.

A few cells of the table are always run, all of them with PEACEFS_LONG=1.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from oracles.checkpoint_lives import BEFORE, EVENTS, KINDS, LAYOUTS, Lives
from support.checkpoint_ordeal import cut_back, judge
from support.long_runs import IS_LONG

from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.rehearsal import rehearse
from peacefs.spark_connector.checkpoints.relocation import fork
from peacefs.spark_connector.checkpoints.repairing import repair
from peacefs.spark_connector.checkpoints.tree import LocalTree
from peacefs.spark_connector.session import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Cell = tuple[str, str, str]
Prepared = Callable[[str, str], Lives]
ALL: list[Cell] = [
    (kind, layout, event)
    for kind in KINDS
    for layout in LAYOUTS
    for event in EVENTS
    # transformWithState requires RocksDB; and Spark loses a global count in a repartition.
    if (kind, layout) != ("transformWithState", "records")
    and (kind != "aggregation of everything" or event == "ordinary")
]
FEW: list[Cell] = [("aggregation", "rocksdb", "killed half-way through a repartition")]


@pytest.fixture(scope="module")
def stock(spark: SparkSession) -> SparkSession:
    """Return a session without the connector's settings."""
    stock = spark.newSession()
    for setting in settings("127.0.0.1:9870"):
        if setting.key.startswith("spark.sql."):
            stock.conf.unset(setting.key)
    return stock


@pytest.fixture(scope="module")
def prepared(stock: SparkSession, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    @functools.cache
    def lives(kind: str, layout: str) -> Lives:
        return Lives(stock, kind, layout, tmp_path_factory.mktemp("lives") / "of")

    return lives


@pytest.mark.parametrize(("kind", "layout", "event"), ALL if IS_LONG else FEW)
def test_spark_does_with_a_checkpoint_what_is_said_of_it(
    prepared: Prepared, kind: str, layout: str, event: str
) -> None:
    lives = prepared(kind, layout)
    root = lives.after(event)
    verdict = judge(root)
    start = lives.start(lives.copy(root))
    assert (start.refusal is None) is verdict.restarts, (start.refusal, verdict)
    if verdict.restarts:
        assert verdict.goes_on_with is not None
        assert lives.holds(start, verdict.goes_on_with) == lives.expected()
    else:
        assert verdict.repair or verdict.last_good is not None, verdict
    if verdict.repair is not None:
        repaired = lives.copy(root)
        repair(LocalTree(), str(repaired), may_differ=False)
        _goes_on(lives, repaired, verdict.repair.goes_on_with)
    if verdict.last_good is not None and verdict.last_good >= BEFORE - 1 and event != "ordinary":
        back = lives.copy(root)
        cut_back(back, BEFORE - 1)
        _goes_on(lives, back, BEFORE)
    if verdict.last_good is not None and not verdict.restarts and verdict.last_good != BEFORE - 1:
        back = lives.copy(root)
        cut_back(back, verdict.last_good)
        _goes_on(lives, back, verdict.last_good + 1)


def _goes_on(lives: Lives, root: Path, first: int) -> None:
    """Start twice, because the second start must not use files beside the first start's state."""
    again = judge(root)
    assert (again.restarts, again.goes_on_with) == (True, first), again
    start = lives.start(root)
    assert start.refusal is None
    assert lives.holds(start, first) == lives.expected()
    later = lives.copy(root)
    assert judge(later).restarts
    assert lives.start(later).refusal is None


@pytest.mark.long("one of the forks in test_moving.py is run always")
@pytest.mark.parametrize(("kind", "layout"), [cell[:2] for cell in ALL if cell[2] == "ordinary"])
def test_spark_goes_on_from_a_fork_of_a_repartitioned_checkpoint_alone(
    prepared: Prepared, stock: SparkSession, kind: str, layout: str
) -> None:
    lives = prepared(kind, layout)
    root = lives.after("ordinary" if kind == "aggregation of everything" else "repartitioned")
    verdict = judge(root)
    forked = root.with_name(f"{root.name}-fork")
    fork(LocalTree(), str(root), str(forked))
    shutil.rmtree(root)
    # The fork of a fork is a plain copy, whose schemas belong to another checkpoint.
    assert judge(forked).findings == [each for each in verdict.findings if "/_stateSchema/" not in each.path]
    if not verdict.restarts:
        return
    loaded = rehearse(
        stock, f"file://{forked}", Inspection(LocalTree(), read_layout(LocalTree(), str(forked))), BEFORE - 1
    )
    assert sum(part.rows for part in loaded) > 0
    start = lives.start(forked)
    assert start.refusal is None
    assert lives.holds(start, BEFORE) == lives.expected()
