"""Dataflow nodes on Spark's executors: each node is a task, which Spark places, ships code to, and restarts.

    host = SparkExecutors(spark, nodes=3, checkpoints=PeaceCheckpoints("localhost:9870", "/checkpoints/logins"))
    with host.start(query.network(), SGuard(interval_s=1), sources, sinks) as run:
        run.wait()

The driver runs each node as a job of one task, in its own thread and job group. If an executor dies, the remaining
nodes take over its units at once; Spark restarts the task, which takes seconds. The driver runs sources, sinks,
and the controller or the mappers of a ring. Nodes talk over loopback: all must be on one machine.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.hosts.checkpoint_store import UnitCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.interface import Sink, Source
from peacefs.dataflow.hosts.node_pool import NodePool
from peacefs.dataflow.hosts.node_process import NodeOrders, NodeProcess
from peacefs.dataflow.hosts.query_start import start_query
from peacefs.dataflow.hosts.ring_node import RingNode, RingOrders
from peacefs.dataflow.hosts.ring_run import RingRun
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.protocol import limits
from peacefs.protocol.errors import StartupError
from peacefs.runtime.tls import TlsFiles

# Spark fails a job after this many failures of one task (spark.task.maxFailures, 4 by default).
dataflow_task_failures_min: Final = 100


class SparkExecutors:
    """A host that runs each node as one Spark task. Spark needs a core per task.

    Give executors one core each if nodes are to be killed one by one.
    """

    def __init__(
        self,
        spark: Any,
        nodes: int,
        checkpoints: UnitCheckpoints,
        *,
        bounds: Bounds | None = None,
        node_timeout_s: float = limits.dataflow_node_timeout_s,
        tls: TlsFiles | None = None,
    ) -> None:
        """With `tls`, connections between the processes of a query use TLS. The certificate is for 127.0.0.1."""
        self._context = spark.sparkContext
        self._settings = self._context.getConf()
        failures = int(self._settings.get("spark.task.maxFailures", "4"))
        if failures < dataflow_task_failures_min:
            raise StartupError(
                f"spark.task.maxFailures is {failures}, and a node that is lost so often would end the query: "
                f"set it to {dataflow_task_failures_min} or more"
            )
        self._nodes = nodes
        self._checkpoints = checkpoints
        self._bounds = bounds or Bounds()
        self._node_timeout_s = node_timeout_s
        self._tls = tls

    def start(
        self,
        network: Network,
        technique: Technique,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        options: RunOptions | None = None,
    ) -> EdgeRun | RingRun:
        if any(each.nodes_min > 1 for each in (technique, *network.techniques.values())):
            self._check_executors(technique.name)
        jobs = _Jobs(self._context)
        pool = NodePool(self._nodes, jobs, self._checkpoints, self._bounds, self._node_timeout_s, self._tls)
        return start_query(network, technique, sources, sinks, pool, options)

    def _check_executors(self, technique: str) -> None:
        """Raise StartupError if one executor may run both nodes of a pair: its loss would lose both."""
        master = self._settings.get("spark.master", "")
        cluster = re.fullmatch(r"local-cluster\[\s*\d+\s*,\s*(\d+)\s*,\s*\d+\s*\]", master)
        # By default a standalone master gives an executor all cores of a worker; other masters give it one core.
        usual = cluster[1] if cluster else "all" if master.startswith("spark://") else "1"
        cores = self._settings.get("spark.executor.cores", usual)
        if cores == "all" or int(cores) // int(self._settings.get("spark.task.cpus", "1")) > 1:
            raise StartupError(
                f"an executor of {cores} cores can run two nodes, which would die together, and {technique} keeps "
                "what one has on the other: set spark.executor.cores to 1"
            )


class _Jobs:
    """The launcher of nodes: one Spark job per node, started from a thread with its own job group.

    A Python thread maps to a JVM thread, so job groups of different nodes do not mix.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self._groups: dict[str, str] = {}
        self._lock = threading.Lock()
        self._closed = False

    def run_node(self, orders: NodeOrders | RingOrders) -> None:
        group = f"dataflow {orders.query} {orders.name} {secrets.token_hex(4)}"
        with self._lock:
            if self._closed:
                return
            self._groups[orders.name] = group
        self._context.setJobGroup(group, f"node {orders.name} of dataflow {orders.query}", True)
        try:
            self._context.parallelize([0], 1).mapPartitions(lambda _: _run_task(orders)).collect()
        except Exception:
            # A job that was cancelled because the query is over has not failed.
            if not self._closed:
                raise

    def at_work(self) -> Collection[str]:
        """Return nothing: the driver does not know the processes of executors."""
        return ()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            groups = list(self._groups.values())
        # Nodes end by themselves when they lose the driver. Cancelling keeps a task that has not begun from
        # starting.
        for group in groups:
            self._context.cancelJobGroup(group)


def _run_task(orders: NodeOrders | RingOrders) -> Iterator[int]:
    """Run a node in a Spark task, as a new node if Spark restarted the task.

    A restarted task has lost the memory of the previous attempt, and other nodes must notice. So each attempt is a
    new session, which begins with the process id to show where a unit runs. On a ring each attempt is also a new
    node, since the place of the previous attempt is taken.
    """
    if isinstance(orders, RingOrders):
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        name = f"{orders.name}.retry-{attempt}" if attempt else orders.name
        asyncio.run(RingNode(replace(orders, member=replace(orders.member, name=name))).run())
    else:
        asyncio.run(NodeProcess(replace(orders, session=f"{os.getpid()}-{secrets.token_hex(8)}")).run())
    yield os.getpid()
