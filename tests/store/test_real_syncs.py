"""Every sync that the store requests is performed by Linux before the chunk exists.

`test_crashes` shows with a simulated disk that the store requests all necessary syncs. These tests show that the
real driver performs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from store.machine import RealMachine, data_of

from peacefs.protocol.limits import small_chunk_bytes_max

CHUNK = 0x10000000001


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the files and directories that the kernel has synced, in order."""
    done: list[Path] = []

    def noting(real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            real(descriptor)
            done.append(path)

        return sync

    monkeypatch.setattr(os, "fdatasync", noting(os.fdatasync))
    monkeypatch.setattr(os, "fsync", noting(os.fsync))
    return done


@pytest.mark.evidence("acknowledged-is-durable")
def test_a_large_chunk_is_synced_before_it_has_its_name_and_then_its_name_is(
    tmp_path: Path, synced: list[Path]
) -> None:
    machine = RealMachine(tmp_path, sync_to_disk=True)
    machine.start()
    machine.put(CHUNK, 5, data_of(small_chunk_bytes_max + 1))
    (sealed,) = (tmp_path / "chunks").rglob(f"*{CHUNK:x}*")
    *_before, data, folder = synced
    assert data.parent == tmp_path / "staging"
    assert folder == sealed.parent


@pytest.mark.evidence("acknowledged-is-durable")
def test_a_small_chunk_is_synced_with_its_segment(tmp_path: Path, synced: list[Path]) -> None:
    machine = RealMachine(tmp_path, sync_to_disk=True)
    machine.start()
    machine.put(CHUNK, 5, data_of(1000))
    (segment,) = (tmp_path / "segments").iterdir()
    assert segment.parent in synced
    assert synced[-1] == segment
    synced.clear()
    machine.put(CHUNK + 1, 5, data_of(1000))
    assert synced == [segment]
