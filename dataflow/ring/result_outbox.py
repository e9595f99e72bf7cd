"""Results of a node's fragments in transit to the sink, kept until the sink has taken them."""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from .fragment import Fragment
from .messages import EDGE, Result, Results
from .node_context import NodeContext


class ResultOutbox:
    """Sends results with serial numbers. The sink acknowledges up to which number it has taken them."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._waiting: deque[tuple[int, Result]] = deque()
        self._serial = 0
        self._bytes = 0

    @property
    def full(self) -> bool:
        """True while the sink is too far behind."""
        return self._bytes > self._context.settings.results_bytes_max

    def publish(self, fragment: Fragment, mapper: str, number: int, rows: tuple[pa.RecordBatch, ...]) -> None:
        """Send the output for a fragment's rows up to a number."""
        result = Result(mapper, fragment.reported.get(mapper, 0), number, fragment.interval, rows)
        fragment.reported[mapper] = number
        fragment.results.append(result)
        self.send(result)

    def send(self, result: Result) -> None:
        self._serial += 1
        self._waiting.append((self._serial, result))
        self._bytes += result.bytes
        self._context.send(EDGE, Results(self._serial, result))

    def send_again(self) -> None:
        """Send again what the sink has not taken, because the connection to it broke."""
        for serial, result in self._waiting:
            self._context.send(EDGE, Results(serial, result))

    def report_progress(self) -> None:
        """Tell the sink about batches without output."""
        for fragment in self._context.fragments:
            if fragment.primary and not fragment.waits_for:
                for mapper, number in fragment.coverage.items():
                    if number > fragment.reported.get(mapper, 0):
                        self.publish(fragment, mapper, number, ())

    def taken(self, serial: int) -> None:
        while self._waiting and self._waiting[0][0] <= serial:
            _, result = self._waiting.popleft()
            self._bytes -= result.bytes
            for fragment in self._context.fragments:
                if fragment.primary and fragment.interval.overlaps(result.interval):
                    fragment.results = [each for each in fragment.results if each is not result]
