"""Spark's expressions and the Python parser agree on every line."""

from __future__ import annotations

import json
import string
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from support.java_options import CODEGEN

from peacefs.spark_connector.demo.auth_log import LogLine, YearAssumption, parse_line
from peacefs.spark_connector.demo.input import REAL_LOG
from peacefs.spark_connector.demo.log_generator import generate_log
from peacefs.spark_connector.demo.staging import read_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MICROSECOND = 1_000_000
ALPHABET = string.digits + string.ascii_letters + " :.[]+-Z\t\r\u00a0\u2028\u0663\U0001f600"


def mutated(rng: Random, line: str) -> str:
    """Return the line with a few characters dropped, doubled or replaced."""
    characters = list(line)
    for _ in range(rng.randrange(1, 4)):
        if not characters:
            break
        position = rng.randrange(len(characters))
        characters[position] = rng.choice(["", characters[position] * 2, rng.choice(ALPHABET)])
    return "".join(characters)


def sample() -> list[str]:
    rng = Random(11)
    lines = generate_log(5, 1000)
    if REAL_LOG.is_file():
        lines += read_lines([REAL_LOG])
    stamps = [f"{month} {day:2} 12:00:00 h sshd: x" for month in ("Feb", "Apr", "Dec") for day in range(33)]
    return lines + stamps + [mutated(rng, line) for line in lines for _ in range(3)]


def spark_reads(
    spark: SparkSession, lines: list[str], years: YearAssumption, directory: Path
) -> list[tuple[int | None, str | None, int]]:
    from pyspark.sql import functions as F

    from peacefs.spark_connector.demo import auth_log_columns

    table = directory / "lines.json"
    table.write_text("".join(json.dumps({"number": at, "line": line}) + "\n" for at, line in enumerate(lines)))
    line = F.col("line")
    as_users_have_it = spark.newSession()
    for key, value in CODEGEN.items():
        as_users_have_it.conf.set(key, value)
    read = (
        as_users_have_it.read.schema("number INT, line STRING")
        .json(f"file://{table}")
        .select(
            "number",
            F.unix_micros(auth_log_columns.instant(line, years)).alias("at"),
            auth_log_columns.source(line).alias("source"),
            auth_log_columns.failures(line).alias("failures"),
        )
    )
    return [(row.at, row.source, row.failures) for row in sorted(read.collect(), key=lambda row: row.number)]


def as_spark_says(line: LogLine) -> tuple[int | None, str | None, int]:
    at = None if line.at is None else int(line.at.timestamp()) * MICROSECOND + line.at.microsecond
    return at, line.source, line.failures


@pytest.mark.parametrize("years", [YearAssumption(2023, 12, 10), YearAssumption(2024)])
def test_spark_reads_every_line_as_the_parser_does(
    spark: SparkSession, years: YearAssumption, tmp_path: Path
) -> None:
    lines = sample()
    expected = [as_spark_says(parse_line(line, years)) for line in lines]
    assert sum(failures for _, _, failures in expected) > len(lines) / 10
    found = spark_reads(spark, lines, years, tmp_path)
    assert [pair for pair in zip(lines, found, expected, strict=True) if pair[1] != pair[2]] == []
