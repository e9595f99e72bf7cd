"""Amnesia: a lost unit begins empty, and continues with the rows that arrive from then on (HA, section 4)."""

from __future__ import annotations

from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import ALWAYS_GAP, Numbering, Technique


def Amnesia() -> Technique:
    """Keep nothing. Rows for a unit that is away are dropped, so that nothing waits for it."""
    return Technique(name="amnesia", retention=RowStage.SENT, numbering=Numbering.ANEW, gives=ALWAYS_GAP)
