"""`put` and `get` of trees: several files at once, continued after an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.protocol.errors import FileNotFound

pytestmark = pytest.mark.cluster

Command = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def command(environment: dict[str, str], tmp_path: Path) -> Command:
    def run(*arguments: str, returncode: int = 0) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [sys.executable, "-m", "peacefs", *arguments],
            capture_output=True,
            cwd=tmp_path,
            env=os.environ | environment,
            timeout=180,
            check=False,
        )
        assert done.returncode == returncode, done.stderr
        return done

    return run


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make forty small files in four directories, and one of several chunks."""
    top = tmp_path / "tree"
    for number in range(40):
        file = top / f"d{number % 4}" / f"f{number:02}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(number * 100))
        os.utime(file, ns=(10**18, 10**18 + number * 10**9))
    (top / "large").write_bytes(os.urandom(150 << 20))
    return top


def contents(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def stored(files: PeaceFileSystem, top: str) -> dict[str, bytes]:
    return {
        entry.path.removeprefix(f"{top}/"): files.read(entry.path)
        for _, _, found in files.walk(top)
        for entry in found
    }


def told(done: subprocess.CompletedProcess[bytes]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the outcome of each file, by its last two path components, and the summary."""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    outcomes = {"/".join(line["source"].split("/")[-2:]): line["outcome"] for line in lines[:-1]}
    assert lines[-1]["type"] == "summary" and len(outcomes) == len(lines) - 1
    return outcomes, lines[-1]


def test_put_that_was_killed_is_resumed_and_takes_nothing_half_written_for_whole(
    command: Command, environment: dict[str, str], files: PeaceFileSystem, home: str, tree: Path
) -> None:
    begun = subprocess.Popen(
        [sys.executable, "-m", "peacefs", "put", "-r", "--resume", "-j", "2", "tree", home],
        cwd=tree.parent,
        env=os.environ | environment,
    )
    while begun.poll() is None:
        try:
            if files.list(f"{home}/tree/d1"):
                break
        except FileNotFound:
            pass
        time.sleep(0.003)  # leave the processors to the process that will be killed
    begun.send_signal(signal.SIGKILL)
    begun.wait(60)
    wanted = contents(tree)
    before = stored(files, f"{home}/tree")
    assert before and all(wanted[name] == data for name, data in before.items()), "what is there is whole"

    outcomes, summary = told(command("put", "-r", "--resume", "--json", "tree", home))
    assert stored(files, f"{home}/tree") == wanted
    assert len(outcomes) == len(wanted) and summary["failed"] == 0
    assert summary["unchanged"] >= len(before) - 2, "of two under way the time may not be set"
    again, _ = told(command("put", "-r", "--resume", "--json", "tree", home))
    assert set(again.values()) == {"unchanged"}


def test_resumed_put_compares_length_and_modification_time(
    command: Command, files: PeaceFileSystem, home: str, tmp_path: Path
) -> None:
    for name in ("same", "longer", "touched", "rewritten there"):
        (tmp_path / "t").mkdir(exist_ok=True)
        (tmp_path / "t" / name).write_bytes(b"first")
    command("put", "--resume", "t", home)
    (tmp_path / "t" / "longer").write_bytes(b"second")
    os.utime(tmp_path / "t" / "touched", ns=(1, 10**18))
    files.write(f"{home}/t/rewritten there", b"other", overwrite=True)
    outcomes, summary = told(command("put", "--resume", "--json", "t", home))
    assert {name for name, outcome in outcomes.items() if outcome == "unchanged"} == {"t/same"}
    assert stored(files, f"{home}/t") == contents(tmp_path / "t")
    assert files.status(f"{home}/t/touched").modified_ms == 10**12
    assert (summary["copied"], summary["bytes"]) == (3, 16)


def test_get_resumes_with_what_is_missing_or_differs_and_leaves_no_rubbish(
    command: Command, files: PeaceFileSystem, home: str, tmp_path: Path
) -> None:
    for number in range(20):
        files.write(f"{home}/from/{number % 2}/{number}", b"x" * number)
    (tmp_path / "into").mkdir()
    command("get", "-r", "--resume", f"{home}/from", "into")
    copy = tmp_path / "into" / "from"
    assert contents(copy) == stored(files, f"{home}/from")
    (copy / "0/2").unlink()
    (copy / "1/3").write_bytes(b"x")
    files.write(f"{home}/from/1/5", b"y" * 5, overwrite=True)
    # A killed transfer leaves the same.
    (copy / "1/.peacefs-0123456789abcdef.part").write_bytes(b"xx")
    outcomes, _ = told(command("get", "-r", "--resume", "--json", f"{home}/from", "into"))
    assert {name for name, outcome in outcomes.items() if outcome == "copied"} == {"0/2", "1/3", "1/5"}
    found = contents(copy)
    assert found.pop("1/.peacefs-0123456789abcdef.part") == b"xx", "nobody's to delete, and taken for nothing"
    assert found == stored(files, f"{home}/from")


def test_faults_of_a_parallel_put_are_told_in_the_order_of_files(
    command: Command, files: PeaceFileSystem, home: str, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(30):
        (tree / f"{number:02}").write_bytes(b"new")
    for number in (3, 11, 25):
        files.write(f"{home}/tree/{number:02}", b"old")
    (tree / "17").unlink()
    (tree / "17").symlink_to(tree)
    done = command("put", "-j", "8", "--json", "tree", home, returncode=1)
    complaints = [line.partition("`")[2].partition("'")[0] for line in done.stderr.decode().splitlines()]
    assert complaints == [f"{home}/tree/03", f"{home}/tree/11", "tree/17", f"{home}/tree/25"]
    outcomes, summary = told(done)
    assert Counter(outcomes.values()) == {"copied": 26, "failed": 3}
    assert list(outcomes) == sorted(outcomes)
    assert (summary["copied"], summary["failed"]) == (26, 3)
    assert files.read(f"{home}/tree/11") == b"old"
