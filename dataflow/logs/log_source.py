"""A source that reads a log, which a Spark query or another dataflow has written.

events = LogSource("webhdfs://localhost:9870/streams/logins")
query.source("events", events.type)
host.start(query.network(), technique, {"events": events}, sinks)
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from peacefs.dataflow.limits import stream_log_poll_s
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.protocol.errors import FileNotFound

from .log_place import open_stream
from .log_reader import LogPlace, LogReader


class LogSource:
    """The rows of a log after number `after`.

    It follows the log, up to row `upto` if given. If `follow` is False, it ends at the present end of the log.
    """

    def __init__(
        self,
        address: str,
        *,
        coordinator: str | None = None,
        user: str | None = None,
        after: int = 0,
        upto: int | None = None,
        follow: bool = True,
    ) -> None:
        self._address, self._coordinator, self._user = address, coordinator, user
        self._after, self._upto, self._follow = after, upto, follow

    @property
    def type(self) -> StreamType:
        """The stored type of the stream. Raises FileNotFound if there is no log yet."""
        with open_stream(self._address, coordinator=self._coordinator, user=self._user) as (store, stream):
            found = LogReader(store, stream).type()
        if found is None:
            raise FileNotFound(f"there is no stream log at {self._address}: start what writes it first")
        return found

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield rows. While there are none, yield empty batches, so that the consumer can stop."""
        place = LogPlace(self._after)
        with open_stream(self._address, coordinator=self._coordinator, user=self._user) as (store, stream):
            reader = LogReader(store, stream)
            empty = self.type.empty()
            while True:
                for batch, behind in reader.read_places(place, upto=self._upto):
                    place = behind
                    yield batch.rows
                if not self._follow or (self._upto is not None and place.number >= self._upto):
                    return
                yield empty
                time.sleep(stream_log_poll_s)
