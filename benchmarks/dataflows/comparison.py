"""The judge of recovery: the output of a run with a failure, compared with runs without (HA, section 3.1).

HA's definitions, in the order in which they are tried:

- precise recovery: the output is one that a run without a failure gives;
- gap recovery: the effect of some input row is lost;
- rollback recovery: nothing is lost, and rows may come again. A row is a *duplicate* if the effects of its input
  rows have left before. Without duplicates the output is that of a run without a failure, and each duplicate is
  equal to a row that it repeats (repeating), or some say something else (convergent); or it is the output of no
  such run (divergent).
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
    """Return the kind of recovery that `observed` shows, where `expected` is an output without a failure.

    `subject` says what a row speaks of, as a window and a key, or an input row: a row whose subject was spoken of
    before is a duplicate, whether it says the same or not.

    `carries` says which effects of the input a row shows: input rows, or pairs of window and input row where the
    input alone decides which windows there are. Without it, subjects stand for effects, so that a query whose
    windows may be cut otherwise after a failure needs it: else another cut is taken for a loss. `held_back` are
    effects that a run may end without showing, as those of a window that is still open.

    `achievable` says whether a run without a failure can give an output. Networks that are not deterministic need
    it, since any such run will do; for the others `expected` is the only one.
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
        # Two rows of one subject are two effects.
        return bool(Counter(map(subject, expected)) - Counter(map(subject, observed)))
    shown = {effect for row in observed for effect in carries(row)}
    return any(effect not in shown and effect not in held_back for row in expected for effect in carries(row))


def _without_duplicates(
    expected: Sequence[_Row], observed: Sequence[_Row], subject: Callable[[_Row], Hashable]
) -> bool | None:
    """Return whether all duplicates are equal to rows before them; None if the others are not `expected`.

    Rows are matched as early as possible, which leaves the most to be duplicates of.
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
    """Return whether all rows equal the first of their subject; None if no run gives the first ones."""
    first: dict[Hashable, _Row] = {}
    alike = True
    for row in observed:
        known = first.setdefault(subject(row), row)
        alike = alike and known == row
    return alike if achievable(list(first.values())) else None
