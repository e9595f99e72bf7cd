"""A release made by its command: from a dated copy of this tree, a tested wheel and release notes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.services import ROOT
from support.waiting import PATIENCE_S

from release.changelog import ReleaseFault, sections
from release.packages import check_wheel, version_of

#: Not part of a release, or made by tools.
_LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "build", "dist", "*.egg-info", "tests", "docs", "benchmarks"
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of this tree in which the next release has its section."""
    tree = tmp_path_factory.mktemp("release") / "tree"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=_LEFT_OUT)
    if not any(each.version == version_of(tree) for each in sections((tree / "CHANGELOG.md").read_text())):
        done = run(tree, "date", version_of(tree))
        assert done.returncode == 0, done.stderr
    return tree


def run(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "release", "--root", str(tree), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def made(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory with the next release's files, whose wheel was tested."""
    target = tmp_path_factory.mktemp("dist")
    done = run(tree, "make", "--to", str(target), "--dependencies-from-here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the wheel was installed, ran a cluster, and stopped it" in done.stdout
    return target


@pytest.mark.cluster
@pytest.mark.long("builds a release")
def test_release_is_built_tried_and_described(tree: Path, made: Path) -> None:
    version = version_of(tree)
    assert {path.name for path in made.iterdir()} == {
        f"peacefs-{version}-py3-none-any.whl",
        f"peacefs-{version}.tar.gz",
        f"peacefs-{version}.md",
    }
    notes = (made / f"peacefs-{version}.md").read_text()
    assert notes.startswith(f"# peacefs {version}\n\n### Added\n") and "## 0.1.0" not in notes


@pytest.mark.cluster
@pytest.mark.long("builds a release")
def test_release_whose_wheel_lacks_a_module_is_refused(tree: Path, made: Path, tmp_path: Path) -> None:
    """An incomplete list of packages makes such a wheel, and nothing in the tree shows it."""
    (wheel,) = made.glob("*.whl")
    short = tmp_path / "short.whl"
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(short, "w") as cut:
        for name in whole.namelist():
            if name != "peacefs/coordinator/metadata/row_store.py":
                cut.writestr(name, whole.read(name))
    with pytest.raises(ReleaseFault, match=r"short.whl lacks peacefs/coordinator/metadata/row_store.py"):
        check_wheel(short, tree)


def test_release_that_is_not_dated_is_refused(tree: Path, tmp_path: Path) -> None:
    """Nothing is built before version and changelog are right."""
    (tmp_path / "release").mkdir()
    (tmp_path / "peacefs").mkdir()
    shutil.copy(tree / "release" / "previous.toml", tmp_path / "release")
    (tmp_path / "peacefs" / "__init__.py").write_text('__version__ = "9.0.0"\n')
    shutil.copy(tree / "CHANGELOG.md", tmp_path)
    refused = run(tmp_path, "make", "--to", str(tmp_path / "dist"))
    assert refused.returncode == 1 and not (tmp_path / "dist").exists()
    assert refused.stderr == (
        "release: CHANGELOG.md has no section 9.0.0: `python -m release date 9.0.0` makes one\n"
    )
