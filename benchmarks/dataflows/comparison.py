"""Classifies a recovery: compares the output of a run with a failure with runs without one (HA, section 3.1).

HA's definitions, in the order in which they are tried:

- precise recovery: a run without a failure could give the same output;
- gap recovery: the effect of some input row is lost;
- rollback recovery: nothing is lost, but rows may be repeated. A row is a *duplicate* if the effects of its input
  rows were in the output before. The recovery is *repeating* if the output without its duplicates is that of a run
  without a failure, and each duplicate equals the row that it repeats. It is *convergent* if some duplicates
  differ from that row. It is *divergent* if the output without its duplicates is that of no such run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TypeVar

from peacefs.dataflow.model.operator_class import Recovery

_Row = TypeVar("_Row", bound=Hashable)


def compare_outputs(
    expected: Sequence[_Row],
    observed: Sequence[_Row],
    *,
    subject: Callable[[_Row], Hashable] = lambda row: row,
    carries: Callable[[_Row], Iterable[Hashable]] | None = None,
    held_back: Collection[Hashable] = (),
    achievable: Callable[[Sequence[_Row]], bool] | None = None,
) -> Recovery:
    """Return the kind of recovery that `observed` shows. `expected` is the output of a run without a failure.

    `subject` returns what a row is about, such as a window and a key, or an input row. A row is a duplicate if an
    earlier row has the same subject, whether the rows are equal or not.

    `carries` returns the effects of the input that a row shows: input rows or, if the input alone determines the
    windows, pairs of window and input row. Without it, subjects are used as effects. A query needs it if its
    windows may be cut differently after a failure; otherwise a different cut would look like a loss. `held_back`
    are effects that may be missing at the end of a run, such as those of an open window.

    `achievable` returns whether a run without a failure can have an output. Nondeterministic networks need it,
    because they have several correct outputs. For deterministic networks, `expected` is the only one.
    """
    if list(observed) == list(expected) or (achievable is not None and achievable(observed)):
        return Recovery.PRECISE
    if _lost(expected, observed, subject, carries, frozenset(held_back)):
        return Recovery.GAP
    if achievable is None:
        alike = _without_duplicates(expected, observed, subject)
    else:
        alike = _first_of_each(achievable, observed, subject)
    if alike is None:
        return Recovery.DIVERGENT
    return Recovery.REPEATING if alike else Recovery.CONVERGENT


def _lost(
    expected: Iterable[_Row],
    observed: Iterable[_Row],
    subject: Callable[[_Row], Hashable],
    carries: Callable[[_Row], Iterable[Hashable]] | None,
    held_back: Collection[Hashable],
) -> bool:
    if carries is None:
        # Two rows with the same subject are two effects.
        return bool(Counter(map(subject, expected)) - Counter(map(subject, observed)))
    shown = {effect for row in observed for effect in carries(row)}
    return any(effect not in shown and effect not in held_back for row in expected for effect in carries(row))


def _without_duplicates(
    expected: Sequence[_Row], observed: Sequence[_Row], subject: Callable[[_Row], Hashable]
) -> bool | None:
    """Return whether all duplicates equal earlier rows; None if the other rows are not `expected`.

    Rows are matched with `expected` as early as possible, so that as many rows as possible can be duplicates.
    """
    matched = 0
    alike = True
    subjects: set[Hashable] = set()
    rows: set[_Row] = set()
    for row in observed:
        if matched < len(expected) and row == expected[matched]:
            matched += 1
            subjects.add(subject(row))
            rows.add(row)
        elif subject(row) in subjects:
            alike = alike and row in rows
        else:
            return None
    return alike if matched == len(expected) else None


def _first_of_each(
    achievable: Callable[[Sequence[_Row]], bool],
    observed: Sequence[_Row],
    subject: Callable[[_Row], Hashable],
) -> bool | None:
    """Return whether all rows equal the first one of their subject; None if no run gives these first rows."""
    first: dict[Hashable, _Row] = {}
    alike = True
    for row in observed:
        known = first.setdefault(subject(row), row)
        alike = alike and known == row
    return alike if achievable(list(first.values())) else None
