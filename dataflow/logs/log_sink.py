"""A sink that writes a log, for Spark queries and other dataflows to read.

    with LogSink(network, "attacks", "webhdfs://localhost:9870/streams/attacks") as attacks:
        with host.start(network, technique, sources, {"attacks": attacks}) as run:
            run.wait()

Rows are numbered from the beginning of the run. If the program is killed and the query is started again from the
beginning of its sources, it emits the same rows. The log skips those that it already has, and has each row once.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Final, Self

import pyarrow as pa

from peacefs.dataflow.model.batches import Batch
from peacefs.dataflow.model.operator_class import OperatorClass
from peacefs.dataflow.query.network import Network
from peacefs.protocol.errors import InvalidQuery

from .log_place import open_stream
from .stream_log import StreamLogs

# How long a sink waits for more rows before it commits.
stream_log_commit_s: Final = 0.02
# Maximum number of uncommitted rows. Above that, the sink blocks its query.
stream_log_sink_rows_max: Final = 1_000_000


class LogSink:
    """Writes rows on a separate thread, with many batches per commit. It slows down a query that is faster."""

    def __init__(
        self, network: Network, sink: str, address: str, *, coordinator: str | None = None, user: str | None = None
    ) -> None:
        """Check the sink; `with` then opens the log.

        Raises InvalidQuery if the query has no such sink, or if a rerun could give other rows.
        """
        found = [each for each in network.sinks if each.name == sink]
        if not found:
            names = ", ".join(repr(each.name) for each in network.sinks)
            raise InvalidQuery(f"query {network.name!r} has no sink {sink!r}: it has {names}")
        if network.operator_class is OperatorClass.ARBITRARY:
            raise InvalidQuery(
                f"query {network.name!r} is arbitrary: run again it puts out other rows, which a log cannot tell "
                "from those that it has; sort() behind a union, or leave timeouts out"
            )
        self._kind = found[0].type
        self._address, self._coordinator, self._user = address, coordinator, user
        self._changed = threading.Condition()
        self._waiting: list[Batch] = []
        self._waiting_rows = 0
        self._produced = self._durable = 0
        self._closing = False
        self._failure: BaseException | None = None
        self._resources = ExitStack()
        self._thread = threading.Thread(target=self._write, name=f"stream log {sink}", daemon=True)

    @property
    def durable(self) -> int:
        """The number of the last row of this run that is durable."""
        return self._durable

    def __enter__(self) -> Self:
        opened = open_stream(self._address, coordinator=self._coordinator, user=self._user)
        store, stream = self._resources.enter_context(opened)
        try:
            self._logs = StreamLogs(store)
            self._log = self._logs.open(stream, self._kind)
        except BaseException:
            self._resources.close()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, rows: pa.RecordBatch) -> None:
        """Take rows, in order. Raises the error of earlier rows, if any."""
        if not rows.num_rows:
            return
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure is not None or self._waiting_rows < stream_log_sink_rows_max
            )
            self._raise_failure()
            self._waiting.append(Batch(self._produced + 1, rows))
            self._produced += rows.num_rows
            self._waiting_rows += rows.num_rows
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until all rows are durable, and close the log. Raises the error of earlier rows, if any."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._resources.close()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._closing)
                    if not self._closing:
                        # Rows that arrive meanwhile share the commit.
                        self._changed.wait_for(lambda: self._closing, stream_log_commit_s)
                    taken, self._waiting, self._waiting_rows = self._waiting, [], 0
                    if not taken:
                        return
                    self._changed.notify_all()
                for batch in taken:
                    self._log.append(batch)
                self._logs.commit()
                self._durable = taken[-1].last
        except Exception as error:  # raised to whoever writes the next row, or closes
            with self._changed:
                self._failure = error
                self._changed.notify_all()
