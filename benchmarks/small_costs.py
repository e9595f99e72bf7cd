"""Measure the processor time of one small file in each process, for two source trees in one alternating run.


    python -m benchmarks small_costs --against ../peacefs-before

Each tree runs a cluster of three datanodes and its own client. The trees take turns in many short series, of which
the cheapest counts, because other work on the machine can only add to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from .report import show

_TREE = Path(__file__).parents[1]
#: The work to measure, and the number of files of one short series.
_WORK: Final = {
    "write, 1 client": 40,
    "write, 16 clients": 160,
    "write_many": 256,
    "read, 16 clients": 160,
    "read_many": 256,
}


def main(*, quick: bool = False, against: Path | None = None) -> None:
    rounds = 2 if quick else 25
    trees = {"this tree": _TREE} if against is None else {"before": against.resolve(), "this tree": _TREE}
    rows: list[dict[str, object]] = []
    with contextlib.ExitStack() as stack:
        clusters = {name: stack.enter_context(_cluster(tree)) for name, tree in trees.items()}
        for what, files in _WORK.items():
            came: dict[str, list[dict[str, float]]] = {name: [] for name in clusters}
            for turn in range(rounds):
                order = list(clusters.items())
                for name, ask in order if turn % 2 else reversed(order):
                    came[name].append(ask(what, files))
            for name, turns in came.items():
                row: dict[str, object] = {"what": what, "tree": name}
                row["files/s"] = statistics.median(turn["files/s"] for turn in turns)
                for who in ("coordinator", "datanodes", "client"):
                    row[f"CPU ms/file: {who}"] = min(turn[who] for turn in turns)
                rows.append(row)
    show("small_costs", f"files of 1 KiB, 3 replicas, fsync; least CPU of {rounds} turns, alternating", rows)


@contextlib.contextmanager
def _cluster(tree: Path) -> Iterator[Callable[[str, int], dict[str, float]]]:
    """Run a cluster and a client of a tree. Yield a function that does some work and returns its costs."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("small_cost_worker.py")],
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    to, answers = process.stdin, process.stdout

    def ask(what: str, files: int) -> dict[str, float]:
        to.write(json.dumps([what, files]) + "\n")
        to.flush()
        costs: dict[str, float] = json.loads(answers.readline())
        return costs

    try:
        yield ask
    finally:
        to.close()
        process.wait()
