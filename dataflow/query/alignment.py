"""Which unions must be aligned: those whose rows reach an operator that judges rows by their times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from peacefs.dataflow.operators.aligned_union import AlignedUnion
from peacefs.dataflow.operators.row_operators import Union

from .network import OperatorNode


def align_unions(operators: Iterable[OperatorNode]) -> tuple[OperatorNode, ...]:
    """Return the operators, inputs first as given, with aligned unions where necessary."""
    made: list[OperatorNode] = []
    # Streams that an operator which judges times reads, directly or through other operators.
    judged: set[str] = set()
    for node in reversed(tuple(operators)):
        if node.specification.judges_times or node.name in judged:
            judged.update(node.inputs)
        if isinstance(node.specification, Union) and node.name in judged:
            node = replace(node, specification=AlignedUnion(node.specification.idle_us))
        made.append(node)
    return tuple(reversed(made))
