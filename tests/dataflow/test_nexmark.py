"""Each query of Nexmark gives the rows that DuckDB gives, also if a node dies on the way."""

from __future__ import annotations

import pyarrow as pa
import pytest
from simulation.seeds import seeds

from benchmarks.dataflows.failures import Kill
from benchmarks.dataflows.outcome import Outcome
from benchmarks.dataflows.seeded import SeededRun
from benchmarks.nexmark.answers import answer, told
from benchmarks.nexmark.events import Events, events
from benchmarks.nexmark.queries import QUERIES, network_of, read_by
from peacefs.dataflow.core.bounds import Bounds
from peacefs.dataflow.techniques.sguard import SGuard

#: 12 s of event time, so that windows of ten seconds end before the end of the events.
_EVENTS = 120_000
_BOUNDS = Bounds(state_bytes_max=64 << 20)
_FAILURES = [Kill(40, "node-1")]


@pytest.fixture(scope="module", params=seeds(2))
def given(request: pytest.FixtureRequest) -> Events:
    print(f"seed {request.param}")
    return events(_EVENTS, seed=request.param)


@pytest.mark.parametrize("query", QUERIES)
def test_nexmark_query_gives_the_rows_that_sql_gives(query: str, given: Events) -> None:
    rows = {name: given[name].to_batches(max_chunksize=4096) for name in read_by(query)}
    run = SeededRun(
        network_of(query, given), SGuard(interval_s=0.1), rows, seed=1, failures=_FAILURES, bounds=_BOUNDS
    )
    outcome = run.run(until_s=600)
    wanted = answer(query, given)
    columns = sorted(wanted.column_names)
    assert _told(outcome, columns) == told(wanted, columns)
    assert outcome.recoveries, "a unit was lost on the way"
    assert outcome.late.by_operator() == {}, "no row was late"


def _told(outcome: Outcome, columns: list[str]) -> object:
    rows = pa.Table.from_batches(outcome.sinks["out"])
    assert sorted(rows.column_names) == columns
    return told(rows, columns)
