"""The runs of one agent: the processes that it starts, stops, or turns from standbys into runs."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Final

from peacefs.protocol.errors import QueryFailed
from peacefs.protocol.messages import AgentOrders, RunOrder, RunReport
from peacefs.runtime.tls import TlsIdentity

from .command_list import CommandList, given_run, start_of
from .reconciliation import Key, key_of, reconcile, standby_of
from .run_account import Accounts, home_of
from .run_process import RunProcess, tail_of
from .run_tokens import RunTokens
from .standby_letters import StandbyLetters

run_logs_kept_max: Final = 5


log = logging.getLogger("peacefs.agent")

_POLL_S = 0.05


class LocalRuns:
    """The runs on this node, used from the agent's one thread.

    A query has at most one run with a process at a time, besides its standby. Only commands on the list are
    started.
    """

    def __init__(
        self,
        listed: CommandList,
        accounts: Accounts,
        logs: Path,
        tokens: RunTokens,
        letters: StandbyLetters,
        tls: TlsIdentity | None = None,
    ) -> None:
        """`tls` is what runs need to reach the cluster."""
        self.listed = listed
        self._accounts = accounts
        self._logs = logs
        self._tokens = tokens
        self._letters = letters
        self._tls = tls
        self._running: dict[Key, RunProcess] = {}
        #: The standbys whose processes became runs, by run.
        self._taken: dict[Key, Key] = {}
        self._ended: dict[Key, RunReport] = {}
        #: Runs that the coordinator no longer wants.
        self._unwanted: set[Key] = set()

    @property
    def are_running(self) -> bool:
        """Return whether any process is running."""
        return bool(self._running)

    @property
    def have_standby(self) -> bool:
        """Return whether a standby waits for a run."""
        return bool(self._letters.waiting)

    def reports(self) -> list[RunReport]:
        """Return the report for the coordinator: running and ended runs."""
        running = [RunReport(*key, is_ready=self._letters.is_ready(key)) for key in self._running]
        return [*running, *self._ended.values()]

    def encourage(self) -> None:
        """Tell the guards that the coordinator has answered, so that the runs continue."""
        for process in self._running.values():
            process.encourage()

    def log_tail(self, key: Key) -> str:
        """Return the end of a run's log. A run that took over from a standby has its log only while it runs."""
        process = self._running.get(key)
        query, run = key
        return tail_of(self._logs / f"{query}.{run}.log") if process is None else process.log_tail()

    def obey(self, orders: AgentOrders, until_s: float) -> None:
        """Carry out the orders. Start nothing after `until_s`, because newer orders may exist by then."""
        steps = reconcile(self._running, self._ended, orders.runs, self._letters.waiting)
        for order in steps.take_over:
            self._hand_over(order, orders.coordinator)
        self._unwanted = set(steps.stop)
        for key in steps.forget:
            del self._ended[key]
        for order in orders.runs:
            if key_of(order) in self._running:
                self._tokens.keep(order, self._accounts.of(order.user))
        for order in steps.start:
            if time.monotonic() > until_s:
                return  # this process was delayed
            self._start(order, orders.coordinator)

    def _start(self, order: RunOrder, coordinator: str) -> None:
        key = key_of(order)
        if len(self._running) >= self.listed.runs_max:
            return  # one of the runs has to end first
        self._drop_old_logs(order.query)
        try:
            account = self._accounts.of(order.user)
            home = home_of(account, self._logs.parent)
            shown = dict(self._tokens.keep(order, account))
            if order.standby:
                shown.update(self._letters.begin(key, account))
            ca_file = None if self._tls is None else self._tls.files.ca
            start = start_of(order, self.listed, coordinator, os.environ, account, home, shown, ca_file)
            self._running[key] = RunProcess(start, self._logs / f"{order.query}.{order.run}.log")
        except QueryFailed as fault:
            self._tokens.drop(key)
            self._letters.drop(key)
            self._ended[key] = RunReport(*key, ended=True, last_words=fault.message)
            return
        what = "standby" if order.standby else "run"
        log.info("query %s, %s %s: %s was started", order.query, what, order.run, order.command)

    def _hand_over(self, order: RunOrder, coordinator: str) -> None:
        """Give a standby's process a run, whose driver it is from now on."""
        standby, key = standby_of(order), key_of(order)
        self._running[key] = self._running.pop(standby)
        self._taken[key] = standby
        self._tokens.take_over(standby, key)
        self._letters.hand_over(standby, given_run(order, coordinator, tls=self._tls is not None))
        log.info("query %s: standby %s takes over, as run %s", order.query, order.takes_over_from, order.run)

    def pause(self, seconds: float, stop: threading.Event) -> None:
        """Wait for so many seconds, or until `stop` is set or a run ends."""
        until_s = time.monotonic() + seconds
        while not self._note_ended() and (left_s := until_s - time.monotonic()) > 0:
            for key in self._unwanted & self._running.keys():
                self._running[key].stop(time.monotonic())
            if stop.wait(min(left_s, _POLL_S) if self._running else left_s):
                return

    def _note_ended(self) -> bool:
        ended = [key for key, process in self._running.items() if process.status is not None]
        for key in ended:
            process = self._running.pop(key)
            self._tokens.drop(key)
            self._letters.drop(self._taken.pop(key, key))
            self._ended[key] = RunReport(*key, ended=True, status=process.status, last_words=process.last_words())
            log.info("query %s, run %s ended with status %d", *key, process.status)
        return bool(ended)

    def end_all(self) -> None:
        """Stop all runs. Return when all their processes are gone."""
        deadline_s = time.monotonic() + max((each.stop_s for each in self._running.values()), default=0.0)
        while self._running and time.monotonic() < deadline_s:
            for process in self._running.values():
                process.stop(time.monotonic())
            self._note_ended()
            time.sleep(_POLL_S)
        for key, process in self._running.items():
            process.kill()
            self._tokens.drop(key)
            self._letters.drop(self._taken.pop(key, key))
        self._running.clear()
        self._ended.clear()

    def _drop_old_logs(self, query: str) -> None:
        """Delete a query's logs except for the last few runs."""
        logs = [path for path in self._logs.iterdir() if path.name.startswith(f"{query}.")]
        logs.sort(key=lambda path: path.stat().st_mtime)
        for path in logs[: max(0, len(logs) - 2 * run_logs_kept_max)]:
            path.unlink(missing_ok=True)
