"""CEC on local processes: nodes are killed and stopped, and the program that started the query dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.dataflows import SAMPLES, Row, Sample
from support.waiting import PATIENCE_S, wait_until

from benchmarks.dataflows.seeded import SeededRun
from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.local_processes import LocalProcesses
from peacefs.dataflow.hosts.run_events import RecoveryMeasured
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.techniques.amnesia import Amnesia
from peacefs.dataflow.techniques.cec import CEC
from peacefs.dataflow.window_checkpoints.extent import Targets
from peacefs.protocol.errors import QueryFailed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_BATCHES = 60
#: Batches that arrive only after the failure is over.
_HELD_BACK = 20


def cec() -> CEC:
    return CEC(Targets(extent=1.5, replay_rows=40), period_s=0.05)


def expected_rows(sample: Sample) -> list[Row]:
    rows = sample.rows(1, batches=_BATCHES)
    return SeededRun(sample.network, Amnesia(), rows, seed=1).run().rows("out")


class Played:
    """A query that receives some batches at once, and the rest after `go_on` is called."""

    def __init__(self, root: Path, network: OperatorClass) -> None:
        self.sample = SAMPLES[network]()
        self.checkpoints = DirectoryCheckpoints(root)
        self.host = LocalProcesses(3, self.checkpoints, node_timeout_s=1.5)
        self.observed: list[Row] = []
        self.events: list[object] = []
        self._over = threading.Event()

    def start(self, options: RunOptions | None = None) -> EdgeRun:
        options = options or RunOptions(observer=lambda _, event: self.events.append(event))
        return self.host.start(self.sample.network, cec(), {"in": self._feed()}, {"out": self}, options)

    def __call__(self, rows: pa.RecordBatch) -> None:
        self.observed.extend(zip(*(column.to_pylist() for column in rows.columns), strict=True))

    @property
    def delivered(self) -> int:
        return len(self.observed)

    def go_on(self) -> None:
        self._over.set()

    def logs(self, unit: str) -> set[str]:
        """Return the logs of a unit that contain tuples."""
        streams = self.checkpoints.segments().streams()
        return {name.split()[1] for name in streams if name.startswith(f"{unit} ") and name.endswith("windows")}

    def _feed(self) -> Iterator[pa.RecordBatch]:
        made = self.sample.rows(1, batches=_BATCHES)["in"]
        for rows in made[:-_HELD_BACK]:
            time.sleep(0.01)
            yield rows
        self._over.wait(PATIENCE_S)
        yield from made[-_HELD_BACK:]


@pytest.mark.parametrize("network", [OperatorClass.CONVERGENT_CAPABLE, OperatorClass.DETERMINISTIC], ids=str)
def test_cec_makes_up_for_a_process_that_is_killed(tmp_path: Path, network: OperatorClass) -> None:
    played = Played(tmp_path, network)
    unit = played.sample.unit
    with played.start() as run:
        wait_until(lambda: len(played.observed) > 5, "rows of the output")
        wait_until(lambda: played.logs(unit), "a log of the unit")
        (before,) = played.logs(unit)
        os.kill(played.host.pids()[run.place_of(unit) or ""], signal.SIGKILL)
        wait_until(lambda: played.logs(unit) - {before}, "a log of the unit's next start")
        played.go_on()
        run.wait(PATIENCE_S)
    assert played.observed == expected_rows(played.sample)
    assert any(isinstance(event, RecoveryMeasured) and event.unit == unit for event in played.events)
    assert before not in played.logs(unit), "the log of the start that was killed is gone"


def test_cec_does_not_wait_for_a_process_that_is_stopped(tmp_path: Path) -> None:
    """The stopped process holds the lock of its log, and continues to write when it resumes."""
    played = Played(tmp_path, OperatorClass.CONVERGENT_CAPABLE)
    with played.start() as run:
        wait_until(lambda: played.logs("second"), "a log of the unit")
        stopped = run.place_of("second")
        pid = played.host.pids()[stopped or ""]
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: run.place_of("second") not in (stopped, None), "another node for the unit")
            played.go_on()
            run.wait(PATIENCE_S)
        finally:
            os.kill(pid, signal.SIGCONT)
    assert played.observed == expected_rows(played.sample)


def test_cec_goes_on_after_the_death_of_its_driver(tmp_path: Path) -> None:
    """Nodes end with the program that started them. The next program continues from the logs."""
    played = Played(tmp_path, OperatorClass.DETERMINISTIC)
    with played.start():
        wait_until(lambda: len(played.observed) > 5 and played.logs("first"), "rows, and a log")
        seen = len(played.observed)
        # The thread that waits for rows would delay the exit.
        played.go_on()
    with played.start(RunOptions(resume=True)) as run:
        run.wait(PATIENCE_S)
    assert len(played.observed) > seen
    assert played.observed == expected_rows(played.sample)


def test_cec_says_that_a_log_is_rotten(tmp_path: Path) -> None:
    """A record in the middle of a log is corrupt: the query stops, and produces no wrong rows."""
    played = Played(tmp_path, OperatorClass.DETERMINISTIC)
    with played.start() as run:
        wait_until(lambda: len(played.observed) > 5 and played.logs("first"), "rows, and a log")
        lost = run.place_of("first")
        pid = played.host.pids()[lost or ""]
        os.kill(pid, signal.SIGSTOP)
        (segment,) = (tmp_path / "logs").glob("first*windows/*.log")
        data = bytearray(segment.read_bytes())
        # Corrupt the middle of the last record, which a load reads first.
        data[-200] ^= 0xFF
        segment.write_bytes(data)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(QueryFailed, match=r"unit 'first' cannot begin: segment .* is rotten"):
            run.wait(PATIENCE_S)
        played.go_on()
    expected = expected_rows(played.sample)
    assert played.observed == expected[: len(played.observed)]
