"""The judge of recovery: HA's Figure 2, the borders between its classes, and outputs that look similar."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence

import pytest

from benchmarks.dataflows.comparison import compare_outputs
from peacefs.dataflow.model.operator_class import Recovery

_FIGURE_2 = {
    Recovery.PRECISE: "t1 t2 t3 t4 t5 t6",
    Recovery.GAP: "t1 t2 t3 t5 t6",
    Recovery.REPEATING: "t1 t2 t3 t2 t3 t4 t5 t6",
    Recovery.CONVERGENT: "t1 t2 t3 t2' t3' t4 t5 t6",
    Recovery.DIVERGENT: "t1 t2 t3 t2' t3' t4' t5' t6'",
}


def judge(expected: str, observed: str) -> Recovery:
    """Judge rows such as t2 and t2', which have the same subject."""
    return compare_outputs(expected.split(), observed.split(), subject=lambda row: row.rstrip("'"))


@pytest.mark.parametrize("verdict", _FIGURE_2, ids=lambda verdict: verdict.value)
def test_verdicts_are_those_of_the_paper(verdict: Recovery) -> None:
    assert judge(_FIGURE_2[Recovery.PRECISE], _FIGURE_2[verdict]) is verdict


@pytest.mark.parametrize(
    ("observed", "verdict"),
    [
        ("t1 t2 t3 t4 t4", Recovery.REPEATING),
        ("t1 t1 t2 t3 t4", Recovery.REPEATING),
        ("t1 t2 t1 t2 t3 t2 t3 t4", Recovery.REPEATING),
        ("t1 t2 t3 t4 t1 t2 t3 t4", Recovery.REPEATING),
        # A single duplicate that differs is enough, even if later ones are right.
        ("t1 t2 t3 t3' t4", Recovery.CONVERGENT),
        ("t1 t2 t2' t2 t3 t4", Recovery.CONVERGENT),
        ("t1 t2 t3 t4 t4'", Recovery.CONVERGENT),
        # The first row that is not a duplicate must already be right.
        ("t1 t2 t3 t3' t4'", Recovery.DIVERGENT),
        ("t1 t2 t3 t4'", Recovery.DIVERGENT),
        # A wrong first row stays wrong, whatever follows.
        ("t1 t2' t2 t3 t4", Recovery.DIVERGENT),
        ("t1 t3 t2 t4", Recovery.DIVERGENT),
        ("t1 t2 t3 t4 t5", Recovery.DIVERGENT),
        # A loss is a loss, whatever else is repeated.
        ("t1 t2 t3", Recovery.GAP),
        ("t2 t3 t4", Recovery.GAP),
        ("t1 t2 t1 t2 t4", Recovery.GAP),
        ("t1 t2' t4'", Recovery.GAP),
        ("", Recovery.GAP),
    ],
)
def test_verdict_at_the_borders(observed: str, verdict: Recovery) -> None:
    assert judge("t1 t2 t3 t4", observed) is verdict


def test_verdict_on_nothing_is_precise_where_nothing_was_expected() -> None:
    assert judge("", "") is Recovery.PRECISE
    assert judge("", "t1") is Recovery.DIVERGENT


@pytest.mark.parametrize(
    ("observed", "verdict"),
    [
        ("a a b", Recovery.PRECISE),
        ("a a a b", Recovery.REPEATING),
        ("a a b a b", Recovery.REPEATING),
        ("a b", Recovery.GAP),
        ("a b b", Recovery.GAP),
    ],
)
def test_verdict_counts_rows_that_are_equal_without_a_failure(observed: str, verdict: Recovery) -> None:
    """A filter may output two equal rows: one of them is a loss, three are a repetition."""
    assert judge("a a b", observed) is verdict


def test_verdict_on_several_rows_of_one_subject() -> None:
    """An input row gives two output rows. After the first one was delivered, both are sent again."""
    expected = [("in 1", "x"), ("in 1", "y"), ("in 2", "x")]
    observed = [("in 1", "x"), ("in 1", "x"), ("in 1", "y"), ("in 2", "x")]
    assert compare_outputs(expected, observed, subject=lambda row: row[0]) is Recovery.REPEATING
    # The row that was not delivered yet is not a duplicate, and must be right.
    wrong = [("in 1", "x"), ("in 1", "x"), ("in 1", "z"), ("in 2", "x")]
    assert compare_outputs(expected, wrong, subject=lambda row: row[0]) is Recovery.DIVERGENT


# -- windows -----------------------------------------------------------------------------------------------


def window(name: str, *rows: int) -> tuple[str, tuple[int, ...]]:
    return name, rows


def judge_windows(
    expected: Sequence[tuple[str, tuple[int, ...]]],
    observed: Sequence[tuple[str, tuple[int, ...]]],
    *,
    aligned: bool,
    held_back: Sequence[Hashable] = (),
) -> Recovery:
    """Judge windows. `aligned` means that the input alone determines the windows of each row."""
    return compare_outputs(
        expected,
        observed,
        subject=lambda row: row[0],
        carries=lambda row: ((row[0], each) if aligned else each for each in row[1]),
        held_back=held_back,
    )


def test_verdict_on_a_lower_sum_is_gap() -> None:
    """A window that has lost a row exists, but its sum is too low."""
    expected = [window("w1", 1, 2), window("w2", 3, 4)]
    assert judge_windows(expected, [window("w1", 1, 2), window("w2", 4)], aligned=False) is Recovery.GAP


def test_verdict_on_overlapping_windows_is_gap_if_one_lacks_a_row_that_another_has() -> None:
    expected = [window("w1", 1, 2), window("w2", 2, 3)]
    observed = [window("w1", 1, 2), window("w2", 3)]
    assert judge_windows(expected, observed, aligned=True) is Recovery.GAP


def test_verdict_on_a_lower_duplicate_is_convergent() -> None:
    """The replay starts in the middle of a delivered window, which comes again with fewer rows."""
    expected = [window("w1", 1, 2), window("w2", 2, 3), window("w3", 3, 4)]
    observed = [window("w1", 1, 2), window("w1", 2), window("w2", 2, 3), window("w3", 3, 4)]
    assert judge_windows(expected, observed, aligned=True) is Recovery.CONVERGENT


def test_verdict_on_windows_that_are_cut_otherwise_is_divergent() -> None:
    """Windows of two rows start at another row after the failure: all rows are there, but in different windows."""
    expected = [window("2", 1, 2), window("4", 3, 4), window("6", 5, 6)]
    observed = [window("2", 1, 2), window("3", 2, 3), window("5", 4, 5)]
    # Row 6 is in a window that is still open when the stream ends.
    assert judge_windows(expected, observed, aligned=False, held_back=[5, 6]) is Recovery.DIVERGENT
    assert judge_windows(expected, observed, aligned=False) is Recovery.GAP
    # Held-back rows do not excuse the loss of other rows.
    lost = [window("2", 1, 2), window("5", 4, 5)]
    assert judge_windows(expected, lost, aligned=False, held_back=[5, 6]) is Recovery.GAP


# -- networks that are not deterministic ---------------------------------------------------------------------


def interleaved(rows: Sequence[str]) -> bool:
    """Return whether a union of a1 a2 a3 and b1 b2 can give these rows, each with its number in that union."""
    names = [row.split(":")[1] for row in rows]
    numbers = [row.split(":")[0] for row in rows]
    return (
        sorted(names) == ["a1", "a2", "a3", "b1", "b2"]
        and all(sorted(part) == part for part in ([n for n in names if n[0] == s] for s in "ab"))
        and numbers == [str(number + 1) for number in range(len(rows))]
    )


@pytest.mark.parametrize(
    ("observed", "verdict"),
    [
        ("1:a1 2:b1 3:a2 4:b2 5:a3", Recovery.PRECISE),
        # Any other interleaving is as good, if some run can give it.
        ("1:a1 2:a2 3:b1 4:b2 5:a3", Recovery.PRECISE),
        ("1:a1 2:b1 3:a2 2:b1 3:a2 4:a3 5:b2", Recovery.REPEATING),
        ("1:a1 2:b1 3:a2 2:a2 3:b1 4:a3 5:b2", Recovery.CONVERGENT),
        # a2 was delivered with number 3, so no run can give number 3 to b2.
        ("1:a1 2:b1 3:a2 2:b1 3:b2 4:a2 5:a3", Recovery.DIVERGENT),
        ("1:a2 2:a1 3:b1 4:b2 5:a3", Recovery.DIVERGENT),
        ("1:a1 2:b1 3:a2 4:b2", Recovery.GAP),
    ],
)
def test_verdict_on_a_union_is_about_all_runs_that_there_can_be(observed: str, verdict: Recovery) -> None:
    expected = ["1:a1", "2:b1", "3:a2", "4:b2", "5:a3"]
    found = compare_outputs(
        expected, observed.split(), subject=lambda row: row.split(":")[1], achievable=interleaved
    )
    assert found is verdict


# -- random failures ------------------------------------------------------------------------------------------


def test_verdict_holds_for_replays_made_at_random() -> None:
    """Random failures and replays of windows are constructed for a known verdict, which the judge must find."""
    for seed in range(300):
        chance = random.Random(seed)
        rows = [f"t{number}" for number in range(chance.randint(3, 9))]
        failed = chance.randint(1, len(rows) - 1)
        replayed = chance.randint(0, failed - 1)
        duplicates = rows[replayed:failed]
        head, tail = rows[:failed], rows[failed:]
        made = {
            Recovery.PRECISE: head + tail,
            Recovery.REPEATING: head + duplicates + tail,
            Recovery.CONVERGENT: [*head, f"{duplicates[0]}'", *duplicates[1:], *tail],
            Recovery.DIVERGENT: [*head, *duplicates, f"{tail[0]}'", *tail[1:]],
            Recovery.GAP: head + duplicates + tail[1:],
        }
        for verdict, observed in made.items():
            assert judge(" ".join(rows), " ".join(observed)) is verdict, (seed, observed)
