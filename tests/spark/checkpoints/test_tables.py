"""SST files as Spark's RocksDB writes them: whole ones pass, and any flipped bit is found."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import checkpoints as made

from peacefs.protocol.errors import CheckpointDamaged
from peacefs.spark_connector.checkpoints.formats.sst import TableCheck, check_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE_STORE = "spark.sql.streaming.stateStore."
#: Bytes after the index's handle in the footer of format 5.
_FOOTER_BYTES = 53


def check(data: bytes) -> TableCheck:
    return check_table(io.BytesIO(data), len(data))


def found(data: bytes) -> bool:
    try:
        return check(data).fault != ""
    except CheckpointDamaged:
        return True


@pytest.mark.parametrize("length", [0, 1, 47, 53])
def test_table_that_is_cut_short_is_damaged(length: int) -> None:
    with pytest.raises(CheckpointDamaged):
        check(made.table()[:length])


def test_table_whose_index_is_packed_with_snappy_is_verified_to_the_last_block() -> None:
    data = bytearray(made.table(snappy=True))
    assert check(bytes(data)) == TableCheck()
    data[8] ^= 1
    assert check(bytes(data)).fault


def test_table_of_a_format_that_is_not_known_is_neither_good_nor_bad() -> None:
    data = bytearray(made.table())
    data[-12:-8] = (7).to_bytes(4, "little")
    assert "does not know" in check(bytes(data)).unverified


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.evidence("checkpoint-command-killed")
def test_table_that_spark_wrote_is_verified_and_every_flipped_bit_is_found(
    spark: SparkSession, tmp_path: Path, version: int
) -> None:
    told = {
        "rocksdb.changelogCheckpointing.enabled": "false",
        "rocksdb.formatVersion": str(version),
        "checkpointFormatVersion": "1",
    }
    before = {key: spark.conf.get(_STATE_STORE + key, None) for key in told}
    (tmp_path / "in").mkdir()
    (tmp_path / "in/words.txt").write_text("".join(f"word {number * 7919}\n" for number in range(20_000)))
    try:
        for key, value in told.items():
            spark.conf.set(_STATE_STORE + key, value)
        lines = spark.readStream.text(f"file://{tmp_path}/in")
        counts = lines.groupBy("value").count().writeStream.format("noop").outputMode("update")
        query = counts.option("checkpointLocation", f"file://{tmp_path}/c").trigger(availableNow=True).start()
        query.awaitTermination()
    finally:
        for key, old in before.items():
            spark.conf.unset(_STATE_STORE + key) if old is None else spark.conf.set(_STATE_STORE + key, old)
    tables = sorted((tmp_path / "c").rglob("*.sst"))
    assert tables
    chance = random.Random(version)
    for path in tables:
        data = path.read_bytes()
        assert check(data) == TableCheck(), "every byte belongs to a block whose checksum is right"
        # After the handles of format 5 there is padding, which nobody reads.
        read = len(data) - _FOOTER_BYTES if version == 5 else len(data)
        for position in (0, read // 2, read - 1, *(chance.randrange(read) for _ in range(200))):
            flipped = bytearray(data)
            flipped[position] ^= 1 << chance.randrange(8)
            assert found(bytes(flipped)), f"a bit of byte {position} of {len(data)}"
