"""Nodes as tasks on Spark's executors, each in a JVM of its own, which is killed with its Python worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peacefs.dataflow.hosts.checkpoint_store import UnitCheckpoints
from peacefs.dataflow.hosts.edge_run import EdgeRun
from peacefs.dataflow.hosts.ring_run import RingRun
from peacefs.spark_connector.demo.scratch import scratch_environment
from peacefs.spark_connector.executors_host import SparkExecutors
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.local_executors import executor_of, session_of_executors

from .contest import NODE_TIMEOUT_S, NODES, NodeHost


@contextmanager
def spark_with_executors(
    directory: Path, *, cores: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """Start a Spark with one executor per node, and stop it at the end."""
    directory.mkdir(exist_ok=True)
    os.environ.update(
        java_environment(find_java(), directory / "java"),
        **scratch_environment(directory / "scratch"),
        SPARK_LOCAL_IP="127.0.0.1",
        PYSPARK_PYTHON=sys.executable,
    )
    spark = session_of_executors(directory, NODES, "side by side", cores=cores, settings=settings)
    try:
        yield spark
    finally:
        spark.stop()


class Executors(NodeHost):
    """Nodes on the executors of a session."""

    def __init__(self, spark: Any, checkpoints: UnitCheckpoints) -> None:
        super().__init__(SparkExecutors(spark, NODES, checkpoints, node_timeout_s=NODE_TIMEOUT_S))

    def process_of(self, run: EdgeRun | RingRun, unit: str, node: str) -> int:
        if isinstance(run, EdgeRun):
            session = run.session_of(unit)
            worker = None if session is None else int(session.partition("-")[0])
        else:
            worker = run.process_of(node)
        assert worker is not None, f"{node} runs nowhere"
        return executor_of(worker)
