"""Start a query on nodes that a launcher provides: as units with a controller, or as a ring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cloudpickle

from peacefs.dataflow.connectors.interface import CommitsRows
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.model.numbers import is_number
from peacefs.dataflow.model.reasons import reason_of
from peacefs.dataflow.query.network import Network
from peacefs.dataflow.recovery.technique import Technique
from peacefs.dataflow.techniques.admission import admit
from peacefs.protocol.errors import InvalidQuery

from .edge_run import EdgeRun, RunOptions
from .interface import Sink, Source
from .node_pool import NodePool
from .ring_run import RingRun


def start_query(
    network: Network,
    technique: Technique,
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    pool: NodePool,
    options: RunOptions | None,
) -> EdgeRun | RingRun:
    """Start a query. If it cannot run, raises InvalidQuery or StartupError before anything starts."""
    options = options or RunOptions()
    _check(pool, options)
    admit(network, technique, options.guarantee)
    _check_functions(network)
    if technique.ring is not None:
        _check_ring_sinks(sinks)
        return RingRun(network, technique, sources, sinks, pool, options)
    return EdgeRun(network, technique, sources, sinks, pool, options)


def _check_functions(network: Network) -> None:
    """Raise InvalidQuery if a function cannot be sent to nodes."""
    for node in network.operators:
        try:
            cloudpickle.dumps(node.specification)
        except Exception as error:  # whatever the objects that it refers to raise
            raise InvalidQuery(
                f"operator {node.name!r} cannot be sent to nodes: {reason_of(error)}; its function must not refer "
                "to locks, open files or connections: make them in the function"
            ) from error


def _check_ring_sinks(sinks: Mapping[str, Sink]) -> None:
    for name, sink in sinks.items():
        if isinstance(sink, CommitsRows):
            raise InvalidQuery(
                f"sink {name!r} commits rows with their numbers, and a peer ring does not number them: use "
                "another technique, as SGuard(interval_s=1)"
            )


def _check(pool: NodePool, options: Any) -> None:
    # Users pass these values to a host, so they can have any type.
    checkpoints: Any = pool.checkpoints
    bounds: Any = pool.bounds
    node_timeout_s: Any = pool.node_timeout_s
    if not callable(getattr(checkpoints, "recorded", None)):
        raise InvalidQuery(
            "checkpoints must be a store, such as DirectoryCheckpoints(Path('checkpoints')), and not "
            f"{checkpoints!r}"
        )
    for what, given, kind in (("options", options, RunOptions), ("bounds", bounds, Bounds)):
        if not isinstance(given, kind):
            raise InvalidQuery(f"{what} are given as {kind.__name__}(...), and not as {given!r}")
    # A healthy node may miss one beat.
    least_s = 2 * bounds.heartbeat_s
    if not is_number(node_timeout_s) or not least_s <= node_timeout_s < float("inf"):
        raise InvalidQuery(
            f"node_timeout_s={node_timeout_s!r}: nodes say every {bounds.heartbeat_s:g} s that they are there: it "
            f"must be {least_s:g} or more"
        )
