"""Stream logs as a source and a sink of Spark, through PySpark's Python data sources (Spark 4.0 and newer).

    from peacefs.spark_connector.stream_logs import register

    register(spark)
    attacks = spark.readStream.format("peacefs.stream").load("webhdfs://localhost:9870/streams/attacks")
    attacks.writeStream.format("peacefs.stream").option("checkpointLocation", ...).start("webhdfs://.../streams/out")

Offsets are numbers of rows. The log remembers the last batch of each query. If the driver dies before it records a
batch as done, Spark writes the batch again, and the log ignores the repetition. Executors send their rows to the
driver, whose commit appends them as one epoch (decision 43).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from peacefs.dataflow.logs.log_place import open_stream
from peacefs.dataflow.logs.log_reader import LogPlace, LogReader
from peacefs.dataflow.logs.log_rows import time_us
from peacefs.dataflow.logs.stream_log import StreamLogs
from peacefs.dataflow.model.stream_type import TIME, StreamType
from peacefs.protocol.errors import BadRequest, FileNotFound, InvalidQuery, LogDamaged

from .stream_log_types import arrow_schema, log_rows, rows_from_python, spark_rows, spark_schema

# Spark 4.1 and newer.
_ArrowStreamWriterBase: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)
try:  # Spark 4.2 and newer
    from pyspark.sql.streaming import datasource as limits

    ReadAllAvailable: Any = limits.ReadAllAvailable
    ReadMaxRows: Any = limits.ReadMaxRows
    _AvailableNow: Any = limits.SupportsTriggerAvailableNow
except ImportError:
    ReadAllAvailable = ReadMaxRows = None
    _AvailableNow = object

FORMAT = "peacefs.stream"
_EARLIEST, _LATEST = "earliest", "latest"
#: Spark's local property that holds a query's id, which is also the id of its checkpoint.
_QUERY_ID = "sql.streaming.queryId"


def register(spark: Any) -> None:
    """Register the format `peacefs.stream` with a session."""
    spark.dataSource.register(StreamLogDataSource)


class StreamLogDataSource(DataSource):
    """The data source `peacefs.stream`.

    Options: `path`; `coordinator` and `user` for a path without a host; and the options of its reader or writer.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        with self._opened() as (store, stream):
            kind = LogReader(store, stream).type()
        if kind is None:
            raise FileNotFound(
                f"there is no stream log at {self._path}: start what writes it first, or give a schema"
            )
        return cast(StructType, spark_schema(kind.schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> _BatchWriter:
        _refuse(overwrite)
        return _BatchWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        _refuse(overwrite)
        if _ArrowStreamWriterBase is None:
            return _RowStreamWriter(self.options, schema)
        return _ArrowStreamWriter(self.options, schema)

    @property
    def _path(self) -> str:
        return _path_of(self.options)

    def _opened(self) -> Any:
        return _opened(self.options)


def _refuse(overwrite: bool) -> None:
    if overwrite:
        raise InvalidQuery("a stream log is appended to, and not written over: use outputMode append or update")


def _path_of(options: Mapping[str, str]) -> str:
    path = options.get("path")
    if not path:
        raise BadRequest("a stream log has a path: load('webhdfs://host:port/streams/name')")
    return path


def _opened(options: Mapping[str, str]) -> Any:
    return open_stream(_path_of(options), coordinator=options.get("coordinator"), user=options.get("user"))


# -- reading --------------------------------------------------------------------------------------------


@dataclass
class RowRange(InputPartition):
    """Rows of one segment: those after the place `after`, up to the number `upto`."""

    after: LogPlace
    upto: int

    def __init__(self, after: LogPlace, upto: int) -> None:
        super().__init__(None)
        self.after, self.upto = after, upto


class _LogReading:
    """The common part of batch and stream readers. Spark pickles it for executors, so it holds no connection.

    Options: `startingOffsets` is earliest (the default), latest or a row's number. Or `startingTimestamp`, in UTC.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range on an executor. Raises FileNotFound for trimmed rows, LogDamaged for damaged ones."""
        if not isinstance(partition, RowRange):
            # Spark passes its own partition if there are no ranges.
            return
        wanted = arrow_schema(self._schema)
        last = partition.after.number
        with _opened(self._options) as (store, stream):
            for batch, _ in LogReader(store, stream).read_places(partition.after, upto=partition.upto):
                last = batch.last
                yield spark_rows(batch.rows, wanted)
        if last != partition.upto:
            raise LogDamaged(
                f"{_path_of(self._options)} ends with row {last}, and rows up to {partition.upto} were there"
            )

    def _first(self, reader: LogReader) -> LogPlace:
        """Return the place after which reading begins."""
        end = reader.end()
        time = self._options.get("startingTimestamp")
        if time is not None:
            number = reader.number_at(time_us(time))
            return end.place if number is None else LogPlace(number - 1)
        wanted = self._options.get("startingOffsets", _EARLIEST)
        if wanted == _LATEST:
            return end.place
        return LogPlace((end.first if wanted == _EARLIEST else _row(wanted, "startingOffsets")) - 1)

    def _ranges(self, start: LogPlace, upto: int) -> Sequence[RowRange]:
        """Cut the rows after `start`, up to `upto`, into ranges: one per segment."""
        with _opened(self._options) as (store, stream):
            segments = [segment for segment, _ in store.segments(stream)]
        if upto <= start.number:
            return []
        if not segments:
            raise FileNotFound(f"there is no stream log at {_path_of(self._options)} any more")
        ranges = []
        for segment, following in itertools.zip_longest(segments, segments[1:], fillvalue=None):
            assert segment is not None
            last = upto if following is None else min(upto, following - 1)
            # Trimmed rows are requested from the first segment, whose reader reports that they are gone.
            begin = (
                start if segment == segments[0] or segment <= start.number + 1 else LogPlace(segment - 1, segment)
            )
            if last > begin.number and segment <= upto:
                ranges.append(RowRange(begin, last))
        return ranges


def _row(text: str, option: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise BadRequest(f"{option} is {text!r}: earliest, latest or the number of a row from 1 on is wanted")
    return int(text)


class _BatchReader(_LogReading, DataSourceReader):
    """A reader for `spark.read`. Option: `endingOffsets`, latest (the default) or the last row's number."""

    def partitions(self) -> Sequence[RowRange]:
        with _opened(self._options) as (store, stream):
            reader = LogReader(store, stream)
            start, end = self._first(reader), reader.end().place.number
        wanted = self._options.get("endingOffsets", _LATEST)
        return self._ranges(start, end if wanted == _LATEST else min(end, _row(wanted, "endingOffsets")))


class _StreamReader(_LogReading, DataSourceStreamReader, _AvailableNow):  # type: ignore[misc]
    """A reader for `spark.readStream`. Further option: `maxRowsPerBatch` (Spark 4.2 and newer).

    An offset holds the number of the last row, and a place at or before that row where reading can continue.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._final: LogPlace | None = None

    def initialOffset(self) -> dict[str, int]:
        with _opened(self._options) as (store, stream):
            return _offset(self._first(LogReader(store, stream)))

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        end = self._final or self._end()
        begin = _place(start) if start is not None else None
        if begin is None:
            return _offset(end)
        if end.number < begin.number:
            raise LogDamaged(
                f"{_path_of(self._options)} ends with row {end.number}, and row {begin.number} was read: it is "
                "another log; begin with another checkpoint"
            )
        if ReadMaxRows is not None and isinstance(limit, ReadMaxRows):
            upto = begin.number + limit.max_rows
            if upto < end.number:
                return _offset(LogPlace(upto, begin.segment, begin.offset))
        return _offset(end)

    def reportLatestOffset(self) -> dict[str, int]:
        return _offset(self._end())

    def getDefaultReadLimit(self) -> Any:
        rows = self._options.get("maxRowsPerBatch")
        return ReadAllAvailable() if rows is None else ReadMaxRows(_row(rows, "maxRowsPerBatch"))

    def prepareForTriggerAvailableNow(self) -> None:
        self._final = self._end()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[RowRange]:
        return self._ranges(_place(start), _place(end).number)

    def _end(self) -> LogPlace:
        with _opened(self._options) as (store, stream):
            return LogReader(store, stream).end().place


def _offset(place: LogPlace) -> dict[str, int]:
    return {"row": place.number, "segment": place.segment, "byte": place.offset}


def _place(offset: Mapping[str, int]) -> LogPlace:
    return LogPlace(offset["row"], offset["segment"], offset["byte"])


# -- writing --------------------------------------------------------------------------------------------


@dataclass
class WrittenRows(WriterCommitMessage):
    """The rows of one task as an Arrow stream, and the id of the query that wrote them."""

    query: str | None
    rows: bytes


class _Writing:
    """The common part of batch and stream writers.

    Options: `time` names the column of times; the default is the log's own, or the only timestamp column. `writer`
    replaces the query's id: a query with the same `writer` continues its batches.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        """Collect the rows of a task, on its executor."""
        from pyspark import TaskContext

        wanted = log_rows_schema(self._schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, wanted) as stream:
            for rows in iterator:
                stream.write_batch(log_rows(rows, wanted))
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        return WrittenRows(query, sink.getvalue().to_pybytes())

    def _commit(self, messages: Sequence[WriterCommitMessage | None], epoch: int, writer: str | None) -> None:
        written = [message for message in messages if isinstance(message, WrittenRows)]
        rows = [batch for each in written for batch in pa.ipc.open_stream(each.rows) if batch.num_rows]
        if not rows:
            return
        writer = self._options.get("writer") or writer or written[0].query
        if writer is None:
            raise InvalidQuery("this Spark does not say which query writes: give option('writer', NAME)")
        with _opened(self._options) as (store, stream):
            kind = self._type(LogReader(store, stream).type())
            for batch in rows:
                if batch.column(kind.time).null_count:
                    raise InvalidQuery(f"the time column {kind.time!r} of a stream log takes no nulls")
            # Do not verify earlier rows again for each batch; readers verify them.
            logs = StreamLogs(store, verify=False)
            if logs.open(stream, kind).append_epoch(writer, epoch, rows):
                logs.commit()

    def _type(self, known: StreamType | None) -> StreamType:
        schema = log_rows_schema(self._schema)
        time = self._options.get("time")
        if time is None and known is not None:
            time = known.time
        if time is None:
            times = [field.name for field in schema if field.type == TIME]
            if len(times) != 1:
                found = ", ".join(map(repr, times)) or "none"
                raise InvalidQuery(
                    f"a stream log has one column of times; there are {found}: say option('time', NAME)"
                )
            time = times[0]
        return StreamType(schema, time)


def log_rows_schema(schema: StructType) -> pa.Schema:
    """Return the columns of a log for Spark's columns."""
    return pa.schema([pa.field(field.name, _log_type(field.type)) for field in arrow_schema(schema)])


def _log_type(kind: pa.DataType) -> pa.DataType:
    return TIME if pa.types.is_timestamp(kind) else kind


class _BatchWriter(_Writing, DataSourceArrowWriter):
    """A writer for `df.write`. All rows of one write appear together; repeating the write appends them again."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._id = f"batch {uuid.uuid4()}"

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, 0, self._id)


class _StreamCommits(_Writing):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages, batchId, None)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: rows of tasks are stored nowhere before the commit."""


if _ArrowStreamWriterBase is not None:

    class _ArrowStreamWriter(_StreamCommits, _ArrowStreamWriterBase):  # type: ignore[misc]
        pass


class _RowStreamWriter(_StreamCommits, DataSourceStreamWriter):
    """The stream writer for Spark 4.0, which passes Python rows."""

    def write(self, iterator: Iterator[Any]) -> WrittenRows:
        return super().write(rows_from_python(iterator, arrow_schema(self._schema)))
