"""The main use, as its user runs it: `peacefs demo`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.long_runs import often

from peacefs.spark_connector.demo.log_generator import generate_log

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(400)]

DEMO = [sys.executable, "-m", "peacefs", "demo"]


def processes_about(directory: Path) -> list[str]:
    """Return the command lines of running processes that contain the directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(directory) in command:
                found.append(command)
    return found


@pytest.mark.long("the whole demo")
def test_a_killed_query_comes_back_exact(tmp_path: Path) -> None:
    log = tmp_path / "auth.log"
    log.write_text("\n".join(generate_log(4, 1200)), encoding="utf-8")
    work, system = tmp_path / "work", tmp_path / "system"
    system.mkdir()
    done = subprocess.run(
        [*DEMO, f"--batches={often(5, 12)}", "--input", str(log), "--dir", str(work), "--json"],
        # Use it as the system's temporary directory of Python and Java.
        env={**os.environ, "TMPDIR": str(system), "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={system}"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["differences"] == []
    assert report["rows"] > 50
    assert report["killed_in_batch"] >= 3
    assert report["batches"] > report["killed_in_batch"] + 1
    assert report["batches"] > often(5, 12), "those of the log, and the one that ends it"
    assert f"SIGKILL in batch {report['killed_in_batch']}" in report["restarts"]
    assert report["checkpoint_files"] > report["batches"] * 2
    assert report["replicas_lost"] > 0
    assert report["chunks_under_replicated"] == 0
    assert report["log_writes_ms"]["median"] > 0
    assert f"offsets/{report['killed_in_batch']} is there" in done.stderr
    assert not work.exists() or not list(work.iterdir())
    assert list(system.iterdir()) == [], "a killed driver has left these behind"
    assert processes_about(work) == []


def test_ctrl_c_leaves_nothing_running_and_nothing_behind(tmp_path: Path) -> None:
    work = tmp_path / "work"
    demo = subprocess.Popen(
        [*DEMO, "--dir", str(work)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        query_log = work / "query.log"
        deadline = time.monotonic() + 180
        while not (query_log.exists() and query_log.stat().st_size):
            assert demo.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        demo.send_signal(signal.SIGINT)
        said, _ = demo.communicate(timeout=180)
    finally:
        demo.kill()
        demo.wait()
    assert demo.returncode == 130
    assert "Traceback" not in said
    assert processes_about(work) == []
    assert not work.exists() or not list(work.iterdir())


def test_demo_that_cannot_work_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("")
    for arguments in (["--input", str(tmp_path / "absent.log")], ["--dir", str(tmp_path)], ["--batches", "4"]):
        done = subprocess.run([*DEMO, *arguments], capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("peacefs: demo: ")
        assert done.stderr.count("\n") == 1
    assert (tmp_path / "something").exists()
