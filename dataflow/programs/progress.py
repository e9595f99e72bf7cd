"""Reports a running dataflow to the coordinator, for `peacefs dataflow show` and the web page.

Only programs that an agent has started report. Reporting never delays or fails a query: a thread of its own sends
the latest figures, and leaves a report out if the coordinator does not answer.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Final, Self

import msgspec

from peacefs.client.control.addresses import parse_address, split_uri
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.client.control.token_source import TokenSource
from peacefs.dataflow.core.messages import NO_COST, CheckpointCost
from peacefs.dataflow.hosts.edge_run import EdgeRun
from peacefs.dataflow.hosts.query_run import HostedRun
from peacefs.dataflow.hosts.run_events import CheckpointTaken, RecoveryMeasured, RunEvent
from peacefs.dataflow.query.network import Network, UnitPlan
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import report_text_characters_max
from peacefs.protocol.values.query_reports import (
    DataflowReport,
    EndReport,
    QueryReport,
    QueryState,
    UnitReport,
    report_units_max,
)

dataflow_report_interval_s: Final = 2.0


log = logging.getLogger("peacefs.dataflow")


@dataclass(slots=True)
class _UnitFigures:
    checkpoints: int = 0
    cost: CheckpointCost = NO_COST
    recoveries: int = 0
    recovery_s: float = 0.0


class ProgressReporter:
    """Reports while its block runs. The end of the block is reported as the query's end or failure."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._units = {plan.name: _UnitFigures() for plan in network.units}
        self._running: HostedRun | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="peacefs dataflow reporter", daemon=True)
        self._ending = (QueryState.ENDED, "")
        #: The figures of the last report, by kind and name.
        self._last: dict[tuple[str, str], float] = {}
        self._last_s = time.monotonic()

    def __enter__(self) -> Self:
        if os.environ.get("PEACEFS_CHECKPOINT"):
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            text = error.message if isinstance(error, PeacefsError) else repr(error)
            self._ending = (QueryState.FAILED, text.split("\n", 1)[0][:report_text_characters_max])
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def follow(self, running: HostedRun) -> None:
        self._running = running

    def noted(self, event: RunEvent) -> None:
        """Take an event of the run. Called on the host's thread."""
        match event:
            case CheckpointTaken(unit, _, cost) if unit in self._units:
                self._units[unit].checkpoints += 1
                self._units[unit].cost = cost
            case RecoveryMeasured(unit, _, load_s, replay_s) if unit in self._units:
                self._units[unit].recoveries += 1
                self._units[unit].recovery_s = load_s + replay_s
            case _:
                pass

    # -- the reporter's thread -------------------------------------------------------------------------

    def _work(self) -> None:
        _, location = split_uri(os.environ["PEACEFS_CHECKPOINT"])
        with CheckpointRuns(
            parse_address(os.environ["PEACEFS_COORDINATOR"]), None, TokenSource.of(None)
        ) as coordinator:
            while True:
                is_over = self._over.wait(dataflow_report_interval_s)
                state, error = self._ending if is_over else (QueryState.RUNNING, "")
                name = self._network.name
                report = QueryReport(
                    *(location, coordinator.user, name, name, socket.gethostname(), os.getpid(), state),
                    error=error,
                    dataflow=self._figures(),
                )
                try:
                    coordinator.report(report)
                except PeacefsError as fault:
                    if not fault.retriable:
                        log.warning("no more reports of %s are sent: %s", location, fault.message)
                        return
                if is_over:
                    return

    def _figures(self) -> DataflowReport | None:
        running = self._running
        if running is None:
            return None
        now_s = time.monotonic()
        passed_s, self._last_s = max(now_s - self._last_s, 1e-3), now_s
        rows, late = running.rows, running.late_rows() if isinstance(running, EdgeRun) else {}
        sources = self._ends("source", [each.name for each in self._network.sources], rows.given, passed_s)
        return DataflowReport(
            units=[self._unit(plan, running) for plan in self._network.units[:report_units_max]],
            sources=[
                msgspec.structs.replace(each, waiting=self._waiting(each.name, rows.waited_s, passed_s))
                for each in sources
            ],
            sinks=self._ends("sink", [each.name for each in self._network.sinks], rows.taken, passed_s),
            late_rows=dict(islice(late.items(), report_units_max)),
        )

    def _ends(self, kind: str, names: list[str], counted: Mapping[str, int], passed_s: float) -> list[EndReport]:
        return [
            EndReport(name, counted.get(name, 0), self._since(kind, name, counted.get(name, 0)) / passed_s)
            for name in names[:report_units_max]
        ]

    def _waiting(self, name: str, waited_s: Mapping[str, float], passed_s: float) -> float:
        return min(1.0, self._since("wait", name, waited_s.get(name, 0.0)) / passed_s)

    def _since(self, kind: str, name: str, value: float) -> float:
        """Return by how much a figure has grown since the last report."""
        before = self._last.get((kind, name), 0.0)
        self._last[kind, name] = value
        return value - before

    def _unit(self, plan: UnitPlan, running: HostedRun) -> UnitReport:
        name, figures = plan.name, self._units[plan.name]
        return UnitReport(
            name,
            list(plan.inputs[:report_units_max]),
            (running.place_of(name) or "") if isinstance(running, EdgeRun) else "",
            figures.checkpoints,
            figures.cost.bytes_written,
            figures.cost.stored_us / 1000,
            figures.cost.pause_us / 1000,
            figures.recoveries,
            figures.recovery_s * 1000,
        )
