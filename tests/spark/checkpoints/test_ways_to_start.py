"""`verify` says of each way to start a query what Spark does: ordinary, with async progress, in Real-time Mode.

Spark (`oracles.query_starts`) starts the query on a copy of each checkpoint in each way. If the verdict is that it
starts, it must start, with the batch that is named, and give out each word that no committed batch has, once. If
not, it must fail, or, where the verdict says that Spark does not notice, give out words again.

    PEACEFS_LONG=1 ...                                          more cases, and drivers that are killed
    PEACEFS_OTHER_SPARK_PYTHON=spark41/bin/python ...           checkpoints that an older Spark made
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from oracles import query_starts
from oracles.query_starts import ASYNC, FORMAT, MODES, ORDINARY, REAL_TIME, QueryStarts, word

from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.findings import Verdict
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.local_rollback import roll_back_locally
from peacefs.spark_connector.checkpoints.pruning import Retention, plan_pruning
from peacefs.spark_connector.checkpoints.relocation import fork
from peacefs.spark_connector.checkpoints.rollback import RollbackRequest
from peacefs.spark_connector.checkpoints.tree import LocalTree
from peacefs.spark_connector.checkpoints.verification import verify
from peacefs.spark_connector.java import find_java, java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def numbers(root: Path, log: str) -> list[int]:
    directory = root / log
    return (
        sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit()) if directory.exists() else []
    )


def remove(root: Path, *names: str) -> None:
    for name in names:
        (root / name).unlink()
        (root / name).with_name(f".{Path(name).name}.crc").unlink(missing_ok=True)


def judge(root: Path) -> Verdict:
    tree = LocalTree()
    return verify(Inspection(tree, read_layout(tree, str(root))))


class Made:
    """A checkpoint of a query that has taken `words`, and Spark's behaviour on copies of it."""

    def __init__(self, starts: QueryStarts, root: Path, words: list[str], query: str = "plain") -> None:
        self.starts, self.root, self.words, self.query = starts, root, words, query
        self.settings: dict[str, str] = {}
        self._copies = itertools.count()

    def copy(self, *gone: str) -> Path:
        place = self.root.with_name(f"{self.root.name}-{next(self._copies)}")
        shutil.copytree(self.root, place)
        remove(place, *gone)
        return place

    def left(self, root: Path) -> list[str]:
        """Return the words that no batch has output: Spark writes offsets when the previous batch is done."""
        planned = max(numbers(root, "offsets"), default=0)
        offsets = {*numbers(root, "offsets"), *numbers(self.root, "offsets")}
        done = max([*numbers(root, "commits"), *(batch for batch in offsets if batch < planned)], default=None)
        if done is None:
            return sorted(self.words)
        # The source numbers its words; a log of files numbers its entries.
        offsets_of = next(
            path for path in (root / f"offsets/{done}", self.root / f"offsets/{done}") if path.exists()
        )
        said = json.loads(offsets_of.read_text().splitlines()[2])
        return sorted(self.words[said["logOffset"] + 1 if "logOffset" in said else said["0"] :])

    def hold(self, root: Path, modes: tuple[str, ...] = MODES) -> Verdict:
        """Compare the verdict on a checkpoint with Spark in each mode."""
        self.words.append(f"new{next(self._copies)}")
        verdict = judge(root)
        said = {start.mode: start for start in verdict.starts}
        for mode in modes:
            trial = root.with_name(f"{root.name}-{mode.replace(' ', '-')}")
            shutil.copytree(root, trial)
            left = self.left(trial)
            settings = {key: value for key, value in self.settings.items() if key == PROVIDER}
            did = self.starts.run(trial, mode, self.words, query=self.query, settings=settings)
            told = (root.name, mode, said[mode], did)
            if said[mode].starts:
                assert did.failure is None, told
                assert did.words == left, told
                assert did.first == said[mode].goes_on_with, told
            elif did.failure is None:
                assert any("again" in reason for reason in said[mode].against), told
                assert did.words != left, told
        return verdict


@pytest.fixture(scope="module")
def starts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> QueryStarts:
    """Use a session with only the connector's settings, which must suit every mode."""
    return QueryStarts(spark.newSession(), tmp_path_factory.mktemp("starts"))


def make(starts: QueryStarts, root: Path, mode: str, query: str = "plain", **settings: str) -> Made:
    """Return a checkpoint of at least three batches."""
    parts = [[word(0), word(1)], [word(2)], [word(3)]]
    did = starts.run(root, mode, *parts, query=query, settings=settings)
    assert did.failure is None and did.words == [word(number) for number in range(4)]
    return Made(starts, root, [each for part in parts for each in part], query)


def make_gap(starts: QueryStarts, root: Path) -> Made:
    """Return a checkpoint whose latest offsets do not follow those of the batch before: like 0, 1, 6."""

    def has_gap() -> bool:
        offsets = numbers(root, "offsets")
        return len(offsets) > 1 and offsets[-1] - offsets[-2] > 1

    given, did = starts.run_until(root, ASYNC, has_gap, interval_ms=1500)
    assert did.failure is None
    return Made(starts, root, given)


@pytest.fixture(scope="module")
def gap(starts: QueryStarts, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_gap(starts, tmp_path_factory.mktemp("gap") / "checkpoint")


@pytest.fixture(scope="module")
def ordinary(starts: QueryStarts, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(starts, tmp_path_factory.mktemp("ordinary") / "checkpoint", ORDINARY)


def modes_that_start(verdict: Verdict) -> list[str]:
    return [start.mode for start in verdict.starts if start.starts]


def stops(verdict: Verdict) -> list[str]:
    return [finding.path for finding in verdict.findings if finding.stops]


def test_offsets_with_a_gap_are_good_for_async_progress_and_not_for_an_ordinary_start(gap: Made) -> None:
    before, last = numbers(gap.root, "offsets")[-2:]
    done = gap.hold(gap.copy())
    assert (done.mode, modes_that_start(done), done.findings) == (ASYNC, [ASYNC], [])
    assert (done.restarts, done.goes_on_with, done.last_good, done.repair) == (True, last + 1, last, None)
    killed = gap.hold(gap.copy(f"commits/{last}"), (ORDINARY, ASYNC))
    assert (killed.mode, modes_that_start(killed), stops(killed)) == (ASYNC, [ASYNC], [])
    assert (killed.committed, killed.goes_on_with, killed.last_good) == (before, last, before)
    settled = gap.copy()
    assert gap.starts.run(settled, ASYNC, gap.words).failure is None
    assert numbers(settled, "commits")[-1] == last + 1
    assert modes_that_start(gap.hold(settled, (ORDINARY,))) == [ORDINARY, ASYNC], "what verify advises"


@pytest.mark.parametrize("query", ["plain", "distinct"])
def test_checkpoints_of_real_time_mode_are_good_after_each_kill(
    starts: QueryStarts, tmp_path: Path, query: str
) -> None:
    made = make(starts, tmp_path / "checkpoint", REAL_TIME, query)
    last = numbers(made.root, "offsets")[-1]
    every = [ORDINARY, ASYNC, REAL_TIME] if query == "plain" else [ORDINARY, REAL_TIME]
    commit = (made.root / f"commits/{last}").read_text().splitlines()
    assert (commit[0], "stateUniqueIds" in json.loads(commit[1])) == ("v2", query == "distinct")
    done = judge(made.root)
    assert (modes_that_start(done), stops(done), done.last_good) == (every, [], last)
    killed = made.hold(made.copy(f"commits/{last}"), (ORDINARY, REAL_TIME))
    assert (modes_that_start(killed), stops(killed), killed.last_good) == (every, [], last - 1)
    assert [start.repeats for start in killed.starts] == [True, query == "plain", False]


def test_lost_offsets_of_an_ordinary_query_are_not_taken_for_async_progress(ordinary: Made) -> None:
    last = numbers(ordinary.root, "offsets")[-1]
    assert (ordinary.root / f"commits/{last}").read_text().startswith("v1"), (
        "what the connector sets is not for one"
    )
    done = ordinary.hold(ordinary.copy(f"offsets/{last - 1}"), (ORDINARY, ASYNC))
    assert (done.mode, modes_that_start(done), stops(done)) == (ORDINARY, [ASYNC], [f"offsets/{last - 1}"])
    again = ordinary.hold(ordinary.copy(f"offsets/{last - 1}", f"commits/{last}"), (ORDINARY, ASYNC))
    assert (again.mode, modes_that_start(again)) == (ORDINARY, [])


PROVIDER = "spark.sql.streaming.stateStore.providerClass"
OTHER = "PEACEFS_OTHER_SPARK_PYTHON"
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
#: Mode, query and settings of queries whose checkpoints lose files.
QUERIES = {
    "ordinary": (ORDINARY, "plain", {}),
    "ordinary format 2": (ORDINARY, "plain", {FORMAT: "2"}),
    "state": (ORDINARY, "distinct", {}),
    "state format 2": (ORDINARY, "distinct", {FORMAT: "2"}),
    "state of records": (ORDINARY, "distinct", {PROVIDER: _HDFS}),
    "async": (ASYNC, "plain", {}),
    "real-time": (REAL_TIME, "plain", {}),
    "real-time state": (REAL_TIME, "distinct", {}),
}


def losses(root: Path) -> dict[str, list[str]]:
    """Return the files that a checkpoint loses in each case."""
    offsets, last = numbers(root, "offsets"), numbers(root, "offsets")[-1]
    earlier = [f"offsets/{batch}" for batch in offsets if batch != last]
    before = f"offsets/{offsets[-2]}"
    return {
        "nothing": [],
        "commit": [f"commits/{last}"],
        "two commits": [f"commits/{batch}" for batch in offsets[-2:]],
        "all commits": [f"commits/{batch}" for batch in offsets],
        "offsets before": [before],
        "offsets before, and commit": [before, f"commits/{last}"],
        "last offsets": [f"offsets/{last}"],
        "last batch": [f"offsets/{last}", f"commits/{last}"],
        "earlier offsets": earlier,
        "earlier offsets, and commit": [*earlier, f"commits/{last}"],
    }


@pytest.mark.long("ten minutes")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [*QUERIES, "gap"])
def test_verdict_on_each_way_to_start_is_what_spark_does_whatever_is_lost(
    starts: QueryStarts, gap: Made, tmp_path: Path, kind: str
) -> None:
    if kind == "gap":
        made = gap
    else:
        mode, query, settings = QUERIES[kind]
        made = make(starts, tmp_path / "checkpoint", mode, query, **settings)
        made.settings = settings
    wrong = []
    for case, gone in losses(made.root).items():
        try:
            made.hold(made.copy(*gone))
        except AssertionError as failed:
            wrong.append(f"{case}: {failed}"[:1500])
    last = numbers(made.root, "offsets")[-1]
    for case, name, harmed in (
        ("plan cut short", f"offsets/{last}", b"v1\n{"),
        ("commit without ids", f"commits/{last}", b'v2\n{"nextBatchWatermarkMs":0}'),
    ):
        root = made.copy(f"commits/{last}" if name.startswith("offsets") else name)
        if name.startswith("offsets"):
            remove(root, name)
        (root / name).write_bytes(harmed)
        try:
            made.hold(root)
        except AssertionError as failed:
            wrong.append(f"{case}: {failed}"[:1500])
    assert not wrong, "\n".join(wrong)


@pytest.mark.long("ten minutes")
def test_refused_start_in_real_time_mode_has_removed_the_plan(ordinary: Made) -> None:
    last = numbers(ordinary.root, "offsets")[-1]
    root = ordinary.copy(f"commits/{last}")
    refused = ordinary.starts.run(root, REAL_TIME, ordinary.words)
    assert "CHECKPOINT_FORMAT_V1_NOT_SUPPORTED" in (refused.failure or "")
    assert numbers(root, "offsets")[-1] == last - 1
    assert modes_that_start(ordinary.hold(root)) == [ORDINARY, ASYNC]


@pytest.mark.long("ten minutes")
def test_commands_leave_checkpoints_from_which_a_query_goes_on(gap: Made, tmp_path: Path) -> None:
    before, last = numbers(gap.root, "offsets")[-2:]
    forked = tmp_path / "forked"
    fork(LocalTree(), str(gap.copy(f"commits/{last}")), str(forked))
    assert modes_that_start(gap.hold(forked)) == [ASYNC]
    back = gap.copy()
    for path in sorted(back.rglob("*")):
        os.utime(path, (1, 1))
    done = roll_back_locally(RollbackRequest(str(back), before, None, idle_s=0, may_differ=True))
    assert done.batch == before
    gap.hold(back, (ORDINARY, ASYNC))
    pruned = gap.copy(f"commits/{last}")
    inspection = Inspection(LocalTree(), read_layout(LocalTree(), str(pruned)))
    plan = plan_pruning(inspection, Retention(1, None, None, now_ms=0, orphan_age_ms=0))
    for entry in plan.entries:
        Path(entry.path).unlink()
    assert numbers(pruned, "offsets")[-2:] == [before, last]
    assert modes_that_start(gap.hold(pruned)) == [ASYNC]


def driver(python: str, scratch: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a driver that feeds a query until it is killed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables = java_environment(find_java(), scratch / "java") | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
    }
    script = str(Path(query_starts.__file__))
    with (scratch / "errors").open("wb") as errors:
        return subprocess.Popen(
            [python, "-P", script, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=kept | variables,
        )


def make_killed(
    starts: QueryStarts, python: str, scratch: Path, chance: random.Random, mode: str, query: str, source: str
) -> Made:
    """Return the checkpoint of a driver that was killed at a random moment after some batches."""
    scratch.mkdir()
    root = scratch / "checkpoint"
    running = driver(python, scratch, mode, query, str(root), str(scratch / "work"), source)
    try:
        wanted, deadline = chance.randint(3, 8), time.monotonic() + 600
        while len(numbers(root, "offsets")) < wanted:
            assert time.monotonic() < deadline and running.poll() is None, (scratch / "errors").read_text()[-2000:]
            time.sleep(0.01)
        time.sleep(chance.random() * 0.5)
        running.send_signal(signal.SIGKILL)
    finally:
        running.kill()
        running.wait()
    count = len(list((scratch / "work/words").iterdir())) if source == "files" else 300
    return Made(starts, root, [word(number) for number in range(count)], query)


@pytest.mark.long("ten minutes")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("mode", "query"), [(ASYNC, "plain"), (REAL_TIME, "plain"), (REAL_TIME, "distinct")])
def test_driver_that_is_killed_leaves_what_the_verdict_says(
    starts: QueryStarts, tmp_path: Path, mode: str, query: str, seed: int
) -> None:
    print(f"seed {seed}")
    made = make_killed(starts, sys.executable, tmp_path / "0", random.Random(seed), mode, query, "memory")
    verdict = made.hold(made.copy())
    assert mode in modes_that_start(verdict) and not stops(verdict)


@pytest.mark.skipif(OTHER not in os.environ, reason=f"{OTHER} names no Python with another Spark")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", [ORDINARY, ASYNC])
@pytest.mark.parametrize("query", ["plain", "distinct"])
def test_checkpoint_of_an_older_spark_is_judged_for_this_one(
    spark: SparkSession, tmp_path: Path, mode: str, query: str
) -> None:
    if (mode, query) == (ASYNC, "distinct"):
        pytest.skip("Spark refuses it")
    starts = QueryStarts(spark.newSession(), tmp_path / "0" / "work", files=True)
    made = make_killed(
        starts, os.environ[OTHER], tmp_path / "0", random.Random(mode + query), mode, query, "files"
    )
    verdict = made.hold(made.copy())
    assert mode in modes_that_start(verdict) and not stops(verdict)
