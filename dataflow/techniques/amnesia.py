"""Amnesia: a unit that is lost begins empty, and goes on with the rows that come then (HA, section 4)."""

from __future__ import annotations

from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import ALWAYS_GAP, Numbering, Technique


def Amnesia() -> Technique:
    """Keep nothing: rows for a unit that is away are dropped, so that nothing waits for it."""
    return Technique(name="amnesia", retention=RowStage.SENT, numbering=Numbering.ANEW, gives=ALWAYS_GAP)
