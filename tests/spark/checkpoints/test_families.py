"""Checkpoints made from each other form trees, even if some are gone or make false claims."""

from __future__ import annotations

import msgspec
import pytest

from peacefs.spark_connector.checkpoints.ancestry import (
    Ancestry,
    AncestryStep,
    StepKind,
    checkpoint_ancestry_bytes_max,
    checkpoint_ancestry_path_chars_max,
    checkpoint_ancestry_steps_max,
    parse_ancestry,
    with_step,
)
from peacefs.spark_connector.checkpoints.families import KnownCheckpoint, families

FORK, ROLLBACK = StepKind.FORK, StepKind.ROLLBACK


def step(kind: StepKind, made: str, source_id: str, source: str, *, at_ms: int = 1) -> AncestryStep:
    return AncestryStep(kind, 1, made, source, source_id, "q", 7, at_ms=at_ms)


def there(
    root: str, identity: str, *steps: AncestryStep, query: str = "q", damaged: bool = False
) -> KnownCheckpoint:
    return KnownCheckpoint(root, identity, query, 9, Ancestry(list(steps), damaged))


def drawn(*checkpoints: KnownCheckpoint) -> list[list[str]]:
    """Return each family as a text per member: indentation, how it was made, its path, and whether it exists."""
    return [
        [
            f"{'  ' * each.depth}{each.made.kind.value + ' ' if each.made else ''}{each.path}"
            f"{'' if each.presence.value == 'here' else f' ({each.presence.value})'}"
            for each in family.members
        ]
        for family in families(checkpoints)
    ]


def test_families_have_forks_of_forks_below_what_they_were_made_of() -> None:
    to_b = step(FORK, "2", "1", "/a", at_ms=20)
    assert drawn(
        there("/a", "1"),
        there("/c", "3", to_b, step(FORK, "3", "2", "/b")),
        there("/b", "2", to_b),
        there("/first", "4", step(FORK, "4", "1", "/a", at_ms=10)),
        there("/alone", "9"),
    ) == [["/a", "  fork /first", "  fork /b", "    fork /c"]]


def test_families_go_by_directories_and_not_by_names() -> None:
    # /a was rolled back: its old content has another name now, and earlier forks are below that.
    rolled = step(ROLLBACK, "5", "1", "/a", at_ms=30)
    fork_before, fork_after = step(FORK, "2", "1", "/a"), step(FORK, "6", "5", "/a", at_ms=40)
    assert drawn(
        there("/a", "5", rolled),
        there("/a.before", "1"),
        there("/trial", "2", fork_before),
        there("/later", "6", rolled, fork_after),
    ) == [["/a.before", "  fork /trial", "  rollback /a", "    fork /later"]]


def test_families_name_what_is_gone_and_what_has_its_path_now() -> None:
    to_b, to_c = step(FORK, "2", "1", "/a"), step(FORK, "3", "2", "/b")
    assert drawn(there("/c", "3", to_b, to_c), there("/b", "8", query="other")) == [
        ["/a (gone)", "  fork /b (replaced)", "    fork /c"]
    ]


def test_families_take_a_directory_that_was_copied_by_other_means_for_a_copy() -> None:
    to_b = step(FORK, "2", "1", "/a")
    assert drawn(there("/a", "1"), there("/b", "2", to_b), there("/copied", "7", to_b)) == [
        ["/a", "  fork /b", "    copy /copied"]
    ]
    # The fork is gone since, and its remaining copy names it.
    assert drawn(there("/a", "1"), there("/copied", "7", to_b)) == [["/a", "  fork  (gone)", "    copy /copied"]]


def test_families_do_not_take_a_number_that_was_used_again_for_the_same_directory() -> None:
    # On a local disk, a new directory may get the inode number of a deleted one.
    to_b = step(FORK, "2", "1", "/a")
    assert drawn(there("/b", "2", to_b), there("/new", "1", query="other")) == [["/a (gone)", "  fork /b"]]


def test_families_of_coordinators_that_tell_no_identity_go_by_paths() -> None:
    assert drawn(there("/a", ""), there("/b", "", AncestryStep(FORK, 1, "", "/a", query="q"))) == [
        ["/a", "  fork /b"]
    ]


def test_families_survive_what_somebody_made_up() -> None:
    in_a_circle = [there("/a", "1", step(FORK, "1", "2", "/b")), there("/b", "2", step(FORK, "2", "1", "/a"))]
    assert drawn(*in_a_circle) == [["fork /b", "  fork /a"]]
    assert drawn(there("/a", "1", step(FORK, "1", "1", "/a"))) == [["fork /a"]]
    # A checkpoint's own record takes precedence over other records.
    honest, liar = there("/b", "2", step(FORK, "2", "1", "/a")), step(FORK, "2", "3", "/elsewhere")
    (family,) = drawn(there("/a", "1"), honest, there("/c", "4", liar, step(FORK, "4", "2", "/b")))
    assert family == ["/a", "  fork /b", "    fork /c"]
    (family,) = families([there("/hurt", "1", damaged=True)])
    assert [(each.path, each.damaged) for each in family.members] == [("/hurt", True)]


def test_families_as_long_as_generations_are_told_without_recursion() -> None:
    generations = [
        there(f"/{number:05}", str(number), step(FORK, str(number), str(number - 1), f"/{number - 1:05}"))
        for number in range(1, 1500)
    ]
    (family,) = families(generations)
    assert [each.depth for each in family.members] == list(range(1500))
    assert len(msgspec.json.encode(family)) > 1500


def test_ancestry_keeps_the_latest_steps_and_says_that_older_ones_were_dropped() -> None:
    attribute: bytes | None = None
    for number in range(1, 60):
        made = step(FORK, str(number), str(number - 1), f"/{number}")
        attribute = with_step(parse_ancestry(attribute), made)
    kept = parse_ancestry(attribute)
    assert [each.number for each in kept.steps] == list(range(60 - checkpoint_ancestry_steps_max, 60))
    assert kept.lacks_older and not kept.damaged
    long = "/" + "ä" * 5000
    for _ in range(40):
        attribute = with_step(parse_ancestry(attribute), step(FORK, "1", "2", long))
    assert attribute is not None and len(attribute) <= checkpoint_ancestry_bytes_max
    last = parse_ancestry(attribute).steps[-1]
    assert (last.number, len(last.source)) == (99, checkpoint_ancestry_path_chars_max)
    assert last.source.startswith("…") and long.endswith(last.source[1:])


@pytest.mark.parametrize(
    "hurt",
    [
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}",
        b'{"kind":"fork","number":-1,"made":"1","source":"/a"}',
        b'{"kind":"fork","number":2,"made":"1","source":"/a","at_ms":1e300}',
        b'{"kind":"theft","number":2,"made":"1","source":"/a"}',
        b'{"kind":"copy","number":2,"made":"1","source":"/a"}',
        b'{"kind":"fork","number":1,"made":"1","source":"/out of order"}',
    ],
)
def test_ancestry_that_is_damaged_is_read_as_far_as_it_can_be(hurt: bytes) -> None:
    whole = with_step(Ancestry(), step(FORK, "2", "1", "/a"))
    read = parse_ancestry(b"\n".join([whole, hurt]))
    assert read.damaged and [each.source for each in read.steps] == ["/a"]
    # The next step is added to the readable part, and the rest is dropped.
    mended = parse_ancestry(with_step(read, step(FORK, "3", "2", "/b")))
    assert [each.number for each in mended.steps] == [1, 2] and not mended.damaged


def test_ancestry_of_who_has_none_is_empty() -> None:
    assert parse_ancestry(None) == parse_ancestry(b"") == Ancestry()
