"""The throttled disk for experiments: as slow as its curve says, and otherwise a normal store."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store.machine import RealMachine, data_of

from benchmarks.emulation.throttled_disk import DiskArm, EmulatedDisk, parse_curve
from peacefs.protocol.checksums import block_checksums
from peacefs.protocol.errors import BadRequest, ChecksumMismatch
from peacefs.runtime import effects as fx
from peacefs.topology.rate_curve import PAPER_DISK

_CURVE = "1=30e6,2=45e6,4=41e6,8=41e6,16=41e6"


def test_the_curve_is_read_from_the_command_line() -> None:
    assert parse_curve(_CURVE) == PAPER_DISK


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not STREAMS=BYTES_S"),
        ("1=30e6,2", "'2' is not STREAMS=BYTES_S"),
        ("1=fast", "'1=fast' is not STREAMS=BYTES_S"),
        ("0=1", "streams count from 1"),
        ("1=0", "rates are above zero"),
        ("1=nan", "rates are above zero"),
        ("2=1,2=3", "must rise"),
    ],
)
def test_curve_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        parse_curve(text)


@given(st.integers(1, 16), st.integers(1, 20))
def test_writers_that_never_pause_share_equally_what_the_curve_says(streams: int, rounds: int) -> None:
    arm = DiskArm(PAPER_DISK)
    free_at_s = dict.fromkeys(range(streams), 0.0)
    for stream in free_at_s:
        arm.begin(stream)
    for _ in range(rounds * streams):
        stream = min(free_at_s, key=lambda each: (free_at_s[each], each))
        free_at_s[stream] = arm.reserve(free_at_s[stream], 256_000)
    total = rounds * streams * 256_000
    assert max(free_at_s.values()) == pytest.approx(total / PAPER_DISK.rate(streams), abs=0.011)
    last_turns_s = streams * 256_000 / PAPER_DISK.rate(streams)
    assert max(free_at_s.values()) - min(free_at_s.values()) <= last_turns_s


def test_an_idle_disk_saves_nothing_up() -> None:
    arm = DiskArm(PAPER_DISK)
    arm.begin("only")
    arm.reserve(0.0, 1_000_000)
    assert arm.reserve(100.0, 30_000_000) == pytest.approx(101.0, abs=0.011)


def _stored(disk: EmulatedDisk, data: bytes, *, sums: bytes) -> fx.Steps[float]:
    """Store a chunk and return the time it took."""
    begun_s = yield from fx.now()
    staged = disk.stage(1, 1)
    yield from disk.write(staged, sums, data)
    yield from disk.seal(staged)
    return (yield from fx.now()) - begun_s


def test_a_store_behind_it_keeps_its_promises(tmp_path: Path, content: bytes) -> None:
    machine = RealMachine(tmp_path)
    machine.start()
    arm = DiskArm(parse_curve(f"1={len(content) * 20}"))
    disk = EmulatedDisk(machine.store, arm)
    assert machine.run(_stored(disk, content, sums=block_checksums(content))) >= 1 / 20 - 0.011
    assert machine.get(1) == content
    assert arm.streams == 0
    with pytest.raises(ChecksumMismatch):
        machine.run(_stored(disk, data_of(100), sums=block_checksums(content)[:4]))
