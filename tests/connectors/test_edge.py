"""The edge of a query with connectors: where a source begins, and when rows of a sink are safe. No I/O."""

from __future__ import annotations

from support.connector_rows import KIND, batch

from peacefs.dataflow import functions as F
from peacefs.dataflow.core.edge import EdgeCore
from peacefs.dataflow.core.effects import CommitRows, Deliver, SendMessage, SinkEnded, StopQuery
from peacefs.dataflow.core.messages import (
    Ack,
    Data,
    Ended,
    Placement,
    Subscribe,
    Subscribed,
    Subscription,
    UnitPlacement,
)
from peacefs.dataflow.core.query_recovery import QueryRecovery
from peacefs.dataflow.model.batches import Batch, Position
from peacefs.dataflow.model.row_stage import RowStage
from peacefs.dataflow.query.query import Query
from peacefs.dataflow.techniques.sguard import SGuard


def _recovery() -> QueryRecovery:
    query = Query("query")
    query.source("in", KIND).filter(F.col("n") > 0).sink("out")
    return QueryRecovery(query.network(), SGuard(interval_s=1))


def _asks(after: int) -> Subscribe:
    return Subscribe("in", Subscription("query", 1, 1), 1, Position(0, after), 1 << 20)


def test_edge_begins_a_source_after_the_rows_that_were_released() -> None:
    """A unit with a checkpoint at row 12 gets rows from 13 on, though the source begins again with row 11."""
    edge = EdgeCore(_recovery(), after={"in": 10}, complete=["in"])
    assert edge.released("in") == 10
    edge.offer(0.0, "in", batch(11, 15))
    sent = [each.message for each in edge.received(0.0, "node-1", _asks(12)) if isinstance(each, SendMessage)]
    assert [each.lost for each in sent if isinstance(each, Subscribed)] == [0]
    assert [each.batch.first for each in sent if isinstance(each, Data)] == [13]


def test_edge_stops_a_query_that_needs_released_rows() -> None:
    """A checkpoint that was rolled back asks for rows that the source has forgotten. Sockets lose such rows."""
    edge = EdgeCore(_recovery(), after={"in": 10}, complete=["in"])
    (stopped,) = [each for each in edge.received(0.0, "node-1", _asks(3)) if isinstance(each, StopQuery)]
    assert "7 rows of source 'in' are needed again" in stopped.reason
    losing = EdgeCore(_recovery(), after={"in": 10})
    assert not [each for each in losing.received(0.0, "node-1", _asks(3)) if isinstance(each, StopQuery)]


def test_edge_acknowledges_rows_only_once_they_are_committed() -> None:
    recovery = _recovery()
    edge = EdgeCore(recovery, commits=["out"])
    places = {"query": UnitPlacement("node-1", 1), **EdgeCore.placements(recovery.network, "edge")}
    (asked,) = [
        each.message
        for each in edge.received(0.0, "controller", Placement(1, places))
        if isinstance(each, SendMessage) and isinstance(each.message, Subscribe)
    ]
    answer = Subscribed(asked.stream, asked.subscription, Position(0, 0), 0, 0)
    edge.received(0.0, "node-1", answer)
    rows = Data(asked.stream, asked.subscription, Batch(1, batch(1, 5)), 100)
    effects = edge.received(0.0, "node-1", rows)
    effects += edge.received(0.0, "node-1", Ended(asked.stream, asked.subscription, 5))
    assert [each.batch.last for each in effects if isinstance(each, Deliver)] == [5]
    assert [each for each in effects if isinstance(each, CommitRows)] == [CommitRows("out")]
    safe = [
        each.message.upto.number
        for each in effects
        if isinstance(each, SendMessage) and isinstance(each.message, Ack) and each.message.level is RowStage.SAFE
    ]
    assert max(safe, default=0) == 0
    assert not edge.ended
    done = edge.committed(0.0, "out", 5)
    assert [each for each in done if isinstance(each, SinkEnded)] == [SinkEnded("out")]
    acks = [each.message for each in done if isinstance(each, SendMessage) and isinstance(each.message, Ack)]
    assert acks[0].upto == Position(0, 5)
    assert edge.ended
