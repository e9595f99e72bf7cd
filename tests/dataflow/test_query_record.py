"""A query can be resumed only unchanged: another window, condition or technique is refused."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from support.dataflows import SCHEMA

from peacefs.dataflow import Query
from peacefs.dataflow import functions as F
from peacefs.dataflow.hosts.query_record import new_record
from peacefs.dataflow.query.network import Network
from peacefs.protocol.errors import InvalidQuery


def same(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows


def logins(least: int = 0, size: str = "4s", lateness: str = "0s") -> Network:
    query = Query("logins")
    rows = query.source("in", SCHEMA, time="at").filter(F.col("value") >= least).map(same)
    rows.unit("windows").key_by("key").window(size, every="2s", lateness=lateness).aggregate(F.count()).sink("out")
    return query.network()


def test_record_of_a_query_lets_the_same_query_go_on() -> None:
    new_record(logins(), "sguard").check(logins(), "sguard")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda: logins(least=1), r"unit 'logins' was .*predicate=\(value >= 0\).* and is .*\(value >= 1\)"),
        (lambda: logins(size="6s"), r"unit 'windows' was .*size_us=4000000.* and is .*size_us=6000000"),
        (lambda: logins(lateness="1s"), r"lateness_us=0.* and is .*lateness_us=1000000.*begin it anew in another"),
    ],
)
def test_record_of_a_query_refuses_other_parameters(changed: Callable[[], Network], said: str) -> None:
    with pytest.raises(InvalidQuery, match=said) as refused:
        new_record(logins(), "sguard").check(changed(), "sguard")
    assert "\n" not in str(refused.value)


def test_record_of_a_query_refuses_another_technique() -> None:
    with pytest.raises(InvalidQuery, match=r"was run by sguard, and cec cannot continue from its record: "):
        new_record(logins(), "sguard").check(logins(), "cec")
