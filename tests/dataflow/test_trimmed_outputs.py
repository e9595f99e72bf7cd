"""When an output drops rows: by acknowledgement level, and at a standby by its own row numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.dataflows import arbitrary, input_rows, repeatable

from peacefs.dataflow.core.bounds import Bounds, BufferBounds
from peacefs.dataflow.core.messages import Ack, Data, Subscribed
from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.core.unit_output import make_output
from peacefs.dataflow.core.units.start import UnitStart
from peacefs.dataflow.core.units.unit import HAUnit
from peacefs.dataflow.hosts.checkpoint_store import MemoryCheckpoints
from peacefs.dataflow.hosts.unit_states import UnitStates
from peacefs.dataflow.model.batches import Batch, Position
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.active_standby import ActiveStandby
from peacefs.dataflow.techniques.passive_standby import PassiveStandby
from peacefs.dataflow.techniques.sguard import SGuard
from peacefs.dataflow.techniques.upstream_backup import UpstreamBackup

_BOUNDS = Bounds(page_bytes=8192, state_bytes_max=1 << 20)


@pytest.mark.parametrize(
    "technique",
    [
        UpstreamBackup,
        lambda: UpstreamBackup(adjacent_failures=False),
        lambda: SGuard(interval_s=1),
        PassiveStandby,
    ],
    ids=["upstream backup", "upstream backup of the paper", "sguard", "passive standby"],
)
def test_rows_that_were_received_stay_until_they_are_safe(technique: Callable[[], Technique]) -> None:
    """A consumer that has rows only in memory loses them if it dies, and requests them again."""
    network = repeatable().network
    output = make_output("in", QueryRecovery(network, technique()))
    for rows in input_rows(1, batches=2, size=4):
        output.emit(rows)
    (consumer,) = output.destinations

    def held_after(level: RowStage, number: int) -> list[tuple[int, int]]:
        output.ack(Ack("in", consumer, 1, level, Position(0, number)))
        return [(batch.first, batch.last) for batch in output.buffer.held()]

    assert held_after(RowStage.RECEIVED, 8) == [(1, 4), (5, 8)]
    assert held_after(RowStage.SAFE, 4) == [(5, 8)]
    assert held_after(RowStage.SAFE, 8) == []


class Replica:
    """One of the two replicas of a union, with its own order of inputs. The test passes rows in."""

    def __init__(self, incarnation: int) -> None:
        network = arbitrary().network
        recovery = QueryRecovery(network, ActiveStandby(precise=False))
        states = UnitStates(MemoryCheckpoints(), _BOUNDS, recovery, clock=lambda: 0.0, in_background=False)
        plan, start = network.unit("first"), UnitStart(incarnation, slot=incarnation - 1)
        bounds = BufferBounds(1 << 30, 1 << 30, 1 << 30)
        self.unit = HAUnit(plan, recovery, states.new("first"), start, bounds)
        (self.stream,) = self.unit.outputs

    def process(self, source: str, first_value: int) -> None:
        each = self.unit.inputs[source]
        asked = each.subscribe(0.0, 1, 1.0)
        assert asked is not None
        each.subscribed(Subscribed(source, asked.subscription, Position(0, 0), 0))
        (rows,) = input_rows(1, batches=1, size=4, first=first_value)
        each.accept(Data(source, asked.subscription, Batch(1, rows)))
        self.unit.process_all()

    def values(self) -> list[int]:
        held = self.unit.outputs[self.stream].buffer.held()
        return [value for batch in held for value in batch.rows["value"].to_pylist()]


def test_active_standby_drops_rows_by_what_they_were_made_from_and_not_by_the_numbers_of_its_primary() -> None:
    """Rows 1 to 4 of the primary are rows 5 to 8 here, and rows 1 to 4 here are not yet delivered."""
    primary, standby = Replica(1), Replica(2)
    primary.process("in", 0)
    primary.process("more", 100)
    standby.process("more", 100)
    standby.process("in", 0)
    assert primary.values() == [0, 1, 2, 3, 100, 101, 102, 103]
    assert standby.values() == [100, 101, 102, 103, 0, 1, 2, 3]

    def consumers_have(number: int) -> list[int]:
        made_from = primary.unit.trimmed.made_from(primary.stream, number)
        standby.unit.trimmed.trim(standby.stream, number, made_from)
        return standby.values()

    assert {100, 101, 102, 103} <= set(consumers_have(4)), "rows that consumers do not have"
    assert consumers_have(8) == []
