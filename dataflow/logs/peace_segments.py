"""Segments of stream logs as files of peacefs. A commit calls `hflush` on all streams in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Self

from peacefs.client.file_objects import FileSink, FileSource
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import AlreadyBeingCreated, FileNotFound, PeacefsError

from .segments import SegmentAppend, SegmentFile, directory_name, stream_name

# Maximum number of streams of a commit that are flushed in parallel.
stream_log_flushes_max: Final = 16


_SUFFIX = ".log"


class PeaceSegments:
    """A store in a directory of a cluster.

    The caller closes `files`. A store that only reads has nothing to close.
    """

    def __init__(self, files: PeaceFileSystem, directory: str) -> None:
        self._files = files
        self._directory = directory
        # For each stream, the segment that is open for appending.
        self._sinks: dict[str, tuple[int, FileSink]] = {}
        self._flushes = ThreadPoolExecutor(stream_log_flushes_max, thread_name_prefix="stream log")

    def append_all(self, appends: Sequence[SegmentAppend]) -> None:
        streams = dict.fromkeys(append.stream for append in appends)
        by_stream = [[append for append in appends if append.stream == stream] for stream in streams]
        for done in [self._flushes.submit(self._append, stream) for stream in by_stream]:
            done.result()

    def claim(self, stream: str) -> None:
        segments = self.segments(stream)
        if segments:
            self._sink(stream, segments[-1][0])

    def segments(self, stream: str) -> Sequence[tuple[int, int]]:
        try:
            entries = self._files.list(self._path(stream))
        except FileNotFound:
            return []
        return sorted(
            (int(entry.name.removesuffix(_SUFFIX)), entry.length)
            for entry in entries
            if not entry.is_directory and entry.name.endswith(_SUFFIX)
        )

    def streams(self) -> Sequence[str]:
        try:
            entries = self._files.list(self._directory)
        except FileNotFound:
            return []
        directories = (entry for entry in entries if entry.is_directory)
        return sorted(name for entry in directories if self.segments(name := stream_name(entry.name)))

    def read(self, stream: str, segment: int, offset: int, length: int) -> bytes:
        try:
            with self._files.open(self._path(stream, segment)) as source:
                return source.read_at(offset, length)
        except FileNotFound:
            raise _gone(stream, segment) from None

    def open(self, stream: str, segment: int) -> SegmentFile:
        try:
            return _OpenFile(self._files.open(self._path(stream, segment)))
        except FileNotFound:
            raise _gone(stream, segment) from None

    def truncate(self, stream: str, segment: int, length: int) -> None:
        self._close(stream)
        path = self._path(stream, segment)
        self._files.recover_lease(path)
        self._files.truncate(path, length)

    def delete(self, stream: str, segment: int) -> None:
        if stream in self._sinks and self._sinks[stream][0] == segment:
            self._close(stream)
        self._files.delete(self._path(stream, segment))

    def close(self) -> None:
        for stream in list(self._sinks):
            self._close(stream)
        self._flushes.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, appends: Sequence[SegmentAppend]) -> None:
        """Append to the segments of one stream, and flush."""
        for append in appends:
            sink = self._sink(append.stream, append.segment)
            try:
                sink.write(append.data)
                sink.hflush()
            except PeacefsError:
                # Another writer owns this stream now, or no datanode is available. Do not send the rest again.
                del self._sinks[append.stream]
                sink.discard()
                raise

    def _sink(self, stream: str, segment: int) -> FileSink:
        if stream in self._sinks:
            current, sink = self._sinks[stream]
            if current == segment:
                return sink
            self._close(stream)
        path = self._path(stream, segment)
        if self._files.exists(path):
            sink = self._reopen(path)
        else:
            sink = self._files.open_for_writing(path)
        self._sinks[stream] = (segment, sink)
        return sink

    def _reopen(self, path: str) -> FileSink:
        try:
            return self._files.open_for_appending(path)
        except AlreadyBeingCreated:
            # A log has one writer: the previous one is dead, or is refused from now on.
            self._files.recover_lease(path)
            return self._files.open_for_appending(path)

    def _close(self, stream: str) -> None:
        _, sink = self._sinks.pop(stream)
        sink.close()

    def _path(self, stream: str, segment: int | None = None) -> str:
        path = f"{self._directory}/{directory_name(stream)}"
        return path if segment is None else f"{path}/{segment:020}{_SUFFIX}"


class _OpenFile:
    def __init__(self, source: FileSource) -> None:
        self._source = source

    def read_into(self, offset: int, target: memoryview) -> int:
        # Over the network, bytes are read ahead for a reader that does not seek.
        self._source.seek(offset)
        return self._source.readinto(target)

    def close(self) -> None:
        self._source.close()


def _gone(stream: str, segment: int) -> FileNotFound:
    return FileNotFound(f"segment {segment} of stream {stream!r} is gone: it was trimmed")
