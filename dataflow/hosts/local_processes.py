"""Nodes as processes of this machine."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Collection, Mapping

import cloudpickle

from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.protocol import limits
from peacefs.runtime.tls import TlsFiles

from .checkpoint_store import UnitCheckpoints
from .edge_run import EdgeRun, RunOptions
from .interface import Sink, Source
from .node_pool import NodePool
from .node_process import NodeOrders
from .process_watch import ProcessWatch
from .query_start import start_query
from .ring_node import RingOrders
from .ring_run import RingRun


class LocalProcesses:
    """A host that runs `nodes` node processes on this machine.

    host = LocalProcesses(3, DirectoryCheckpoints(Path("checkpoints")))
    with host.start(query.network(), SGuard(interval_s=1), sources, sinks) as run:
        run.wait()
    """

    def __init__(
        self,
        nodes: int,
        checkpoints: UnitCheckpoints,
        *,
        bounds: Bounds | None = None,
        node_timeout_s: float = limits.dataflow_node_timeout_s,
        tls: TlsFiles | None = None,
    ) -> None:
        """With `tls`, connections between the processes of a query use TLS. The certificate is for 127.0.0.1."""
        self._nodes = nodes
        self._checkpoints = checkpoints
        self._bounds = bounds or Bounds()
        self._node_timeout_s = node_timeout_s
        self._tls = tls
        self._launcher = _Processes()

    def start(
        self,
        network: Network,
        technique: Technique,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        options: RunOptions | None = None,
    ) -> EdgeRun | RingRun:
        self._launcher = _Processes()
        pool = NodePool(
            self._nodes, self._launcher, self._checkpoints, self._bounds, self._node_timeout_s, self._tls
        )
        return start_query(network, technique, sources, sinks, pool, options)

    def pids(self) -> Mapping[str, int]:
        """Return the process of each node of the most recently started query."""
        return self._launcher.pids()


class _Processes:
    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._watches: dict[str, ProcessWatch] = {}
        self._lock = threading.Lock()
        self._closed = False

    def pids(self) -> Mapping[str, int]:
        return {name: process.pid for name, process in dict(self._running).items()}

    def run_node(self, orders: NodeOrders | RingOrders) -> None:
        with self._lock:
            if self._closed:
                return
            process = subprocess.Popen([sys.executable, "-m", type(orders).__module__], stdin=subprocess.PIPE)
            self._running[orders.name] = process
            self._watches[orders.name] = ProcessWatch(process.pid)
        assert process.stdin is not None
        try:
            process.stdin.write(cloudpickle.dumps(sys.path) + cloudpickle.dumps(orders))
            process.stdin.flush()
        except BrokenPipeError:
            pass  # the process has already ended
        process.wait()
        process.stdin.close()

    def at_work(self) -> Collection[str]:
        return [name for name, watch in dict(self._watches).items() if watch.at_work()]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            running = list(self._running.values())
        for process in running:
            process.kill()
