"""The sections of CHANGELOG.md: unreleased changes, then one section per release, newest first."""

from __future__ import annotations

import re
from dataclasses import dataclass

UNRELEASED = "Unreleased"
_HEADING = re.compile(
    r"^## (?:(?P<unreleased>Unreleased)|(?P<version>\d+\.\d+\.\d+) - (?P<day>\d{4}-\d\d-\d\d))\s*$"
)


class ReleaseFault(Exception):
    """The release cannot be made; the message says why, and what to do."""


@dataclass(frozen=True)
class Section:
    """A release's part of the changelog. `day` is empty for what is not released yet."""

    version: str
    day: str
    body: str


def sections(text: str) -> list[Section]:
    """Return the sections in their order. Raises ReleaseFault for a heading that is none."""
    found: list[tuple[str, str, list[str]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        heading = _HEADING.match(line)
        if heading is not None:
            found.append((heading["version"] or UNRELEASED, heading["day"] or "", []))
        elif line.startswith("## "):
            raise ReleaseFault(f"CHANGELOG.md, line {number}: a release is `## 1.2.3 - 2026-01-31`, not {line!r}")
        elif found:
            found[-1][2].append(line)
    return [Section(version, day, "\n".join(lines).strip()) for version, day, lines in found]


def number(version: str) -> tuple[int, ...]:
    """Return a version as something that sorts. Raises ReleaseFault."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseFault(f"{version!r} is no version: three numbers with points between them are")
    return tuple(int(part) for part in version.split("."))


def dated(text: str, version: str, day: str) -> str:
    """Return the changelog in which what was not released yet is that release's. Raises ReleaseFault."""
    number(version)
    known = sections(text)
    if any(section.version == version for section in known):
        raise ReleaseFault(f"CHANGELOG.md has a section {version} already")
    if not known or known[0].version != UNRELEASED or not known[0].body:
        raise ReleaseFault(f"CHANGELOG.md has nothing under `## {UNRELEASED}`")
    return text.replace(f"## {UNRELEASED}", f"## {UNRELEASED}\n\n## {version} - {day}", 1)


def notes_of(text: str, version: str, previous: str) -> Section:
    """Return the section of the release that is made. Raises ReleaseFault where the order of releases is wrong."""
    known = sections(text)
    versions = [section.version for section in known if section.version != UNRELEASED]
    if version not in versions:
        raise ReleaseFault(f"CHANGELOG.md has no section {version}: `python -m release date {version}` makes one")
    if [number(each) for each in versions] != sorted({number(each) for each in versions}, reverse=True):
        raise ReleaseFault("CHANGELOG.md: releases do not stand from the newest to the oldest, each once")
    if versions[0] != version:
        raise ReleaseFault(f"the tree is version {version}, but CHANGELOG.md begins with {versions[0]}")
    if any(section.version == UNRELEASED and section.body for section in known):
        raise ReleaseFault(
            f"CHANGELOG.md has changes under `## {UNRELEASED}`, which {version} would have without a word"
        )
    before = versions[1] if len(versions) > 1 else ""
    if before != previous:
        raise ReleaseFault(
            f"CHANGELOG.md has {before or 'nothing'} before {version}, release/previous.toml {previous}: "
            "name the release before there, with its commit"
        )
    section = known[[each.version for each in known].index(version)]
    if not section.body:
        raise ReleaseFault(f"CHANGELOG.md says nothing of {version}")
    return section
