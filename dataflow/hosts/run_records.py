"""The record of a run: which checkpoint each unit begins with, stored durably and by one driver at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import msgspec

from peacefs.dataflow.core.effects import RecordCheckpoint
from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.limits import dataflow_checkpoint_retry_s
from peacefs.protocol.errors import PeacefsError, RunSuperseded, StartupError

from .checkpoint_store import UnitCheckpoints
from .driver_fence import DriverFence, OpenFence
from .query_record import RunRecord, new_record, read_record

log = logging.getLogger("peacefs.dataflow")


class RecordJournal:
    """A small file beside a query's record, which one source or sink reads and writes."""

    def __init__(self, checkpoints: UnitCheckpoints, name: str, *, empty: bool) -> None:
        """`empty`: the query is new, so a file that is there belongs to an earlier one."""
        self._checkpoints, self._name, self._empty = checkpoints, name, empty

    def read(self) -> bytes | None:
        return None if self._empty else self._checkpoints.recorded(self._name)

    def write(self, data: bytes) -> None:
        """Replace the file. Raises RunSuperseded, PeacefsError and OSError."""
        self._checkpoints.record(data, self._name)


class RunRecords:
    """Stores what a driver records beside the checkpoints of its query. `EdgeRun` has one."""

    def __init__(self, recovery: QueryRecovery, checkpoints: UnitCheckpoints, *, resume: bool) -> None:
        """Create the records. Raises StartupError if `resume` is True and a unit's technique stores nothing."""
        keep_nothing = [each.name for each in recovery.techniques if not each.takes_checkpoints]
        if resume and keep_nothing:
            raise StartupError(
                f"{keep_nothing[0]} keeps nothing that outlives the program that started a query: begin it "
                "without resume, or use a technique that takes checkpoints, as SGuard(interval_s=1)"
            )
        self._recovery, self._resume = recovery, resume
        self._writes = len(keep_nothing) < len(recovery.techniques)
        #: The checkpoints for this driver and its nodes to write.
        self.checkpoints = checkpoints
        self.fence: DriverFence = OpenFence()
        self.record = new_record(recovery.network, recovery.name)
        #: True if the query continues from the record of an earlier driver.
        self.goes_on = False
        # One thread, so that records are written one after the other.
        self._recorder = ThreadPoolExecutor(1)

    def begin(self) -> None:
        """Become the only driver of the query. Raises StartupError, InvalidQuery."""
        if not self._writes:
            return
        # Check first, so that a driver that is refused does not take over.
        self._found(self.checkpoints)
        self.checkpoints, self.fence = self.checkpoints.begin_run()
        found = self._found(self.checkpoints)
        if found is not None:
            self.goes_on, self.record = True, found.resumed(self._recovery.network)
        # Before anything begins, so that no number is used twice.
        self.checkpoints.record(msgspec.json.encode(self.record))

    def _found(self, checkpoints: UnitCheckpoints) -> RunRecord | None:
        """Return the record to continue from; None if there is none."""
        found = checkpoints.recorded()
        if found is None:
            return None
        if not self._resume:
            raise StartupError(
                "a query has left its record beside the checkpoints: resume it with resume=True, or give "
                "another directory"
            )
        record = read_record(found)
        record.check(self._recovery.network, self._recovery.name)
        return record

    def journal(self, name: str) -> RecordJournal | None:
        """Return a file beside the record; None if the query is never resumed. Call it after `begin`."""
        return RecordJournal(self.checkpoints, f"{name}.json", empty=not self.goes_on) if self._writes else None

    async def write(self, wanted: RecordCheckpoint) -> None:
        """Record a checkpoint, and return once it is durable."""
        self.record = self.record.with_checkpoint(
            wanted.unit, wanted.checkpoint, wanted.cost, time.time_ns() // 1_000_000
        )
        while True:
            # Other checkpoints may be recorded meanwhile.
            data = msgspec.json.encode(self.record)
            if await asyncio.get_running_loop().run_in_executor(self._recorder, self._written, data):
                return
            await asyncio.sleep(dataflow_checkpoint_retry_s)

    def _written(self, data: bytes) -> bool:
        """Write the record. If that fails nothing is lost: producers keep their rows until it is written."""
        try:
            self.checkpoints.record(data)
        except RunSuperseded:
            raise
        except (PeacefsError, OSError) as error:
            log.warning("the record of query %r cannot be written now: %s", self.record.query, error)
            return False
        return True

    async def replicas(self, recorded: RecordCheckpoint) -> Mapping[str, int]:
        """Return how many bytes of a checkpoint each datanode has; empty if unknown."""
        try:
            return await asyncio.to_thread(self.checkpoints.replicas, recorded.unit, recorded.checkpoint)
        except PeacefsError as error:
            log.info("cannot find out which datanodes hold checkpoint %s: %s", recorded.checkpoint, error.message)
            return {}

    async def tidy(self, step: Callable[[], None]) -> None:
        """Run a step that deletes checkpoints. If it fails, the next step deletes the rest."""
        try:
            await asyncio.to_thread(step)
        except (PeacefsError, OSError) as error:
            log.warning("old checkpoints could not be deleted and stay for now: %s", error)

    def close(self) -> None:
        self._recorder.shutdown()
