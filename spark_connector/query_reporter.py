"""Report the progress of a session's queries to the coordinator, for `peacefs checkpoint show`.

    reporter = QueryReporter()
    spark.streams.addListener(reporter)
    query = stream.writeStream.option("checkpointLocation", run.location).start()
    reporter.follow(query, run.location)

Reporting never delays or fails a query. Spark's events go into a short queue, which a thread of the reporter
sends. A full queue drops and counts its oldest event. If the coordinator is unreachable, the thread retries.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from peacefs.client.control.addresses import CoordinatorAddress, split_uri
from peacefs.client.control.query_runs import CheckpointRuns
from peacefs.client.control.token_source import TokenSource
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import report_text_characters_max
from peacefs.protocol.values.query_reports import QueryReport, QueryState
from peacefs.protocol.values.query_runs import without_run

from .query_progress import batch_report

report_queue_max: Final = 64
report_interval_s: Final = 10.0
report_retry_s: Final = 1.0
report_stop_s: Final = 3.0


log = logging.getLogger("peacefs.spark")

#: Sends a report to a cluster; raises PeacefsError.
Send = Callable[[CoordinatorAddress, QueryReport], None]


class _Followed(NamedTuple):
    """A query's coordinator, and its last report."""

    address: CoordinatorAddress
    report: QueryReport


class QueryReporter(StreamingQueryListener):
    """A listener of one Spark session that sends reports of the queries that it follows.

    `user` is Spark's user. `token` defaults to the environment's (PEACEFS_TOKEN_FILE, PEACEFS_TOKEN). Only tests
    replace `send`. `dropped` counts events that were never sent. Callbacks only queue; the reporter's own thread
    sends.
    """

    def __init__(self, user: str | None = None, send: Send | None = None, *, token: str | None = None) -> None:
        self.dropped = 0
        self._token = TokenSource.of(token)
        self._user = user
        self._send = send or self._to_coordinator
        self._clients: dict[CoordinatorAddress, CheckpointRuns] = {}
        self._followed: dict[str, _Followed] = {}
        self._events: deque[tuple[str, dict[str, Any]]] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="peacefs query reporter", daemon=True)
        self._thread.start()

    def follow(self, query: StreamingQuery, location: str) -> None:
        """Begin to report a query that was started with this `checkpointLocation`. Raises BadRequest."""
        address, path = split_uri(location)
        with CheckpointRuns(address, self._user, self._token) as runs:
            user = runs.user
        name = (query.name or "")[:report_text_characters_max]
        report = QueryReport(
            path, user, str(query.id), name, socket.gethostname(), os.getpid(), QueryState.RUNNING
        )
        with self._changed:
            self._followed[report.query] = _Followed(address, report)
        self._put(report.query, {})

    def stop(self) -> None:
        """Send the remaining reports, for at most `report_stop_s`."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(report_stop_s)

    # -- callbacks on a thread of Spark's, which must not wait ------------------------------------------

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: the query's checkpoint is not known until `follow`."""

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        self._put(str(progress.id), {"progress": progress.json})

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: the reporter's thread repeats reports of running queries anyway."""

    def onQueryTerminated(self, event: Any) -> None:
        self._put(str(event.id), {"ended": True, "error": event.exception or ""})

    def _put(self, query: str, news: dict[str, Any]) -> None:
        with self._changed:
            if len(self._events) == report_queue_max:
                self._events.popleft()
                self.dropped += 1
            self._events.append((query, news))
            self._changed.notify()

    # -- the reporter's thread -------------------------------------------------------------------------

    def _work(self) -> None:
        told_s = time.monotonic()
        while True:
            with self._changed:
                if not self._events and not self._stopping:
                    self._changed.wait(max(0.0, told_s + report_interval_s - time.monotonic()))
                if self._stopping and not self._events:
                    break
                event = self._events.popleft() if self._events else None
                waiting = [] if event else [name for name, one in self._followed.items() if _runs(one)]
            for query, news in [event] if event else [(name, {}) for name in waiting]:
                self._tell(query, news)
            told_s = told_s if event else time.monotonic()
        for client in self._clients.values():
            client.close()

    def _tell(self, query: str, news: dict[str, Any]) -> None:
        followed = self._followed.get(query)
        if followed is None:
            return
        report = _with_news(followed.report, news, self.dropped)
        self._followed[query] = followed._replace(report=report)
        try:
            self._send(followed.address, report)
        except PeacefsError as fault:
            if fault.retriable:
                self._put_back(query, news)
                return
            log.warning("no more reports of %s are sent: %s", report.location, fault.message)
            del self._followed[query]
        except Exception:
            log.exception("a report of %s failed", report.location)

    def _put_back(self, query: str, news: dict[str, Any]) -> None:
        """Put news back at the front of the queue and wait. Drop it if newer events have filled the queue."""
        with self._changed:
            if news and len(self._events) < report_queue_max:
                self._events.appendleft((query, news))
            elif news:
                self.dropped += 1
            if self._stopping:
                self.dropped += len(self._events)
                self._events.clear()
            else:
                self._changed.wait_for(lambda: self._stopping, report_retry_s)

    def _to_coordinator(self, address: CoordinatorAddress, report: QueryReport) -> None:
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = CheckpointRuns(address, self._user, self._token)
        client.report(report)
        if report.state is not QueryState.RUNNING and without_run(report.location) != report.location:
            client.end(report.location)


def _runs(followed: _Followed) -> bool:
    return followed.report.state is QueryState.RUNNING


def _with_news(report: QueryReport, news: dict[str, Any], dropped: int) -> QueryReport:
    changes: dict[str, Any] = {"dropped": dropped}
    if "progress" in news:
        changes["last_batch"] = batch_report(json.loads(news["progress"]))
    if "ended" in news:
        error = news["error"].strip().split("\n", 1)[0][:report_text_characters_max]
        changes |= {"state": QueryState.FAILED if error else QueryState.ENDED, "error": error}
    return msgspec.structs.replace(report, **changes)
