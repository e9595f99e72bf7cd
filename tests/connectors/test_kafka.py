"""The Kafka source and sink with a real broker. The judge is a plain consumer of committed messages."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from support.connector_rows import KIND, MemoryJournal, as_json, batch, given_by, opening, rows
from support.kafka import KafkaBroker
from support.waiting import wait_until

from peacefs.dataflow.connectors import KafkaSink, KafkaSource
from peacefs.dataflow.connectors.kafka_client import KafkaPlace
from peacefs.dataflow.connectors.kafka_sink import KafkaCommitter
from peacefs.dataflow.connectors.kafka_source import KafkaRead
from peacefs.protocol.errors import InvalidQuery, PeerUnreachable, QueryFailed, StartupError

pytestmark = [pytest.mark.cluster]

_SCHEMA = {"user": "string", "at": "timestamp", "n": "long"}


def _committer(broker: KafkaBroker, topic: str, timeout_s: float = 60.0) -> KafkaCommitter:
    return KafkaCommitter(KafkaPlace(broker.servers, topic, None), "user", None, timeout_s)


def _source(broker: KafkaBroker, topic: str, **read: Any) -> KafkaSource:
    return KafkaSource(broker.servers, topic, _SCHEMA, time="at", read=KafkaRead(**{"follow": False, **read}))


def _numbers(broker: KafkaBroker, topic: str) -> list[int]:
    return sorted(json.loads(value)["n"] for value in broker.read_committed(topic))


def test_kafka_sink_commits_rows_with_their_number(broker: KafkaBroker) -> None:
    """Rows without a commit are seen by nobody; a sink that begins again drops them and knows its number."""
    broker.create("numbered", 3)
    first = _committer(broker, "numbered")
    assert first.open(opening(fresh=True)) == 0
    first.append(1, batch(1, 10))
    first.commit(10)
    first.append(11, batch(11, 20))
    again = _committer(broker, "numbered")
    assert again.open(opening(fresh=False)) == 10
    with pytest.raises(PeerUnreachable):
        first.commit(20)
    assert _numbers(broker, "numbered") == list(range(1, 11))
    again.append(11, batch(11, 15))
    again.commit(15)
    assert _numbers(broker, "numbered") == list(range(1, 16))
    for each in (first, again):
        each.close()


def test_kafka_sink_of_a_new_query_begins_at_one(broker: KafkaBroker) -> None:
    """A transactional id that another query has used says nothing about the new one, and the old one is told."""
    broker.create("reused")
    old, new = _committer(broker, "reused"), _committer(broker, "reused")
    old.open(opening(fresh=True))
    old.append(1, batch(1, 5))
    old.commit(5)
    assert new.open(opening(fresh=True, instance="two")) == 0
    with pytest.raises(QueryFailed, match=r"another query writes .* give each its own"):
        old.open(opening(fresh=False))
    new.append(1, batch(1, 3))
    new.commit(3)
    assert _numbers(broker, "reused") == [1, 1, 2, 2, 3, 3, 4, 5]
    for each in (old, new):
        each.close()


def test_kafka_source_gives_the_same_rows_again(broker: KafkaBroker) -> None:
    """A second source with the first one's journal repeats its order, and goes on with later messages."""
    broker.create("replayed", 3)
    for each in rows(1, 60):
        broker.write("replayed", [as_json(each)], partition=each["n"] % 3)
    journal = MemoryJournal()
    first = _source(broker, "replayed")
    assert first.begin(journal) == 0
    given = given_by(first)
    assert sorted(row["n"] for row in given) == list(range(1, 61))
    assert [row for row in rows(1, 60) if row in given] == rows(1, 60)
    broker.write("replayed", [as_json(each) for each in rows(61, 65)])
    second = _source(broker, "replayed")
    assert second.begin(journal) == 0
    assert given_by(second) == given + rows(61, 65)
    second.released(60)
    broker.write("replayed", [as_json(each) for each in rows(66, 70)])
    third = _source(broker, "replayed")
    third.begin(journal)
    third.released(65)
    assert given_by(third)[-5:] == rows(66, 70)
    fourth = _source(broker, "replayed")
    assert fourth.begin(journal) >= 20, "slices that nobody needs are dropped"
    assert given_by(fourth)[-5:] == rows(66, 70)


def test_kafka_source_resumes_where_it_began_and_reads_added_partitions_whole(
    broker: KafkaBroker,
) -> None:
    """Rows that come while the program is dead are not skipped, also where no row had come before."""
    broker.create("grown", 2)
    broker.write("grown", [as_json(each) for each in rows(1, 3)])
    journal = MemoryJournal()
    first = _source(broker, "grown", start="latest")
    first.begin(journal)
    assert given_by(first) == []
    broker.write("grown", [as_json(each) for each in rows(4, 6)], partition=1)
    broker.add_partitions("grown", 3)
    broker.write("grown", [as_json(each) for each in rows(7, 9)], partition=2)
    second = _source(broker, "grown", start="latest")
    second.begin(journal)
    assert sorted(row["n"] for row in given_by(second)) == [4, 5, 6, 7, 8, 9]
    third = _source(broker, "grown", start="latest")
    third.begin(journal)
    broker.add_partitions("grown", 4)
    broker.write("grown", [as_json(each) for each in rows(10, 12)], partition=3)
    third._reader._looked_s = 0.0  # type: ignore[attr-defined]
    assert sorted(row["n"] for row in given_by(third)) == list(range(4, 13))


def test_kafka_source_pauses_partitions_that_wait(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one partition are read again while the others have many messages: none is lost, none comes twice."""
    broker.create("waiting", 2)
    broker.write("waiting", [as_json(each) for each in rows(1, 200)], partition=1)
    journal = MemoryJournal()
    first = _source(broker, "waiting")
    first.begin(journal)
    assert given_by(first) == rows(1, 200)
    broker.write("waiting", [as_json(each) for each in rows(1001, 4000)], partition=0)
    broker.write("waiting", [as_json(each) for each in rows(201, 400)], partition=1)
    monkeypatch.setattr("peacefs.dataflow.connectors.kafka_source.kafka_waiting_bytes_max", 10_000)
    monkeypatch.setattr("peacefs.dataflow.connectors.kafka_source.kafka_take_rows_max", 100)
    second = _source(broker, "waiting")
    second.begin(journal)
    given = given_by(second)
    assert given[:200] == rows(1, 200)
    assert [row["n"] for row in given if row["n"] > 1000] == list(range(1001, 4001))
    assert [row["n"] for row in given if row["n"] <= 1000] == list(range(1, 401))


def test_kafka_source_reads_committed_messages_only(broker: KafkaBroker) -> None:
    broker.create("half")
    sink = _committer(broker, "half")
    sink.open(opening(fresh=True))
    sink.append(1, batch(1, 5))
    sink.commit(5)
    sink.append(6, batch(6, 9))
    sink._producer.flush(10)
    assert [row["n"] for row in given_by(_source(broker, "half"))] == [1, 2, 3, 4, 5]
    sink.close()


def test_kafka_source_takes_key_and_timestamp_from_the_message(broker: KafkaBroker) -> None:
    broker.create("keyed")
    broker.write("keyed", [b'{"n": 4}'], key=b"anna")
    source = KafkaSource(
        broker.servers,
        "keyed",
        _SCHEMA,
        time="at",
        columns={"user": "key", "at": "timestamp"},
        read=KafkaRead(follow=False),
    )
    (row,) = given_by(source)
    assert (row["user"], row["n"]) == ("anna", 4)
    assert row["at"].year >= 2024


def test_kafka_source_stops_at_a_message_that_is_no_row(broker: KafkaBroker) -> None:
    """The message is named; a source that skips such messages counts them."""
    broker.create("bad")
    good = [as_json(each) for each in rows(1, 3)]
    broker.write("bad", [good[0], b'{"n": "many"}', good[1], b"{}{}", good[2], b""])
    with pytest.raises(QueryFailed, match=r"message 1 of partition 0 of topic 'bad' .* is no row: .*skip"):
        given_by(_source(broker, "bad"))
    source = _source(broker, "bad", bad="skip")
    assert [row["n"] for row in given_by(source)] == [1, 2, 3]
    assert source.skipped == 3


def test_kafka_text_that_is_not_utf_8_is_refused(broker: KafkaBroker) -> None:
    """Replaced bytes would make one key of two, and other programs cannot read such a text."""
    broker.create("bytes")
    broker.write("bytes", [b'{"n": 1}'], key=b"\xff")
    broker.write("bytes", [b'{"n": 2}'], key="ü".encode())
    columns: Any = {"user": "key", "at": "timestamp"}
    for bad in ("stop", "skip"):
        read = KafkaRead(follow=False, bad=bad)
        source = KafkaSource(broker.servers, "bytes", _SCHEMA, time="at", columns=columns, read=read)
        if bad == "stop":
            with pytest.raises(QueryFailed, match=r"message 0 of partition 0 .* is no row: its key is not UTF-8"):
                given_by(source)
        else:
            assert [(row["user"], row["n"]) for row in given_by(source)] == [("ü", 2)]
            assert source.skipped == 1


def test_kafka_sink_stops_at_a_row_that_the_broker_never_takes(broker: KafkaBroker) -> None:
    """Trying again would not end: the topic takes shorter messages only, or none without a key."""
    broker.create("narrow", max_message_bytes="1000")
    broker.create("compacted", cleanup_policy="compact")
    wide = pa.RecordBatch.from_pylist([{**rows(1, 1)[0], "user": "u" * 5000}], schema=KIND.schema)
    for topic, key, given, code in (
        ("narrow", None, wide, "MSG_SIZE_TOO_LARGE"),
        ("compacted", None, batch(1, 1), "INVALID_RECORD"),
    ):
        sink = KafkaCommitter(KafkaPlace(broker.servers, topic, None), key, topic, 60.0)
        sink.open(opening(fresh=True))
        sink.append(1, given)
        with pytest.raises(QueryFailed, match=rf"topic '{topic}' .*\({code}\): correct rights, limits"):
            sink.commit(1)
        sink.close()


def test_kafka_settings_that_cannot_work_are_refused() -> None:
    place = KafkaPlace("127.0.0.1:1", "topic", {"nonsense": "1"})
    with pytest.raises(QueryFailed, match="No such configuration property") as refused:
        place.consumer("group")
    assert "\n" not in str(refused.value)
    with pytest.raises(InvalidQuery, match=r"interval_s=60: Kafka aborts a transaction after"):
        KafkaSink("127.0.0.1:1", "topic", interval_s=60)
    with pytest.raises(InvalidQuery, match=r"transaction_timeout_s=0.5: seconds are wanted, 1 or more"):
        KafkaSink("127.0.0.1:1", "topic", transaction_timeout_s=0.5)


def test_kafka_place_that_is_missing_is_named(broker: KafkaBroker) -> None:
    with pytest.raises(StartupError, match=r"topic 'absent' at .* does not exist: create it"):
        _source(broker, "absent").begin(None)
    with pytest.raises(StartupError, match=r"topic 'absent' at .* does not exist: create it"):
        _committer(broker, "absent").open(opening(fresh=True))
    with pytest.raises(InvalidQuery, match="columns="):
        KafkaSource(broker.servers, "absent", _SCHEMA, time="at", columns={"n": "key"})
    with pytest.raises(InvalidQuery, match="interval_s=-1"):
        KafkaSink(broker.servers, "absent", interval_s=-1)


def test_kafka_source_refuses_rows_that_are_gone(broker: KafkaBroker) -> None:
    """Retention that has deleted wanted rows, and a topic created again, are told apart from new rows."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    broker.create("short")
    broker.write("short", [as_json(each) for each in rows(1, 10)])
    journal = MemoryJournal()
    source = _source(broker, "short")
    source.begin(journal)
    assert len(given_by(source)) == 10
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for deleted in admin.delete_records([TopicPartition("short", 0, 5)]).values():
        deleted.result(60)
    with pytest.raises(StartupError, match=r"has offsets 5 to 10, and the query goes on at 0: .*retention.ms"):
        _source(broker, "short").begin(journal)
    broker.delete("short")
    broker.create("short")
    with pytest.raises(StartupError, match="created again since"):
        _source(broker, "short").begin(journal)


def test_kafka_sink_says_that_its_number_was_forgotten(broker: KafkaBroker) -> None:
    """Kafka drops offsets of idle groups: then the sink stops, since it would write rows twice."""
    from confluent_kafka.admin import AdminClient

    broker.create("forgotten")
    sink = _committer(broker, "forgotten")
    sink.open(opening(fresh=True))
    sink.append(1, batch(1, 5))
    sink.commit(5)
    sink.close()
    admin = AdminClient({"bootstrap.servers": broker.servers})

    def deleted() -> bool:
        (outcome,) = admin.delete_consumer_groups(["peacefs.query.sink"]).values()
        return outcome.exception(60) is None

    wait_until(deleted, "the group is deleted")
    with pytest.raises(StartupError, match=r"forgotten how many rows .*offsets.retention.minutes"):
        _committer(broker, "forgotten").open(opening(fresh=False))


def test_kafka_broker_that_is_away_is_named() -> None:
    from support.etcd import free_ports

    (port,) = free_ports(1)
    with pytest.raises(StartupError, match=rf"127.0.0.1:{port}.* start a broker, or correct the address"):
        KafkaSource(f"127.0.0.1:{port}", "in", _SCHEMA, time="at", read=KafkaRead(patience_s=0.1)).begin(None)
