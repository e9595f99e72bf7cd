"""One Kafka broker for all tests that do not kill it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import prepared_starts
from support.kafka import KafkaBroker, running_broker


@pytest.fixture(autouse=True)
def _prepared_nodes(request: pytest.FixtureRequest) -> None:
    """Start the prepared interpreter before a test: a host starts its nodes on its own threads."""
    if request.node.get_closest_marker("cluster"):
        prepared_starts.begin("node")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with running_broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running
