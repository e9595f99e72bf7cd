"""The settings that make Spark checkpoint on peacefs."""

from __future__ import annotations

from typing import Any

import pytest

from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import startup_hold_s
from peacefs.spark_connector.session import as_dict, configure, settings


class Builder:
    """Remembers what it is told, as a SparkSession's builder does."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    def config(self, key: str, value: str) -> Builder:
        self.told[key] = value
        return self


def test_every_setting_is_named_once_and_gives_its_reason_in_one_line() -> None:
    table = settings("coordinator:9870")
    assert len(as_dict(table)) == len(table)
    for setting in table:
        assert setting.key.startswith("spark.")
        assert setting.value
        assert setting.since
        assert len(setting.reason.split()) > 5 and "\n" not in setting.reason


def test_a_builder_is_told_all_of_them() -> None:
    builder: Any = Builder()
    assert configure(builder, "coordinator:9870", "/jobs") is builder
    assert builder.told == as_dict(settings("coordinator:9870", "/jobs"))
    assert builder.told["spark.sql.streaming.checkpointLocation"] == "webhdfs://coordinator:9870/jobs"


@pytest.mark.parametrize("address", ["http://coordinator:9870", "webhdfs://coordinator:9870", "coordinator"])
def test_the_coordinator_may_be_named_as_people_name_it(address: str) -> None:
    location = as_dict(settings(address))["spark.sql.streaming.checkpointLocation"]
    assert location == "webhdfs://coordinator:9870/checkpoints"


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(BadRequest):
        settings("coordinator:many")


def test_the_client_retries_for_longer_than_a_coordinator_takes_to_start() -> None:
    policy = as_dict(settings("c"))["spark.hadoop.dfs.http.client.retry.policy.spec"]
    steps = [int(step) for step in policy.split(",")]
    total_s = sum(sleep_ms * count for sleep_ms, count in zip(steps[::2], steps[1::2], strict=True)) / 1000
    assert total_s > 2 * startup_hold_s
    assert steps[0] <= 500, "a connection that was cut is tried again soon"
