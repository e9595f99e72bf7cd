"""Nodes as processes of this machine. Sources, sinks and the controller are in the program that starts them.

A node that dies is noticed by its end, or by its silence, and another process is started in its place, as a
standby.
"""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any

import cloudpickle
import pyarrow as pa

from peacefs.dataflow.core.controller import ControllerCore
from peacefs.dataflow.core.edge import EdgeCore
from peacefs.dataflow.core.effects import DeleteCheckpoint, Deliver, Effect, Send, SinkEnded, StopQuery
from peacefs.dataflow.core.messages import CheckpointStored, Heartbeat, Message, UnitStopped
from peacefs.dataflow.core.node import Bounds
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.interface import Technique
from peacefs.protocol import limits
from peacefs.protocol.errors import InvalidQuery, QueryFailed

from .checkpoint_store import CheckpointStore
from .interface import Sink, Source
from .links import Links
from .node_process import EDGE, NodeOrders


class LocalProcesses:
    """A host of so many node processes.

    host = LocalProcesses(3, DirectoryCheckpoints(Path("checkpoints")))
    with host.start(query.network(), SGuard(interval_s=1), sources, sinks) as run:
        run.wait()
    """

    def __init__(
        self,
        nodes: int,
        checkpoints: CheckpointStore,
        *,
        bounds: Bounds | None = None,
        node_timeout_s: float = limits.dataflow_node_timeout_s,
    ) -> None:
        self._nodes = nodes
        self._checkpoints = checkpoints
        self._bounds = bounds or Bounds()
        self._node_timeout_s = node_timeout_s

    def start(
        self, network: Network, technique: Technique, sources: Mapping[str, Source], sinks: Mapping[str, Sink]
    ) -> LocalRun:
        for kind, wanted, given in (("source", network.sources, sources), ("sink", network.sinks, sinks)):
            missing = {each.name for each in wanted} ^ set(given)
            if missing:
                raise InvalidQuery(
                    f"{kind} {min(missing)!r} is in the query or in what was given, and not in both"
                )
        return LocalRun(
            network, technique, sources, sinks, self._nodes, self._checkpoints, self._bounds, self._node_timeout_s
        )


class LocalRun:
    def __init__(
        self,
        network: Network,
        technique: Technique,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        nodes: int,
        checkpoints: CheckpointStore,
        bounds: Bounds,
        node_timeout_s: float,
    ) -> None:
        self._network, self._technique, self._bounds = network, technique, bounds
        self._sources, self._sinks = sources, sinks
        self._checkpoints = checkpoints
        self._token = secrets.token_hex(16)
        self._edge = EdgeCore(network, technique, bounds)
        self._controller = ControllerCore(
            [plan.name for plan in network.units],
            EdgeCore.placements(network, EDGE),
            edge_node=EDGE,
            nodes_wanted=nodes,
            node_timeout_s=node_timeout_s,
        )
        self._names = [f"node-{number}" for number in range(1, nodes + 1)]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ended = threading.Event()
        self._failure: str | None = None
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run_loop, name=f"dataflow {network.name}", daemon=True)
        self._thread.start()

    # -- for the user -----------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until every sink has had its last row. Raises QueryFailed if the query stopped."""
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"query {self._network.name!r} goes on after {timeout_s} s")
        if self._failure is not None:
            raise QueryFailed(self._failure)

    def pids(self) -> Mapping[str, int]:
        """Return the process of each node that runs."""
        return {name: process.pid for name, process in self._processes.items()}

    def place_of(self, unit: str) -> str | None:
        """Return the node where a unit runs; None while there is none."""
        return self._controller.placement.units[unit].node

    def checkpoint_of(self, unit: str) -> tuple[int, int] | None:
        """Return the checkpoint with which a unit would begin, as (incarnation, number)."""
        return self._controller.placement.units[unit].checkpoint

    def close(self) -> None:
        """End all processes. The checkpoint store belongs to whoever gave it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop)
            self._thread.join()

    def __enter__(self) -> LocalRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the loop -----------------------------------------------------------------------------------------

    def _run_loop(self) -> None:
        self._stopped = asyncio.Event()
        # Set when a source may have room again.
        self._room = asyncio.Event()
        try:
            self._loop.run_until_complete(self._main())
        except Exception as error:
            self._failure = f"the host of query {self._network.name!r} failed: {error!r}"
        finally:
            self._ended.set()
            self._loop.close()

    async def _main(self) -> None:
        schemas = {name: kind.schema for name, kind in self._network.types.items()}
        self._links = Links(EDGE, self._token, schemas, self._received, self._broken)
        self._address = await self._links.listen()
        try:
            for name in self._names:
                self._begin(self._keep_running(name))
            for name, rows in self._sources.items():
                self._begin(self._feed(name, iter(rows)))
            while not self._stopped.is_set():
                now_s = time.monotonic()
                self._perform(self._controller.tick(now_s))
                self._perform(self._edge.tick(now_s))
                await asyncio.sleep(limits.dataflow_tick_s)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._links.close()
            await asyncio.to_thread(self._end_processes)
            await self._loop.shutdown_default_executor()

    def _stop(self) -> None:
        self._ended.set()
        self._stopped.set()

    def _begin(self, steps: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._stop()

    # -- processes -----------------------------------------------------------------------------------------

    async def _keep_running(self, name: str) -> None:
        """Start a node's process, and another when it ends."""
        while True:
            process = await asyncio.to_thread(self._start_process, name)
            await asyncio.to_thread(process.wait)
            self._processes.pop(name, None)
            assert process.stdin is not None
            process.stdin.close()
            self._perform(self._controller.node_lost(name))

    def _start_process(self, name: str) -> subprocess.Popen[bytes]:
        orders = NodeOrders(
            name,
            secrets.token_hex(8),
            self._token,
            self._address,
            self._network,
            self._technique,
            self._bounds,
            self._checkpoints,
        )
        process = subprocess.Popen([sys.executable, "-m", NodeOrders.__module__], stdin=subprocess.PIPE)
        self._processes[name] = process
        assert process.stdin is not None
        try:
            process.stdin.write(cloudpickle.dumps(orders))
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which whoever waits for it sees
        return process

    def _end_processes(self) -> None:
        for process in list(self._processes.values()):
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    # -- events ---------------------------------------------------------------------------------------------

    def _received(self, peer: str, message: Message) -> None:
        now_s = time.monotonic()
        match message:
            case Heartbeat():
                self._perform(self._controller.heartbeat(now_s, message))
            case CheckpointStored():
                self._perform(self._controller.checkpoint_stored(peer, message))
            case UnitStopped():
                self._perform(self._controller.unit_stopped(message))
            case _:
                self._perform(self._edge.received(now_s, peer, message))
                self._room.set()

    def _broken(self, peer: str) -> None:
        self._perform(self._edge.disconnected(time.monotonic(), peer))

    async def _feed(self, source: str, rows: Iterator[pa.RecordBatch]) -> None:
        """Offer rows while there is room. The iterator may block: it is asked on another thread."""
        while (batch := await asyncio.to_thread(next, rows, None)) is not None:
            for first in range(0, batch.num_rows, limits.dataflow_batch_rows_max):
                while not self._edge.has_room(source):
                    self._room.clear()
                    await self._room.wait()
                part = batch.slice(first, limits.dataflow_batch_rows_max)
                self._perform(self._edge.offer(time.monotonic(), source, part))
        self._perform(self._edge.end(time.monotonic(), source))

    # -- effects ---------------------------------------------------------------------------------------------

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message) if to == EDGE:
                    self._loop.call_soon(self._received, EDGE, message)
                case Send(to, message):
                    address = self._controller.address_of(to)
                    if address is not None:
                        self._links.send(to, address, message)
                case Deliver(sink, _, batch):
                    try:
                        self._sinks[sink](batch.rows)
                    except Exception as error:  # whatever the user's function raises
                        self._fail(f"sink {sink!r} failed: {type(error).__name__}: {error}")
                case SinkEnded():
                    if self._edge.ended:
                        self._ended.set()
                case DeleteCheckpoint(unit, checkpoint):
                    self._begin(asyncio.to_thread(self._checkpoints.delete, unit, checkpoint))
                case StopQuery(reason):
                    self._fail(reason)
                case _:
                    raise AssertionError(f"{type(effect).__name__} is not for the edge")
