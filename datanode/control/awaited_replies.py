"""Matches replies on a link to the waiting calls, by tag."""

from __future__ import annotations

import itertools
from concurrent.futures import Future

from peacefs.protocol.errors import PeerUnreachable
from peacefs.protocol.messages import Message


class AwaitedReplies:
    """The waiting calls of one link to a coordinator. Thread-safe: each call gets one reply, or fails once."""

    def __init__(self) -> None:
        self._tags = itertools.count(1)
        self._waiting: dict[int, Future[Message]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def next_tag(self) -> int:
        """Return a new tag, unique on this link."""
        return next(self._tags)

    def begin(self) -> tuple[int, Future[Message]]:
        """Return a tag for a new call, and the future of its reply. Call `forget` if the caller gives up."""
        tag = self.next_tag()
        reply: Future[Message] = Future()
        self._waiting[tag] = reply
        return tag, reply

    def forget(self, tag: int) -> None:
        self._waiting.pop(tag, None)

    def came(self, tag: int, message: Message) -> None:
        """Give a reply to its call. Ignore the reply if the call has given up."""
        waiting = self._waiting.pop(tag, None)
        if waiting is not None and waiting.set_running_or_notify_cancel():
            waiting.set_result(message)

    def fail(self, why: str) -> None:
        """Fail all waiting calls with PeerUnreachable."""
        for tag in list(self._waiting):
            waiting = self._waiting.pop(tag, None)
            if waiting is not None and waiting.set_running_or_notify_cancel():
                waiting.set_exception(PeerUnreachable(why))
