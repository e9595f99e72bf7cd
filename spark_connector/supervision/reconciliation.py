"""Compare the runs that an agent should have with those that it has, and derive what to do. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from peacefs.protocol.messages import RunOrder

#: A run: the query, and the run's number.
Key = tuple[str, str]


class Steps(NamedTuple):
    """Runs to be started, to be ended, and, because they have ended and the coordinator knows, to be forgotten.

    `take_over` are the runs that the process of a standby is given.
    """

    start: list[RunOrder]
    stop: list[Key]
    forget: list[Key]
    take_over: list[RunOrder]


def key_of(order: RunOrder) -> Key:
    """Return the key of a run: a query may have one that is to end while the next is to begin."""
    return order.query, order.run


def standby_of(order: RunOrder) -> Key:
    """Return the key of the standby whose process an order gives its run."""
    return order.query, order.takes_over_from


def reconcile(
    running: Collection[Key], ended: Collection[Key], orders: Iterable[RunOrder], standing_by: Collection[Key] = ()
) -> Steps:
    """A run that has ended is not started again: the coordinator decides on another.

    A query's next run waits until nothing is left of the one before, but for those of `running` that are
    `standing_by`: they have no run.
    """
    ordered = {key_of(order): order for order in orders}
    take_over = [
        order for key, order in ordered.items() if key not in running and standby_of(order) in standing_by
    ]
    taken = {standby_of(order) for order in take_over}
    busy = {key[0] for key in running if key not in standing_by or key in taken}
    return Steps(
        [
            order
            for key, order in ordered.items()
            if key not in running and key not in ended and (order.standby or order.query not in busy)
        ],
        [key for key in running if key not in ordered and key not in taken],
        [key for key in ended if key not in ordered],
        take_over,
    )
