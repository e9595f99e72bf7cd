"""Large chunks are written in the way that is faster on their disk. The test sets the time of each way."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from random import Random

import pytest

from peacefs.protocol.handshake import Identity
from peacefs.runtime import effects as fx
from peacefs.runtime.connection_pool import ConnectionPool
from peacefs.runtime.disk_files import DirectFile, DiskFile
from peacefs.runtime.thread_driver import ThreadDriver
from peacefs.runtime.write_ways import WriteWays, measured_bytes_min, tried_every

MIB = 1 << 20
SIZE = 64 * MIB


def written(ways: WriteWays, costs_s: tuple[float, float], random: Random, disk: int = 1) -> float:
    """Write one file. A MiB takes about `costs_s` through the cache and around it. Return the file's time."""
    trial = ways.begin(disk, "/data")
    trial.spent_s = costs_s[trial.is_around] * SIZE / MIB * random.uniform(0.85, 1.15)
    ways.written(trial, SIZE)
    return trial.spent_s


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "costs_s",
    [(2.1, 1.0), (1.9, 0.7), (0.4, 1.2), (0.5, 0.5), (1.0, 5.0)],
    ids=lambda costs: f"through {costs[0]}, around {costs[1]}",
)
def test_the_total_is_near_that_of_the_faster_way(costs_s: tuple[float, float], seed: int) -> None:
    random, ways = Random(seed), WriteWays()
    took_s = sum(written(ways, costs_s, random) for _ in range(320))
    best_s = 320 * SIZE / MIB * min(costs_s)
    dearer = max(costs_s) / min(costs_s)
    # First two files each way, then one in sixteen is written in the slower way.
    assert took_s < best_s * 1.02 * (1 + (dearer - 1) * (1 / tried_every + 4 / 320))


@pytest.mark.parametrize("seed", range(5))
def test_it_chooses_again_when_the_times_change(seed: int) -> None:
    random, ways = Random(seed), WriteWays()
    for costs_s in [(2.0, 0.9), (0.4, 0.9), (2.0, 0.9)]:
        for _ in range(4 * tried_every):
            written(ways, costs_s, random)
        begun = [ways.begin(1, "/data") for _ in range(tried_every)]
        for trial in begun:
            ways.given_up(trial)
        assert sum(trial.is_around for trial in begun) == (tried_every - 1 if costs_s[0] > costs_s[1] else 1)


def test_the_page_cache_is_preferred_unless_the_other_way_is_clearly_faster() -> None:
    random, ways = Random(1), WriteWays()
    for _ in range(200):
        written(ways, (1.0, 0.97), random)
    begun = [ways.begin(1, "/data") for _ in range(tried_every)]
    assert sum(trial.is_around for trial in begun) == 1


def test_disks_choose_by_themselves_and_small_files_say_nothing() -> None:
    random, ways = Random(1), WriteWays()
    for _ in range(20):
        written(ways, (2.0, 1.0), random, disk=1)
        written(ways, (1.0, 2.0), random, disk=2)
    for _ in range(100):
        trial = ways.begin(1, "/data")
        trial.spent_s = 1000.0 if trial.is_around else 0.0
        ways.written(trial, measured_bytes_min - 1)
    for disk, around in ((1, tried_every - 1), (2, 1)):
        begun = [ways.begin(disk, "/data") for _ in range(tried_every)]
        assert sum(trial.is_around for trial in begun) == around


def test_files_that_are_written_at_once_share_the_disk() -> None:
    """Four files at the same time take four times as long each, which must not change the choice."""
    ways = WriteWays()
    for _ in range(8):
        written(ways, (1.0, 2.0), Random(1))
    for _ in range(10):
        batch = [ways.begin(1, "/data") for _ in range(4)]
        for trial in batch:
            trial.spent_s = (1.0, 2.0)[trial.is_around] * SIZE / MIB * 4
        for trial in batch:
            ways.written(trial, SIZE)
    begun = [ways.begin(1, "/data") for _ in range(tried_every)]
    assert sum(trial.is_around for trial in begun) == 1


class SlowDisk:
    """Makes one way of writing slow, on a simulated clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.slow: type[DiskFile] = DiskFile
        self.ways: list[type[DiskFile]] = []
        monkeypatch.setattr("peacefs.runtime.thread_driver.time.monotonic", lambda: self.now_s)
        for kind in (DiskFile, DirectFile):
            monkeypatch.setattr(kind, "append", self._slowed(kind, kind.append))

    def _slowed(self, kind: type[DiskFile], append: Callable[..., None]) -> Callable[..., None]:
        def slowed(file: DiskFile, buffers: list[bytes]) -> None:
            append(file, buffers)
            self.now_s += 1.0 if kind is self.slow else 0.1

        return slowed


def test_a_driver_measures_what_it_writes_and_says_when_it_changes_its_way(tmp_path, monkeypatch, caplog) -> None:
    try:
        os.close(os.open(tmp_path / "probe", os.O_CREAT | os.O_RDWR | os.O_DIRECT))
    except OSError:
        pytest.skip("this file system has no O_DIRECT")
    disk = SlowDisk(monkeypatch)
    driver = ThreadDriver(
        ConnectionPool(Identity("", "client", "test", None)),
        lambda message, timeout_s: message,
        write_around_cache=None,
    )
    data = os.urandom(measured_bytes_min)

    def one(number: int, *, completes: bool = True) -> fx.Steps[type[fx.File]]:
        path = str(tmp_path / str(number))
        file = yield from fx.open_file(path, create=True, written_once=True)
        yield from fx.append(file, data)
        if completes:
            yield from fx.sync(file)
        yield from fx.close_file(file)
        if completes:
            assert (tmp_path / str(number)).read_bytes() == data
        yield from fx.remove(path)
        return type(file)

    with caplog.at_level(logging.INFO):
        ways = [driver.run(one(number, completes=number % 5 != 4)) for number in range(20)]
        assert ways[8:].count(DirectFile) >= 11
        assert "around the page cache; a MiB takes 250.00 ms through it, 25.00 around it" in caplog.text
        disk.slow = DirectFile
        ways = [driver.run(one(number)) for number in range(20)]
    assert ways[8:].count(DiskFile) >= 11
    assert "now go through the page cache" in caplog.text
    driver.close()
