"""Group checkpoints that were made of each other into trees, from the ancestry that each one records. Pure.

situation                                  what the tree shows
---------------------------------------    ----------------------------------------------------------
the directory that a step names exists     that directory, under its present path
it was deleted, or cannot be seen          its old path: gone; replaced if another checkpoint is there now
that id belongs to another query now:      as if the directory were deleted
  the file system reused the id
a checkpoint whose last step made          a copy of that other directory
  another directory
steps that form a circle                   all but the step that closes it: the steps were forged
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from .ancestry import Ancestry, AncestryStep, StepKind


@dataclass(frozen=True, slots=True)
class KnownCheckpoint:
    """A checkpoint that exists. `identity` is the id of its directory, empty if unknown."""

    root: str
    identity: str
    query: str | None
    committed: int | None
    ancestry: Ancestry

    @property
    def key(self) -> str:
        return self.identity or f"at {self.root}"


class Presence(StrEnum):
    """Whether a member of a family still exists."""

    HERE = "here"
    GONE = "gone"
    #: Gone, and another checkpoint has its path.
    REPLACED = "replaced"


class FamilyMember(msgspec.Struct, frozen=True):
    """A checkpoint in its family; members are listed from the top down.

    `depth` is its distance from the top. `path` is its present path, or the path it had when something was made of
    it; empty if unknown. `made` is the step that made it from its parent or from an archive.
    """

    depth: int
    path: str
    presence: Presence
    query: str | None = None
    committed: int | None = None
    made: AncestryStep | None = None
    damaged: bool = False
    #: Whether older steps than those recorded existed.
    lacks_older: bool = False


class CheckpointFamily(msgspec.Struct, frozen=True):
    """A tree of checkpoints that were made of each other."""

    members: list[FamilyMember]


def families(checkpoints: Iterable[KnownCheckpoint]) -> list[CheckpointFamily]:
    """Return a tree for each top checkpoint that has descendants or an ancestry."""
    return _Pedigree(sorted(checkpoints, key=lambda each: each.root)).families()


class _Pedigree:
    """Directories by identity, each with the step that made it and its parent."""

    def __init__(self, checkpoints: list[KnownCheckpoint]) -> None:
        self._known = {each.key: each for each in checkpoints}
        self._roots = {each.root for each in checkpoints}
        self._steps: dict[str, AncestryStep] = {}
        self._parents: dict[str, str] = {}
        self._called: dict[str, str] = {}
        # A checkpoint's own record takes precedence over what others record of it.
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
        """Return the key of the directory that a step started from; empty for an archive."""
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
        """Return the children of each directory, oldest first."""
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
    """Return the step that made a checkpoint. It is a copy if the last recorded step made another directory."""
    last = known.ancestry.steps[-1]
    if not known.identity or last.made in ("", known.identity):
        return last
    return AncestryStep(StepKind.COPY, last.number + 1, known.identity, "", last.made, last.query, last.batch)
