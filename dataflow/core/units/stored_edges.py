"""The edges of a unit as stored in its checkpoints: positions of inputs, and who has which rows of its outputs.

The rows of outputs are in the state, like those of operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from peacefs.dataflow.core.ha_input import HAInput
from peacefs.dataflow.core.ha_output import HAOutput, OutputContents
from peacefs.dataflow.core.output_buffer import Mark
from peacefs.dataflow.model.batches import Position
from peacefs.dataflow.model.row_stage import RowStage


@dataclass(frozen=True)
class InputContents:
    processed: Position
    ended: bool


@dataclass(frozen=True)
class UnitEdges:
    inputs: Mapping[str, InputContents]
    outputs: Mapping[str, OutputContents]


def describe(inputs: Mapping[str, HAInput], outputs: Mapping[str, HAOutput]) -> dict[str, Any]:
    """Return the edges as lists of numbers and names."""
    return {
        "inputs": {name: [*each.processed, each.ended] for name, each in inputs.items()},
        "outputs": {
            name: [contents.lineage, contents.ended, contents.marks]
            for name, contents in ((name, output.contents()) for name, output in outputs.items())
        },
    }


def read(described: Mapping[str, Any]) -> UnitEdges:
    """Return the edges from the result of `describe`, after that was stored and loaded."""
    inputs = {
        name: InputContents(Position(lineage, number), ended)
        for name, (lineage, number, ended) in described["inputs"].items()
    }
    outputs = {
        name: OutputContents(
            lineage,
            ended,
            tuple(
                (Mark(RowStage(level), destination), tuple((first, last) for first, last in ranges))
                for (level, destination), ranges in marks
            ),
        )
        for name, (lineage, ended, marks) in described["outputs"].items()
    }
    return UnitEdges(inputs, outputs)
