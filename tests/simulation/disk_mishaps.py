"""Disk faults of a single datanode: failed syncs, a full disk and flipped bits."""

from __future__ import annotations

import errno
import sys
from collections import Counter
from random import Random

from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_datanode import SimulatedDatanode
from simulation.watched_disks import find_bytes

from peacefs.runtime import effects as fx

_ROOM_LEFT_BYTES = 200_000
_REPLICAS_MIN = 3


class DiskMishaps:
    """Causes faults of the disk of one datanode, always the same.

    Even if another datanode's disk breaks, every chunk has a good replica. A bit is flipped only if all chunks are
    fully replicated, so that a flip never destroys the last good replica.
    """

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._victim: SimulatedDatanode = random.choice(cluster.datanodes)
        self._is_over = False
        self.happened: Counter[str] = Counter()
        self._look_again()

    def rest(self) -> None:
        """Stop causing faults; rotten blocks stay rotten until they are found."""
        self._is_over = True
        self._victim.node.disk.fail_no_more()
        self._make_room()

    def _look_again(self) -> None:
        self._cluster.world.later(self._random.uniform(5.0, 30.0), self._look)

    def _look(self) -> None:
        if self._is_over:
            return
        what = self._random.choice(("sync", "full", "rot"))
        if self._victim.node.up and getattr(self, f"_{what}")():
            self.happened[what] += 1
        self._look_again()

    def _sync(self) -> bool:
        self._victim.node.disk.fail(fx.Sync, errno.EIO, skip=self._random.randrange(20))
        return True

    def _full(self) -> bool:
        disk = self._victim.node.disk
        if disk.capacity_bytes != sys.maxsize:
            return False
        disk.capacity_bytes -= disk.available_bytes() - self._random.randrange(_ROOM_LEFT_BYTES)
        self._cluster.world.later(self._random.uniform(2.0, 20.0), self._make_room)
        return True

    def _make_room(self) -> None:
        self._victim.node.disk.capacity_bytes = sys.maxsize

    def _rot(self) -> bool:
        """Flip one bit of a replica, in its data or in its metadata."""
        chunks = self._cluster.coordinator.cluster.chunks
        alive = len(self._cluster.coordinator.cluster.members.alive())
        if alive < len(self._cluster.datanodes) or not self._cluster.fully_replicated():
            return False
        wanted = [
            (disk, replica.chunk)
            for disk in self._victim.store.working
            for replica in disk.store.replicas()
            if (state := chunks.get(replica.chunk)) is not None and len(state.holders) >= _REPLICAS_MIN
        ]
        if not wanted:
            return False
        disk, chunk = self._random.choice(wanted)
        place = find_bytes(disk, chunk)
        assert place is not None
        directory, begins, offset, length = place
        for path, _content in self._victim.node.disk.files():
            if path.startswith(f"{directory}/{begins}"):
                self._victim.node.disk.flip_bit(path, offset + self._random.randrange(length))
                return True
        return False
