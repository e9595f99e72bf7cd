"""A node, as a process of its own or in a task: it ends when the connection to the edge breaks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

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
from peacefs.dataflow.limits import dataflow_checkpoint_retry_s, dataflow_tick_s
from peacefs.protocol.errors import (
    CheckpointDamaged,
    DiskFault,
    FileNotFound,
    PeacefsError,
    StateError,
)
from peacefs.state.warm import warm

from .beats import Beats
from .checkpoint_store import UnitCheckpoints
from .interface import LinkMeter, RowMeter
from .links import Links
from .node_main import run_as_ordered
from .unexpected import on_unexpected
from .unit_states import UnitStates
from .wire import encode

# A node looks so often whether a checkpoint that is being written is there.
dataflow_checkpoint_poll_s: Final = 0.01
# A node looks so often whether a copy for a standby was made.
dataflow_copy_poll_s: Final = 0.002


EDGE = "edge"
log = logging.getLogger("peacefs.dataflow")


@dataclass(frozen=True)
class NodeOrders:
    """Orders for a node process, given when it starts."""

    name: str
    session: str
    token: str
    edge_address: str
    recovery: QueryRecovery
    bounds: Bounds
    checkpoints: UnitCheckpoints
    #: The count of the bytes that it sends, if anybody wants to know.
    traffic: LinkMeter | None = None
    #: The count of the rows that it sends.
    row_counts: RowMeter | None = None

    @property
    def query(self) -> str:
        return self.recovery.network.name


class NodeProcess:
    """The shell of one `NodeCore`: it gives the core messages and the time, and performs its effects.

    The core is called on the event loop of `run` alone; states are loaded, written and copied on other threads.
    The node ends when its connection to the edge breaks, or on an error that nobody has provided for. This module
    run as a process, and tasks of Spark (`executors_host.py`), call `run`.
    """

    def __init__(self, orders: NodeOrders) -> None:
        self._orders = orders
        self._addresses = {EDGE: orders.edge_address}
        schemas = {name: kind.schema for name, kind in orders.recovery.network.types.items()}
        sent = None if orders.traffic is None else orders.traffic.counter(orders.name)
        self._links = Links(orders.name, orders.token, schemas, self._received, self._broken, sent)
        alive = NodeAlive(orders.name, orders.session)
        self._beats = Beats(orders.name, orders.token, encode, alive, every_s=orders.bounds.heartbeat_s)
        self._states = UnitStates(
            orders.checkpoints,
            orders.bounds,
            orders.recovery,
            threads=ThreadPoolExecutor(len(orders.recovery.network.units), thread_name_prefix="unit log"),
        )
        self._count_rows = None if orders.row_counts is None else orders.row_counts.counter(orders.name)
        self._tasks: set[asyncio.Task[None]] = set()
        self._core: NodeCore
        self._works = False
        self._edge_is_gone = False
        self._unexpected: BaseException | None = None

    async def run(self) -> None:
        """Run the node until the program that started it is gone. Raises what nobody has provided for."""
        on_unexpected(self._fail)
        orders = self._orders
        # Kernels are loaded now, and not when the first rows come, which may be after a failure.
        await asyncio.to_thread(warm)
        address = await self._links.listen()
        self._core = NodeCore(
            orders.name,
            orders.session,
            orders.recovery,
            self._states.new,
            orders.bounds,
            address=address,
        )
        self._beats.start()
        try:
            while not self._edge_is_gone and self._unexpected is None:
                self._beats.note([orders.edge_address])
                self._perform(self._core.tick(time.monotonic()))
                await asyncio.sleep(dataflow_tick_s)
        finally:
            self._beats.close()
            await self._links.close()
            self._orders.checkpoints.close()
        if self._unexpected is not None:
            raise self._unexpected

    def _fail(self, error: BaseException) -> None:
        """End the node: others take over what it runs, from where it is known to be right."""
        self._unexpected = self._unexpected or error

    # -- events ---------------------------------------------------------------------------------------

    def _received(self, peer: str, message: Message) -> None:
        if isinstance(message, Placement):
            self._addresses |= message.addresses
        # Many may come at once: units look at them after all were taken, and the node is not silent meanwhile.
        self._perform(self._core.received(time.monotonic(), peer, message, later=True))

    def _broken(self, peer: str) -> None:
        self._edge_is_gone = self._edge_is_gone or peer == EDGE
        self._perform(self._core.disconnected(time.monotonic(), peer))

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
        if self._core.has_work and not self._works:
            # After the messages that have come meanwhile.
            self._works = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._works = False
        self._perform(self._core.work(time.monotonic()))

    async def _store_checkpoint(self, wanted: StoreCheckpoint) -> None:
        """Have a checkpoint written by threads of its own, while the unit goes on."""
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
            log.info("checkpoint %s of unit %s is not stored: %s", checkpoint, wanted.unit, outcome.message)
        self._perform(self._core.stored(wanted.unit, *checkpoint, outcome))

    async def _copy_state(self, wanted: CopyState) -> None:
        """Copy what was captured, on a thread of its own, while the unit goes on."""
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
        """Load a checkpoint, as often as it takes: only what is damaged or gone will not be there later."""
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

    def _begin(self, steps: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


if __name__ == "__main__":
    run_as_ordered(lambda orders: NodeProcess(orders).run())
