"""The verdict on an output: lost, repeated and wrong rows, and HA's kind of recovery."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.dataflows.comparison import compare_outputs
from peacefs.dataflow.model.operator_class import Recovery

from .queries import Row, SideQuery

_Row = TypeVar("_Row", bound=Hashable)


@dataclass(frozen=True)
class Verdict:
    """Numbers of output rows. `wrong` are rows that no failure-free run can have."""

    lost: int
    repeated: int
    wrong: int
    kind: Recovery


def judge(expected: Sequence[_Row], observed: Sequence[_Row], subject: Callable[[_Row], Hashable]) -> Verdict:
    """Compare outputs. `subject` identifies a row, for instance by window and key."""
    seen = {subject(row) for row in observed}
    return Verdict(
        lost=len({subject(row) for row in expected} - seen),
        repeated=len(observed) - len(seen),
        wrong=len(set(observed) - set(expected)),
        kind=compare_outputs(expected, observed, subject=subject),
    )


def judge_by_key(
    query: SideQuery, expected: Sequence[Row], observed: Sequence[Row], *, latest: bool = False
) -> Verdict:
    """Compare rows key by key, because no technique promises an order between keys.

    With `latest`, of rows of one key that are made together only the last one is output, as in Spark's update
    mode. So the others do not count as lost.
    """
    if latest:
        last = {row[0]: row for row in expected}
        seen = {query.subject(row) for row in observed}
        expected = [row for row in expected if row is last[row[0]] or query.subject(row) in seen]
    return judge(expected, sorted(observed, key=lambda row: row[0]), query.subject)
