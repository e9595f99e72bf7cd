"""The judge of recovery: the output of a run with a failure, compared with one without (HA, section 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from .model.operator_class import Recovery

_Row = TypeVar("_Row", bound=Hashable)


def compare_outputs(
    expected: Sequence[_Row],
    observed: Sequence[_Row],
    *,
    subject: Callable[[_Row], Hashable] = lambda row: row,
    carries: Callable[[_Row], Iterable[Hashable]] | None = None,
) -> Recovery:
    """Return the kind of recovery that `observed` shows, where `expected` is the output without a failure.

    `subject` says what a row speaks of, as a window and a key, or an input row: rows of one subject are
    duplicates, whether they say the same or not. `carries` says which input rows had an effect on a row; without
    it, the subjects stand for them.

    - precise: the same rows in the same order;
    - gap: the effect of some input row is lost;
    - repeating: the same without duplicates, and those are equal to what they repeat;
    - convergent: the same without duplicates, of which some say something else;
    - divergent: nothing is lost, and what remains without duplicates is not what a run without a failure gives.
    """
    if list(observed) == list(expected):
        return Recovery.PRECISE
    if _effects(expected, carries or (lambda row: (subject(row),))) - _effects(
        observed, carries or (lambda row: (subject(row),))
    ):
        return Recovery.GAP
    if _first_of_each(observed, subject) != list(expected):
        return Recovery.DIVERGENT
    return Recovery.REPEATING if set(observed) == set(expected) else Recovery.CONVERGENT


def _effects(rows: Iterable[_Row], carries: Callable[[_Row], Iterable[Hashable]]) -> set[Hashable]:
    return {effect for row in rows for effect in carries(row)}


def _first_of_each(rows: Iterable[_Row], name: Callable[[_Row], Hashable]) -> list[_Row]:
    seen: set[Hashable] = set()
    first = []
    for row in rows:
        if name(row) not in seen:
            seen.add(name(row))
            first.append(row)
    return first
