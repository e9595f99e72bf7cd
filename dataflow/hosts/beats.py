"""Beats of a node, sent by separate threads while the node is busy with one batch for seconds.

A user's function may need longer for a batch than a node may be silent. Without these beats the node would be
considered dead, and then each node that begins the same batch after it. The beats stop when the process stops, or
when the node has been busy for so long that it must be considered hung.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from peacefs.dataflow.limits import dataflow_busy_s_max
from peacefs.protocol.errors import PeacefsError
from peacefs.runtime.protected_stream import ProtectedStream

from .membership import Membership


class Beats:
    """Sends one message repeatedly to everyone who must know that the node is alive, with a thread for each."""

    def __init__(
        self,
        membership: Membership,
        encode: Callable[[Any], Sequence[bytes | memoryview]],
        message: object,
        *,
        every_s: float,
        busy_s_max: float = dataflow_busy_s_max,
    ) -> None:
        self._membership = membership
        self._beat = b"".join(encode(message))
        self._every_s, self._busy_s_max = every_s, busy_s_max
        self._round_s = time.monotonic()
        # By name and address. The thread ends when the event is set.
        self._followers: dict[tuple[str, str], threading.Event] = {}

    def note(self, followers: Mapping[str, str]) -> None:
        """Note that the event loop has run, and who must know that the node is alive: addresses by name."""
        self._round_s = time.monotonic()
        wanted = followers.items()
        for follower in self._followers.keys() - wanted:
            self._followers.pop(follower).set()
        for follower in wanted - self._followers.keys():
            ended = self._followers[follower] = threading.Event()
            threading.Thread(target=self._run, args=(*follower, ended), name="beats", daemon=True).start()

    def close(self) -> None:
        """End the threads, each after its current step."""
        self.note({})

    # -- on the threads -------------------------------------------------------------------------------------

    def _run(self, name: str, address: str, ended: threading.Event) -> None:
        with contextlib.ExitStack() as opened:
            stream: ProtectedStream | None = None
            while not ended.wait(self._every_s):
                if time.monotonic() >= self._round_s + self._busy_s_max:
                    continue
                # If an address does not answer, try again with the next beat. Its loss is detected elsewhere.
                try:
                    if stream is None:
                        stream = self._membership.dial_for_beats(name, address)
                        stream.sock.settimeout(self._every_s)
                        opened.enter_context(stream.sock)
                    stream.sock.sendall(b"".join(stream.seal(self._beat, b"")))
                except (OSError, PeacefsError):
                    opened.close()
                    stream = None
