"""Harm real checkpoints, and compare the verdicts of `verify` with what Spark does.

A part always runs. All cases, for every way to keep state, take half an hour:

    PEACEFS_VERDICTS=all python -m pytest tests/spark/checkpoints/test_verdicts.py
    PEACEFS_VERDICTS=write ...                          and writes docs/checkpoint-verdicts.md
    PEACEFS_OTHER_SPARK_PYTHON=spark35/bin/python ...   with another Spark besides
    ... -k "every_verdict and other and join"           with it alone, and one of the queries
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import verdict_page
from support.checkpoint_ordeal import HARMS, Ordeal, SparkProcess, applies, kinds, matters
from support.restarted_query import QueryRunner
from support.state_maintenance import maintenance_settled_anew
from support.verdict_page import QUERIES, Case, Cells, knows, read_page

from peacefs.spark_connector.session import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OTHER = "PEACEFS_OTHER_SPARK_PYTHON"
WHOLE = os.environ.get("PEACEFS_VERDICTS", "")
#: The cells that are always run, of `rocksdb` with a planned batch: each kind of file with one or two faults.
SHARE = {
    "metadata": ["cut short", "a bit flipped"],
    "offsets of the last batch": ["deleted", "cut short"],
    "offsets of the batch before": ["emptied"],
    "older offsets": ["cut short"],
    "commit of the last batch done": ["deleted", "cut short", "a bit flipped"],
    "older commit": ["emptied"],
    "last entry of a source's log": ["cut short"],
    "entry before that": ["emptied"],
    "operator's metadata": ["a bit flipped"],
    "schema of state": ["deleted", "cut short"],
    "latest snapshot": ["cut short"],
    "changes since the snapshot": ["deleted"],
    "changes before the snapshot": ["emptied"],
    "SST file of the latest snapshot": ["deleted", "a bit flipped", "the same, no checksum file"],
}


def hold(ordeal: Ordeal, case: Case) -> str:
    """Return the verdict on a case. Fail if Spark behaves differently."""
    root: Path = getattr(ordeal, case.state)
    path = kinds(root, case.query)[case.kind]
    trial = ordeal.trial(root, path, HARMS[case.harm])
    assert not trial.against, (case, trial.against, trial.verdict)
    return trial.said


@pytest.fixture(scope="module")
def ordeal(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ordeal]:
    """Use a session without the connector's settings, with state snapshots as often as the queries need."""
    stock = spark.newSession()
    for setting in settings("127.0.0.1:9870"):
        if setting.key.startswith("spark.sql."):
            stock.conf.unset(setting.key)
    with maintenance_settled_anew(spark):
        yield Ordeal(QueryRunner(stock), "rocksdb", tmp_path_factory.mktemp("verdicts") / "rocksdb")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "harm"), [(kind, harm) for kind, harms in SHARE.items() for harm in harms])
@pytest.mark.evidence("checkpoint-command-killed")
def test_verdict_is_what_spark_does_and_what_the_page_says(ordeal: Ordeal, kind: str, harm: str) -> None:
    case = Case("planned", "rocksdb", kind, harm)
    page = read_page(verdict_page.PAGE.read_text())
    assert hold(ordeal, case) == page.cells[page.installed][case]


@pytest.mark.timeout(300)
def test_verdict_on_an_entry_that_no_batch_has_read_names_its_removal_and_spark_then_goes_on(
    ordeal: Ordeal,
) -> None:
    """A driver that dies between the source's log and the offsets leaves an entry, half of one in this test."""
    root = ordeal.planned.with_name("listed")
    shutil.copytree(ordeal.planned, root)
    for name in ("offsets/8", "offsets/.8.crc"):
        (root / name).unlink()
    trial = ordeal.trial(root, root / "sources/0/8.compact", HARMS["cut short"])
    assert not trial.against, trial.against
    assert trial.verdict.repair is not None
    assert trial.verdict.repair.remove == ["sources/0/8.compact"]
    assert (trial.verdict.repair.repeats, trial.verdict.repair.plans_anew) == (None, None)
    assert trial.verdict.last_good == 7


@pytest.mark.timeout(300)
def test_verdict_without_any_commit_is_that_the_planned_batch_is_repeated(ordeal: Ordeal) -> None:
    root = ordeal.planned.with_name("uncommitted")
    shutil.copytree(ordeal.planned, root)
    for path in (root / "commits").iterdir():
        path.unlink()
    trial = ordeal.trial(root, root / "offsets/1", HARMS["deleted"])
    assert not trial.against, trial.against
    assert (trial.verdict.batch, trial.verdict.restarts, trial.verdict.goes_on_with) == (None, True, 8)


def test_page_names_every_query_and_is_written_as_it_is_read() -> None:
    text = verdict_page.PAGE.read_text()
    page = read_page(text)
    assert page.harms == list(HARMS)
    assert {case.query for case in page.cells[page.installed]} == set(QUERIES)
    assert page.render() == text


@pytest.fixture(params=["installed", "other"])
def spark_process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SparkProcess]:
    if request.param == "other" and OTHER not in os.environ:
        pytest.skip(f"{OTHER} names no Python with another Spark")
    spark = SparkProcess(sys.executable if request.param == "installed" else os.environ[OTHER], tmp_path)
    yield spark
    spark.close()


@pytest.mark.skipif(not WHOLE, reason="PEACEFS_VERDICTS is not set: it takes half an hour")
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.evidence("checkpoint-command-killed")
def test_every_verdict_is_what_spark_does(
    spark_process: SparkProcess, request: pytest.FixtureRequest, query: str, tmp_path: Path
) -> None:
    version = spark_process.version
    if not knows(version, query):
        pytest.skip(f"Spark {version} has no {query}")
    ordeal = Ordeal(spark_process, query, tmp_path / "ordeal")
    cells: Cells = {}
    wrong: list[str] = []
    for state in ("done", "planned"):
        for kind, path in kinds(getattr(ordeal, state), query).items():
            for harm in HARMS:
                if not applies(harm, path) or not matters(query, kind):
                    continue
                case = Case(state, query, kind, harm)
                try:
                    cells[case] = hold(ordeal, case)
                except AssertionError as failed:
                    wrong.append(str(failed)[:600])
    assert not wrong, "\n".join(wrong)
    page = read_page(verdict_page.PAGE.read_text())
    if WHOLE == "write":
        if "installed" in request.node.name:
            page.cells[version] = page.cells.pop(page.installed)
            page.installed = version
        page.put(version, query, cells)
        verdict_page.PAGE.write_text(page.render())
    elif version in page.cells:
        assert cells == {case: said for case, said in page.cells[version].items() if case.query == query}
