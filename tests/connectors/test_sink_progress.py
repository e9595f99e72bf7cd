"""Which rows a sink prepares and commits, against another side that fails in every way. No I/O."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.connector_rows import batch

from peacefs.dataflow.connectors.sink_progress import CommitRule, SinkProgress


@given(
    steps=st.lists(st.sampled_from(["put", "prepare", "commit", "unknown", "fail"])), rows_max=st.integers(1, 9)
)
def test_sink_progress_commits_each_row_once_in_order(steps: list[str], rows_max: int) -> None:
    """A commit whose answer is lost may have taken place: the other side says so afterwards."""
    progress = SinkProgress(0, CommitRule(1.0, rows_max))
    there: list[int] = []
    prepared: list[int] = []
    taken = 0
    for at, step in enumerate([*steps, *["fail", *["prepare", "commit"] * 2 * len(steps)]]):
        if step == "put":
            progress.put(taken + 1, batch(taken + 1, taken + 3))
            taken += 3
        elif step == "prepare":
            while (found := progress.prepare(float(at))) is not None:
                prepared += found.rows.column("n").to_pylist()
                assert (found.first, found.last) == (prepared[-found.rows.num_rows], prepared[-1])
        elif prepared and step in ("commit", "unknown"):
            there, prepared = there + prepared, []
            if step == "commit":
                progress.commit()
            else:
                progress.restart(there[-1])
        elif step == "fail":
            prepared = []
            progress.restart(there[-1] if there else 0)
        assert progress.last == taken
    assert there == list(range(1, taken + 1))


def test_sink_progress_commits_after_the_interval_or_when_full() -> None:
    progress = SinkProgress(10, CommitRule(2.0, 5))
    assert progress.due_s(0.0) is None
    progress.put(11, batch(11, 13))
    assert progress.prepare(100.0) is not None
    assert progress.due_s(100.5) == 1.5
    progress.put(14, batch(14, 16))
    assert progress.prepare(101.0) is not None
    assert progress.due_s(101.0) == 0.0, "six rows are prepared"
    progress.put(17, batch(17, 17))
    assert progress.prepare(101.0) is None, "until they are committed"
    progress.commit()
    assert progress.committed == 16
    assert progress.prepare(101.0) is not None
    progress.flush()
    assert progress.due_s(101.0) == 0.0
