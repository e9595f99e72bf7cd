"""A gateway in the simulated world: the real flush times and the real flusher, with one task per upload."""

from __future__ import annotations

from collections import deque

from simulation.terms import CHUNK_BYTES, GRANT_CLIENT, HOP_TIMEOUT_S
from simulation.world import World

from peacefs.client.transfer.byte_stream import ByteStream
from peacefs.client.transfer.file_flusher import FileFlusher
from peacefs.datanode.gateway.flush_times import FlushStep, FlushTimes
from peacefs.protocol.errors import FileAlreadyExists
from peacefs.protocol.messages import FlushUploads, UploadsFlushed
from peacefs.runtime import effects as fx

_LOOK_S = 0.02


class SimulatedUpload:
    """The body of an upload. Its client calls `feed` and `end`."""

    def __init__(self, world: World, token: str, name: str, *, replaces: bool = False) -> None:
        self._world = world
        self.flusher = FileFlusher(token, None, CHUNK_BYTES, name, GRANT_CLIENT, hop_timeout_s=HOP_TIMEOUT_S)
        self._times = FlushTimes(world.now_s, may_appear=True, has_lease=False)
        self._replaces = replaces
        self._pieces: deque[bytes] = deque()
        self._asked: list[fx.Ticket] = []
        self._has_ended = False
        self.is_done = False

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._times.received(self._world.now_s)

    def end(self) -> None:
        self._has_ended = True

    def show(self) -> fx.Steps[bool]:
        """Request that the file become visible, for somebody who looks for it."""
        ticket = fx.Ticket()
        self._asked.append(ticket)
        yield from fx.wait(ticket, timeout_s=60.0)
        return self.flusher.has_lease or self.is_done

    def carry(self) -> fx.Steps[None]:
        """Write the body until the file is published."""
        try:
            while not self._has_ended:
                yield from self._look()
                yield from fx.sleep(_LOOK_S)
            if self.flusher.has_lease:
                yield from self.flusher.complete(self._rest())
            else:
                yield from self.flusher.write_whole(ByteStream.of(self._rest()))
        finally:
            self.is_done = True
            self._tell()

    def _look(self) -> fx.Steps[None]:
        now_s = self._world.now_s
        step = self._times.due(now_s, is_long=False)
        if not self.flusher.has_lease and (self._asked or step is FlushStep.SHOW):
            try:
                yield from self.flusher.publish_name()
            except FileAlreadyExists:
                if not self._replaces:
                    raise
                self._times.hidden()
            else:
                self._times.shown(now_s)
        if self.flusher.has_lease and ((self._asked and self._pieces) or step is FlushStep.FLUSH):
            self._times.taken()
            yield from self.flusher.flush(self._rest())
            self._times.flushed(now_s)
        elif step is FlushStep.RENEW:
            yield from self.flusher.renew(5.0)
            self._times.renewed(now_s)
        self._tell()

    def _rest(self) -> bytes:
        rest = b"".join(self._pieces)
        self._pieces.clear()
        return rest

    def _tell(self) -> None:
        asked, self._asked = self._asked, []
        for ticket in asked:
            ticket.fire()


class SimulatedGateway:
    """The uploads through one datanode, by their request ids and by their lease holders."""

    def __init__(self) -> None:
        self.uploads: dict[str, SimulatedUpload] = {}

    def flush(self, wanted: FlushUploads) -> fx.Steps[UploadsFlushed]:
        """Flush the uploads of an order; return the answer for the coordinator."""
        missing = []
        waited_s = 0.0
        for name in wanted.uploads:
            while name not in self.uploads and waited_s < wanted.wait_s:
                yield from fx.sleep(0.1)
                waited_s += 0.1
            upload = self.uploads.get(name)
            is_shown = upload is not None and (upload.is_done or (yield from upload.show()))
            if not is_shown:
                missing.append(name)
        return UploadsFlushed(missing)
