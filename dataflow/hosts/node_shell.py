"""The part of a node's process that does not depend on what it runs: links, beats, turns of work, and its end."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pyarrow as pa

from peacefs.dataflow.limits import dataflow_tick_s
from peacefs.state.warm import warm

from .beats import Beats
from .links import Links
from .membership import Member, Membership
from .unexpected import on_unexpected
from .wire import encode

EDGE = "edge"


class NodeShell(ABC):
    """Does the I/O for one core, and tells it the time. The core is called only on the event loop of `run`.

    The node ends when its connection to the edge breaks, when its core has no place for it, or on an unexpected
    error. `NodeProcess` and `RingNode` derive from it; processes and Spark tasks call `run`.
    """

    def __init__(
        self,
        member: Member,
        edge_address: str,
        schemas: Mapping[str, pa.Schema],
        alive: object,
        beat_s: float,
        sent: Callable[[Any, int], None] | None = None,
    ) -> None:
        """`alive`: the message that is sent every `beat_s`. `sent`: called with each message and its bytes."""
        membership = Membership(member)
        self._links = Links(membership, schemas, self._received, self._broken, sent)
        self._addresses = {EDGE: edge_address}
        self._beats = Beats(membership, encode, alive, every_s=beat_s)
        self._tasks: set[asyncio.Task[None]] = set()
        self._works = False
        self._ended = asyncio.Event()
        self._unexpected: BaseException | None = None

    async def run(self) -> None:
        """Run the node until it has no place, or the program that started it is gone.

        Raises unexpected errors.
        """
        on_unexpected(self._fail)
        # Load the kernels now, and not with the first rows, which may arrive right after a failure.
        await asyncio.to_thread(warm)
        self._begun(self._links.listen())
        try:
            while not self._ended.is_set():
                followers = self._tick(time.monotonic())
                if followers is not None:
                    self._beats.note(followers)
                await asyncio.sleep(dataflow_tick_s)
        finally:
            self._beats.close()
            await self._links.close()
        if self._unexpected is not None:
            raise self._unexpected

    # -- for the core's shell ----------------------------------------------------------------------------

    @abstractmethod
    def _begun(self, address: str) -> None:
        """Note the address on which the node listens."""

    @abstractmethod
    def _tick(self, now_s: float) -> Mapping[str, str] | None:
        """Update the time. Return who must know that the node is alive, by name; None before it begins."""

    @abstractmethod
    def _received(self, peer: str, message: Any) -> None: ...

    @abstractmethod
    def _disconnected(self, peer: str) -> None:
        """Note that the connection to another node, or to the edge, broke."""

    @abstractmethod
    def _work(self) -> None:
        """Do one turn of the pending work."""

    # -- inside ---------------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        """End the node. Others take over its work, from a state that is known to be correct."""
        self._unexpected = self._unexpected or error
        self._ended.set()

    def _broken(self, peer: str) -> None:
        if peer == EDGE:
            self._ended.set()
        self._disconnected(peer)

    def _work_soon(self) -> None:
        """Schedule the next turn of work, after the messages that have arrived meanwhile."""
        if not self._works:
            self._works = True
            asyncio.get_running_loop().call_soon(self._work_now)

    def _work_now(self) -> None:
        self._works = False
        self._work()

    def _begin(self, steps: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
