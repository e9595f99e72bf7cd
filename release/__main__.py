"""`python -m release`: check, build and try a release. See CONTRIBUTING.md."""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
from pathlib import Path

from . import packages
from .changelog import ReleaseFault, dated, notes_of
from .debian import build_deb
from .trial import Trial

_ROOT = Path(__file__).parents[1]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--root", type=Path, default=_ROOT, help="the tree; default: this one")
    steps = parser.add_subparsers(dest="step", required=True)
    date = steps.add_parser("date", help="give a version what CHANGELOG.md has under Unreleased, as of today")
    date.add_argument("version")
    steps.add_parser("check", help="check version and CHANGELOG.md, and build nothing")
    make = steps.add_parser("make", help="check, build wheel and sdist, try the wheel, write the notes")
    make.add_argument("--to", type=Path, default=Path("dist"), help="directory of the files; default: dist")
    make.add_argument(
        "--dependencies-from-here",
        action="store_true",
        help="try the wheel with the packages of this Python, without a network; default: fetch the locked ones",
    )
    deb = steps.add_parser("deb", help="build the Debian package, for Debian's Python of this machine")
    deb.add_argument("--to", type=Path, default=Path("dist"))
    previous = steps.add_parser("previous", help="build the wheel of the release before, from its commit")
    previous.add_argument("--to", type=Path, default=Path("dist"))
    asked = parser.parse_args(words)
    root: Path = asked.root.absolute()
    try:
        if asked.step == "date":
            _date(root, asked.version)
        elif asked.step == "previous":
            print(packages.build_previous(root, asked.to.absolute()))
        elif asked.step == "deb":
            print(build_deb(root, asked.to.absolute()))
        else:
            notes = _notes(root)
            if asked.step == "make":
                _make(root, asked.to.absolute(), notes, dependencies_from_here=asked.dependencies_from_here)
    except ReleaseFault as fault:
        print(f"release: {fault}", file=sys.stderr)
        return 1
    return 0


def _date(root: Path, version: str) -> None:
    """Write the version and the date into the files of the tree, without a commit."""
    changelog, package = root / "CHANGELOG.md", root / "peacefs" / "__init__.py"
    text = dated(changelog.read_text(), version, datetime.datetime.now(datetime.UTC).date().isoformat())
    said = package.read_text().replace(f'"{packages.version_of(root)}"', f'"{version}"')
    changelog.write_text(text)
    package.write_text(said)
    print(f"CHANGELOG.md has a section {version}, and the tree that version")


def _notes(root: Path) -> str:
    version, previous = packages.version_of(root), packages.previous_of(root)
    section = notes_of((root / "CHANGELOG.md").read_text(), version, previous.version)
    print(f"version {version}, of {section.day}; before it {previous.version}")
    return f"# peacefs {version}\n\n{section.body}\n"


def _make(root: Path, target: Path, notes: str, *, dependencies_from_here: bool) -> None:
    version = packages.version_of(root)
    built = packages.build(root, target)
    packages.check(built, root)
    print(f"{built.wheel.name} and {built.sdist.name} have all that they need")
    with tempfile.TemporaryDirectory() as name:
        trial = Trial(Path(name), dependencies_from_here=dependencies_from_here)
        trial.install(built.wheel, root)
        trial.check_version(version)
        trial.check_cluster()
    print("the wheel was installed, ran a cluster, and stopped it")
    written = target / f"peacefs-{version}.md"
    written.write_text(notes)
    print(f"notes in {written}")


if __name__ == "__main__":
    sys.exit(main())
