"""A node, as a process or as a task: it ends when the connection to the edge breaks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.core.effects import (
    CopyState,
    DropCopy,
    Effect,
    KeepCopy,
    LoadCheckpoint,
    LoadCopy,
    SendMessage,
    StoreCheckpoint,
)
from peacefs.dataflow.core.messages import CONTROLLER, CheckpointCost, Data, Message, NodeAlive, Placement
from peacefs.dataflow.core.node import NodeCore
from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.limits import dataflow_checkpoint_retry_s
from peacefs.protocol.errors import (
    CheckpointDamaged,
    DiskFault,
    FileNotFound,
    PeacefsError,
    StateError,
)

from .checkpoint_store import UnitCheckpoints
from .interface import LinkMeter, RowMeter
from .membership import Member
from .node_main import run_as_ordered
from .node_shell import EDGE, NodeShell
from .unit_states import UnitStates

# How often a node checks whether the checkpoint that is being written is complete.
dataflow_checkpoint_poll_s: Final = 0.01
# How often a node checks whether the copy for a standby is complete.
dataflow_copy_poll_s: Final = 0.002


log = logging.getLogger("peacefs.dataflow")


@dataclass(frozen=True)
class NodeOrders:
    """Orders for a node process, given when it starts."""

    member: Member
    session: str
    edge_address: str
    recovery: QueryRecovery
    bounds: Bounds
    checkpoints: UnitCheckpoints
    #: Counts the bytes that the node sends, if requested.
    traffic: LinkMeter | None = None
    #: Counts the rows that the node sends.
    row_counts: RowMeter | None = None

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def query(self) -> str:
        return self.recovery.network.name


class NodeProcess(NodeShell):
    """The shell of one `NodeCore`: it passes the core messages and the time, and performs its effects.

    States are loaded, written and copied on other threads. This module, run as a process, and Spark tasks
    (`executors_host.py`) call `run`.
    """

    def __init__(self, orders: NodeOrders) -> None:
        network = orders.recovery.network
        super().__init__(
            orders.member,
            orders.edge_address,
            {name: kind.schema for name, kind in network.types.items()},
            NodeAlive(orders.name, orders.session),
            orders.bounds.heartbeat_s,
            None if orders.traffic is None else orders.traffic.counter(orders.name),
        )
        self._orders = orders
        self._states = UnitStates(
            orders.checkpoints,
            orders.bounds,
            orders.recovery,
            threads=ThreadPoolExecutor(len(network.units), thread_name_prefix="unit log"),
        )
        self._count_rows = None if orders.row_counts is None else orders.row_counts.counter(orders.name)
        self._core: NodeCore

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self._orders.checkpoints.close()

    # -- events ---------------------------------------------------------------------------------------

    def _begun(self, address: str) -> None:
        orders = self._orders
        self._core = NodeCore(
            orders.name, orders.session, orders.recovery, self._states.new, orders.bounds, address=address
        )

    def _tick(self, now_s: float) -> Mapping[str, str]:
        self._perform(self._core.tick(now_s))
        return {EDGE: self._orders.edge_address}

    def _received(self, peer: str, message: Message) -> None:
        if isinstance(message, Placement):
            self._addresses |= message.addresses
        # Many messages may arrive at once. Units process them after all were read, so that the node is not silent
        # meanwhile.
        self._perform(self._core.received(time.monotonic(), peer, message, later=True))

    def _disconnected(self, peer: str) -> None:
        self._perform(self._core.disconnected(time.monotonic(), peer))

    def _work(self) -> None:
        self._perform(self._core.work(time.monotonic()))

    # -- effects --------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if (
                self._count_rows is not None
                and isinstance(effect, SendMessage)
                and isinstance(effect.message, Data)
            ):
                self._count_rows(effect.message.stream, effect.message.batch.rows.num_rows)
            match effect:
                case SendMessage(to, message) if to == self._orders.name:
                    asyncio.get_running_loop().call_soon(self._received, to, message)
                case SendMessage(to, message):
                    peer = EDGE if to == CONTROLLER else to
                    self._links.send(peer, self._addresses[peer], message)
                case StoreCheckpoint():
                    self._begin(self._store_checkpoint(effect))
                case LoadCheckpoint():
                    self._begin(self._load_checkpoint(effect))
                case CopyState():
                    self._begin(self._copy_state(effect))
                case KeepCopy(unit, data):
                    self._states.keep_copy(unit, data)
                case LoadCopy():
                    self._begin(self._load_copy(effect))
                case DropCopy(unit):
                    self._states.drop_copy(unit)
                case _:
                    raise AssertionError(f"{type(effect).__name__} is not for a node")
        if self._core.has_work:
            self._work_soon()

    async def _store_checkpoint(self, wanted: StoreCheckpoint) -> None:
        """Write a checkpoint on background threads, while the unit continues."""
        checkpoint = (wanted.incarnation, wanted.number)
        begun_s = time.monotonic()
        running = wanted.capture.start(patience_s=self._orders.bounds.checkpoint_patience_s)
        while not running.done:  # noqa: ASYNC110 - another thread ends it
            await asyncio.sleep(dataflow_checkpoint_poll_s)
        outcome: CheckpointCost | PeacefsError
        try:
            stored = running.result()
        except PeacefsError as fault:
            outcome = fault
        except OSError as fault:
            outcome = DiskFault(f"the checkpoint of unit {wanted.unit!r} cannot be written: {fault}")
        else:
            outcome = CheckpointCost(
                stored.pages_written,
                stored.pages_referred,
                stored.bytes_written,
                int(wanted.capture.pause_s * 1_000_000),
                int((time.monotonic() - begun_s) * 1_000_000),
            )
        if isinstance(outcome, PeacefsError):
            log.info("checkpoint %s of unit %s was not stored: %s", checkpoint, wanted.unit, outcome.message)
        self._perform(self._core.stored(wanted.unit, *checkpoint, outcome))

    async def _copy_state(self, wanted: CopyState) -> None:
        """Copy a capture on a background thread, while the unit continues."""
        running = wanted.capture.start()
        while not running.done:  # noqa: ASYNC110 - another thread ends it
            await asyncio.sleep(dataflow_copy_poll_s)
        data: bytes | PeacefsError
        try:
            running.result()
        except PeacefsError as fault:
            log.warning("a copy of unit %s for its standby was not made: %s", wanted.unit, fault.message)
            data = fault
        else:
            data = self._states.take_copy(wanted.unit, running.sequence)
        self._perform(self._core.copied(time.monotonic(), wanted.unit, wanted.incarnation, wanted.number, data))

    async def _load_copy(self, wanted: LoadCopy) -> None:
        try:
            state = await asyncio.to_thread(self._states.load_copy, wanted.unit)
        except (CheckpointDamaged, FileNotFound, StateError) as error:
            self._perform(self._core.not_loaded(wanted.unit, wanted.incarnation, error))
        else:
            self._perform(self._core.loaded(time.monotonic(), wanted.unit, wanted.incarnation, state))

    async def _load_checkpoint(self, wanted: LoadCheckpoint) -> None:
        """Load a checkpoint, and retry on failures, unless the checkpoint is damaged or gone."""
        while self._core.wants(wanted.unit, wanted.incarnation):
            try:
                state = await asyncio.to_thread(self._states.load, wanted.unit, wanted.checkpoint)
            except (CheckpointDamaged, FileNotFound, StateError) as error:
                self._perform(self._core.not_loaded(wanted.unit, wanted.incarnation, error))
                return
            except (PeacefsError, OSError) as fault:
                log.warning(
                    "checkpoint %s of unit %s cannot be read now: %s", wanted.checkpoint, wanted.unit, fault
                )
                await asyncio.sleep(dataflow_checkpoint_retry_s)
            else:
                self._perform(self._core.loaded(time.monotonic(), wanted.unit, wanted.incarnation, state))
                return


if __name__ == "__main__":
    run_as_ordered(lambda orders: NodeProcess(orders).run())
