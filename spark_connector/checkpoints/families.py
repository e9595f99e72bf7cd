"""Put checkpoints that were made of each other into trees, from what each says of where it came from. Pure.

what is there                              what is drawn
---------------------------------------    ----------------------------------------------------------
the directory that a step names            it, under the path that it has now
none: it was deleted, or cannot be seen    the path that it had: gone; replaced if another one has it now
one of another query: a number of a        as none
  directory that was used again
a checkpoint whose last step made          a copy of that directory
  another directory
steps that lead in a circle                all but the one that closes it: somebody made them up
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from .ancestry import Ancestry, AncestryStep, StepKind


@dataclass(frozen=True, slots=True)
class KnownCheckpoint:
    """A checkpoint that is there, `identity` being that of its directory; empty if that is not known."""

    root: str
    identity: str
    query: str | None
    committed: int | None
    ancestry: Ancestry

    @property
    def key(self) -> str:
        return self.identity or f"at {self.root}"


class Presence(StrEnum):
    """The state of a member of a family."""

    HERE = "here"
    GONE = "gone"
    #: Gone, and its path is another checkpoint's now.
    REPLACED = "replaced"


class FamilyMember(msgspec.Struct, frozen=True):
    """A checkpoint in its family, which is told from the top down: `depth` says how far below the first one.

    `path` is where it is, or was when something was made of it; empty if that is not known. `made` is how it was
    made of the one above it, or of an archive.
    """

    depth: int
    path: str
    presence: Presence
    query: str | None = None
    committed: int | None = None
    made: AncestryStep | None = None
    damaged: bool = False
    #: There were steps before the first that it remembers.
    lacks_older: bool = False


class CheckpointFamily(msgspec.Struct, frozen=True):
    """Checkpoints that were made of each other."""

    members: list[FamilyMember]


def families(checkpoints: Iterable[KnownCheckpoint]) -> list[CheckpointFamily]:
    """Return a tree for each checkpoint that others were made of, or that has something to tell of itself."""
    return _Pedigree(sorted(checkpoints, key=lambda each: each.root)).families()


class _Pedigree:
    """Directories by their identity, each with the step that made it and the one that it was made of."""

    def __init__(self, checkpoints: list[KnownCheckpoint]) -> None:
        self._known = {each.key: each for each in checkpoints}
        self._roots = {each.root for each in checkpoints}
        self._steps: dict[str, AncestryStep] = {}
        self._parents: dict[str, str] = {}
        self._called: dict[str, str] = {}
        # A checkpoint's own word goes before what others say of it.
        for each in checkpoints:
            if each.ancestry.steps:
                self._add(each.key, _own_step(each))
        for each in checkpoints:
            for step in each.ancestry.steps:
                if step.made:
                    self._add(step.made, step)
        self._children = self._by_parent()

    def families(self) -> list[CheckpointFamily]:
        everyone = dict.fromkeys((*self._known, *self._steps, *self._children))
        tops = sorted((key for key in everyone if key not in self._parents), key=self._path)
        return [CheckpointFamily(list(self._members(top))) for top in tops if self._has_something_to_tell(top)]

    def _add(self, key: str, step: AncestryStep) -> None:
        if key in self._steps:
            return
        self._steps[key] = step
        parent = self._source(step)
        if not parent:
            return
        if step.source:
            self._called.setdefault(parent, step.source)
        if not self._closes_a_circle(key, parent):
            self._parents[key] = parent

    def _source(self, step: AncestryStep) -> str:
        """Return the key of what something was made of; empty for an archive."""
        if step.kind is StepKind.IMPORT:
            return ""
        key = step.source_id or f"at {step.source}"
        queries = {step.query, self._known[key].query if key in self._known else None} - {None}
        return key if len(queries) < 2 else f"{key} of {step.query}"

    def _closes_a_circle(self, key: str, parent: str) -> bool:
        at: str | None = parent
        while at is not None and at != key:
            at = self._parents.get(at)
        return at == key

    def _by_parent(self) -> dict[str, list[str]]:
        """Return what was made of each, in the order of time."""
        children: dict[str, list[str]] = {}
        for key, parent in sorted(self._parents.items(), key=lambda pair: (self._steps[pair[0]].at_ms, pair[0])):
            children.setdefault(parent, []).append(key)
        return children

    def _has_something_to_tell(self, top: str) -> bool:
        damaged = top in self._known and self._known[top].ancestry.damaged
        return damaged or top in self._children or top in self._steps

    def _members(self, top: str) -> Iterator[FamilyMember]:
        pending = [(top, 0)]
        while pending:
            key, depth = pending.pop()
            yield self._member(key, depth)
            pending += [(child, depth + 1) for child in reversed(self._children.get(key, ()))]

    def _path(self, key: str) -> str:
        return self._known[key].root if key in self._known else self._called.get(key, "")

    def _member(self, key: str, depth: int) -> FamilyMember:
        path, made, here = self._path(key), self._steps.get(key), self._known.get(key)
        if here is None:
            presence = Presence.REPLACED if path in self._roots else Presence.GONE
            return FamilyMember(depth, path, presence, made=made)
        return FamilyMember(
            depth,
            path,
            Presence.HERE,
            here.query,
            here.committed,
            made,
            here.ancestry.damaged,
            here.ancestry.lacks_older,
        )


def _own_step(known: KnownCheckpoint) -> AncestryStep:
    """Return the step that made a checkpoint: its last one, unless that made the directory it was copied from."""
    last = known.ancestry.steps[-1]
    if not known.identity or last.made in ("", known.identity):
        return last
    return AncestryStep(StepKind.COPY, last.number + 1, known.identity, "", last.made, last.query, last.batch)
