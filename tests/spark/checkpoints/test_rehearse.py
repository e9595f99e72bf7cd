"""`peacefs checkpoint rehearse` for its user: every fault is one line, without Java's output."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from click.testing import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Peacefs = Callable[..., Result]

#: Each command closes its standard output.
_COMMANDS = """
import os, sys
from peacefs.start import main

for root in sys.argv[1:]:
    sys.argv[1:] = ["checkpoint", "rehearse", root]
    sys.stdout = os.fdopen(os.dup(1), "w")
    status = 0
    try:
        main()
    except SystemExit as ended:
        status = ended.code
    for stream in (1, 2):
        os.write(stream, f"ended with status {status}\\n".encode())
"""
_ENDED = re.compile(r"ended with status (\d+)\n")


def test_rehearsal_says_what_it_can_before_spark_is_started(
    local: Path, peacefs: Peacefs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)

    def said(*arguments: str) -> str:
        refused = peacefs("rehearse", f"file://{local}", *arguments)
        assert (refused.exit_code, refused.stdout) == (1, "")
        (line,) = refused.stderr.splitlines()
        return line

    assert "needs Spark: install peacefs with the extra" in said()
    assert "batch 99 is none of those that were done and are kept: 0 to 7" in said("--batch=99")
    commit = local / "commits/7"
    whole = commit.read_bytes()
    for damage in (b"", b"v1\nnot JSON", b"\x00\xffgarbage"):
        commit.write_bytes(damage)
        assert "commits/7 is damaged: " in said()
    commit.write_bytes(whole)
    (local / "state/0/_metadata/metadata").write_bytes(b"v1\n{")
    assert "state/0/_metadata/metadata is damaged: " in said()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_state_that_spark_cannot_load_is_told_in_one_line_with_the_cause(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, root = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    for part in range(2):
        (source / f"{part}.txt").write_text("".join(f"{row % 7}\n" for row in range(20)))
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"file://{source}")
    counts = lines.groupBy("value").count().writeStream.format("noop").outputMode("update")
    counts.option("checkpointLocation", f"file://{root}").trigger(availableNow=True).start().awaitTermination()

    harmed = tmp_path / "harmed"
    shutil.copytree(root, harmed)
    changelog = harmed / "state/0/1/2.changelog"
    whole = changelog.read_bytes()
    for beside in changelog.parent.glob(".2.changelog*.crc"):
        beside.unlink()
    changelog.write_bytes(whole[: len(whole) // 2])

    loaded, failed = _rehearsed(root, harmed)
    assert (loaded.status, loaded.error) == (0, "")
    assert loaded.output.splitlines()[-1] == f"{root}: Spark loads the state of batch 1: 7 rows"
    assert (failed.status, failed.output) == (1, "")
    (line,) = failed.error.splitlines()
    assert f"{harmed}: Spark cannot load the state of operator 0 in batch 1: " in line
    assert line.endswith("; `peacefs checkpoint verify` names the file and the last good batch")
    assert "EOFException" in line and "org.apache.spark" not in line and ".scala" not in line


class Ended(NamedTuple):
    """A command's exit status and output."""

    status: int
    output: str
    error: str


def _rehearsed(*roots: Path) -> list[Ended]:
    """Run the command for each root in turn, in one process that starts a JVM once."""
    command = [sys.executable, "-P", "-c", _COMMANDS, *(f"file://{root}" for root in roots)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=480, check=True)
    output, error = (_ENDED.split(each) for each in (done.stdout, done.stderr))
    return [Ended(int(output[at + 1]), output[at], error[at]) for at in range(0, 2 * len(roots), 2)]
