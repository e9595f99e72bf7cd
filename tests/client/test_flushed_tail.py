"""However a file is flushed: every byte is there once and in order, in few chunks, with bounded rewriting."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from peacefs.client.transfer.file_flusher import FlushedTail
from peacefs.protocol.messages import WrittenChunk

MERGE_BYTES = 4096


class File:
    """The coordinator's view of a file: its chunks with their bytes."""

    def __init__(self) -> None:
        self.tail = FlushedTail(MERGE_BYTES)
        self.chunks: list[tuple[int, bytes]] = []
        self.next_chunk = 1
        self.written_bytes = 0

    def flush(self, fresh: bytes) -> None:
        replaced, data = self.tail.take_in(fresh)
        if replaced:
            assert [chunk for chunk, _ in self.chunks[-len(replaced) :]] == replaced
            del self.chunks[-len(replaced) :]
        self.written_bytes += len(data)
        self.chunks.append((self.next_chunk, data))
        self.tail.flushed([WrittenChunk(self.next_chunk, 1, len(data), 0, [])], data)
        self.next_chunk += 1


@given(st.lists(st.integers(1, 3000), max_size=200))
def test_flushes_of_any_lengths_make_few_chunks_and_write_no_byte_often(lengths: list[int]) -> None:
    file, expected = File(), b""
    for number, length in enumerate(lengths):
        fresh = bytes([number % 256]) * length
        expected += fresh
        file.flush(fresh)
    assert b"".join(data for _, data in file.chunks) == expected
    sealed = [data for _, data in file.chunks if len(data) >= MERGE_BYTES]
    small = [len(data) for _, data in file.chunks if len(data) < MERGE_BYTES]
    assert [len(data) for _, data in file.chunks][: len(sealed)] == [len(data) for data in sealed]
    assert all(longer > 2 * shorter for longer, shorter in itertools.pairwise(small))
    assert len(small) <= math.log2(MERGE_BYTES) + 1
    assert len(sealed) <= len(expected) / MERGE_BYTES
    assert file.written_bytes <= len(expected) * (math.log(MERGE_BYTES, 1.5) + 2)


def test_a_file_flushed_byte_by_byte_has_few_chunks() -> None:
    file = File()
    for _ in range(3 * MERGE_BYTES):
        file.flush(b"x")
    assert len(file.chunks) <= 3 + math.log2(MERGE_BYTES) + 1
    assert file.written_bytes < 12 * 3 * MERGE_BYTES


def test_a_flush_of_several_chunks_and_a_forgotten_tail_are_let_alone() -> None:
    tail = FlushedTail(MERGE_BYTES)
    chunks = [WrittenChunk(number, 1, 5, 0, []) for number in (1, 2)]
    tail.flushed(chunks[:1], b"12345")
    tail.flushed(chunks, b"1234567890")
    assert tail.take_in(b"x" * 100) == ([], b"x" * 100)
    tail.flushed(chunks[:1], b"12345")
    tail.forget()
    assert tail.take_in(b"x" * 100) == ([], b"x" * 100)
    tail.flushed([], b"")
    assert tail.take_in(b"y") == ([], b"y")
