"""Reads every replica regularly, so that a corrupt one is found while other replicas can replace it.

Replicas are read in the order of chunk ids, round after round. So the next replica is always the one verified
longest ago, and a single id records the progress of a round. It is stored on disk, so that a restart continues
there. Corrupt replicas are reported; the coordinator has them replaced and then deleted here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from peacefs.datanode import metrics
from peacefs.datanode.limits import scrub_cost_bytes_min, scrub_rest_s
from peacefs.datanode.store.chunk_store import ReadPlan
from peacefs.datanode.store.disk_faults import closing
from peacefs.datanode.store.interface import ReplicaStore
from peacefs.datanode.store.layout import StorePaths
from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import ChecksumMismatch, ChunkNotFound, DiskFault
from peacefs.protocol.ids import ChunkId
from peacefs.protocol.limits import scrub_bytes_per_second, scrub_period_s
from peacefs.protocol.messages import Replica
from peacefs.runtime import effects as fx

scrub_batch_chunks: Final = 4096
# Maximum amount of scrubbing that is repeated after a crash.
scrub_save_interval_s: Final = 60.0
# A corrupt replica that still exists after this time is read and reported again.
scrub_recheck_s: Final = 600.0
scrub_corrupt_remembered_max: Final = 4096


# A chunk id has at most 20 characters.
_STATE_BYTES_MAX = 1024 + 24 * scrub_corrupt_remembered_max


class ScrubProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scrubber's state on disk. Times are seconds since 1970."""

    #: When the current round began, or when the next one begins.
    begins_s: float
    #: The last chunk verified in the current round.
    after: ChunkId = 0
    #: Chunks whose replica here was corrupt when it was last read.
    corrupt: tuple[ChunkId, ...] = ()
    rounds_done: int = 0


class _Look(NamedTuple):
    """A chunk to verify: the next one of the round, or one that was found corrupt before."""

    chunk: ChunkId
    is_in_turn: bool


class Scrubber:
    """The scrubber of one store. One thread calls `advance` and rests for the time it returns.

    A round begins `period_s` after the previous one, or when that one ends if it takes longer: at most
    `bytes_per_second` are read. `on_corrupt` receives a replica that is corrupt, or that the disk twice failed to
    read. If a replica's file has vanished, the store itself reports it.
    """

    def __init__(
        self,
        store: ReplicaStore,
        directory: str,
        on_corrupt: Callable[[Replica], None],
        *,
        period_s: float = scrub_period_s,
        bytes_per_second: float = scrub_bytes_per_second,
    ) -> None:
        self._store = store
        self._paths = StorePaths(directory)
        self._on_corrupt = on_corrupt
        self._period_s = period_s
        self._bytes_per_second = bytes_per_second
        self._progress: ScrubProgress | None = None
        #: The next chunk to verify is the last item.
        self._pending: list[_Look] = []
        self._look = _Look(0, is_in_turn=True)
        self._plan: ReadPlan | None = None
        self._doubted: _Look | None = None
        self._save_at_s = 0.0
        self._recheck_at_s = 0.0

    @property
    def progress(self) -> ScrubProgress | None:
        """The state; None before the first `advance`."""
        return self._progress

    def advance(self) -> fx.Steps[float]:
        """Read at most one packet. Return the seconds to rest before the next call.

        Raises OSError if the state cannot be saved. The scrubber can continue nevertheless.
        """
        now_s = yield from fx.wall_clock()
        if self._progress is None:
            self._progress = yield from self._load(now_s)
        if self._plan is None and not self._pending and not self._find_work(self._progress, now_s):
            rest_s = yield from self._end_round(self._progress, now_s)
        else:
            rest_s = yield from self._verify()
        if now_s >= self._save_at_s:
            yield from self._save(now_s)
        return rest_s

    def stop(self) -> fx.Steps[None]:
        """Close the replica being read, and save the state. Raises OSError."""
        plan, self._plan = self._plan, None
        if plan is not None:
            yield from self._store.close_read(plan)
        if self._progress is not None:
            yield from self._save((yield from fx.wall_clock()))

    # -- rounds ------------------------------------------------------------------------------------

    def _find_work(self, progress: ScrubProgress, now_s: float) -> bool:
        if now_s >= progress.begins_s:
            batch = self._store.chunks_after(progress.after, scrub_batch_chunks)
            self._pending = [_Look(chunk, is_in_turn=True) for chunk in reversed(batch)]
        if progress.corrupt and now_s >= self._recheck_at_s:
            self._recheck_at_s = now_s + scrub_recheck_s
            self._pending.extend(_Look(chunk, is_in_turn=False) for chunk in progress.corrupt)
        return bool(self._pending)

    def _end_round(self, progress: ScrubProgress, now_s: float) -> fx.Steps[float]:
        if now_s >= progress.begins_s:
            begins_s = max(now_s, progress.begins_s + self._period_s)
            self._change(begins_s=begins_s, after=0, rounds_done=progress.rounds_done + 1)
            yield from self._save(now_s)
        return min(scrub_rest_s, self._period_s)

    # -- one replica -------------------------------------------------------------------------------

    def _verify(self) -> fx.Steps[float]:
        """Open the next replica, or continue with the open one."""
        plan = self._plan
        if plan is None:
            self._look = self._pending.pop()
        try:
            if plan is None:
                return (yield from self._open(self._look.chunk))
            return (yield from self._read_on(plan))
        except ChunkNotFound:
            # It was deleted meanwhile, or its file vanished, which the store has reported.
            self._looked(is_corrupt=False)
        except ChecksumMismatch:
            self._looked(is_corrupt=True)
        except DiskFault:
            return self._doubt()
        return self._rest_s(0)

    def _open(self, chunk: ChunkId) -> fx.Steps[float]:
        held = self._store.find(chunk)
        if held is None:
            self._looked(is_corrupt=False)
            return 0.0
        plan = yield from self._store.open_read(chunk, 0, 0, held.length)
        if plan.at >= plan.end:
            self._looked(is_corrupt=False)
            return self._rest_s(0)
        self._plan = plan
        yield from self._store.drop_cached(plan)
        return 0.0

    def _read_on(self, plan: ReadPlan) -> fx.Steps[float]:
        # If this raises, the store has closed the plan.
        self._plan = None
        blocks = yield from self._store.read_blocks(plan)
        metrics.scrub_read_bytes.inc(len(blocks.data) if blocks else 0)
        assert blocks is not None, "a plan that is kept has blocks to be read"
        if plan.at < plan.end:
            self._plan = plan
        else:
            self._looked(is_corrupt=False)
        return self._rest_s(len(blocks.data))

    def _doubt(self) -> float:
        """Try a replica once more, because the cause of the error may not have been the replica's sectors."""
        if self._doubted == self._look:
            self._looked(is_corrupt=True)
            return self._rest_s(0)
        self._doubted = self._look
        self._pending.append(self._look)
        return scrub_rest_s

    def _looked(self, *, is_corrupt: bool) -> None:
        """Record the result of verifying a replica."""
        self._doubted = None
        assert self._progress is not None, "it is known how far the round had come"
        chunk, is_in_turn = self._look
        corrupt = [each for each in self._progress.corrupt if each != chunk]
        metrics.scrubbed.inc()
        held = self._store.find(chunk)
        if is_corrupt and held is not None:
            self._on_corrupt(held)
            corrupt = [*corrupt, chunk][-scrub_corrupt_remembered_max:]
            self._save_at_s = 0.0
        self._change(corrupt=tuple(corrupt), after=chunk if is_in_turn else self._progress.after)

    def _rest_s(self, read_bytes: int) -> float:
        return max(read_bytes, scrub_cost_bytes_min) / self._bytes_per_second

    # -- saved state --------------------------------------------------------------------------------

    def _change(self, **fields: object) -> None:
        assert self._progress is not None, "it is known how far the round had come"
        self._progress = msgspec.structs.replace(self._progress, **fields)

    def _load(self, now_s: float) -> fx.Steps[ScrubProgress]:
        """Load the state. If it is missing or unreadable, begin a round now."""
        try:
            file = yield from fx.open_file(self._paths.scrubbing)
            raw = yield from closing(file, fx.read_at(file, 0, _STATE_BYTES_MAX))
            kept = msgspec.json.decode(raw, type=ScrubProgress)
        except (OSError, *UNREADABLE):
            return ScrubProgress(begins_s=now_s)
        # If the clock was set back, wait at most one period.
        return msgspec.structs.replace(kept, begins_s=min(kept.begins_s, now_s + self._period_s))

    def _save(self, now_s: float) -> fx.Steps[None]:
        self._save_at_s = now_s + scrub_save_interval_s
        fresh = f"{self._paths.scrubbing}.new"
        file = yield from fx.open_file(fresh, create=True)
        yield from closing(file, self._write(file))
        yield from fx.rename(fresh, self._paths.scrubbing)
        yield from fx.sync_directory(self._paths.directory)

    def _write(self, file: fx.File) -> fx.Steps[None]:
        yield from fx.append(file, msgspec.json.encode(self._progress))
        yield from fx.sync(file)
