"""Count what Python does for a call on names in each layer of the coordinator, for two source trees.

    python -m benchmarks request_steps --against ../peacefs-before

A step is one executed bytecode. Other work on the machine does not change the counts, so small differences show
that processor time hides. `request_path` measures the processor time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from .report import show

_TREE = Path(__file__).parents[1]
_LAYERS = ("frames", "door", "operations", "rules", "rows and log", "else")


def main(*, quick: bool = False, against: Path | None = None) -> None:
    trees = {"this tree": _TREE} if against is None else {"before": against.resolve(), "this tree": _TREE}
    counted = {name: _counted(tree) for name, tree in trees.items()}
    rows: list[dict[str, object]] = []
    for what in counted["this tree"]:
        for name, found in counted.items():
            steps = found[what]
            row: dict[str, object] = {"what": what, "tree": name}
            row["steps"] = round(sum(steps.get(layer, 0) for layer in _LAYERS))
            row |= {layer: round(steps.get(layer, 0)) for layer in _LAYERS}
            rows.append({**row, "functions": round(steps["functions"])})
    show("request_steps", "bytecodes per call on names, by layer, and Python functions entered", rows)


def _counted(tree: Path) -> dict[str, dict[str, float]]:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("request_steps_worker.py")],
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, float]] = json.loads(done.stdout)
    return found
