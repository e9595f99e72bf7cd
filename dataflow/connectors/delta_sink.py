"""A sink that appends to a Delta table, each row once.

attacks = DeltaSink("s3://bucket/attacks")
host.start(query.network(), SGuard(interval_s=1), sources, {"attacks": attacks}, RunOptions(resume=True))

Each commit is one version of the table. It contains the number of the last row as the version of the query's
application transaction, so rows and number become visible at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from peacefs.protocol.errors import InvalidQuery, PeerUnreachable, QueryFailed, StartupError

from .committing_sink import CommittingSink
from .extras import needed
from .interface import SinkOpening
from .sink_progress import CommitRule

# Maximum number of rows per version of the table.
delta_commit_rows_max: Final = 1_000_000


class DeltaSink(CommittingSink):
    """Appends to a table, which is created if it does not exist."""

    def __init__(
        self,
        url: str,
        *,
        partition_by: Sequence[str] = (),
        interval_s: float = 10.0,
        patience_s: float = 600.0,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """`interval_s`: how long to wait for one version. `options`: the storage options of deltalake.

        `patience_s`: how long rows wait for the storage before the query stops. Raises InvalidQuery, StartupError.
        """
        if not isinstance(url, str) or not url:
            raise InvalidQuery(f"a Delta table needs a place, as 's3://bucket/table', and not {url!r}")
        columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        committer = DeltaCommitter(url, columns, dict(options or {}))
        rule = CommitRule(interval_s, delta_commit_rows_max)
        super().__init__(f"Delta table {url}", committer, rule, patience_s=patience_s)


class DeltaCommitter:
    """Appends versions with `deltalake`. Prepared rows are in memory until the commit."""

    def __init__(self, url: str, partition_by: list[str], options: dict[str, str]) -> None:
        self._delta = needed("deltalake", "delta")
        self._faults = needed("deltalake.exceptions", "delta")
        self._url, self._partition_by, self._options = url, partition_by, options
        self._batches: list[pa.RecordBatch] = []
        self._application = ""

    def open(self, opening: SinkOpening) -> int:
        self._batches = []
        self._application = f"peacefs/{opening.query}/{opening.sink}/{opening.instance}"
        try:
            table = self._delta.DeltaTable(self._url, storage_options=self._options)
        except self._faults.TableNotFoundError:
            if not opening.fresh:
                raise StartupError(
                    f"there is no Delta table at {self._url} any more: restore it, or begin the query anew with "
                    "another directory of checkpoints"
                ) from None
            self._write(_stored(opening.kind.schema).empty_table(), 0)
            return 0
        except (self._faults.DeltaError, OSError) as error:
            raise self._fault(error) from error
        self._check_schema(table, opening.kind.schema)
        self._check_partitions(list(table.metadata().partition_columns))
        number = table.transaction_version(self._application)
        if number is not None:
            return int(number)
        if not opening.fresh:
            raise StartupError(
                f"the Delta table at {self._url} has forgotten how many rows of the query it has: raise its "
                "delta.setTransactionRetentionDuration, and begin the query anew in another directory"
            )
        self._write(_stored(opening.kind.schema).empty_table(), 0)
        return 0

    def append(self, first: int, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)

    def commit(self, number: int) -> None:
        rows = pa.Table.from_batches(self._batches)
        self._write(rows.cast(_stored(rows.schema)), number)
        self._batches = []

    def close(self) -> None:
        self._batches = []

    # -- inside -------------------------------------------------------------------------------------------

    def _write(self, rows: pa.Table, number: int) -> None:
        transaction = self._delta.Transaction(self._application, number)
        try:
            self._delta.write_deltalake(
                self._url,
                rows,
                mode="append",
                partition_by=self._partition_by or None,
                storage_options=self._options,
                commit_properties=self._delta.CommitProperties(app_transactions=[transaction]),
            )
        except self._faults.SchemaMismatchError as error:
            raise QueryFailed(
                f"{self._shown(error)}: the table's columns have changed; give another table"
            ) from error
        except (self._faults.DeltaError, OSError) as error:
            raise self._fault(error) from error

    def _check_schema(self, table: Any, schema: pa.Schema) -> None:
        found = pa.schema(table.schema().to_arrow())
        theirs = {field.name: str(field.type) for field in found}
        ours = {field.name: str(field.type) for field in _stored(schema)}
        if theirs != ours:
            raise StartupError(
                f"the Delta table at {self._url} has columns {theirs}, and the sink has {ours}: give another table"
            )

    def _check_partitions(self, theirs: list[str]) -> None:
        if self._partition_by and self._partition_by != theirs:
            raise StartupError(
                f"the Delta table at {self._url} has partitions by {theirs}, and the sink has "
                f"{self._partition_by}: give the table's, or another table"
            )

    def _fault(self, error: Exception) -> PeerUnreachable:
        return PeerUnreachable(self._shown(error))

    def _shown(self, error: Exception) -> str:
        return f"Delta table {self._url}: {' '.join(str(error).split())}"


def _stored(schema: pa.Schema) -> pa.Schema:
    """Return the types that Delta has for these columns."""
    return pa.schema([pa.field(field.name, _KINDS.get(field.type, field.type)) for field in schema])


_KINDS: Final = {
    pa.large_string(): pa.string(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
}
