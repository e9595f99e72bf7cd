"""The judge of recovery gives the verdicts of HA's Figure 2."""

from __future__ import annotations

import pytest

from peacefs.dataflow.comparison import compare_outputs
from peacefs.dataflow.model.operator_class import Recovery

_FIGURE_2 = {
    Recovery.PRECISE: "t1 t2 t3 t4 t5 t6",
    Recovery.GAP: "t1 t2 t3 t5 t6",
    Recovery.REPEATING: "t1 t2 t3 t2 t3 t4 t5 t6",
    Recovery.CONVERGENT: "t1 t2 t3 t2' t3' t4 t5 t6",
    Recovery.DIVERGENT: "t1 t2 t3 t2' t3' t4' t5' t6'",
}


@pytest.mark.parametrize("verdict", _FIGURE_2, ids=lambda verdict: verdict.value)
def test_verdicts_are_those_of_the_paper(verdict: Recovery) -> None:
    expected = _FIGURE_2[Recovery.PRECISE].split()
    observed = _FIGURE_2[verdict].split()
    assert compare_outputs(expected, observed, subject=lambda row: row[:2]) is verdict


def test_verdict_on_another_order_is_divergent() -> None:
    assert compare_outputs(["a", "b"], ["b", "a"]) is Recovery.DIVERGENT


def test_verdict_on_a_lower_sum_is_gap_when_input_rows_are_known() -> None:
    """A window that has lost a row is there, and says less."""
    expected = [("w1", (1, 2)), ("w2", (3, 4))]
    observed = [("w1", (1, 2)), ("w2", (4,))]
    verdict = compare_outputs(expected, observed, subject=lambda row: row[0], carries=lambda row: row[1])
    assert verdict is Recovery.GAP
