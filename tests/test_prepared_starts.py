"""Processes that tests fork from a prepared interpreter behave like newly started ones."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import fork_server
from support.prepared_starts import program_of, started_anew
from support.services import ROOT, start_service
from support.waiting import wait_until

_PEACEFS = (sys.executable, "-P", "-m", "peacefs")
_NOWHERE = {"PEACEFS_COORDINATOR": "http://127.0.0.1:1"}

#: A test worker that starts a coordinator, prints both pids, and waits.
_WORKER = """
import sys
from support.prepared_starts import prepare
from support.services import start_service
with prepare():
    process, told = start_service("coordinator", f"--dir={sys.argv[1]}", "--port=0", "--node-port=0")
    print(process.pid, flush=True)
    sys.stdin.read()
"""


def _ran(*arguments: str, directory: Path, **more: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*_PEACEFS, *arguments],
        capture_output=True,
        text=True,
        cwd=directory,
        env=os.environ | _NOWHERE | more,
        input="from the standard input",
        timeout=180,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["nonsense"], ["ls", "/"], ["put", "missing", "/x"], ["put", "-", "/x"], ["--help"]],
    ids=" ".join,
)
def test_fork_prints_and_ends_as_what_begins_anew(arguments: list[str], tmp_path: Path) -> None:
    forked = _ran(*arguments, directory=tmp_path)
    with started_anew():
        assert _ran(*arguments, directory=tmp_path) == forked


def test_fork_has_its_own_variables_and_working_directory(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("x")
    status, _said, complaint = _ran(
        "put", "here", "/x", directory=tmp_path, PEACEFS_COORDINATOR="http://127.0.0.1:2"
    )
    assert status == 1 and "127.0.0.1:2" in complaint


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_fork_ends_by_a_signal_as_what_begins_anew(number: signal.Signals, tmp_path: Path) -> None:
    statuses = []
    for anew in (False, True):
        command = [*_PEACEFS, "coordinator", f"--dir={tmp_path / str(anew)}", "--port=0", "--node-port=0"]
        ready, theirs = os.pipe()
        with started_anew() if anew else contextlib.nullcontext():
            process = subprocess.Popen([*command, f"--ready-fd={theirs}"], pass_fds=[theirs])
        os.close(theirs)
        with os.fdopen(ready) as pipe:
            assert pipe.readline()
        process.send_signal(number)
        statuses.append(process.wait(180))
    assert statuses[0] == statuses[1]


def test_fork_is_a_child_of_who_asked_and_ends_with_it(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
    )
    with worker:
        assert worker.stdout is not None
        service = int(worker.stdout.readline())
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        assert str(service) in children and len(children) == 2, "the service and the fork server"
        worker.kill()
    wait_until(lambda: not any(map(_runs, children)), "the end of both")


def test_start_after_a_judge_was_imported_is_a_fork_still(tmp_path: Path) -> None:
    importlib.import_module("polars")
    process, _told = start_service("coordinator", f"--dir={tmp_path / 'c'}", "--port=0", "--node-port=0")
    try:
        assert b"fork_server" in Path(f"/proc/{process.pid}/cmdline").read_bytes(), "it began anew"
    finally:
        process.kill()
        process.wait()


def test_fork_of_up_has_its_members_forked_as_its_children(tmp_path: Path) -> None:
    command = [*_PEACEFS, "up", f"--dir={tmp_path / 'c'}", "--datanodes=1", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        forked = len(children) == 3
        if not forked:
            process.terminate()
        assert forked, "two members, and who forks them"
        assert all(b"fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children)
        process.terminate()
        assert process.wait(180) == 0
    wait_until(lambda: not any(map(_runs, children)), "the end of all")


def _runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _held(pid: int) -> set[str]:
    """Return the open files of a process, which may close some of them meanwhile."""
    held = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            held.add(str(entry.readlink()))
    return held


def test_fork_has_no_descriptor_but_those_it_was_given(tmp_path: Path) -> None:
    with (tmp_path / "kept").open("w") as kept:
        os.set_inheritable(kept.fileno(), True)
        process, _told = start_service("coordinator", f"--dir={tmp_path / 'c'}", "--port=0", "--node-port=0")
        try:
            assert b"fork_server" in Path(f"/proc/{process.pid}/cmdline").read_bytes(), "it began anew"
            assert str(tmp_path / "kept") not in _held(process.pid)
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("role", ["coordinator", "datanode", "command"])
def test_prepared_interpreter_leaves_to_others_what_few_import(role: str) -> None:
    code = (
        "import sys; from support import fork_server; fork_server.import_all(fork_server.PREPARED[sys.argv[1]]);"
        "print({'numpy', 'numba', 'pyarrow', 'pyspark', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, role],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    assert done.stdout == "set()\n"


def test_program_is_known_by_its_command() -> None:
    assert program_of([*_PEACEFS, "ls"]) == fork_server.Program("peacefs", ["-m", "ls"], True)
    assert program_of([sys.executable, "-m", "peacefs"]) == fork_server.Program("peacefs", ["-m"], False)
    node = "peacefs.dataflow.hosts.node_process"
    assert program_of([sys.executable, "-m", node]) == fork_server.Program(node, ["-m"], False)
    for other in (
        "peacefs ls",
        [sys.executable, "-m"],
        ["python3", "-m", "peacefs"],
        [sys.executable, "-c", "pass"],
        [*_PEACEFS[:3], "json"],
    ):
        assert program_of(other) is None
