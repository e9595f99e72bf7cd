"""Wheel and sdist: built from a tree as it is, or as it was at a commit, and looked into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import msgspec

from .changelog import ReleaseFault

_TOOL_TIMEOUT_S = 600.0
#: The files of packages: modules, and what the web page is made of.
_FILES = ("*.py", "*.css", "*.html", "*.js", "py.typed")
_BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


class Previous(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The release before: its version, and the commit that it was made of."""

    version: str
    commit: str


@dataclass(frozen=True)
class Built:
    """The files of a release."""

    wheel: Path
    sdist: Path


def previous_of(root: Path) -> Previous:
    """Return the release before the tree's."""
    return msgspec.toml.decode((root / "release" / "previous.toml").read_bytes(), type=Previous)


def version_of(root: Path) -> str:
    """Return the version that a tree says it is, without importing it."""
    for line in (root / "peacefs" / "__init__.py").read_text().splitlines():
        if line.startswith("__version__ = "):
            return line.partition(" = ")[2].strip('"')
    raise ReleaseFault("peacefs/__init__.py has no __version__")


def build(root: Path, target: Path) -> Built:
    """Build wheel and source distribution into `target`. Raises ReleaseFault with the tool's message."""
    target.mkdir(parents=True, exist_ok=True)
    return Built(target / _built(root, "build_wheel", target), target / _built(root, "build_sdist", target))


def build_wheel(root: Path, target: Path) -> Path:
    """Build the wheel alone."""
    target.mkdir(parents=True, exist_ok=True)
    return target / _built(root, "build_wheel", target)


def build_previous(root: Path, target: Path) -> Path:
    """Build the wheel of the release before, from its commit. Raises ReleaseFault where git does not have that."""
    previous = previous_of(root)
    with tempfile.TemporaryDirectory() as name:
        archive, tree = Path(name, "tree.tar"), Path(name, "tree")
        command = ["git", "archive", "--format=tar", f"--output={archive}", previous.commit]
        try:
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S)
        except FileNotFoundError:
            raise ReleaseFault("git is not here, and the release before is made of a commit") from None
        if done.returncode:
            raise ReleaseFault(
                f"commit {previous.commit[:12]} of release {previous.version} is not here, as in a shallow clone: "
                f"git says {done.stderr.strip()!r}"
            )
        tree.mkdir()
        subprocess.run(["tar", "-xf", archive, "-C", tree], check=True, timeout=_TOOL_TIMEOUT_S)
        return build_wheel(tree, target)


def _built(root: Path, hook: str, target: Path) -> str:
    """Run one of the build's hooks, as pip does; return the name of the file."""
    with tempfile.TemporaryDirectory() as scratch:
        # The tree stays as it is: no build/, no peacefs.egg-info.
        work = Path(scratch, "tree")
        _copy(root, work)
        done = subprocess.run(
            [sys.executable, "-c", _BUILD, hook, str(target.absolute())],
            cwd=work,
            env={**os.environ, "SETUPTOOLS_USE_DISTUTILS": "local", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=_TOOL_TIMEOUT_S,
        )
    if done.returncode:
        raise ReleaseFault(f"{hook} failed:\n{done.stderr.strip()}")
    return done.stdout.splitlines()[-1]


def _copy(root: Path, work: Path) -> None:
    """Copy what belongs to packages; links stay links."""
    skipped = shutil.ignore_patterns(
        ".*", "__pycache__", "build", "dist", "*.egg-info", "benchmarks", "docs", "tests"
    )
    shutil.copytree(root, work, symlinks=True, ignore=skipped)


def check(built: Built, root: Path) -> None:
    """Check wheel and source distribution. Raises ReleaseFault if a file is missing or must not be there."""
    check_wheel(built.wheel, root)
    with tarfile.open(built.sdist) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    if missing := sorted((_files(root) | {"pyproject.toml", "LICENSE", "README.md"}) - inside):
        raise ReleaseFault(f"{built.sdist.name} lacks {', '.join(missing[:5])}")


def check_wheel(path: Path, root: Path) -> None:
    """Check the wheel alone."""
    version = version_of(root)
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        told = Parser().parsestr(wheel.read(metadata).decode())
        points = wheel.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    if (told["Name"], told["Version"]) != ("peacefs", version):
        raise ReleaseFault(f"{path.name} says it is {told['Name']} {told['Version']}, the tree {version}")
    if "peacefs = peacefs.start:main" not in points:
        raise ReleaseFault(f"{path.name} has no command peacefs")
    wanted = _files(root)
    if missing := sorted(wanted - names):
        raise ReleaseFault(f"{path.name} lacks {', '.join(missing[:5])}")
    foreign = {name for name in names if not name.startswith(("peacefs/", metadata.partition("/")[0]))}
    if foreign:
        raise ReleaseFault(f"{path.name} has {', '.join(sorted(foreign)[:5])}, which are not of peacefs")


def _files(root: Path) -> set[str]:
    """Return the files of the tree's packages by their names in a wheel, through the links in peacefs/."""
    package = root / "peacefs"
    folders = {folder.name: folder.resolve() for folder in package.iterdir() if folder.name != "__pycache__"}
    return {f"peacefs/{path.name}" for pattern in _FILES for path in package.glob(pattern)} | {
        f"peacefs/{name}/{path.relative_to(folder)}"
        for name, folder in folders.items()
        for pattern in _FILES
        for path in folder.rglob(pattern)
    }
