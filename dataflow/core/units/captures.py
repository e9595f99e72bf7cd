"""Captures of a unit: its state and its edges at one moment, for checkpoints and for copies to a standby."""

from __future__ import annotations

from collections.abc import Mapping

from peacefs.dataflow.core.ha_input import HAInput
from peacefs.dataflow.core.ha_output import HAOutput
from peacefs.dataflow.core.messages import sequence_of
from peacefs.dataflow.limits import dataflow_copy_number_bits as copy_number_bits
from peacefs.dataflow.unit_state.interface import StateCapture, UnitState

from .stored_edges import describe


class UnitCaptures:
    """Captures one start of a unit between two events, and knows what the last checkpoint lacks."""

    def __init__(
        self,
        incarnation: int,
        state: UnitState,
        inputs: Mapping[str, HAInput],
        outputs: Mapping[str, HAOutput],
        event: int,
    ) -> None:
        self._incarnation, self._state = incarnation, state
        self._inputs, self._outputs = inputs, outputs
        #: The last event that the latest captured checkpoint contains.
        self.event = event
        # Bytes of each input that the last checkpoint covers.
        self._bytes: dict[str, int] = {}
        self._copies = 0
        #: True while a copy for a standby is being made.
        self.copying = False

    def checkpoint(self, number: int, event: int) -> StateCapture:
        """Capture the unit as it is now, for a checkpoint to be written while the unit continues."""
        self._bytes = {stream: each.processed_bytes for stream, each in self._inputs.items()}
        self.event = event
        return self._capture(sequence_of((self._incarnation, number)), event)

    def copy(self, event: int, *, full: bool, with_rows: bool) -> tuple[int, StateCapture]:
        """Capture the unit as it is now for its standby, and return the number of the copy and the capture.

        `full`: include pages that did not change since the last copy. `with_rows`: include the rows of outputs,
        for a unit whose state does not contain them.
        """
        self._copies, self.copying = self._copies + 1, True
        for output in self._outputs.values() if with_rows else ():
            output.keep_rows()
        capture = self._capture((self._incarnation << copy_number_bits) + self._copies, event, full=full)
        for output in self._outputs.values() if with_rows else ():
            output.drop_rows()
        return self._copies, capture

    @property
    def lacking_bytes(self) -> int:
        """Bytes of the rows that the last checkpoint lacks, for the input that lacks most."""
        captured = self._bytes
        since = max(each.processed_bytes - captured.get(name, 0) for name, each in self._inputs.items())
        uncovered = self._state.uncovered_rows
        if not uncovered:
            return since
        processed = sum(each.processed_bytes for each in self._inputs.values())
        rows = sum(each.processed.number for each in self._inputs.values())
        return since + processed * uncovered // max(1, rows)

    def hurry(self) -> None:
        """Make the next capture cover as much as possible."""
        self._state.hurry()

    def _capture(self, sequence: int, event: int, *, full: bool = False) -> StateCapture:
        edges = describe(self._inputs, self._outputs)
        return self._state.capture(sequence, {**edges, "event": event}, full=full)
