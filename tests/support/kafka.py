"""A Kafka broker as a process of this machine, in KRaft mode, from Maven Central."""

from __future__ import annotations

import fcntl
import importlib
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from peacefs.spark_connector.java import find_java

from .etcd import free_ports
from .killable_process import KillableProcess
from .services import ROOT
from .waiting import wait_until

_BUILD = ROOT / "build" / "kafka"
_POM = Path(__file__).with_name("kafka.xml")
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Djava.net.preferIPv4Stack=true")


def kafka_classpath() -> str:
    """Return the class path of the broker, with what Maven has got. Skips the test if that is impossible."""
    pytest.importorskip("confluent_kafka")
    maven = shutil.which("mvn")
    listed = _BUILD / "classpath"
    _BUILD.mkdir(parents=True, exist_ok=True)
    with (_BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if listed.exists() and all(Path(each).exists() for each in listed.read_text().strip().split(":")):
            return listed.read_text().strip()
        if maven is None:
            pytest.skip("Maven is not installed, which gets the Kafka broker")
        goal = ["dependency:build-classpath", f"-Dmdep.outputFile={listed}"]
        command = [maven, "--batch-mode", "--quiet", "--file", str(_POM), *goal]
        if subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=250).returncode:
            pytest.skip("Maven could not get the Kafka broker")
    return listed.read_text().strip()


def _kafka(module: str = "") -> Any:
    """Return a module of the client, without its types: values of a message are never None here."""
    return importlib.import_module(f"confluent_kafka.{module}".rstrip("."))


class KafkaBroker(KillableProcess):
    """A broker that is its own controller. It keeps its address and its data when it is killed and restarted."""

    def __init__(self, directory: Path, classpath: str) -> None:
        port, controller = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        self._directory, self._classpath = directory, classpath
        directory.mkdir()
        self._properties = directory / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(directory / "data"),
            "num.partitions": "1",
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.check.interval.ms": "500",
            "log.segment.delete.delay.ms": "100",
            "log.initial.task.delay.ms": "100",
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # The id may begin with a dash.
        formatted = self._java(
            "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(self._properties)
        )
        formatted.wait(120)

    def start(self) -> None:
        """Start the broker, and return when it answers."""
        self._process = self._java("kafka.Kafka", str(self._properties))
        admin = self._admin()

        def answers() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, (self._directory / "log").read_text()[-2000:]
            try:
                return bool(admin.list_topics(timeout=1).brokers)
            except _kafka().KafkaException:
                return False

        wait_until(answers, "the Kafka broker answers")

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        admin = self._admin()
        made = admin.create_topics([_kafka("admin").NewTopic(topic, partitions, 1, config=config)])
        made[topic].result(60)
        wait_until(lambda: topic in admin.list_topics(timeout=5).topics, f"topic {topic} exists")

    def add_partitions(self, topic: str, count: int) -> None:
        """Add partitions to a topic, until it has `count`."""
        admin = self._admin()
        admin.create_partitions([_kafka("admin").NewPartitions(topic, count)])[topic].result(60)

        def added() -> bool:
            return len(admin.list_topics(topic, timeout=5).topics[topic].partitions) == count

        wait_until(added, f"topic {topic} has {count} partitions")

    def delete(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(60)
        wait_until(lambda: topic not in admin.list_topics(timeout=5).topics, f"topic {topic} is gone")

    def write(self, topic: str, values: Sequence[bytes], partition: int = 0, key: bytes | None = None) -> None:
        """Write messages with a producer of their own, and return when they are there."""
        producer = _kafka().Producer({"bootstrap.servers": self.servers, "acks": "all"})
        failed: list[Any] = []
        for value in values:
            producer.produce(
                topic,
                value=value,
                key=key,
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(60) == 0
        assert not failed, failed

    def read_committed(self, topic: str) -> list[bytes]:
        """Return the values of all committed messages, partition by partition, as a plain consumer reads them."""
        kafka = _kafka()
        consumer = kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": f"judge-{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        try:
            partitions = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
            consumer.assign([kafka.TopicPartition(topic, each, kafka.OFFSET_BEGINNING) for each in partitions])
            values: dict[int, list[bytes]] = {each: [] for each in partitions}
            at_end: set[int] = set()

            def read_all() -> bool:
                for message in consumer.consume(10_000, timeout=0.5):
                    if message.error() is None:
                        values[message.partition()].append(message.value())
                    elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
                        at_end.add(message.partition())
                return at_end == set(partitions)

            wait_until(read_all, f"the end of {topic}")
            return [value for each in partitions for value in values[each]]
        finally:
            consumer.close()

    def _admin(self) -> Any:
        return _kafka("admin").AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(find_java().executable), *_JVM, "-cp", self._classpath, *arguments]
        with (self._directory / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self._directory)


@contextmanager
def running_broker(directory: Path) -> Iterator[KafkaBroker]:
    """Run a broker within the block."""
    broker = KafkaBroker(directory, kafka_classpath())
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
