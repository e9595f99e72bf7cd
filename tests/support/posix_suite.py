"""Runs pjdfstest, the POSIX test suite of FreeBSD's ZFS developers, on a directory, and reads what it says."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_RESULT = re.compile(r"^(not )?ok (\d+)(?: - (.*?))?(?: # (TODO|SKIP)(.*))?$", re.MULTILINE)
_PLAN = re.compile(r"^1\.\.(\d+)", re.MULTILINE)
_FILE_TIMEOUT_S = 3600


@dataclass(frozen=True)
class Outcome:
    """The result of one test file."""

    passed: int
    #: What was tried, expected and got, by the number of the check.
    failed: dict[int, str]
    #: The number of planned checks that did not run.
    missing: int


def files_of(suite: Path) -> list[str]:
    """Return the names of the suite's test files."""
    return sorted(str(path.relative_to(suite / "tests")) for path in (suite / "tests").rglob("*.t"))


def run_file(suite: Path, name: str, directory: Path) -> Outcome:
    """Run one test file in an empty directory. `suite` has the built program, `pjdfstest`."""
    directory.mkdir()
    done = subprocess.run(
        ["sh", str(suite / "tests" / name)],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_FILE_TIMEOUT_S,
    )
    return read(done.stdout)


def read(said: str) -> Outcome:
    """Read the Test Anything Protocol. Checks that the suite itself marks as TODO do not count as failures."""
    passed, failed = 0, {}
    for refused, number, what, mark, _ in _RESULT.findall(said):
        if refused and mark != "TODO":
            failed[int(number)] = what
        else:
            passed += 1
    plan = _PLAN.search(said)
    return Outcome(passed, failed, max(0, int(plan[1]) - passed - len(failed)) if plan else 1)
