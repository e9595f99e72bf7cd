"""A source that reads a Kafka topic: its parts are the partitions, and its positions are offsets.

events = KafkaSource("localhost:9092", "logins", {"address": "string", "at": "timestamp"}, time="at")
query.source("events", events.type)
host.start(query.network(), SGuard(interval_s=1), {"events": events}, sinks, RunOptions(resume=True))
"""

from __future__ import annotations

import logging
import time as clock
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from peacefs.dataflow.model.schemas import Schema, as_schema
from peacefs.dataflow.model.stream_type import TIME, StreamType
from peacefs.protocol.errors import InvalidQuery, PeerUnreachable, QueryFailed, StartupError
from peacefs.protocol.limits import MIB

from .interface import PartPlace, Slice, Taken
from .json_rows import UnreadableRow, read_readable_rows, read_rows
from .kafka_client import KafkaPlace, kafka_request_s
from .parted_source import PartedSource

# Maximum number of rows that are taken, and remembered, at once.
kafka_take_rows_max: Final = 20_000
# Partitions with waiting messages are paused when messages of this size in total wait.
kafka_waiting_bytes_max: Final = 128 * MIB
# How often new partitions are looked for, and whether the broker is there if nothing comes.
kafka_look_s: Final = 10.0
# How long a query waits for a broker when it begins.
kafka_begin_s: Final = 30.0
_POLL_S: Final = 0.2

log = logging.getLogger("peacefs.dataflow")


@dataclass(frozen=True)
class KafkaRead:
    """How a topic is read.

    `start`: where a new query begins. `follow`: if False, end at the present end of each partition. `bad`: whether
    a message that is no row stops the query, or is skipped with a warning and a count. `patience_s`: stop the
    query if no broker has answered for so long.
    """

    start: Literal["earliest", "latest"] = "earliest"
    follow: bool = True
    bad: Literal["stop", "skip"] = "stop"
    patience_s: float = 600.0


class KafkaSource(PartedSource):
    """The rows of a topic, one JSON object per message. Only committed messages are read."""

    def __init__(
        self,
        servers: str,
        topic: str,
        schema: Schema,
        *,
        time: str,
        columns: Mapping[str, Literal["key", "timestamp"]] | None = None,
        read: KafkaRead | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`columns`: those that come from the message's key (as text) or timestamp, and not from its value.

        `settings`: of librdkafka, such as `security.protocol`. Raises InvalidQuery, and StartupError without the
        extra `kafka`.
        """
        kind = StreamType(as_schema(schema), time)
        for column, origin in (columns or {}).items():
            wanted = {"key": pa.string(), "timestamp": TIME}.get(origin)
            if wanted is None or column not in kind.schema.names or kind.schema.field(column).type != wanted:
                raise InvalidQuery(
                    f"columns={columns!r}: a column of the schema comes from 'key', as string, or from "
                    "'timestamp', as timestamp"
                )
        reader = KafkaReader(KafkaPlace(servers, topic, settings), kind, columns or {}, read or KafkaRead())
        super().__init__(f"topic {topic!r}", kind, reader)
        self._rows = reader

    @property
    def skipped(self) -> int:
        """Number of bad messages that were skipped. Messages that are read again count again."""
        return self._rows.skipped


class KafkaReader:
    """Reads partitions by their offsets.

    One consumer reads all partitions, from where rows may be wanted again. Messages wait in a queue for each
    partition until they are taken. If all queues have too much, partitions with waiting messages are paused.
    """

    def __init__(self, place: KafkaPlace, kind: StreamType, columns: Mapping[str, str], read: KafkaRead) -> None:
        self._place, self._kind, self._columns, self._read = place, kind, columns, read
        names = [name for name in kind.schema.names if name not in columns]
        self._value_schema = pa.schema([kind.schema.field(name) for name in names])
        self._waiting: defaultdict[int, deque[Any]] = defaultdict(deque)
        self._waiting_bytes = 0
        self._paused: set[int] = set()
        # The first offset of each partition that is not in the journal yet.
        self._new: dict[int, int] = {}
        # Partitions whose end has been reached, without messages since.
        self._at_end: set[int] = set()
        self._partitions: list[int] = []
        self._consumer: Any = None
        self._looked_s = self._answered_s = 0.0
        self.skipped = 0

    def open(self, identity: str | None, starts: Mapping[str, PartPlace]) -> str:
        until_s = clock.monotonic() + min(self._read.patience_s, kafka_begin_s)
        while True:
            try:
                return self._open(identity, starts)
            except PeerUnreachable as error:
                if clock.monotonic() > until_s:
                    raise StartupError(error.message) from error
                clock.sleep(_POLL_S)

    def _open(self, identity: str | None, starts: Mapping[str, PartPlace]) -> str:
        # A source may be used for a second run.
        self.close()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._paused.clear()
        self._at_end.clear()
        try:
            self._consumer = self._place.consumer(f"peacefs.read.{self._place.topic}", **_SETTINGS)
            self._partitions = self._place.partitions(self._consumer)
            found = self._place.identity()
            if identity is not None and found != identity:
                raise StartupError(
                    f"{self._place} is not the topic that the query has read: it was created again since; begin "
                    "the query anew in another directory"
                )
            fresh = identity is None
            begins = [self._start(each, starts.get(str(each)), fresh=fresh) for each in self._partitions]
            self._consumer.assign(begins)
            self._new = {each.partition: each.offset for each in begins if str(each.partition) not in starts}
        except BaseException:
            self.close()
            raise
        self._looked_s = self._answered_s = clock.monotonic()
        return found

    def take(self, places: Mapping[str, PartPlace]) -> Taken:
        if self._new:
            # Journal the offsets before rows arrive. Otherwise start='latest' would skip rows after a resume.
            begun = [Slice(str(each), offset, offset, 0) for each, offset in sorted(self._new.items())]
            self._new = {}
            return Taken([(each, self._kind.empty()) for each in begun])
        if not any(self._waiting.values()):
            self._fill(_POLL_S)
            self._look()
        room, slices = kafka_take_rows_max, []
        for partition in self._partitions:
            queue = self._waiting[partition]
            messages = [self._popped(queue) for _ in range(min(len(queue), room))]
            if not messages:
                continue
            room -= len(messages)
            rows = self._parsed(messages)
            begin, end = places[str(partition)].end, messages[-1].offset() + 1
            slices.append((Slice(str(partition), begin, end, rows.num_rows), rows))
        self._resume()
        over = not self._read.follow and self._at_end.issuperset(self._partitions)
        return Taken(slices, ended=over and not slices and not any(self._waiting.values()))

    def again(self, wanted: Slice) -> pa.RecordBatch:
        partition = int(wanted.part)
        queue = self._waiting[partition]
        found: list[Any] = []
        while not found or found[-1].offset() + 1 < wanted.end:
            while not queue and partition not in self._at_end:
                self._fill(_POLL_S)
                self._check_answers()
            if not queue or queue[0].offset() >= wanted.end:
                break
            found.append(self._popped(queue))
            self._resume()
        return self._parsed(found)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    # -- inside -------------------------------------------------------------------------------------------

    def _popped(self, queue: deque[Any]) -> Any:
        message = queue.popleft()
        self._waiting_bytes -= _memory_of(message)
        return message

    def _start(self, partition: int, place: PartPlace | None, *, fresh: bool) -> Any:
        """Return where a partition is read from. Raises StartupError if rows from there are gone."""
        tp = self._place.kafka.TopicPartition
        try:
            low, high = self._consumer.get_watermark_offsets(
                tp(self._place.topic, partition), timeout=kafka_request_s
            )
        except self._place.kafka.KafkaException as error:
            raise self._place.fault(error) from error
        if place is None:
            # A partition that was added since begins with its first row.
            start = high if fresh and self._read.start == "latest" else low
        elif place.end > high:
            # A new leader may not know its end for a moment.
            raise PeerUnreachable(
                f"partition {partition} of {self._place} ends at {high}, and the query goes on at {place.end}: if "
                "its rows are lost, begin the query anew in another directory"
            )
        elif place.end < low:
            raise StartupError(
                f"partition {partition} of {self._place} has offsets {low} to {high}, and the query goes on at "
                f"{place.end}: its rows were deleted; raise retention.ms, and begin the query anew in another "
                "directory"
            )
        else:
            start = place.end
        return tp(self._place.topic, partition, start)

    def _fill(self, wait_s: float) -> None:
        """Read messages that have arrived; wait for the first."""
        first = self._consumer.poll(wait_s)
        if first is None:
            return
        self._answered_s = clock.monotonic()
        for message in (first, *self._consumer.consume(10_000, timeout=0)):
            error = message.error()
            if error is None:
                self._waiting[message.partition()].append(message)
                self._waiting_bytes += _memory_of(message)
                self._at_end.discard(message.partition())
            elif error.code() == self._place.kafka.KafkaError._PARTITION_EOF:
                self._at_end.add(message.partition())
            elif error.code() == self._place.kafka.KafkaError._AUTO_OFFSET_RESET:
                raise QueryFailed(
                    f"partition {message.partition()} of {self._place} has lost rows before they were read: raise "
                    "retention.ms, and begin the query anew in another directory"
                )
            else:
                fault = self._place.fault(error)
                if isinstance(fault, QueryFailed):
                    raise fault
                log.info("%s", fault.message)
        if self._waiting_bytes < kafka_waiting_bytes_max:
            return
        for partition in {each for each, queue in self._waiting.items() if queue} - self._paused:
            self._consumer.pause([self._place.kafka.TopicPartition(self._place.topic, partition)])
            self._paused.add(partition)

    def _resume(self) -> None:
        for partition in [each for each in self._paused if not self._waiting[each]]:
            self._consumer.resume([self._place.kafka.TopicPartition(self._place.topic, partition)])
            self._paused.discard(partition)

    def _look(self) -> None:
        """From time to time, look for new partitions. They are read from their beginning."""
        if clock.monotonic() < self._looked_s + kafka_look_s:
            return
        self._looked_s = clock.monotonic()
        try:
            found = self._place.partitions(self._consumer)
        except PeerUnreachable:
            self._check_answers()
            return
        except StartupError as error:
            raise QueryFailed(error.message) from error
        self._answered_s = clock.monotonic()
        tp = self._place.kafka.TopicPartition
        new = [each for each in found if each not in self._partitions]
        if new:
            self._consumer.incremental_assign([tp(self._place.topic, each, 0) for each in new])
            self._partitions = sorted({*self._partitions, *new})
            self._new = dict.fromkeys(new, 0)

    def _check_answers(self) -> None:
        """Raise QueryFailed if no broker has answered for too long."""
        silent_s = clock.monotonic() - self._answered_s
        if silent_s > self._read.patience_s:
            raise QueryFailed(
                f"no broker of {self._place} has answered for {silent_s:.0f} s: start one, and resume the query"
            )

    def _parsed(self, messages: list[Any]) -> pa.RecordBatch:
        """Parse messages of one partition. Raises QueryFailed, or skips those that are no rows."""
        reasons: list[str] = []
        if "key" in self._columns.values():
            for bad in [each for each in messages if not _has_text_key(each)]:
                reasons.append("its key is not UTF-8")
                if self._read.bad == "stop":
                    raise self._no_row(bad, reasons[0])
            messages = [each for each in messages if _has_text_key(each)]
        values = [message.value() or b"" for message in messages]
        if self._read.bad == "skip":
            rows, kept, more = read_readable_rows(values, self._value_schema)
            messages = [messages[each] for each in kept]
            if reasons := reasons + more:
                self.skipped += len(reasons)
                log.warning("%s: %d messages are skipped, one since %s", self._place, len(reasons), reasons[0])
        else:
            try:
                rows = read_rows(values, self._value_schema)
            except UnreadableRow as error:
                raise self._no_row(messages[error.index], error.reason) from error
        return self._with_columns(rows, messages)

    def _no_row(self, message: Any, reason: str) -> QueryFailed:
        return QueryFailed(
            f"message {message.offset()} of partition {message.partition()} of {self._place} is no row: {reason}; "
            "correct the schema, or skip such messages with KafkaRead(bad='skip')"
        )

    def _with_columns(self, rows: pa.RecordBatch, messages: list[Any]) -> pa.RecordBatch:
        if not self._columns:
            return rows
        given: dict[str, pa.Array] = dict(zip(rows.schema.names, rows.columns, strict=True))
        for column, origin in self._columns.items():
            if origin == "timestamp":
                given[column] = pa.array([message.timestamp()[1] * 1000 for message in messages], TIME)
            else:
                keys = [message.key() for message in messages]
                given[column] = pa.array([None if key is None else key.decode() for key in keys], pa.string())
        schema = self._kind.schema
        return pa.RecordBatch.from_arrays([given[name] for name in schema.names], schema=schema)


def _memory_of(message: Any) -> int:
    """Return about how many bytes a message needs while it waits."""
    return len(message) + 512


def _has_text_key(message: Any) -> bool:
    key = message.key()
    try:
        return key is None or bool(key.decode() or True)
    except UnicodeDecodeError:
        return False


_SETTINGS: Final = {
    "auto_offset_reset": "error",
    "enable_partition_eof": True,
    "fetch_wait_max_ms": 100,
}
