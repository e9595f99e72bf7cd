"""Compare the runs that an agent should have with those that it has, and derive what to do. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from peacefs.protocol.messages import RunOrder

#: A run: the query, and the run's number.
Key = tuple[str, str]


class Steps(NamedTuple):
    """Runs to be started, to be ended, and, because they have ended and the coordinator knows, to be forgotten."""

    start: list[RunOrder]
    stop: list[Key]
    forget: list[Key]


def key_of(order: RunOrder) -> Key:
    """Return the key of a run: a query may have one that is to end while the next is to begin."""
    return order.query, order.run


def reconcile(running: Collection[Key], ended: Collection[Key], orders: Iterable[RunOrder]) -> Steps:
    """A run that has ended is not started again: the coordinator decides on another.

    A query's next run waits until nothing is left of the one before.
    """
    ordered = {key_of(order): order for order in orders}
    busy = {query for query, _run in running}
    return Steps(
        [
            order
            for key, order in ordered.items()
            if key not in running and key not in ended and order.query not in busy
        ],
        [key for key in running if key not in ordered],
        [key for key in ended if key not in ordered],
    )
