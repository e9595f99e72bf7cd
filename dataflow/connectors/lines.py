"""Sources for demonstrations: JSON lines from a TCP server, or from repeated HTTP requests.

Neither can be asked for old rows again, so each row is processed at most once: rows that no checkpoint covers are
lost when the program dies. While the program lives, failures of nodes lose nothing.
"""

from __future__ import annotations

import socket
import time as clock
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec
import pyarrow as pa

from peacefs.dataflow.model.numbers import is_number
from peacefs.dataflow.model.schemas import Schema, as_schema
from peacefs.dataflow.model.stream_type import StreamType
from peacefs.protocol.errors import CheckpointDamaged, InvalidQuery, QueryFailed, StartupError
from peacefs.protocol.limits import MIB

from .interface import Journal
from .json_rows import UnreadableRow, read_rows

# Maximum length of one line, and of one HTTP response.
line_bytes_max: Final = 1 * MIB
http_response_bytes_max: Final = 16 * MIB
# How long a connection, and one HTTP request, may take.
line_connect_s_max: Final = 10.0
_POLL_S: Final = 0.2


class LineSource(ABC):
    """Rows that arrive as lines of JSON and cannot be read again. The journal has how many were given."""

    complete = False

    def __init__(self, name: str, schema: Schema, time: str) -> None:
        self.name = name
        #: The type of the rows, for `query.source(name, source.type)`.
        self.type = StreamType(as_schema(schema), time)
        self._journal: Journal | None = None
        self._given = 0

    def begin(self, journal: Journal | None) -> int:
        """Return how many rows earlier programs have given. Raises CheckpointDamaged."""
        stored = None if journal is None else journal.read()
        try:
            self._given = 0 if stored is None else msgspec.json.decode(stored, type=int)
        except msgspec.DecodeError as error:
            raise CheckpointDamaged(f"what {self.name} has given cannot be read: {error}") from None
        self._journal = journal
        return self._given

    def released(self, number: int) -> None:
        """Do nothing: rows are not kept."""
        return

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield rows. While there are none, yield empty batches, so that the consumer can stop."""
        for lines in self._lines():
            try:
                rows = read_rows([line for line in lines if line.strip()], self.type.schema)
            except UnreadableRow as error:
                raise QueryFailed(f"{self.name} sends a line that is no row: {error.reason}") from error
            self._given += rows.num_rows
            if self._journal is not None and rows.num_rows:
                self._journal.write(msgspec.json.encode(self._given))
            yield rows

    @abstractmethod
    def _lines(self) -> Iterator[list[bytes]]:
        """Yield lines as they arrive; nothing, from time to time, while none arrive."""


class SocketSource(LineSource):
    """Reads lines from a TCP server until the server closes the connection."""

    def __init__(self, host: str, port: int, schema: Schema, *, time: str) -> None:
        super().__init__(f"socket {host}:{port}", schema, time)
        self._address = (host, port)

    def begin(self, journal: Journal | None) -> int:
        """Connect. Raises StartupError if nobody listens."""
        try:
            self._socket = socket.create_connection(self._address, line_connect_s_max)
        except OSError as error:
            raise StartupError(f"{self.name} cannot be reached ({error}): start what listens there") from error
        return super().begin(journal)

    def _lines(self) -> Iterator[list[bytes]]:
        with self._socket as connection:
            connection.settimeout(_POLL_S)
            rest = b""
            while True:
                try:
                    received = connection.recv(1 << 16)
                except TimeoutError:
                    yield []
                    continue
                except OSError as error:
                    raise QueryFailed(
                        f"{self.name} broke: {error}; resume the query, rows since are lost"
                    ) from error
                *whole, rest = (rest + received).split(b"\n")
                if len(rest) > line_bytes_max:
                    raise QueryFailed(f"{self.name} sends a line of more than {line_bytes_max:,} bytes: cut it")
                yield whole
                if not received:
                    yield [rest]
                    return


class HttpSource(LineSource):
    """Requests a URL again and again. Each response has new rows, as JSON lines."""

    def __init__(self, url: str, schema: Schema, *, time: str, every_s: float = 1.0) -> None:
        """`every_s`: seconds between requests. Raises InvalidQuery."""
        if urlsplit(url).scheme not in ("http", "https"):
            raise InvalidQuery(f"{url!r} is no address of HTTP: http://host:port/path does")
        if not is_number(every_s) or not 0 < every_s < float("inf"):
            raise InvalidQuery(f"every_s={every_s!r}: seconds are wanted, more than 0")
        super().__init__(url, schema, time)
        self._url, self._every_s = url, every_s

    def _lines(self) -> Iterator[list[bytes]]:
        with httpx.Client(timeout=line_connect_s_max) as client:
            while True:
                due_s = clock.monotonic() + self._every_s
                yield self._requested(client)
                while (wait_s := due_s - clock.monotonic()) > 0:
                    clock.sleep(min(wait_s, _POLL_S))
                    yield []

    def _requested(self, client: httpx.Client) -> list[bytes]:
        body = b""
        try:
            with client.stream("GET", self._url) as response:
                response.raise_for_status()
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > http_response_bytes_max:
                        raise QueryFailed(f"{self._url} answers with more than {http_response_bytes_max:,} bytes")
        except httpx.HTTPError as error:
            raise QueryFailed(f"{self._url} does not answer with rows: {error}; resume the query later") from error
        return body.split(b"\n")
