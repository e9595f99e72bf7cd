"""The matrix of checkpoints (`oracles.checkpoint_matrix`): kinds of query, ways to keep state, events, Sparks.

PEACEFS_LONG=1 runs two cells. All cells of five Sparks, oldest first, write docs/checkpoint-matrix.md in an hour:

    PEACEFS_MATRIX=write PEACEFS_MATRIX_SPARKS=spark35/bin/python:.venv/bin/python python -m pytest ...
    PEACEFS_MATRIX=all ...                        without the page, with the installed Spark
    PEACEFS_MATRIX_LAYOUTS='rocksdb:records' ...  with these ways to keep state
    PEACEFS_MATRIX_EVENTS='killed:upgraded' ...   with these events
    PEACEFS_MATRIX_KILLS=1 ...                    with fewer kills of each query than three

What is done is kept in build/checkpoint-matrix (or PEACEFS_MATRIX_RECORD), and not done again.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from oracles import checkpoint_matrix as matrix_of
from oracles.checkpoint_matrix import EVENTS, Cell, cells
from support import matrix_page
from support.matrix_record import MatrixRecord, due
from support.matrix_run import MatrixRun, MatrixSpark, Report

from peacefs.client.local_cluster.cluster import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

ASKED = os.environ.get("PEACEFS_MATRIX", "")
SPARKS = list(filter(None, os.environ.get("PEACEFS_MATRIX_SPARKS", "").split(":"))) or [sys.executable]
LAYOUTS = list(filter(None, os.environ.get("PEACEFS_MATRIX_LAYOUTS", "").split(":"))) or list(matrix_of.LAYOUTS)
CHOSEN = list(filter(None, os.environ.get("PEACEFS_MATRIX_EVENTS", "").split(":"))) or list(EVENTS)
KILLS = int(os.environ.get("PEACEFS_MATRIX_KILLS", "3"))
FEW = [Cell("windows", "records"), Cell("join, full outer", "rocksdb")]
RECORD = Path(os.environ.get("PEACEFS_MATRIX_RECORD", "build/checkpoint-matrix"))
SEED = int(os.environ.get("PEACEFS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)


@pytest.fixture
def matrix(tmp_path: Path) -> Iterator[tuple[MatrixRun, LocalCluster]]:
    print("seed", SEED)
    with LocalCluster(tmp_path / "cluster", datanodes=1, port=0) as cluster:
        yield MatrixRun(cluster, tmp_path / "runs", random.Random(SEED)), cluster


@pytest.mark.long("two Sparks with two queries")
@pytest.mark.timeout(900)
def test_matrix_cells_are_exact_after_a_kill_and_each_event(
    matrix: tuple[MatrixRun, LocalCluster], tmp_path: Path
) -> None:
    run, cluster = matrix
    spark = MatrixSpark(sys.executable, cluster.http_address, tmp_path / "spark", jvm=False)
    report = run.run(spark, FEW, ["killed", "rolled back"], kills=1)
    assert set(report.outcomes.values()) == {"exact"}, report.outcomes


@pytest.mark.skipif(not ASKED, reason="PEACEFS_MATRIX is not set: it takes an hour")
@pytest.mark.timeout(4 * 3600)
def test_matrix_is_exact_in_every_cell(matrix: tuple[MatrixRun, LocalCluster], tmp_path: Path) -> None:
    run, cluster = matrix
    record = MatrixRecord(RECORD)
    sparks = [MatrixSpark(python, cluster.http_address, tmp_path / f"{n}") for n, python in enumerate(SPARKS)]
    for layout in LAYOUTS:
        pairs = list(zip(sparks, [None, *(spark.version for spark in sparks)], strict=False))
        asked = [due(spark.version, older, [layout], CHOSEN) for spark, older in pairs]
        if not any(record.lacks(spark.name, some) for spark, some in zip(sparks, asked, strict=True)):
            continue
        older: Report | None = None
        for spark, some in zip(sparks, asked, strict=True):
            if some:
                older = run.run(spark, cells(spark.version, [layout]), CHOSEN, KILLS, older)
                record.add(older, layout)
        if ASKED == "write":
            matrix_page.PAGE.write_text(matrix_page.render(record.reports()))
    assert not matrix_page.unexpected(record.reports())
