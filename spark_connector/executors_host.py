"""Dataflow nodes on Spark's executors: each node a task that Spark places, ships code to, and starts again.

    host = SparkExecutors(spark, nodes=3, checkpoints=PeaceCheckpoints("localhost:9870", "/checkpoints/logins"))
    with host.start(query.network(), SGuard(interval_s=1), sources, sinks) as run:
        run.wait()

A node is a job of one task, in a thread and a job group of the driver. If its executor dies Spark starts the task
again, which takes seconds; what ran there is taken over at once by the nodes that are left. Sources, sinks and the
controller are in the driver. Nodes speak on loopback: the executors have to be on the driver's machine.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from peacefs.dataflow.core.node import Bounds
from peacefs.dataflow.hosts.checkpoint_store import UnitCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun, RunOptions
from peacefs.dataflow.hosts.interface import Sink, Source
from peacefs.dataflow.hosts.node_process import NodeOrders, NodeProcess
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.techniques.interface import Technique
from peacefs.protocol import limits
from peacefs.protocol.errors import StartupError


class SparkExecutors:
    """A host of so many tasks. Spark needs a core for each; executors of one core can be killed one by one."""

    def __init__(
        self,
        spark: Any,
        nodes: int,
        checkpoints: UnitCheckpoints,
        *,
        bounds: Bounds | None = None,
        node_timeout_s: float = limits.dataflow_node_timeout_s,
    ) -> None:
        self._context = spark.sparkContext
        failures = int(self._context.getConf().get("spark.task.maxFailures", "4"))
        if failures < limits.dataflow_task_failures_min:
            raise StartupError(
                f"spark.task.maxFailures is {failures}, and a node that is lost so often would end the query: "
                f"set it to {limits.dataflow_task_failures_min} or more"
            )
        self._nodes = nodes
        self._checkpoints = checkpoints
        self._bounds = bounds or Bounds()
        self._node_timeout_s = node_timeout_s

    def start(
        self,
        network: Network,
        technique: Technique,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        options: RunOptions | None = None,
    ) -> EdgeRun:
        return EdgeRun(
            network,
            technique,
            sources,
            sinks,
            nodes=self._nodes,
            launcher=_Jobs(self._context),
            checkpoints=self._checkpoints,
            bounds=self._bounds,
            node_timeout_s=self._node_timeout_s,
            options=options,
        )


class _Jobs:
    """A job for each node. Python's threads are Spark's threads, so that each has a job group of its own."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._groups: dict[str, str] = {}
        self._lock = threading.Lock()
        self._closed = False

    def run_node(self, orders: NodeOrders) -> None:
        group = f"dataflow {orders.network.name} {orders.name} {secrets.token_hex(4)}"
        with self._lock:
            if self._closed:
                return
            self._groups[orders.name] = group
        self._context.setJobGroup(group, f"node {orders.name} of dataflow {orders.network.name}", True)
        try:
            self._context.parallelize([0], 1).mapPartitions(lambda _: _run_task(orders)).collect()
        except Exception:
            # A job that was cancelled, since the query is over, has not failed.
            if not self._closed:
                raise

    def close(self) -> None:
        with self._lock:
            self._closed = True
            groups = list(self._groups.values())
        # Nodes end by themselves when they lose the driver; a task that has not begun is never to begin.
        for group in groups:
            self._context.cancelJobGroup(group)


def _run_task(orders: NodeOrders) -> Iterator[int]:
    """Run a node in a task. Each attempt is another session, so that the controller knows that memory is gone.

    The session begins with the number of the process, for those who want to know where a unit is.
    """
    asyncio.run(NodeProcess(replace(orders, session=f"{os.getpid()}-{secrets.token_hex(8)}")).run())
    yield os.getpid()
