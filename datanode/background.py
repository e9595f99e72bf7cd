"""The background tasks of a datanode, one thread each: compacting, scrubbing, balancing its disks.

A failed task is logged and retried; meanwhile the datanode stays usable. The participants decide what to do.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Final

from peacefs.datanode.limits import disk_balance_look_s, scrub_rest_s
from peacefs.protocol.errors import PeacefsError
from peacefs.runtime.thread_driver import ThreadDriver

from .disks.disk_balancer import DiskBalancer
from .disks.disk_set import DiskSet
from .disks.scrubber import Scrubber
from .pipeline.orphaned_chunks import OrphanedChunks

compaction_interval_s: Final = 30.0


log = logging.getLogger("peacefs.datanode")


class DatanodeTasks:
    """The background threads of one datanode, from `start` to `join`. `service.Datanode` owns them."""

    def __init__(
        self,
        driver: ThreadDriver,
        store: DiskSet,
        orphans: OrphanedChunks,
        scrubber: Scrubber | None,
        disk_balancer: DiskBalancer | None,
    ) -> None:
        """Without a scrubber, nothing is scrubbed; without a disk balancer, disks are not balanced."""
        self._driver = driver
        self._store = store
        self._orphans = orphans
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._keep_compacting, name="compactor")]
        if scrubber is not None:
            self._threads.append(threading.Thread(target=self._keep_scrubbing, args=(scrubber,), name="scrubber"))
        if disk_balancer is not None:
            self._threads.append(
                threading.Thread(target=self._keep_balancing_disks, args=(disk_balancer,), name="disk-balancer")
            )

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin nothing more. What is under way ends soon; `join` waits for it."""
        self._stopping.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _keep_compacting(self) -> None:
        while not self._stopping.wait(compaction_interval_s):
            try:
                self._driver.run(self._orphans.discard_old())
                self._driver.run(self._store.compact())
            except (PeacefsError, OSError) as fault:
                log.warning("compaction failed and will be tried again: %s", fault)

    def _keep_balancing_disks(self, disk_balancer: DiskBalancer) -> None:
        while not self._stopping.wait(disk_balance_look_s):
            try:
                self._driver.run(disk_balancer.advance())
            except (PeacefsError, OSError) as fault:
                log.warning("balancing the disks failed and continues if it is still requested: %s", fault)

    def _keep_scrubbing(self, scrubber: Scrubber) -> None:
        rest_s = 0.0
        while not self._stopping.wait(rest_s):
            try:
                rest_s = self._driver.run(scrubber.advance())
            except (PeacefsError, OSError) as fault:
                log.warning("scrubbing failed and continues: %s", fault)
                rest_s = scrub_rest_s
        with contextlib.suppress(OSError):
            self._driver.run(scrubber.stop())
