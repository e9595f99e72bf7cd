"""The parts of the I/O service that need no cluster: pages, the split into chunks, names."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.client.checkpoint.manifest import (
    decode,
    describe,
    directory_name,
    encode,
    is_unfinished,
    sequence_of,
    unfinished_name,
)
from peacefs.client.checkpoint.pages import PageChunk, Pages, Stop
from peacefs.client.checkpoint.parts import part_lengths, split
from peacefs.protocol.checksums import verify_blocks
from peacefs.protocol.errors import BadRequest, CheckpointCancelled, CheckpointDamaged
from peacefs.protocol.limits import packet_bytes


@given(st.lists(st.binary(max_size=9), max_size=20), st.data())
def test_pages_are_one_run_of_bytes(pages: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pages)
    run = Pages(pages)
    assert (run.length, run.sizes) == (len(whole), [len(page) for page in pages])
    offset = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, len(whole) - offset))
    assert bytes(run.bytes_at(offset, length)) == whole[offset : offset + length]


def test_within_one_page_nothing_is_copied() -> None:
    page = bytearray(100)
    view = Pages([b"x", page]).bytes_at(1, 100)
    page[3] = 7
    assert view[3] == 7


def test_a_chunk_of_pages_gives_its_packets_again_until_it_is_given_up() -> None:
    whole = random.Random(3).randbytes(2 * packet_bytes + 99)
    pages = Pages([whole[:1000], whole[1000:]])
    stop = Stop()
    chunk = PageChunk(pages, 5, len(whole) - 5, stop)

    def packet(index: int) -> tuple[int, bytes, bool]:
        with pytest.raises(StopIteration) as end:
            next(chunk.packet(index, wait_s=1))
        found = end.value.value
        verify_blocks(found.data, found.sums, "the packet")
        return found.offset, bytes(found.data), found.last

    for _ in range(2):
        packets = [packet(index) for index in range(3)]
        assert b"".join(data for _, data, _ in packets) == whole[5:]
        assert [(offset, last) for offset, _, last in packets] == [
            (0, False),
            (packet_bytes, False),
            (2 * packet_bytes, True),
        ]
    stop.set(CheckpointCancelled("no more"))
    assert chunk.failed_at_source()
    with pytest.raises(CheckpointCancelled):
        next(chunk.packet(0, wait_s=1))


@given(st.integers(0, 10_000), st.integers(1, 20), st.integers(1, 500))
def test_the_split_covers_every_byte_once_in_even_parts(length: int, parts_max: int, chunk_bytes: int) -> None:
    planned = split(length, parts_max, chunk_bytes)
    assert [chunk.offset for chunk in planned] == list(range(0, length, chunk_bytes))
    assert sum(chunk.length for chunk in planned) == length
    assert all(chunk.length == chunk_bytes for chunk in planned[:-1])
    lengths = part_lengths(planned)
    assert len(lengths) == min(parts_max, len(planned)) and sum(lengths) == length
    counts = [sum(chunk.part == part for chunk in planned) for part in range(len(lengths))]
    assert not counts or max(counts) - min(counts) <= 1
    assert [(chunk.part, chunk.place) for chunk in planned] == sorted((c.part, c.place) for c in planned)


def test_a_manifest_says_what_it_said_and_nothing_else_is_taken_for_one() -> None:
    manifest = describe("u", 3, [10, 6], [4, 4, 4, 4, 0])
    assert decode(encode(manifest), "m") == manifest
    assert (manifest.page_sizes(), manifest.length) == ([4, 4, 4, 4, 0], 16)
    for wrong in (
        b"",
        b"{}",
        encode(manifest)[:-1],
        encode(manifest).replace(b'"format":1', b'"format":2'),
        encode(manifest).replace(b"[4,4]", b"[4,5]"),
        encode(manifest).replace(b"[0,1]", b"[0,-1]"),
        encode(manifest).replace(b"[0,1]", b"[0,99999999999]"),
    ):
        with pytest.raises(CheckpointDamaged):
            decode(wrong, "m")


def test_names_can_be_told_apart_again() -> None:
    assert directory_name("a-1", 2) == "a-1-2"
    assert sequence_of("a-1-2", "a-1") == 2
    # It does not belong to `a`, although its name looks so.
    assert sequence_of("a-1-2", "a") is None
    assert [sequence_of(name, "a") for name in ("a-07", "a-x", "a-", "a", "b-1", "a-²")] == [None] * 6
    name = unfinished_name("a-1", 2)
    assert is_unfinished(name, "a-1") and not is_unfinished(name, "a") and not is_unfinished("a-1-2", "a-1")
    for unit in ("", ".a", "a/b", "a\0"):
        with pytest.raises(BadRequest):
            directory_name(unit, 1)
    with pytest.raises(BadRequest):
        directory_name("a", -1)
