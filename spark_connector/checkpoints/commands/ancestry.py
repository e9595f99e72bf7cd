"""`peacefs checkpoint ancestry`, and the rows about ancestry in `show`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.command_line.presentation import local_minute
from peacefs.client.command_line.session import Session
from peacefs.spark_connector.checkpoints.ancestry import Ancestry, AncestryStep, StepKind
from peacefs.spark_connector.checkpoints.catalogue import find_families
from peacefs.spark_connector.checkpoints.families import CheckpointFamily, FamilyMember, Presence
from peacefs.spark_connector.checkpoints.places import checkpoint_place

_DAMAGED = "the record of where it came from is damaged"
_OLDER = "older steps were dropped"


def show_families(session: Session, texts: Sequence[str], *, as_json: bool) -> None:
    """Print the families of checkpoints at or below each path."""
    for text in texts:
        with session.errors.about(text):
            place = checkpoint_place(session, text)
            for family in find_families(place.tree, [place.root]):
                for line in [msgspec.json.encode(family).decode()] if as_json else family_lines(family):
                    print_line(line)


def family_lines(family: CheckpointFamily) -> Iterator[str]:
    """Format a family as a tree, one line per member."""
    for each in family.members:
        indent = "   " * (each.depth - 1) + "└─ " if each.depth else ""
        yield f"{indent}{each.path or 'a checkpoint'}: {'; '.join(_member_parts(each))}"


def ancestry_rows(ancestry: Ancestry) -> Iterator[tuple[str, str]]:
    """Format the steps to a checkpoint as rows of name and value, latest step first."""
    for number, step in enumerate(reversed(ancestry.steps)):
        of = "" if step.kind is StepKind.IMPORT else f" of {step.source}"
        yield "Before that" if number else "Made by", _how(step, of) + _when_and_who(step)
    if ancestry.lacks_older:
        yield "Before that", _OLDER
    if ancestry.damaged:
        yield "Made by", _DAMAGED


def _member_parts(member: FamilyMember) -> Iterator[str]:
    if member.made is not None:
        yield _how(member.made, "") + _when_and_who(member.made)
    match member.presence:
        case Presence.HERE:
            yield "no batch is done" if member.committed is None else f"batch {member.committed} is the latest"
        case Presence.GONE:
            yield "gone"
        case Presence.REPLACED:
            yield "gone, and another checkpoint is there now"
    if member.lacks_older:
        yield _OLDER
    if member.damaged:
        yield _DAMAGED


def _how(step: AncestryStep, of: str) -> str:
    match step.kind:
        case StepKind.FORK:
            return f"fork{of}" + ("" if step.batch is None else f" at batch {step.batch}")
        case StepKind.ROLLBACK:
            return f"rollback{of} from batch {step.before} to {step.batch}"
        case StepKind.REPARTITION:
            return f"repartition{of} by batch {step.batch}"
        case StepKind.IMPORT:
            return f"import of {step.source}"
    return f"copy{of}"


def _when_and_who(step: AncestryStep) -> str:
    when = f", {local_minute(step.at_ms)}" if step.at_ms else ""
    return f"{when} by {step.user}" if step.user else when
