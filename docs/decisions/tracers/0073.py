from peacefs.coordinator.metadata.writer import DiskSpeed, quick_write_s, stalled_write_s, writes_judged

speed = DiskSpeed()
for _ in range(writes_judged):
    assert not speed.is_quick, "a thread writes until the disk is known"
    speed.wrote(quick_write_s / 10)
assert speed.is_quick
speed.wrote(stalled_write_s)
assert not speed.is_quick, "the next writes may stall, too"
