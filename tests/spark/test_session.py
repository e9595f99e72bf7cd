"""The settings with which Spark checkpoints on peacefs."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from typer.testing import CliRunner

from peacefs.command import application
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import startup_hold_s
from peacefs.spark_connector.session import as_dict, configure, settings


class Builder:
    """Records its settings, like a SparkSession's builder."""

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


def test_format_of_state_checkpoints_is_left_to_spark_which_follows_the_trigger() -> None:
    """Spark refuses Real-time Mode if format 1 is set, although 1 is the default."""
    for version in (*SETTINGS_SINCE, None):
        assert not any(key.endswith("checkpointFormatVersion") for key in as_dict(settings("c", "/c", version)))


SETTINGS_SINCE: dict[str, set[str]] = {
    "3.5": {"3.0.0", "any", "2.0.0", "2.1.1", "3.2.0", "3.5.0"},
    "4.0.5": set(),
    "4.1": set(),
    "4.2.1": set(),
    "4.3.0": set(),
}


def test_a_spark_is_given_what_it_knows_and_no_more() -> None:
    given: set[str] = set()
    known: set[str] = set()
    for version, new in SETTINGS_SINCE.items():
        table = settings("c", spark_version=version)
        known |= new
        assert {setting.since for setting in table} == known
        assert given <= as_dict(table).keys()
        given = set(as_dict(table))
    assert settings("c", spark_version="9.1") == settings("c"), "a Spark to come is told what the newest is"


@pytest.mark.parametrize("wrong", ["3.4.4", "2.4", "four", "4", ""])
def test_a_spark_without_change_logs_and_what_is_none_are_refused(wrong: str) -> None:
    with pytest.raises(BadRequest):
        settings("c", spark_version=wrong)


def conf(*arguments: str) -> str:
    result = CliRunner().invoke(application, ["spark", "conf", "-c", "http://c:9870", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_settings_are_printed_for_each_way_to_give_them() -> None:
    table = settings("c", "/jobs", "3.5")
    asked = ("--spark-version=3.5", "--root=/jobs")
    lines = conf(*asked).splitlines()
    assert [line.split(" ", 1) for line in lines if not line.startswith("#")] == [
        [setting.key, setting.value] for setting in table
    ]
    assert len([line for line in lines if line.startswith("# ")]) == len(table), "each with its reason"
    arguments = shlex.split(conf(*asked, "--format=submit").replace("\\\n", " "))
    assert arguments[::2] == ["--conf"] * len(table)
    assert [argument.split("=", 1) for argument in arguments[1::2]] == [[one.key, one.value] for one in table]
    records = [json.loads(line) for line in conf(*asked, "--format=json").splitlines()]
    assert [record["key"] for record in records] == [setting.key for setting in table]


def test_several_coordinators_are_a_cluster_with_a_name_for_spark() -> None:
    told = as_dict(settings("a:9870,b:9871", "/jobs"))
    assert told["spark.sql.streaming.checkpointLocation"] == "webhdfs://peacefs/jobs"
    hadoop = {key.removeprefix("spark.hadoop."): value for key, value in told.items()}
    assert hadoop["dfs.nameservices"] == "peacefs"
    assert hadoop["dfs.ha.namenodes.peacefs"] == "c1,c2"
    assert hadoop["dfs.namenode.http-address.peacefs.c1"] == "a:9870"
    assert hadoop["dfs.namenode.http-address.peacefs.c2"] == "b:9871"
    assert "dfs.http.client.retry.policy.enabled" not in hadoop, "Hadoop passes it over for a logical URI"
    over_tls = as_dict(settings("https://a,b"))
    assert over_tls["spark.sql.streaming.checkpointLocation"] == "swebhdfs://peacefs/checkpoints"
    assert over_tls["spark.hadoop.dfs.namenode.https-address.peacefs.c2"] == "b:9870"
    assert not any("nameservices" in key or "failover" in key for key in as_dict(settings("a")))
    printed = CliRunner().invoke(application, ["spark", "conf", "-c", "http://a:9870,b:9871", "--root=/jobs"])
    assert "spark.hadoop.dfs.ha.namenodes.peacefs c1,c2" in printed.stdout.splitlines()


def test_a_wrong_version_or_format_is_said_in_a_line() -> None:
    for arguments, status in ((["--spark-version=3.4.1"], 1), (["--format=yaml"], 2)):
        result = CliRunner().invoke(application, ["spark", "conf", *arguments])
        assert result.exit_code == status
        assert "Traceback" not in result.output


def test_the_client_retries_for_longer_than_a_coordinator_takes_to_start() -> None:
    policy = as_dict(settings("c"))["spark.hadoop.dfs.http.client.retry.policy.spec"]
    steps = [int(step) for step in policy.split(",")]
    total_s = sum(sleep_ms * count for sleep_ms, count in zip(steps[::2], steps[1::2], strict=True)) / 1000
    assert total_s > 2 * startup_hold_s
    assert steps[0] <= 500, "a connection that was cut is tried again soon"
