"""What the Kafka source and the Kafka sink share: settings, topics, and what an error means."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from peacefs.protocol.errors import InvalidQuery, PeacefsError, PeerUnreachable, QueryFailed, StartupError

from .extras import needed

# How long one request to a broker may take.
kafka_request_s: Final = 10.0

log = logging.getLogger("peacefs.dataflow")

#: Errors that waiting does not cure.
_FINAL: Final = (
    "CLUSTER_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "INVALID_RECORD",
    "INVALID_TRANSACTION_TIMEOUT",
    "MSG_SIZE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "UNSUPPORTED_VERSION",
    "_INVALID_ARG",
)


class KafkaPlace:
    """A topic of a cluster, and how to reach it."""

    def __init__(self, servers: str, topic: str, settings: Mapping[str, Any] | None) -> None:
        """Check the names. `settings`: of librdkafka, such as `security.protocol`. Raises InvalidQuery."""
        for what, value in (("servers", servers), ("topic", topic)):
            if not isinstance(value, str) or not value:
                raise InvalidQuery(f"Kafka needs {what}, as KafkaSource('localhost:9092', 'logins', ...)")
        self.kafka = needed("confluent_kafka", "kafka")
        self.servers, self.topic = servers, topic
        self._settings = dict(settings or {})

    def __str__(self) -> str:
        return f"topic {self.topic!r} at {self.servers}"

    def settings(self, **own: Any) -> dict[str, Any]:
        """Return settings of librdkafka. Names in `own` have underscores for dots."""
        return {
            "bootstrap.servers": self.servers,
            # Errors are raised where they matter. librdkafka would also print them.
            "log_level": 0,
            "error_cb": lambda error: log.debug("%s: %s", self, error),
            "reconnect.backoff.max.ms": 2000,
            **self._settings,
            **{name.replace("_", "."): value for name, value in own.items()},
        }

    def made(self, kind: Any, settings: Mapping[str, Any]) -> Any:
        """Return a client of librdkafka. Raises QueryFailed for settings that it does not take."""
        try:
            return kind(settings)
        except self.kafka.KafkaException as error:
            raise self.fault(error) from error

    def consumer(self, group: str, **own: Any) -> Any:
        return self.made(
            self.kafka.Consumer,
            self.settings(
                **{
                    "group_id": group,
                    "enable_auto_commit": False,
                    "allow_auto_create_topics": False,
                    "isolation_level": "read_committed",
                    **own,
                }
            ),
        )

    def partitions(self, consumer: Any) -> list[int]:
        """Return the topic's partitions. Raises StartupError if it does not exist, PeerUnreachable."""
        try:
            topic = consumer.list_topics(self.topic, timeout=kafka_request_s).topics[self.topic]
        except self.kafka.KafkaException as error:
            raise self.fault(error) from error
        if topic.error is not None:
            code = self.kafka.KafkaError
            if topic.error.code() in (code.UNKNOWN_TOPIC_OR_PART, code._UNKNOWN_TOPIC):
                raise StartupError(
                    f"{self} does not exist: create it, as with kafka-topics.sh --bootstrap-server {self.servers} "
                    f"--create --topic {self.topic}"
                )
            raise self.fault(topic.error)
        return sorted(topic.partitions)

    def identity(self) -> str:
        """Return the id of the topic, which a topic that is deleted and created again does not keep."""
        admin = self.made(needed("confluent_kafka.admin", "kafka").AdminClient, self.settings())
        try:
            asked = admin.describe_topics(
                self.kafka.TopicCollection([self.topic]), request_timeout=kafka_request_s
            )
            return str(asked[self.topic].result(2 * kafka_request_s).topic_id)
        except self.kafka.KafkaException as error:
            raise self.fault(error) from error
        except TimeoutError as error:
            raise PeerUnreachable(f"no broker of {self} answers: start one, or correct the address") from error

    def fault(self, error: Any) -> PeacefsError:
        """Return what an error of librdkafka means: PeerUnreachable if it may go away, or QueryFailed."""
        cause = error.args[0] if isinstance(error, self.kafka.KafkaException) else error
        said = " ".join(str(cause.str()).split())
        if cause.name() in _FINAL:
            return QueryFailed(f"{self}: {said} ({cause.name()}): correct rights, limits or settings, and resume")
        return PeerUnreachable(f"{self}: {said} ({cause.name()}): start a broker, or correct the address")
