"""Record where a checkpoint came from, in an extended attribute of its directory: one line of JSON per step.

A copy of a directory keeps its attributes. So a fork has its source's steps and adds its own step, which names the
new directory. If the last step names another directory, the checkpoint was copied by other means (`peacefs cp`).

Everyone who may write to a checkpoint may set the attribute. So its content is not trusted, and is shown as text.
"""

from __future__ import annotations

import logging
import time
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import FileNotFound, PeacefsError
from peacefs.protocol.limits import KIB

from .tree import FileTree, Workspace

# Limits of the attribute: its steps, its bytes, and the characters of each path.
checkpoint_ancestry_steps_max: Final = 32
checkpoint_ancestry_bytes_max: Final = 12 * KIB
checkpoint_ancestry_path_chars_max: Final = 1024


ANCESTRY_ATTRIBUTE: Final = "user.peacefs.ancestry"
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
_log = logging.getLogger("peacefs.checkpoints")


class StepKind(StrEnum):
    """How a checkpoint was made of another one."""

    FORK = "fork"
    ROLLBACK = "rollback"
    IMPORT = "import"
    REPARTITION = "repartition"
    #: Never recorded, only inferred: the attribute names another directory.
    COPY = "copy"


class AncestryStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step by which a checkpoint was made of another. Times are milliseconds since 1970.

    `number` counts the steps from the first. `made` and `source_id` identify directories whatever their names are
    (empty if unknown). `source` is the path or the archive at that time. `batch` is the latest committed batch of
    the new checkpoint, `before` that of the old one.
    """

    kind: StepKind
    number: _Count
    made: str
    source: str
    source_id: str = ""
    query: str | None = None
    batch: _Count | None = None
    before: _Count | None = None
    at_ms: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] = 0
    user: str = ""


class Ancestry(msgspec.Struct, frozen=True):
    """The steps that led to a checkpoint, oldest first. `damaged` if a part of the attribute cannot be read."""

    steps: list[AncestryStep] = []
    damaged: bool = False

    @property
    def lacks_older(self) -> bool:
        """Whether steps were dropped to make room."""
        return bool(self.steps) and self.steps[0].number > 1


def parse_ancestry(attribute: bytes | None) -> Ancestry:
    """Parse the readable lines of an attribute."""
    steps, damaged = list[AncestryStep](), False
    for line in (attribute or b"").splitlines():
        try:
            step = msgspec.json.decode(line, type=AncestryStep)
        except UNREADABLE:
            damaged = True
            continue
        in_order = step.number > (steps[-1].number if steps else 0) and step.kind is not StepKind.COPY
        steps += [step] if in_order else []
        damaged = damaged or not in_order
    return Ancestry(steps[-checkpoint_ancestry_steps_max:], damaged)


def with_step(ancestry: Ancestry, step: AncestryStep) -> bytes:
    """Return the attribute with one more step. If there is no room, the oldest steps are dropped."""
    number = ancestry.steps[-1].number + 1 if ancestry.steps else 1
    last = msgspec.structs.replace(step, number=number, source=_shortened(step.source))
    lines = [msgspec.json.encode(each) for each in (*ancestry.steps, last)][-checkpoint_ancestry_steps_max:]
    while len(lines) > 1 and sum(len(line) + 1 for line in lines) > checkpoint_ancestry_bytes_max:
        del lines[0]
    return b"\n".join(lines)


def _shortened(path: str) -> str:
    """Keep the end of a long path, since the end tells checkpoints apart."""
    kept = checkpoint_ancestry_path_chars_max
    return path if len(path) <= kept else f"…{path[1 - kept :]}"


def ancestry_of(tree: FileTree, root: str) -> Ancestry:
    """Read a checkpoint's ancestry. Raises FileNotFound, AccessDenied."""
    return parse_ancestry(tree.attribute(root, ANCESTRY_ATTRIBUTE))


def record_step(
    tree: Workspace,
    made: str,
    kind: StepKind,
    source: str,
    *,
    source_id: str = "",
    query: str | None = None,
    batch: int | None = None,
    before: int | None = None,
) -> None:
    """Add a step to a new checkpoint before it gets its name. If that fails, log a warning and go on.

    Raises FileNotFound if the new checkpoint is gone.
    """
    try:
        step = AncestryStep(
            kind=kind,
            number=0,
            made=tree.identity(made),
            source=source,
            source_id=source_id,
            query=query,
            batch=batch,
            before=before,
            at_ms=int(time.time() * 1000),
            user=tree.user,
        )
        tree.set_attribute(made, ANCESTRY_ATTRIBUTE, with_step(ancestry_of(tree, made), step))
    except FileNotFound:
        raise
    except (PeacefsError, OSError) as fault:
        _log.warning("the origin of the %s, %s, cannot be recorded: %s", kind.value, source, fault)
