"""Names of a unit's two replicas as consumers, and which of them producers keep rows for.

A pair has two *slots*. Each start of a replica takes one of them, whatever its role is. A replica that takes over
thus stays the same consumer, and its producers notice nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .messages import UnitPlacement

_SECOND = "replica 2 of "


def replica(unit: str, slot: int) -> str:
    """Return the name under which a replica reads streams. In the first slot, this is the unit's name."""
    return f"{_SECOND}{unit}" if slot else unit


def slot_of(consumer: str) -> int:
    """Return the slot of a consumer named by `replica`; 0 for any other consumer, such as a sink."""
    return int(consumer.startswith(_SECOND))


def unit_of(consumer: str) -> str:
    """Return the unit of a consumer named by `replica`; the unchanged name of any other consumer."""
    return consumer.removeprefix(_SECOND)


def both(consumers: Iterable[str], units: Iterable[str]) -> tuple[str, ...]:
    """Return the consumers, with both replicas for those in `units`."""
    paired = set(units)
    return tuple(
        name
        for consumer in consumers
        for name in ((replica(consumer, 0), replica(consumer, 1)) if consumer in paired else (consumer,))
    )


def place_of(consumer: str, placed: Mapping[str, UnitPlacement]) -> tuple[str, int] | None:
    """Return the node and the incarnation of a consumer (a replica or a sink); None if it has no node."""
    unit = unit_of(consumer)
    where = placed.get(unit)
    if where is None or where.node is None:
        return None
    if consumer == replica(unit, where.slot):
        return where.node, where.incarnation
    standby = where.standby
    return None if standby is None else (standby.node, standby.incarnation)


def awaited(
    destinations: Sequence[str], placed: Mapping[str, UnitPlacement], incarnations: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the destinations for which rows are kept: all except replicas that do not exist now.

    `incarnations` are those of replicas that have requested rows. A replica with a later incarnation than the
    placement knows was placed by a newer placement.
    """
    return tuple(each for each in destinations if _is_awaited(each, placed, incarnations.get(each, 0)))


def _is_awaited(destination: str, placed: Mapping[str, UnitPlacement], incarnation: int) -> bool:
    unit = unit_of(destination)
    where = placed.get(unit)
    if where is None or where.node is None or incarnation > where.starts:
        return True
    slots = {where.slot} if where.standby is None else {0, 1}
    return destination in {replica(unit, slot) for slot in slots}
