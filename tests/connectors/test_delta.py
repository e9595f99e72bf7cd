"""The Delta sink. Judges are DuckDB's rows of the files that the log names, and deltalake's own reader."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.connector_rows import batch, opening, rows

from peacefs.dataflow.connectors.delta_sink import DeltaCommitter
from peacefs.dataflow.connectors.interface import SinkOpening
from peacefs.dataflow.model.stream_type import TIME, StreamType
from peacefs.protocol.errors import StartupError

deltalake = pytest.importorskip("deltalake")


def _table(place: Path) -> list[dict[str, object]]:
    found: pa.Table = deltalake.DeltaTable(str(place)).to_pyarrow_table()
    return sorted(found.to_pylist(), key=lambda row: row["n"])


def test_delta_sink_commits_rows_with_their_number(tmp_path: Path) -> None:
    """Rows and number are in one version. A sink that begins again drops what was not committed."""
    place = tmp_path / "table"
    first = DeltaCommitter(str(place), [], {})
    assert first.open(opening(fresh=True)) == 0
    first.append(1, batch(1, 10))
    first.commit(10)
    first.append(11, batch(11, 20))
    again = DeltaCommitter(str(place), [], {})
    assert again.open(opening(fresh=False)) == 10
    assert _table(place) == rows(1, 10)
    first.commit(20)
    assert again.open(opening(fresh=False)) == 20, "the commit took place, and the sink did not know"
    assert _table(place) == rows(1, 20)


def test_delta_table_of_two_queries_has_the_rows_of_both(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    for instance in ("one", "two"):
        sink = DeltaCommitter(place, [], {})
        assert sink.open(opening(fresh=True, instance=instance)) == 0
        sink.append(1, batch(1, 3))
        sink.commit(3)
    assert len(_table(Path(place))) == 6
    assert deltalake.DeltaTable(place).transaction_version("peacefs/query/sink/two") == 3


def test_delta_table_that_is_gone_or_different_is_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    with pytest.raises(StartupError, match=r"there is no Delta table at .* any more"):
        DeltaCommitter(place, [], {}).open(opening(fresh=False))
    DeltaCommitter(place, [], {}).open(opening(fresh=True))
    with pytest.raises(StartupError, match="has forgotten how many rows"):
        DeltaCommitter(place, [], {}).open(opening(fresh=False, instance="other"))
    with pytest.raises(StartupError, match=r"has partitions by \[\], and the sink has \['user'\]"):
        DeltaCommitter(place, ["user"], {}).open(opening(fresh=True))
    changed = StreamType(pa.schema([("user", pa.string()), ("at", TIME), ("n", pa.float64())]), "at")
    with pytest.raises(StartupError, match=r"has columns .* and the sink has .*double"):
        DeltaCommitter(place, [], {}).open(SinkOpening("query", "sink", changed, "one", True))
