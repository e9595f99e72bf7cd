"""CRC32C of pages: the kernel and the library agree, for any number of pages."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from crc32c import crc32c

from peacefs.state import Checkpointer, DirectoryStore, PageManager, Raw
from peacefs.state.checkpoints.standby_thread import StandbyThread
from peacefs.state.kernels import checksums


@pytest.mark.parametrize("way", [checksums.sum_by_instruction, checksums.sum_by_library])
@pytest.mark.parametrize("page_words", [1024, 8192])
def test_checksums_are_those_of_the_standard(way: object, page_words: int) -> None:
    if way is checksums.sum_by_instruction and not checksums.HAS_INSTRUCTION:
        pytest.skip("this processor has no such instruction")
    assert callable(way)
    random = np.random.default_rng(7)
    words = random.integers(-(2**63), 2**63 - 1, (11, page_words))
    words[3] = 0
    for count in range(8):
        frames = random.permutation(11)[:count].astype(np.int32)
        sums = np.empty(count, np.uint32)
        way(words, frames, sums)
        assert sums.tolist() == [crc32c(words[frame].tobytes()) for frame in frames]


def test_checkpoint_of_scattered_pages_is_what_they_were(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Thousands of runs of one page are written in pieces of many buffers."""
    root = tmp_path_factory.mktemp("scattered")
    pages = PageManager(page_bytes=8192, memory_bytes_max=64 << 20)
    raw = Raw.create(pages.page_set("raw"))
    checkpointer = Checkpointer(pages, DirectoryStore(root), "unit")
    numbers = [raw.allocate() for _ in range(2000)]
    for number in numbers:
        raw.change(number)[:] = number % 251
    assert checkpointer.checkpoint().pages_written == 2001
    for number in numbers[::2]:
        raw.change(number)[:] = (number + 1) % 251
    assert checkpointer.checkpoint().pages_written in (1000, 1001)
    checkpointer.close()
    again = PageManager(page_bytes=8192, memory_bytes_max=64 << 20)
    loading = Checkpointer(again, DirectoryStore(root), "unit")
    loading.load()
    found = Raw.create(again.page_set("raw"))
    for at, number in enumerate(numbers):
        assert (found.read(number) == (number + (at % 2 == 0)) % 251).all()
    # A closed checkpointer starts again on request.
    loading.close()
    assert loading.checkpoint().pages_referred == 2001
    loading.close()


def test_standby_thread_goes_on_after_work_that_failed_and_ends_with_its_owner(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = threading.Event()
    ran: list[threading.Thread] = []

    def fail() -> None:
        raise RuntimeError("this one fails")

    def succeed() -> None:
        ran.append(threading.current_thread())
        done.set()

    standby = StandbyThread("standby under test")
    standby.put(fail)
    standby.put(succeed)
    assert done.wait(60)
    assert "this one fails" in caplog.text
    del standby
    ran[0].join(60)
    assert not ran[0].is_alive()
