"""Failure detection by neighbours, without a central node (SMR VII).

Each node listens to the r nodes before it, which send their beats to the nodes that would take over. If a
neighbour is silent, the next one before it is watched as well, until one is alive. Silence is measured only while
the node listens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from peacefs.dataflow.core.attention import Attention

from .messages import Beat
from .node_context import NodeContext


class Monitor:
    def __init__(self, context: NodeContext, now_s: float) -> None:
        self._context = context
        # At least two looks must find nothing from a neighbour before it is considered dead.
        self._attention = Attention(context.settings.suspect_s / 2)
        self._attention.look(now_s)
        # When each neighbour was last heard of, in seconds that this node has listened.
        self._heard_s: dict[str, float] = {}
        # Neighbours whose connection broke. They have less time to be heard of again.
        self._broken: set[str] = set()
        # Neighbours whose process has ended have no more time than that, even if a last beat arrives.
        self._ended: set[str] = set()
        self._beaten_s = float("-inf")

    def heard(self, name: str) -> None:
        self._heard_s[name] = self._attention.listened_s
        self._broken.discard(name)

    def disconnected(self, name: str) -> None:
        self._broken.add(name)

    def process_ended(self, name: str) -> None:
        self._ended.add(name)

    def beat(self, now_s: float) -> None:
        """Tell the neighbours that would take over that this node is alive."""
        settings = self._context.settings
        if now_s < self._beaten_s + settings.beat_s:
            return
        self._beaten_s = now_s
        for name in self.followers():
            self._context.send(name, Beat())

    def followers(self) -> Iterator[str]:
        """Yield the neighbours that would take over."""
        yield from self._context.view.neighbours_after(self._context.name, max(self._context.settings.r, 1))

    def find_dead(self, now_s: float) -> list[str]:
        """Find the neighbours that were silent for too long, mark them as gone, and return them."""
        settings, view = self._context.settings, self._context.view
        listened_s = self._attention.look(now_s)
        # Nodes off the ring receive no beats, so they watch nobody.
        count = max(settings.r, 1) if self._context.me.on_ring else 0
        before = view.neighbours_before(self._context.name, count)
        watched = [*before, *self._joining()]
        for name in watched:
            self._heard_s.setdefault(name, listened_s)
        dead = [name for name in self._joining() if self._silent(name)]
        for name in before:
            if not self._silent(name):
                break
            dead.append(name)
        for name in dead:
            view.merge([replace(view.members[name], gone=True)])
            del self._heard_s[name]
        self._heard_s = {name: heard for name, heard in self._heard_s.items() if name in watched}
        return dead

    def _silent(self, name: str) -> bool:
        settings = self._context.settings
        is_suspect = name in self._broken or name in self._ended
        limit_s = settings.suspect_s if is_suspect else settings.silence_s
        return self._attention.listened_s - self._heard_s[name] >= limit_s

    def _joining(self) -> list[str]:
        """Return the nodes that are joining right before this node."""
        view = self._context.view
        return [
            member.name for member in view.joining if view.neighbours_after(member.name, 1) == [self._context.name]
        ]
