"""Checkpoints of pages in peacefs: under the coordinator's grants, sharing unchanged pages."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.waiting import wait_until

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.protocol.errors import CheckpointCancelled
from peacefs.protocol.limits import MIB
from peacefs.state import Checkpointer, PageManager, PeaceStore, UnorderedMap

pytestmark = pytest.mark.cluster

COUNTS = pa.schema([("key", pa.int64()), ("count", pa.int64())])


def count_map(pages: PageManager) -> UnorderedMap:
    return UnorderedMap.create(pages.page_set("counts"), COUNTS, "key")


def manager() -> PageManager:
    return PageManager(memory_bytes_max=256 * MIB)


def test_checkpoints_in_peacefs_share_what_did_not_change(files: PeaceFileSystem) -> None:
    root = f"/{os.urandom(4).hex()}"
    store = PeaceStore(files, root=root, chunk_bytes=MIB)
    pages = manager()
    counts = count_map(pages)
    counts.add_at(np.arange(500_000), 1)
    checkpointer = Checkpointer(pages, store, "counts", keep=1)
    running = checkpointer.begin()
    for _ in range(3):
        counts.add_at(np.arange(500_000), 1)
    first = running.result(60)
    assert first.bytes_written > 10 * MIB
    second = checkpointer.checkpoint()
    counts.add_at([5], 1)
    third = checkpointer.checkpoint()
    assert (third.pages_written, third.removed) == (1, (second.sequence,))
    assert store.sequences("counts") == [3]
    # All pages except the third's own are the second's data, under another name.
    own = files.status(f"{root}/counts-3/part-00000").length
    assert own == pages.page_bytes
    recovered = manager()
    loaded = Checkpointer(recovered, store, "counts").load()
    assert loaded is not None and loaded.sequence == 3
    again = count_map(recovered)
    found, columns = again.find_numpy(np.arange(500_000))
    assert found.all() and again[5] == 5 and columns["count"].sum() == 4 * 500_000 + 1


def test_checkpoint_whose_turn_is_far_away_is_cancelled_and_keeps_its_place(tmp_path: Path) -> None:
    options = ["--streams-per-node=1"]
    with (
        LocalCluster(tmp_path, datanodes=3, port=0, coordinator_options=options) as tight,
        PeaceFileSystem(tight.http_address) as files,
    ):
        pages = manager()
        counts = count_map(pages)
        counts.add_at(np.arange(500_000), 1)
        checkpointer = Checkpointer(pages, PeaceStore(files, chunk_bytes=MIB), "counts")
        held = files.open_for_writing("/held")
        held.write(bytes(6 * MIB))
        wait_until(lambda: files.schedule().grants_in_flight == 1, "the only slot is taken")
        running = checkpointer.begin(patience_s=0.0)
        with pytest.raises(CheckpointCancelled, match="its turn is"):
            running.result(60)
        # No page is read-only any more.
        clones = pages.clones
        counts.add_at(np.arange(500_000), 1)
        assert pages.clones == clones
        held.close()
        assert checkpointer.checkpoint(timeout_s=60).sequence == 2
        recovered = manager()
        Checkpointer(recovered, PeaceStore(files), "counts").load()
        assert count_map(recovered)[7] == 2
