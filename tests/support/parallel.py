"""Spread tests over parallel workers (`pytest -n`), keep the tests of a file together, and limit concurrent JVMs.

The tests of a file share fixtures, so one worker runs them all. Half of the workers begin with the files that
start Spark or a JVM, which take longest; the other half begins with the files that start clusters or play
failures. A worker without work of its own kind takes files of the other kind, from the end of that list. Clusters
leave the cores idle while they wait and seeded runs do not, so the two kinds run together well. The many short
files come last, so that all workers end at about the same time. The lists only set the order: files that are in no
list are run, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

SESSION = "the Spark session"
#: One worker runs all of these, so that Spark starts only once.
SESSION_FILES = (
    "tests/spark/checkpoints/",
    "tests/spark/test_auth_log_columns.py",
    "tests/spark/test_coordinator_failover.py",
    "tests/spark/test_coordinator_restart.py",
    "tests/spark/test_failed_logins.py",
    "tests/spark/test_fencing.py",
    "tests/spark/test_query_reporter.py",
    "tests/spark/test_rolling_restart.py",
    "tests/spark/test_rolling_upgrade.py",
    "tests/spark/test_stream_logs.py",
)
#: These share a JVM with Hadoop's own client.
HADOOP_FILES = "tests/webhdfs/test_stock_hadoop"
#: A slow test in that group, which starts its own drivers.
_APART = "tests/spark/test_stream_logs.py::test_stream_rows_are_there_once_when_dataflow_and_spark_are_killed"
_EXECUTORS = "tests/spark/test_dataflow_on_executors.py"
#: A test of another file that shares that Spark and stops it.
_ON_EXECUTORS = "tests/test_decisions.py::test_the_tracer_of_a_decision_runs[0036-nodes-on-spark]"
#: Tests that start Java, the slowest first.
JVM = (
    "tests/spark/test_stream_logs.py",
    SESSION,
    "tests/spark/test_killed_queries.py",
    "tests/spark/test_dataflow_demo.py",
    "tests/spark/test_demo.py",
    "tests/spark/test_supervision.py",
    _EXECUTORS,
    "tests/spark/",
    HADOOP_FILES,
)
#: The other workers begin with these, so that no long file is left for the end. Files that wait for processes come
#: first, files that compute all the time come last.
LONG = (
    "tests/services/test_failover.py",
    "tests/services/",
    "tests/client/",
    "tests/test_decisions.py",
    "tests/releases/",
    "tests/pipeline/",
    "tests/emulation/",
    "tests/webhdfs/",
    "tests/authentication/",
    "tests/simulation/",
    "tests/dataflow/",
)


class Spread(LoadScopeScheduling):  # type: ignore[misc]
    """The order of files among workers."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        # Do not sort by number of tests: a file with one test may be the slowest.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        if nodeid == _APART:
            return nodeid
        if nodeid == _ON_EXECUTORS:
            return _EXECUTORS
        file = nodeid.partition("::")[0]
        if file.startswith(HADOOP_FILES):
            return HADOOP_FILES
        return SESSION if file.startswith(SESSION_FILES) else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(self._next_for(node), last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> str:
        number = int(node.gateway.id.removeprefix("gw"))
        own, others = (JVM, LONG) if number < self.numnodes // 2 else (LONG, JVM)
        units: Iterable[str] = self.workqueue
        return min(units, key=lambda unit: _rank(unit, own, others))


def _rank(unit: str, own: tuple[str, ...], others: tuple[str, ...]) -> int:
    """Return a file's place in a worker's queue: its own kind, then the other kind from its end, then the rest."""
    for place, beginning in enumerate(own):
        if unit.startswith(beginning):
            return place
    for place, beginning in enumerate(reversed(others)):
        if unit.startswith(beginning):
            return len(own) + place
    return len(own) + len(others)
