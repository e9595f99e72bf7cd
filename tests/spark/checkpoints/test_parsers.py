"""Every parser of checkpoint files accepts what Spark writes, and names the damage in anything else."""

from __future__ import annotations

import contextlib
import json
import struct
import sys
import zlib
from collections.abc import Callable

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import checkpoints as made

from peacefs.protocol.errors import CheckpointDamaged, CheckpointTooNew
from peacefs.spark_connector.checkpoints.formats import lz4_stream
from peacefs.spark_connector.checkpoints.formats.changelog import (
    Changelog,
    LineageStep,
    UnreadableChangelog,
    parse_changelog,
)
from peacefs.spark_connector.checkpoints.formats.checksum_files import parse_checksum
from peacefs.spark_connector.checkpoints.formats.codecs import codec_of, unpack, unpack_lzf
from peacefs.spark_connector.checkpoints.formats.logs import (
    parse_commit,
    parse_file_log,
    parse_offsets,
    parse_query_metadata,
    parse_version,
)
from peacefs.spark_connector.checkpoints.formats.lz4_stream import decompress, decompress_block
from peacefs.spark_connector.checkpoints.formats.operators import parse_operator, parse_schema
from peacefs.spark_connector.checkpoints.formats.snapshot import parse_snapshot

UID = "407ea541-22d9-4e7a-a17b-05a2fb1787ee"

_TREE = made.checkpoint(state_format=2)
_SAMPLES: dict[Callable[[bytes], object], bytes] = {
    parse_query_metadata: _TREE.files[f"{made.ROOT}/metadata"],
    parse_offsets: _TREE.files[f"{made.ROOT}/offsets/3"],
    parse_commit: _TREE.files[f"{made.ROOT}/commits/3"],
    parse_file_log: _TREE.files[f"{made.ROOT}/sources/0/2.compact"],
    parse_version: b"\x00v1\nkafka's own",
    parse_operator: _TREE.files[f"{made.ROOT}/state/0/_metadata/metadata"],
    parse_schema: made.schema(),
    parse_changelog: made.changelog([(b"k", b"v"), (b"k", None)], [(1, UID)]),
    parse_snapshot: made.snapshot({"000008-a.sst": 10}),
    parse_checksum: made.spark_checksum(b"data"),
}
_NAMES = [parser.__name__ for parser in _SAMPLES]
#: Formats for which every truncation is detected. Others may stay valid, such as a log without its last lines.
_SEALED = [parse_query_metadata, parse_commit, parse_operator, parse_schema, parse_changelog, parse_snapshot]


@pytest.mark.parametrize("parse", _SAMPLES, ids=_NAMES)
@given(data=st.binary(max_size=200), head=st.integers(0, 60))
def test_any_bytes_are_understood_or_named_damaged(
    parse: Callable[[bytes], object], data: bytes, head: int
) -> None:
    for candidate in (data, _SAMPLES[parse][:head] + data):
        with contextlib.suppress(CheckpointDamaged):
            parse(candidate)


@pytest.mark.parametrize("parse", _SAMPLES, ids=_NAMES)
def test_parser_understands_what_spark_writes(parse: Callable[[bytes], object]) -> None:
    parse(_SAMPLES[parse])


@pytest.mark.parametrize("parse", _SEALED, ids=lambda parse: parse.__name__)
def test_a_file_cut_short_is_damaged_wherever_it_was_cut(parse: Callable[[bytes], object]) -> None:
    whole = _SAMPLES[parse]
    for length in range(len(whole)):
        with pytest.raises(CheckpointDamaged):
            parse(whole[:length])


@given(flipped=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_changelog_with_any_bit_flipped_is_damaged(flipped: int, bit: int) -> None:
    data = bytearray(made.changelog([(b"key" * 9, b"value" * 30)] * 5, [(1, UID), (2, UID)]))
    data[flipped % len(data)] ^= 1 << bit
    # Of a token only the method counts; the level, and the end mark's token, mean nothing.
    if flipped % len(data) in (8, len(data) - 13):
        return
    with pytest.raises(CheckpointDamaged):
        parse_changelog(bytes(data))


@given(st.lists(st.tuples(st.binary(max_size=20), st.none() | st.binary(max_size=20)), max_size=20), st.booleans())
def test_the_four_forms_of_changelogs_tell_their_records_and_lineage(
    records: list[tuple[bytes, bytes | None]], families: bool
) -> None:
    plain = parse_changelog(made.changelog(records, families=families))
    assert isinstance(plain, Changelog) and (plain.form, plain.records, plain.lineage) == (
        1 + families,
        len(records),
        (),
    )
    unique = parse_changelog(made.changelog(records, [(4, UID)], families=families))
    assert isinstance(unique, Changelog) and unique.lineage == (LineageStep(4, UID),)
    assert (unique.form, unique.records) == (3 + families, len(records))


@given(st.binary(max_size=3000), st.integers(1, 40))
def test_blocks_that_the_lz4_library_packs_are_unpacked(data: bytes, repeated: int) -> None:
    contents = data * repeated
    packed = pyarrow.Codec("lz4_raw").compress(contents, asbytes=True)
    assert decompress_block(packed, len(contents)) == contents


@given(st.binary(max_size=5000), st.integers(1, 3000))
def test_a_stream_of_frames_is_read_to_its_end_and_no_further(data: bytes, block_bytes: int) -> None:
    stream = made.lz4_stream(data, block_bytes)
    assert decompress(stream) == data
    with pytest.raises(CheckpointDamaged, match="follow"):
        decompress(stream + b"x")


def snappy_stream(contents: bytes, block_bytes: int = 1 << 15) -> bytes:
    """Compress in the format of snappy-java."""
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(contents), block_bytes):
        block = pyarrow.compress(contents[start : start + block_bytes], codec="snappy", asbytes=True)
        out += struct.pack(">i", len(block)) + block
    return out


def lzf_stream(contents: bytes, block_bytes: int = 1 << 15) -> bytes:
    """Return chunks, every second of which is compressed, using literals only."""
    out = b""
    for number, start in enumerate(range(0, len(contents), block_bytes)):
        block = contents[start : start + block_bytes]
        if number % 2:
            out += struct.pack(">2sBH", b"ZV", 0, len(block)) + block
            continue
        pieces = [block[at : at + 32] for at in range(0, len(block), 32)]
        packed = b"".join(bytes([len(piece) - 1]) + piece for piece in pieces)
        out += struct.pack(">2sBHH", b"ZV", 1, len(packed), len(block)) + packed
    return out


_STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "lz4": made.lz4_stream,
    "lzf": lzf_stream,
    "snappy": snappy_stream,
    "zstd": lambda contents: pyarrow.compress(contents, codec="zstd", asbytes=True),
}
_CONTENTS = lz4_stream.decompress(made.changelog([(b"key" * 9, b"value" * 30)] * 50, [(1, UID)]))


@pytest.mark.parametrize("codec", _STREAMS)
@given(contents=st.binary(min_size=1, max_size=300), repeated=st.integers(1, 300))
def test_codec_unpacks_what_it_packed(codec: str, contents: bytes, repeated: int) -> None:
    stream = _STREAMS[codec](contents * repeated)
    assert codec_of(stream) == codec
    assert unpack(stream) == contents * repeated


@pytest.mark.parametrize("codec", _STREAMS)
@given(cut=st.integers(0, 100_000), flipped=st.integers(0, 100_000), bit=st.integers(0, 7))
def test_a_changelog_of_any_codec_is_read_and_its_cuts_are_seen(
    codec: str, cut: int, flipped: int, bit: int
) -> None:
    stream = _STREAMS[codec](_CONTENTS)
    whole = parse_changelog(stream)
    assert isinstance(whole, Changelog) and (whole.form, whole.records, len(whole.lineage)) == (3, 50, 1)
    with pytest.raises(CheckpointDamaged):
        parse_changelog(stream[: cut % len(stream)])
    data = bytearray(stream)
    data[flipped % len(data)] ^= 1 << bit
    with contextlib.suppress(CheckpointDamaged):
        parse_changelog(bytes(data))


def test_lzf_blocks_repeat_what_they_hold() -> None:
    """Literals, an overlapping copy, and a copy of more than eight bytes."""
    assert unpack_lzf(b"\x01ab" + b"\x80\x01", 8) == b"abababab"
    assert unpack_lzf(b"\x01ab" + b"\xe0\x03\x01", 14) == b"ab" * 7
    for block in (b"\x01ab\x80\x05", b"\x01ab\x80", b"\x05ab", b"\x01ab"):
        with pytest.raises(CheckpointDamaged):
            unpack_lzf(block, 8)


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_a_codec_whose_library_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    stream = _STREAMS[codec](_CONTENTS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    sealed = parse_changelog(stream)
    assert isinstance(sealed, UnreadableChangelog) and codec in sealed.reason


def test_bytes_of_no_codec_of_sparks_are_damaged() -> None:
    with pytest.raises(CheckpointDamaged, match="no codec that Spark knows"):
        parse_changelog(b"PK\x03\x04")


@pytest.mark.parametrize(
    ("parse", "data"),
    [
        (parse_offsets, b"v9\n{}\n-"),
        (parse_commit, b"v9\n{}"),
        (parse_file_log, b"v9\n{}"),
        (parse_operator, b"v9\n{}"),
        (parse_schema, b"\x00\x02v9rest"),
        (parse_changelog, made.lz4_stream(b"\x00\x02v9rest")),
    ],
)
def test_the_format_of_a_newer_spark_is_called_that(parse: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(CheckpointTooNew, match="9"):
        parse(data)


def test_offsets_tell_where_each_source_ends() -> None:
    conf = json.dumps({"conf": {"spark.sql.shuffle.partitions": "7"}, "batchWatermarkMs": 5})
    offsets = parse_offsets(f'v1\n{conf}\n{{"logOffset":3}}\n-\n{{"topic":{{"0":9}}}}\n17'.encode())
    assert (offsets.watermark_ms, offsets.shuffle_partitions) == (5, 7)
    assert offsets.sources == ('{"logOffset":3}', None, '{"topic":{"0":9}}', "17")
    assert [offsets.file_log_end(source) for source in range(5)] == [3, None, None, None, None]


def test_a_checksum_file_of_hadoop_knows_every_block() -> None:
    data = bytes(range(256)) * 5
    blocks = [data[start : start + 512] for start in range(0, len(data), 512)]
    sums = b"crc\x00" + struct.pack(">i3I", 512, *map(zlib.crc32, blocks))
    for given_, good in ((data, True), (data[:-1], False), (data + b"x", False), (data[:1024], False)):
        checker = parse_checksum(sums)
        try:
            checker.update(given_[:700])
            checker.update(given_[700:])
            checker.finish()
            assert good
        except CheckpointDamaged:
            assert not good


def test_a_checksum_file_of_spark_knows_the_whole() -> None:
    for given_, good in ((b"data", True), (b"date", False), (b"dat", False)):
        checker = parse_checksum(made.spark_checksum(b"data"))
        checker.update(given_)
        try:
            checker.finish()
            assert good
        except CheckpointDamaged:
            assert not good
