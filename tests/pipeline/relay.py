"""A relay before a data server, whose connections can break, hang, or change bytes."""

from __future__ import annotations

import contextlib
import socket
import threading


class Relay:
    """Stands before a data server, and may lose, delay or change data.

    Its settings are byte counts of a connection, `down` to the server or `up` from it. A cut direction stays cut;
    after a hang-up, the next connection has the same limits again.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        """Do not serve connections before `target` is set."""
        self.target: tuple[str, int]
        self._listener = socket.create_server((host, 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.cut_down_after: int | None = None
        self.cut_up_after: int | None = None
        self.hold_down_after: int | None = None
        self.hang_up_after: int | None = None
        self.flip_down_at: int | None = None
        self.flip_up_at: int | None = None
        self.dead = False
        self.connections = 0
        #: All data in either direction, if it is recorded.
        self.record: bytearray | None = None
        self._released = threading.Event()
        self._threads[0].start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return host, port

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.dead:
                near.close()
                continue
            self.connections += 1
            far = socket.create_connection(self.target)
            self._sockets += [near, far]
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            down = threading.Thread(target=self._pass_down, args=(near, far), daemon=True)
            up = threading.Thread(target=self._pass_up, args=(near, far, down), daemon=True)
            self._threads += [down, up]
            down.start()
            up.start()

    def _pass_down(self, near: socket.socket, far: socket.socket) -> None:
        whole = True
        with contextlib.suppress(OSError):
            whole = self._pass_all(near, far, down=True)
        # The server's last data still arrives when nothing more is sent to it.
        _shut_down(far, socket.SHUT_WR if whole else socket.SHUT_RDWR)

    def _pass_up(self, near: socket.socket, far: socket.socket, way_down: threading.Thread) -> None:
        with contextlib.suppress(OSError):
            self._pass_all(far, near, down=False)
        _shut_down(far, socket.SHUT_RDWR)
        _shut_down(near, socket.SHUT_RDWR)
        way_down.join()
        # Close it instead of a shutdown, so that a sender notices.
        near.close()
        far.close()

    def _pass_all(self, source: socket.socket, sink: socket.socket, down: bool) -> bool:
        """Pass data on until the source ends; return False if the relay broke off before."""
        passed = 0
        buffer = bytearray(1 << 18)
        while count := source.recv_into(buffer):
            cut = self.cut_down_after if down else self.cut_up_after
            if cut is not None and passed + count > cut:
                self.dead = True
                return False
            if down and self.hold_down_after is not None and passed + count > self.hold_down_after:
                self._released.wait(30)
                return False
            if not down and self.hang_up_after is not None and passed + count > self.hang_up_after:
                return False
            flip = self.flip_down_at if down else self.flip_up_at
            if flip is not None and passed <= flip < passed + count:
                buffer[flip - passed] ^= 1
            if self.record is not None:
                self.record += memoryview(buffer)[:count]
            sink.sendall(memoryview(buffer)[:count])
            passed += count
        return True

    def die(self) -> None:
        """Break every connection and refuse new ones, like a killed process."""
        self.dead = True
        for end in list(self._sockets):
            _shut_down(end, socket.SHUT_RDWR)

    def stop(self) -> None:
        self._released.set()
        _shut_down(self._listener, socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        self.die()
        for thread in self._threads:
            thread.join()


def _shut_down(end: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(how)
