"""One file that local processes have open: executes the steps that `content.py` returns."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from peacefs.client.control.values import FileStatus
from peacefs.client.file_objects import FileSink
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import FileNotFound
from peacefs.protocol.limits import MIB

from . import content as steps
from .content import FileContent, Step, Stream
from .pending import PendingAttributes
from .readers import ReadAhead, VersionReader, extends
from .stage import Stage, StagingRoom

# A staged file up to this length is published in one call.
published_at_once_bytes_max: Final = 1 * MIB
# A longer file that is deleted while open is renamed to a hidden name in the cluster until it is closed.
detached_bytes_max: Final = 8 * MIB
_ZEROS: Final = bytes(MIB)


class OpenFile:
    """A file with its local changes, which all its handles share. `MountedTree` has one for each open path.

    Handles that only read keep the version that they opened until a local process changes the file. Methods that
    take the lock may wait for the cluster. Raises classes of `peacefs.protocol.errors`, and OSError.
    """

    def __init__(
        self,
        files: PeaceFileSystem,
        room: StagingRoom,
        ahead: ReadAhead,
        path: str,
        status: FileStatus | None,
        mode: int,
        published: Callable[[str], None],
    ) -> None:
        """`status` is None for a new file, which gets `mode`. `published` is called with the path."""
        self.path = path
        self.status = status
        self.pending = PendingAttributes(mode)
        self.handles = 0
        self.writing_handles = 0
        #: Increases when local changes are published; then readers open the file again.
        self.generation = 0
        #: True if publishing must not replace an existing file (O_EXCL).
        self.is_exclusive = False
        self.is_deleted = False
        self.modified_ms = time.time_ns() // 1_000_000
        self.lock = threading.RLock()
        self._files = files
        self._room = room
        self._ahead = ahead
        self._published = published
        self._content: FileContent | None = None if status else FileContent(None)
        self._stage: Stage | None = None
        #: The bytes that the stage has taken from the shared space.
        self._staged_bytes = 0
        self._sink: FileSink | None = None
        #: Reads the published version, for bytes that are not staged.
        self._base: VersionReader | None = None
        self._fault: BaseException | None = None
        #: True while steps are executed, when the cluster may not have the change yet.
        self._is_changing = False

    # -- reading -----------------------------------------------------------------------------------

    @property
    def is_local(self) -> bool:
        """True if the cluster has no file of this name yet."""
        return self._content is not None and self._content.published is None

    @property
    def is_dirty(self) -> bool:
        return self._content is not None and self._content.is_dirty

    @property
    def local_length(self) -> int | None:
        """The length for local processes, if it may differ from the cluster's; otherwise None."""
        content = self._content
        is_own = content is not None and (self._is_changing or content.is_dirty or content.stream is not None)
        return content.length if content is not None and is_own else None

    @property
    def has_changes(self) -> bool:
        """True if local processes must read through this object instead of a version, also to see its error."""
        content = self._content
        is_changed = content is not None and not (content.staged_from is None and content.stream is None)
        return is_changed or self._fault is not None

    def read_into(self, offset: int, target: memoryview) -> int | None:
        """Read the changed content. Return None without local changes: the handle then reads its version."""
        with self.lock:
            self._check()
            content = self._content
            if content is None or not self.has_changes:
                return None
            below, staged = content.staged_part(offset, len(target))
            if below:
                self._base = self._base or VersionReader(self._files.open(self.path), self._ahead)
                count = self._base.read_into(offset, target[:below])
                if count < below:
                    raise OSError(errno.ESTALE, "The file was changed by another machine; open it again")
            if staged:
                assert self._stage is not None
                self._stage.read_into(offset + below, target[below : below + staged])
            return below + staged

    def extended(self, known: VersionReader, status: FileStatus) -> VersionReader | None:
        """Return a reader of the present version if another machine has only appended to the known version."""
        if self.status is None or status.file_id != self.status.file_id or status.length <= known.length:
            return None
        reader = VersionReader(self._files.open(self.path), self._ahead)
        if extends(reader.chunks, known.chunks):
            return reader
        reader.close()
        return None

    # -- changing ----------------------------------------------------------------------------------

    def replace(self) -> None:
        """Begin with empty content, for O_TRUNC. Other machines see the old content until the file is closed."""
        with self.lock:
            self._check()
            if self._content is None:
                assert self.status is not None
                self._content = FileContent(self.status.length)
            self._change(lambda content, _room: content.replace())

    def write(self, offset: int | None, data: bytes) -> int:
        """Write at an offset, or at the end if it is None."""
        with self.lock:
            content = self._changeable()
            at = content.length if offset is None else offset
            self._change(lambda content, room: content.write(at, len(data), room), data)
            return len(data)

    def truncate(self, length: int) -> None:
        with self.lock:
            self._changeable()
            self._change(lambda content, room: content.truncate(length, room))

    def flush(self) -> None:
        """Publish local changes, for the last close."""
        self._publish(lambda content, _room: content.close())

    def sync(self) -> None:
        """Publish local changes, for fsync; writing may continue."""
        self._publish(lambda content, _room: content.sync())

    def detach(self) -> bool:
        """Stage the whole content before the file is deleted. Return False if the content is too long."""
        with self.lock:
            content = self._changeable()
            if content.length > detached_bytes_max:
                return False
            try:
                self._change(lambda content, room: content.detach(room))
            except OSError as error:
                if error.errno != errno.EFBIG:
                    raise
                return False
            return True

    def delete(self) -> None:
        """Stop publishing, because the file was deleted. Its handles keep the content."""
        with self.lock:
            self.is_deleted = True
            if self._content is not None:
                self._change(lambda content, _room: content.delete())

    def settle(self) -> None:
        """Drop the stage when no handle writes any more, so that later opens see changes by other machines."""
        with self.lock:
            if self._content is not None and not self._content.is_dirty and not self.is_deleted:
                self.end()
                self.generation += 1

    def end(self) -> None:
        """Release everything. Unpublished changes are lost."""
        with self.lock:
            self._forget_local()

    def _count_staged(self, content: FileContent | None) -> None:
        counted, self._staged_bytes = self._staged_bytes, 0 if content is None else content.staged_bytes
        self._room.take(self._staged_bytes - counted)

    def _forget_local(self) -> None:
        self._count_staged(None)
        if self._sink is not None:
            sink, self._sink = self._sink, None
            sink.discard()
        if self._stage is not None:
            self._stage.close()
        if self._base is not None:
            self._base.close()
        self._content, self._stage, self._base = None, None, None

    # -- steps -------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _changeable(self) -> FileContent:
        self._check()
        if self._content is None:
            # Another machine may have changed the file since it was opened.
            self.status = self._files.status(self.path)
            self._content = FileContent(self.status.length)
        return self._content

    def _publish(self, decide: Callable[[FileContent, int], list[Step]]) -> None:
        with self.lock:
            self._check()
            if self._content is not None and not self.is_deleted:
                self._change(decide)

    def _change(self, decide: Callable[[FileContent, int], list[Step]], data: bytes = b"") -> None:
        """Execute steps. After a failure, local changes are lost and every later call raises the same error."""
        content = self._content
        assert content is not None
        before, length = content.staged_bytes, content.length
        self._is_changing = True
        try:
            # Raises EFBIG before anything has changed.
            self._carry_out(decide(content, self._room.free + before), content, length, data)
        finally:
            self._is_changing = False
        if data or content.length != length:
            self.modified_ms = time.time_ns() // 1_000_000

    def _carry_out(self, wanted: list[Step], content: FileContent, length: int, data: bytes) -> None:
        try:
            for step in wanted:
                self._execute(step, length, data)
        except BaseException as fault:
            self._count_staged(content)
            if wanted == [steps.Publish()]:
                content.publish_failed()
                raise
            self._fault = fault
            self._forget_local()
            raise
        self._count_staged(content)

    def _execute(self, step: Step, length: int, data: bytes) -> None:
        """Execute one step. `length` is the content's length before the change, `data` the caller's bytes."""
        match step:
            case steps.Keep(offset):
                self._staging().write(offset, data)
            case steps.Send():
                self._streaming().write(data)
            case steps.Resize(new_length):
                self._staging().resize(new_length)
            case steps.SendZeros(count):
                for at in range(0, count, len(_ZEROS)):
                    self._streaming().write(_ZEROS[: count - at])
            case steps.Fetch(count):
                self._fetch(count)
            case steps.DropStage():
                if self._stage is not None:
                    self._stage.close()
                    self._stage = None
            case steps.Begin(stream):
                self._begin(stream, length)
            case steps.Sync():
                self._streaming().hsync()
                self._have_published()
            case steps.End():
                sink, self._sink = self._streaming(), None
                sink.close()
                self._have_published()
            case steps.Drop():
                sink, self._sink = self._streaming(), None
                sink.discard()
            case steps.Publish():
                self._publish_whole()
            case steps.Cut(new_length):
                self._files.truncate(self.path, new_length)
                self._have_published()

    def _staging(self) -> Stage:
        if self._stage is None:
            self._stage = Stage(self._room.directory)
        return self._stage

    def _streaming(self) -> FileSink:
        assert self._sink is not None, "the core begins a stream before it uses it"
        return self._sink

    def _fetch(self, count: int) -> None:
        stage = self._staging()
        with self._files.open(self.path) as source:
            left = count
            while left and (piece := source.read(min(left, MIB))):
                stage.write(count - left, piece)
                left -= len(piece)
        if left:
            raise OSError(errno.ESTALE, "The file was changed by another machine; open it again")

    def _begin(self, stream: Stream, length: int) -> None:
        if stream is Stream.APPEND:
            self._sink = self._files.open_for_appending(self.path)
            if self._sink.tell() != length:
                raise OSError(errno.ESTALE, "The file was changed by another machine; open it again")
            return
        self._note_existing()
        self._sink = self._files.open_for_writing(
            self.path, overwrite=not self.is_exclusive, make_parents=False, permission=self.pending.mode
        )
        if length:
            for piece in self._staging().pieces(length):
                self._sink.write(piece)

    def _publish_whole(self) -> None:
        self._note_existing()
        content = self._content
        assert content is not None
        overwrite, mode = not self.is_exclusive, self.pending.mode
        if content.length <= published_at_once_bytes_max:
            whole = b"".join(self._staging().pieces(content.length)) if content.length else b""
            self._files.write(self.path, whole, overwrite=overwrite, make_parents=False, permission=mode)
        else:
            with self._files.open_for_writing(
                self.path, overwrite=overwrite, make_parents=False, permission=mode
            ) as sink:
                for piece in self._staging().pieces(content.length):
                    sink.write(piece)
        self._have_published()

    def _note_existing(self) -> None:
        """Record the attributes of the file to be replaced, if it still exists."""
        if self.status is not None or self.generation:
            with suppress(FileNotFound):
                self.pending.keep_of(self._files, self._files.status(self.path))

    def _have_published(self) -> None:
        self.generation += 1
        self.is_exclusive = False
        if self._base is not None:
            self._base.close()
            self._base = None
        if not self.pending.is_empty:
            self.status = self._files.status(self.path)
            self.pending.apply(self._files, self.status)
        self._published(self.path)
