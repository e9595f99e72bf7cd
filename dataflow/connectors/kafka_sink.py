"""A sink that writes a Kafka topic, each row once for readers of committed messages.

attacks = KafkaSink("localhost:9092", "attacks")
host.start(query.network(), SGuard(interval_s=1), sources, {"attacks": attacks}, RunOptions(resume=True))

Rows and their number are in one Kafka transaction: the number is the committed offset of a group that belongs to
the sink. A producer that begins again makes Kafka abort the open transaction, and then reads the number.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from peacefs.dataflow.model.numbers import is_number
from peacefs.protocol.errors import InvalidQuery, PeerTimeout, PeerUnreachable, QueryFailed, StartupError

from .committing_sink import CommittingSink
from .interface import SinkOpening
from .json_rows import write_rows
from .kafka_client import KafkaPlace, kafka_request_s
from .sink_progress import CommitRule

# Maximum number of rows per transaction.
kafka_transaction_rows_max: Final = 100_000


class KafkaSink(CommittingSink):
    """Writes each row as a JSON object, in transactions."""

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        key: str | None = None,
        id: str | None = None,
        interval_s: float = 0.1,
        patience_s: float = 600.0,
        transaction_timeout_s: float = 60.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`key`: the column whose text is the message's key, which chooses the partition.

        `id`: the transactional id, by default `<query>.<sink>`. No other query may use it. `interval_s`: how long
        a transaction stays open, and so how long readers wait for rows. `patience_s`: how long rows wait for a
        broker before the query stops. `transaction_timeout_s`: how long Kafka lets a transaction stay open.
        `settings`: of librdkafka. Raises InvalidQuery, and StartupError without the extra `kafka`.
        """
        if not is_number(transaction_timeout_s) or not 1 <= transaction_timeout_s < float("inf"):
            raise InvalidQuery(f"transaction_timeout_s={transaction_timeout_s!r}: seconds are wanted, 1 or more")
        if is_number(interval_s) and interval_s >= transaction_timeout_s:
            raise InvalidQuery(
                f"interval_s={interval_s!r}: Kafka aborts a transaction after transaction_timeout_s="
                f"{transaction_timeout_s!r}, before it is committed: make one shorter, or the other longer"
            )
        place = KafkaPlace(servers, topic, settings)
        committer = KafkaCommitter(place, key, id, transaction_timeout_s)
        rule = CommitRule(interval_s, kafka_transaction_rows_max)
        super().__init__(f"topic {topic!r}", committer, rule, patience_s=patience_s)


class KafkaCommitter:
    """Writes rows with one transactional producer, which `open` replaces."""

    def __init__(self, place: KafkaPlace, key: str | None, id: str | None, transaction_timeout_s: float) -> None:
        self._place, self._key, self._given_id = place, key, id
        self._timeout_ms = int(1000 * transaction_timeout_s)
        self._producer: Any = None
        # Reads and names the group whose offset is the number.
        self._group: Any = None
        self._instance = ""
        self._begun = False
        # Why the broker has refused messages of this producer.
        self._refused: list[Any] = []

    def open(self, opening: SinkOpening) -> int:
        if self._key is not None and self._key not in opening.kind.schema.names:
            raise InvalidQuery(f"key={self._key!r} is no column of sink {opening.sink!r}")
        self._drop_producer()
        id = self._given_id or f"{opening.query}.{opening.sink}"
        if self._group is None:
            self._group = self._place.consumer(f"peacefs.{id}")
        self._place.partitions(self._group)
        if self._instance:
            # A producer of another query has perhaps fenced this one, and must not be fenced in turn. This read
            # does not wait for the open transaction, which only a new producer ends.
            glance = self._place.consumer(f"peacefs.{id}", isolation_level="read_uncommitted")
            try:
                self._check_owner(id, self._committed(glance)[1])
            finally:
                glance.close()
        refused = self._refused = []
        settings = self._place.settings(
            transactional_id=id,
            transaction_timeout_ms=self._timeout_ms,
            partitioner="murmur2_random",
            linger_ms=5,
        )
        settings["on_delivery"] = lambda error, _: None if error is None else refused.append(error)
        self._producer = self._place.made(self._place.kafka.Producer, settings)
        self._call(self._producer.init_transactions, kafka_request_s)
        number, owner = self._committed(self._group)
        if opening.fresh:
            number = 0
        elif number is None:
            raise StartupError(
                f"Kafka has forgotten how many rows of sink {id!r} it has (offsets.retention.minutes): begin the "
                "query anew in another directory"
            )
        else:
            self._instance = opening.instance
            self._check_owner(id, owner)
        self._instance = opening.instance
        # Take the group, so that others see the owner, and so that the number does not expire.
        self._begin()
        self.commit(number)
        return number

    def append(self, first: int, rows: pa.RecordBatch) -> None:
        self._begin()
        values = write_rows(rows, str(self._place))
        keys: list[Any] = [None] * len(values)
        if self._key is not None:
            keys = [None if each is None else str(each) for each in rows.column(self._key).to_pylist()]
        for value, key in zip(values, keys, strict=True):
            self._produce(value, key)

    def commit(self, number: int) -> None:
        kafka = self._place.kafka
        offset = kafka.TopicPartition(self._place.topic, 0, number, metadata=self._instance)
        group = self._group.consumer_group_metadata()
        try:
            self._call(self._producer.send_offsets_to_transaction, [offset], group, kafka_request_s)
            self._call(self._producer.commit_transaction, kafka_request_s)
        except PeerUnreachable:
            self._check_refused()
            raise
        self._begun = False

    def close(self) -> None:
        self._drop_producer()
        if self._group is not None:
            self._group.close()
            self._group = None

    # -- inside -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._begun:
            self._call(self._producer.begin_transaction)
            self._begun = True

    def _check_refused(self) -> None:
        """Raise QueryFailed if the broker will never take a message. The transaction's error does not say so."""
        # A producer that another one has fenced raises the same error again.
        with contextlib.suppress(self._place.kafka.KafkaException):
            self._producer.poll(0)
        for error in self._refused:
            fault = self._place.fault(error)
            if isinstance(fault, QueryFailed):
                raise fault

    def _produce(self, value: bytes, key: str | None) -> None:
        until_s = time.monotonic() + kafka_request_s
        while True:
            try:
                self._producer.produce(self._place.topic, value=value, key=key)
                return
            except BufferError:
                if time.monotonic() > until_s:
                    raise PeerTimeout(f"{self._place} takes no rows: start a broker") from None
                self._producer.poll(0.1)
            except self._place.kafka.KafkaException as error:
                raise self._place.fault(error) from error

    def _committed(self, group: Any) -> tuple[int | None, str]:
        """Return the number and the query that has committed it; None if there is none."""
        asked = [self._place.kafka.TopicPartition(self._place.topic, 0)]
        (found,) = self._call(group.committed, asked, kafka_request_s)
        if found.error is not None:
            raise self._place.fault(found.error)
        return (None if found.offset < 0 else found.offset), found.metadata or ""

    def _check_owner(self, id: str, owner: str) -> None:
        if owner != self._instance:
            raise QueryFailed(
                f"another query writes {self._place} with the transactional id {id!r}, and has stopped this one: "
                "give each its own, KafkaSink(..., id='...')"
            )

    def _call(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._place.kafka.KafkaException as error:
            raise self._place.fault(error) from error

    def _drop_producer(self) -> None:
        """Let go of the producer. Kafka aborts its transaction when the next one begins, or after the timeout."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None
        self._begun = False
