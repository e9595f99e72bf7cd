"""Chunks that a flush has replaced are kept for a time, for readers that know them."""

from __future__ import annotations

import pytest
from support.play import record

from peacefs.coordinator.cluster.deferred_deletes import DeferredDeletes
from peacefs.protocol.limits import read_token_renewable_s


def test_deferred_deletes_go_when_the_last_token_to_read_them_has_expired() -> None:
    deferred = DeferredDeletes()
    assert deferred.add(10.0, [record(1), record(2)]) == []
    assert deferred.add(20.0, [record(3)]) == []
    assert deferred.due(9.9 + read_token_renewable_s) == []
    assert deferred.due(10.0 + read_token_renewable_s) == [record(1), record(2)]
    assert deferred.due(1e9) == [record(3)]
    assert deferred.due(1e9) == []


def test_deferred_deletes_over_the_limit_go_at_once_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peacefs.coordinator.cluster.deferred_deletes.deferred_deletes_max", 2)
    deferred = DeferredDeletes()
    assert deferred.add(0.0, [record(1), record(2), record(3)]) == [record(1)]
    assert deferred.add(0.0, [record(4)]) == [record(2)]
