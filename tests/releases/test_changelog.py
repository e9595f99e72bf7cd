"""CHANGELOG.md as a source of releases: the text of a release, and refused contents."""

from __future__ import annotations

import pytest
from support.services import ROOT

from release.changelog import ReleaseFault, dated, notes_of, sections
from release.packages import previous_of, version_of

_TEXT = """# Changelog

A word before.

## Unreleased

### Added

- A pear.

## 0.1.0 - 2026-01-31

- An apple.
"""


def test_changelog_gives_a_release_what_was_unreleased() -> None:
    text = dated(_TEXT, "0.2.0", "2026-03-01")
    assert [(each.version, each.day, each.body) for each in sections(text)] == [
        ("Unreleased", "", ""),
        ("0.2.0", "2026-03-01", "### Added\n\n- A pear."),
        ("0.1.0", "2026-01-31", "- An apple."),
    ]
    assert notes_of(text, "0.2.0", "0.1.0").body == "### Added\n\n- A pear."


@pytest.mark.parametrize(
    ("text", "version", "previous", "why"),
    [
        (_TEXT, "0.2.0", "0.1.0", "has no section 0.2.0: `python -m release date 0.2.0` makes one"),
        (dated(_TEXT, "0.2.0", "2026-03-01"), "0.1.0", "", "the tree is version 0.1.0, but .* begins with 0.2.0"),
        (dated(_TEXT, "0.2.0", "2026-03-01"), "0.2.0", "0.0.9", "has 0.1.0 before 0.2.0, .*previous.toml 0.0.9"),
        (dated(_TEXT, "0.0.9", "2026-03-01"), "0.0.9", "0.1.0", "from the newest to the oldest"),
        (_TEXT, "0.1.0", "", "has changes under `## Unreleased`"),
        (_TEXT.replace("0.1.0 - 2026-01-31", "0.1"), "0.1.0", "", "line 11: a release is `## 1.2.3 - 2026-01-31`"),
        ("## 0.1.0 - 2026-01-31\n", "0.1.0", "", "says nothing of 0.1.0"),
    ],
)
def test_changelog_that_does_not_fit_the_release_is_refused(
    text: str, version: str, previous: str, why: str
) -> None:
    with pytest.raises(ReleaseFault, match=why):
        notes_of(text, version, previous)


@pytest.mark.parametrize(
    ("text", "version", "why"),
    [
        (_TEXT, "0.1.0", "has a section 0.1.0 already"),
        (_TEXT, "soon", "'soon' is no version"),
        ("# Changelog\n\n## Unreleased\n", "0.2.0", "has nothing under `## Unreleased`"),
    ],
)
def test_changelog_is_not_dated_twice_or_for_nothing(text: str, version: str, why: str) -> None:
    with pytest.raises(ReleaseFault, match=why):
        dated(text, version, "2026-03-01")


def test_changelog_of_this_tree_leads_to_its_next_release() -> None:
    """It may be refused only for what `python -m release date` fixes."""
    version, previous = version_of(ROOT), previous_of(ROOT).version
    text = (ROOT / "CHANGELOG.md").read_text()
    if not any(section.version == version for section in sections(text)):
        text = dated(text, version, "2026-12-31")
    assert notes_of(text, version, previous).body
