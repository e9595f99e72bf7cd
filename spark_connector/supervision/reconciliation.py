"""Compare the runs that an agent should have with those that it has, and derive the steps. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from peacefs.protocol.messages import RunOrder

#: A run: the query, and the run's number.
Key = tuple[str, str]


class Steps(NamedTuple):
    """The runs to start, to stop, and to forget (ended, and the coordinator knows).

    `take_over` are runs that are given to the processes of standbys.
    """

    start: list[RunOrder]
    stop: list[Key]
    forget: list[Key]
    take_over: list[RunOrder]


def key_of(order: RunOrder) -> Key:
    """Return the key of a run. A query may have two runs, when one is ending and the next is ordered."""
    return order.query, order.run


def standby_of(order: RunOrder) -> Key:
    """Return the key of the standby whose process takes over the ordered run."""
    return order.query, order.takes_over_from


def reconcile(
    running: Collection[Key], ended: Collection[Key], orders: Iterable[RunOrder], standing_by: Collection[Key] = ()
) -> Steps:
    """Return the steps. A run that has ended is not restarted: the coordinator decides about a new run.

    A query's next run waits until its previous run is gone. Standbys (`standing_by`) have no run and do not count.
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
